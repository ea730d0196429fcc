"""/proc: status of old and new kernels, odd names, processes that die, mappings by kind, counters."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from rlhfdoctor.sources.meminfo import parse_meminfo, parse_vmstat
from rlhfdoctor.sources.procfs import (
    Io,
    Mappings,
    ProcReader,
    Stat,
    Status,
    has_moved,
    list_pids,
    parse_cgroup,
    parse_cmdline,
    parse_io,
    parse_maps,
    parse_stat,
    parse_status,
    read_boot_id,
    read_file,
)
from rlhfdoctor.units import KIB, MIB
from tests.fake_tree import FakeTree, make_stat, make_status, without_memory

MODERN = make_status()
SIZES = {
    "rss_anon_bytes": 3000 * KIB,
    "rss_file_bytes": 1000 * KIB,
    "rss_shmem_bytes": 500 * KIB,
    "swap_bytes": 36 * KIB,
    "locked_bytes": 12 * KIB,
    "pinned_bytes": 24 * KIB,
    "peak_bytes": 5100 * KIB,
}
NO_SIZES = dict.fromkeys(SIZES)


def drop_lines(text: str, *names: str) -> str:
    """The text without the lines that begin with these names."""
    return "".join(line for line in text.splitlines(keepends=True) if not line.startswith(names))


def move_last(text: str, name: str) -> str:
    """The text with one of its lines at the end."""
    return drop_lines(text, name) + next(line for line in text.splitlines(keepends=True) if line.startswith(name))


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[str]]:
    """A live child process that says a line when it has started, and is gone afterwards."""
    code = "print('up', flush=True); input()"
    child = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    child.stdout.readline()
    yield child
    child.kill()
    child.communicate()


STATUSES = {
    "modern": (MODERN, SIZES),
    "before 4.5, no kinds of RSS": (
        drop_lines(MODERN, "Rss"),
        {**SIZES, "rss_anon_bytes": None, "rss_file_bytes": None, "rss_shmem_bytes": None},
    ),
    "another line among them": (MODERN.replace("VmLib:", "VmPMD:\t      12 kB\nVmLib:"), SIZES),
    "other order": (move_last(MODERN, "VmSwap"), SIZES),
    "no VmPin": (drop_lines(MODERN, "VmPin"), {**SIZES, "pinned_bytes": None}),
    "no VmLck": (drop_lines(MODERN, "VmLck"), {**SIZES, "locked_bytes": None}),
    "no swap": (drop_lines(MODERN, "VmSwap"), {**SIZES, "swap_bytes": None}),
    "kernel thread": (without_memory(MODERN), NO_SIZES),
    "cut off": (
        MODERN[: MODERN.index("RssFile")],
        {
            **NO_SIZES,
            "locked_bytes": 12 * KIB,
            "pinned_bytes": 24 * KIB,
            "peak_bytes": 5100 * KIB,
            "rss_anon_bytes": 3000 * KIB,
        },
    ),
    "a damaged number": (
        MODERN.replace("    3000 kB", "     ??? kB").replace("VmExe", "VmNew"),
        {**SIZES, "rss_anon_bytes": None},
    ),
}


@pytest.mark.parametrize(("text", "expected"), STATUSES.values(), ids=STATUSES)
def test_status_sizes(text: str, expected: dict[str, int | None]) -> None:
    """Sizes are read in kernels that write all lines in the usual order and in those that do not."""
    status = parse_status(text.encode())
    assert status is not None
    assert expected == {name: getattr(status, name) for name in SIZES}


def test_status_of_a_tebibyte() -> None:
    """Numbers wider than their column are read in full."""
    status = parse_status(make_status(anon_kb=3 << 30).encode())
    assert status is not None
    assert status.rss_anon_bytes == 3 << 40


@pytest.mark.parametrize(
    ("comm", "expected"),
    [
        ("python", "python"),
        ("my (odd) name", "my (odd) name"),
        (") S 1 (", ") S 1 ("),
        ("a\\nb", "a\\nb"),
        ("VmLck: 5 kB", "VmLck: 5 kB"),
        ("ray::ActorModel", "ray::ActorModel"),
        ("", ""),
        ("größe", "größe"),
    ],
)
def test_status_name(comm: str, expected: str) -> None:
    """A name may hold blanks and parentheses; line ends stay as the kernel escapes them."""
    status = parse_status(make_status(comm=comm, state="D", threads=17).encode())
    assert status is not None
    assert (expected, "D", 17, SIZES["locked_bytes"]) == (
        status.comm,
        status.state,
        status.threads_count,
        status.locked_bytes,
    )


def test_status_name_of_broken_bytes() -> None:
    """A name that is no UTF-8 costs its bytes and nothing else."""
    status = parse_status(make_status(comm="cut").encode().replace(b"cut", b"c\xff"))
    assert status is not None
    assert (status.comm, status.rss_file_bytes) == ("c\ufffd", 1000 * KIB)


def test_zombie() -> None:
    """A zombie has a state and no sizes."""
    expected = Status("python", "Z", 1, None, None, None, None, None, None, None)
    assert expected == parse_status(without_memory(make_status(state="Z", threads=1)).encode())


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"Name:\tx\n", ("x", "?", 0)),
        (b"Name:\tx\nState:\t", ("x", "?", 0)),
        (b"Name:\tx\nState:\tS (sleeping)\nThreads:\tmany\n", ("x", "S", 0)),
        (b"Name:\tx\nThreads:\t4\n", ("x", "?", 4)),
    ],
    ids=["name only", "cut in state", "threads are no number", "no state"],
)
def test_status_with_little(data: bytes, expected: tuple[str, str, int]) -> None:
    """What a status does not say is unknown and no error."""
    status = parse_status(data)
    assert status is not None
    assert expected == (status.comm, status.state, status.threads_count)
    assert status[3:] == (None,) * 7


@pytest.mark.parametrize("data", [b"", b"\n", b"\0" * 64, b"State:\tS\nName:\tx\n", b"7 (x) S 1 7 7\n", b"\xff\xfe"])
def test_no_status(data: bytes) -> None:
    """What is no status file is None."""
    assert parse_status(data) is None


@pytest.mark.parametrize("comm", ["python", "a b", "a) S 9 (b", "((", ")", "a\\nb", "", "größe"])
def test_stat(comm: str) -> None:
    """Numbers are counted from the last parenthesis, whatever the name holds."""
    expected = Stat(ppid=6, start_ticks=99, cpu_ticks=40, major_faults_count=12)
    assert expected == parse_stat(make_stat(comm=comm, ppid=6, start=99, cpu=40).encode())


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"7",
        b"7 (x)",
        b"7 (x) S 1 7 7 0 -1 4",
        b"7 (x) S one " + b"0 " * 40,
        b"\xff" * 50,
        make_stat().encode()[:60],
    ],
)
def test_no_stat(data: bytes) -> None:
    """A stat that is cut off or damaged is None."""
    assert parse_stat(data) is None


IO = b"rchar: 6976\nwchar: 12\nsyscr: 10\nsyscw: 1\nread_bytes: 8192\nwrite_bytes: 4096\ncancelled_write_bytes: 512\n"


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (IO, Io(8192, 4096)),
        (b"", None),
        (b"rchar: 1\n", None),
        (IO.replace(b"8192", b"much"), None),
        (b"\0\xff\n", None),
        (IO[: IO.index(b"write_bytes")], None),
    ],
    ids=["good", "empty", "other lines", "no number", "garbage", "cut off"],
)
def test_io(data: bytes, expected: Io | None) -> None:
    """Bytes of storage, not of calls; without both numbers it is None."""
    assert expected == parse_io(data)


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"python\0-u\0train.py\0", "python -u train.py"),
        (b"ray::ActorModelRayActor\0\0\0\0", "ray::ActorModelRayActor"),
        (b"sh\0-c\0echo a b\0", "sh -c echo a b"),
        (b"", ""),
        (b"\0\0", ""),
        (b"a\xffb\0", "a\ufffdb"),
        (b"x" * 5000, "x" * 2000),
    ],
    ids=["arguments", "title", "blanks", "kernel thread", "only ends", "no text", "long"],
)
def test_cmdline(data: bytes, expected: str) -> None:
    """Arguments are joined by blanks, and a title's padding is not shown."""
    assert expected == parse_cmdline(data)


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"0::/user.slice\n", {"": "/user.slice"}),
        (
            b"9:name=systemd:/\n4:memory:/job\n2:cpu,cpuacct:/c\n0::/\n",
            {"name=systemd": "/", "memory": "/job", "cpu": "/c", "cpuacct": "/c", "": "/"},
        ),
        (b"4:memory:/a:b c\n", {"memory": "/a:b c"}),
        (b"", {}),
        (b"no colons\n4:memory\n\0\n", {}),
    ],
    ids=["v2", "v1", "colon and blank", "empty", "garbage"],
)
def test_cgroup(data: bytes, expected: dict[str, str]) -> None:
    """Each controller has its path, which may hold colons and blanks."""
    assert expected == parse_cgroup(data)


MEMINFO = """\
MemTotal:       24684096 kB
MemFree:        23707576 kB
MemAvailable:   24201764 kB
Buffers:            2924 kB
Cached:           209904 kB
SwapCached:            7 kB
SwapTotal:          4096 kB
SwapFree:           2048 kB
Mlocked:           12092 kB
Shmem:              8788 kB
HugePages_Total:       3
"""
MEMINFO_READ = {
    "total_bytes": 24684096 * KIB,
    "free_bytes": 23707576 * KIB,
    "available_bytes": 24201764 * KIB,
    "cached_bytes": 209904 * KIB,
    "buffers_bytes": 2924 * KIB,
    "shmem_bytes": 8788 * KIB,
    "locked_bytes": 12092 * KIB,
    "swap_total_bytes": 4096 * KIB,
    "swap_free_bytes": 2048 * KIB,
}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (MEMINFO, MEMINFO_READ),
        (drop_lines(MEMINFO, "MemAvailable"), {k: v for k, v in MEMINFO_READ.items() if k != "available_bytes"}),
        (MEMINFO.replace("209904", "lots"), {k: v for k, v in MEMINFO_READ.items() if k != "cached_bytes"}),
        ("MemTotal:       16 kB", {"total_bytes": 16 * KIB}),
        ("MemTotal:", {}),
        ("XMemTotal: 5 kB\nNoShmem: 4 kB\n", {}),
        ("", {}),
        ("\0\xff\n: : :\n", {}),
    ],
    ids=["good", "before 3.14", "damaged", "no line end", "cut off", "other names", "empty", "garbage"],
)
def test_meminfo(text: str, expected: dict[str, int]) -> None:
    """Sizes in bytes by our names; SwapCached is not Cached; what is missing or damaged is left out."""
    assert expected == parse_meminfo(text.encode())


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "nr_free_pages 5\nnr_foll_pin_acquired 9\nnr_foll_pin_released 4\npswpout 3\npgmajfault 70\noom_kill 2\nallocstall_normal 6\n",
            {
                "oom_kill_count": 2,
                "foll_pin_acquired_count": 9,
                "foll_pin_released_count": 4,
                "major_faults_count": 70,
                "swapped_out_count": 3,
                "alloc_stall_count": 6,
            },
        ),
        ("pgmajfault 70\n", {"major_faults_count": 70}),
        ("thp_oom_kill 5\noom_kill_x 4\n", {}),
        ("oom_kill many\n", {}),
        ("", {}),
        ("\xff\0", {}),
    ],
    ids=["good", "before 4.13", "other names", "no number", "empty", "garbage"],
)
def test_vmstat(text: str, expected: dict[str, int]) -> None:
    """Counters by our names; an old kernel has fewer."""
    assert expected == parse_vmstat(text.encode())


def mapping(path: str, size: int = 4096, *, mode: str = "rw-s", inode: int = 0, start: int = 0x7F0000000000) -> str:
    """One line of /proc/PID/maps."""
    return f"{start:x}-{start + size:x} {mode} 00000000 00:19 {inode}".ljust(73) + path + "\n"


NONE = Mappings(0, 0, 0, 0, 0, 0, ())
MAPS = {
    "plasma": (
        mapping("/dev/shm/plasmaX1 (deleted)", 8 * MIB, inode=9),
        Mappings(8 * MIB, 0, 0, 0, 0, 0, ((9, "/dev/shm/plasmaX1", 8 * MIB),)),
    ),
    "plasma with a name": (
        mapping("/dev/shm/plasmaX1", MIB, inode=9),
        Mappings(MIB, 0, 0, 0, 0, 0, ((9, "/dev/shm/plasmaX1", MIB),)),
    ),
    "named": (mapping("/dev/shm/psm_1f", MIB, inode=3), Mappings(0, MIB, 0, 0, 0, 0, ((3, "/dev/shm/psm_1f", MIB),))),
    "in a folder": (mapping("/dev/shm/a/b", MIB, inode=3), Mappings(0, MIB, 0, 0, 0, 0, ((3, "/dev/shm/a/b", MIB),))),
    "name with blanks": (
        mapping("/dev/shm/a  b", MIB, inode=3),
        Mappings(0, MIB, 0, 0, 0, 0, ((3, "/dev/shm/a  b", MIB),)),
    ),
    "deleted": (
        mapping("/dev/shm/torch_7_1 (deleted)", MIB, inode=4),
        Mappings(0, 0, MIB, 0, 0, 0, ((4, "/dev/shm/torch_7_1", MIB),)),
    ),
    "memfd": (mapping("/memfd:buffer (deleted)", MIB, inode=5), Mappings(0, 0, 0, MIB, 0, 0, ())),
    "GPU driver": (
        mapping("/dev/nvidiactl", MIB) + mapping("/dev/nvidia-uvm", MIB),
        Mappings(0, 0, 0, 0, 2 * MIB, 0, ()),
    ),
    "other drivers": (
        mapping("/dev/dri/renderD128", 1) + mapping("/dev/kfd", 2) + mapping("/dev/infiniband/uverbs0", 4),
        Mappings(0, 0, 0, 0, 7, 0, ()),
    ),
    "anonymous": (mapping("/dev/zero (deleted)", MIB, inode=6), Mappings(0, 0, 0, 0, 0, MIB, ())),
    "private": (
        mapping("/dev/shm/psm_1f", mode="rw-p", inode=3)
        + mapping("/dev/nvidia0", mode="r--p")
        + mapping("/memfd:x", mode="rwxp"),
        NONE,
    ),
    "shared files elsewhere": (mapping("/data/train.bin") + mapping("/dev/shmem/x") + mapping("/tmp/dev/shm/x"), NONE),
    "no path": (mapping(""), NONE),
    "heap and stack": (mapping("[heap]", mode="rw-p") + mapping("[stack]", mode="rw-s"), NONE),
    "twice the same object": (
        mapping("/dev/shm/psm_1f", MIB, inode=3)
        + mapping("/dev/shm/psm_1f", 3 * MIB, inode=3)
        + mapping("/dev/shm/psm_1f", 2 * MIB, inode=3),
        Mappings(0, 3 * MIB, 0, 0, 0, 0, ((3, "/dev/shm/psm_1f", 3 * MIB),)),
    ),
    "garbage between": (
        "zz-qq rw-s 0 00:19 3 /dev/shm/x\n\0\n7f00 rw-s 0 00:19 3 /dev/shm/x\n7f00-7f01 rw-s 0 00:19 many /dev/shm/x\nshort\n"
        + mapping("/dev/shm/psm_1f", MIB, inode=3),
        Mappings(0, MIB, 0, 0, 0, 0, ((3, "/dev/shm/psm_1f", MIB),)),
    ),
    "empty": ("", NONE),
}


@pytest.mark.parametrize(("text", "expected"), MAPS.values(), ids=MAPS)
def test_maps(text: str, expected: Mappings) -> None:
    """Shared mappings are counted by kind, private ones and damaged lines are not counted."""
    assert expected == parse_maps(text.encode())


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        (b"900 100 5 1 0 9 0\n", b"900 100 5 1 0 9 0\n", False),
        (b"900 100 5 1 0 9 0\n", b"990 227 5 1 0 9 0\n", False),
        (b"900 100 5 1 0 9 0\n", b"900 228 5 1 0 9 0\n", True),
        (b"900 300 5 1 0 9 0\n", b"900 172 5 1 0 9 0\n", True),
        (b"900 300 5 1 0 9 0\n", b"0 0 0 0 0 0 0\n", True),
        (b"900 100 5 1 0 9 0\n", b"", True),
        (b"", b"900 100 5 1 0 9 0\n", True),
        (b"garbage", b"more garbage", True),
        (b"", b"", False),
    ],
    ids=["same", "127 pages", "128 more", "128 less", "zombie", "gone", "first", "garbage", "both empty"],
)
def test_has_moved(before: bytes, after: bytes, expected: bool) -> None:
    """128 pages of resident size either way are a move; what cannot be compared has moved."""
    assert expected == has_moved(before, after)


def test_read_file(tmp_path: Path) -> None:
    """A file is read to its end or to the limit; folders and missing files are None."""
    tree = FakeTree(tmp_path)
    path = tree.write("a", b"x" * 5000)
    tree.write("empty", b"")
    assert (read_file(path), read_file(path, 3), read_file(f"{tree.root}/empty")) == (b"x" * 5000, b"xxx", b"")
    assert (read_file(f"{tree.root}/none"), read_file(tree.root)) == (None, None)


def test_boot_id_and_pids(tmp_path: Path) -> None:
    """The boot id without its line end, and all pids in order of number."""
    tree = FakeTree(tmp_path)
    tree.write("proc/sys/kernel/random/boot_id", "0f5a-11\n")
    tree.add_process(12)
    tree.add_process(7)
    tree.add_process(101)
    assert (read_boot_id(tree.root), list_pids(tree.root)) == ("0f5a-11", [7, 12, 101])


def test_no_proc(tmp_path: Path) -> None:
    """Without /proc there are no pids, no boot id and no process."""
    assert (read_boot_id(str(tmp_path)), list_pids(str(tmp_path))) == ("", [])
    with pytest.raises(OSError):
        ProcReader(str(tmp_path), 7)


def test_reader(tmp_path: Path) -> None:
    """A process is read through its files below the root."""
    tree = FakeTree(tmp_path)
    tree.add_process(7, ppid=3, command="python train.py --lr 1")
    tree.write("proc/7/io", IO)
    tree.write("proc/7/maps", mapping("/dev/shm/psm_1f", MIB, inode=3))
    reader = ProcReader(tree.root, 7)
    status, stat, maps = reader.status(), reader.stat(), reader.maps()
    assert (status, stat) == (parse_status(MODERN.replace("PPid:\t1", "PPid:\t3").encode()), Stat(3, 4711, 35, 12))
    assert (reader.statm(), reader.io(), reader.cmdline()) == (
        b"225779 1125 375 697 0 102697 0\n",
        Io(8192, 4096),
        "python train.py --lr 1",
    )
    assert maps is not None
    assert maps.dev_shm_bytes == MIB
    reader.close()


def test_reader_without_rights(tmp_path: Path) -> None:
    """Files that are absent or hidden are None or empty, and the rest is read."""
    tree = FakeTree(tmp_path)
    tree.write("proc/7/status", MODERN)
    tree.write("proc/7/statm", "1 2 3\n")
    reader = ProcReader(tree.root, 7)
    assert (reader.stat(), reader.io(), reader.cmdline(), reader.maps()) == (None, None, "", None)
    assert reader.status() == parse_status(MODERN.encode())
    reader.close()
    reader.close()


def test_reader_of_garbage(tmp_path: Path) -> None:
    """Damaged files are None and no error."""
    tree = FakeTree(tmp_path)
    tree.add_folder("proc/7", dict.fromkeys(("status", "statm", "stat", "io", "cmdline", "maps"), "\0\xff\n\xfe"))
    reader = ProcReader(tree.root, 7)
    assert (reader.status(), reader.stat(), reader.io(), reader.maps()) == (None, None, None, NONE)
    reader.close()


def test_reader_gives_descriptors_back(tmp_path: Path) -> None:
    """A closed reader holds no descriptor."""
    tree = FakeTree(tmp_path)
    tree.add_process(7)
    before = os.listdir("/proc/self/fd")
    reader = ProcReader(tree.root, 7)
    reader.stat()
    assert len(os.listdir("/proc/self/fd")) == len(before) + 3
    reader.close()
    assert before == os.listdir("/proc/self/fd")


def test_process_that_ends_while_it_is_opened(tmp_path: Path) -> None:
    """A process that is gone between two files leaves no descriptor behind."""
    tree = FakeTree(tmp_path)
    tree.write("proc/7/status", MODERN)
    before = os.listdir("/proc/self/fd")
    with pytest.raises(OSError):
        ProcReader(tree.root, 7)
    assert before == os.listdir("/proc/self/fd")


def test_process_of_many_groups(tmp_path: Path) -> None:
    """A user of many groups has a long status, and its sizes are behind them."""
    tree = FakeTree(tmp_path)
    tree.write("proc/7/status", make_status(groups=" ".join(str(1_200_400_000 + n) for n in range(400))))
    tree.write("proc/7/statm", "1 2 3\n")
    status = ProcReader(tree.root, 7).status()
    assert status is not None
    assert status.rss_anon_bytes == 3000 * KIB


def test_next_owner_of_the_pid(tmp_path: Path) -> None:
    """A reader that was made before stays with the old process when the pid has a new owner."""
    tree = FakeTree(tmp_path)
    tree.add_process(7, start=100)
    old = ProcReader(tree.root, 7)
    old.stat()
    tree.end_process(7)
    tree.add_process(7, start=200)
    assert (old.status(), old.statm(), old.stat()) == (None, b"", None)
    assert ProcReader(tree.root, 7).stat() == Stat(1, 200, 35, 12)


def test_next_owner_before_the_first_stat(tmp_path: Path) -> None:
    """A reader that has not read stat yet does not read the next owner's."""
    tree = FakeTree(tmp_path)
    tree.add_process(7, start=100)
    old = ProcReader(tree.root, 7)
    tree.end_process(7)
    tree.add_process(7, start=200)
    assert old.stat() is None


def test_live_process(sleeper: subprocess.Popen[str]) -> None:
    """A real process is read in all ways."""
    reader = ProcReader("", sleeper.pid)
    status, stat, io, maps = reader.status(), reader.stat(), reader.io(), reader.maps()
    assert status is not None
    assert (status.state in "RS", status.threads_count, status.swap_bytes is None) == (True, 1, False)
    assert (status.rss_anon_bytes or 0) > MIB
    assert stat is not None
    assert (stat.ppid, stat.start_ticks > 0) == (os.getpid(), True)
    assert io is not None
    assert maps == NONE
    assert (reader.cmdline().split(" ")[0], len(reader.statm().split())) == (sys.executable, 7)
    reader.close()


def test_killed_and_not_yet_collected(sleeper: subprocess.Popen[str]) -> None:
    """A real zombie has its state, no sizes and no pages."""
    reader = ProcReader("", sleeper.pid)
    sleeper.kill()
    os.waitid(os.P_PID, sleeper.pid, os.WEXITED | os.WNOWAIT)
    status = reader.status()
    assert status is not None
    assert (status.state, status.rss_anon_bytes, reader.statm()) == ("Z", None, b"0 0 0 0 0 0 0\n")
    reader.close()


def test_killed_and_collected(sleeper: subprocess.Popen[str]) -> None:
    """A reader survives its process: everything is None or empty."""
    reader = ProcReader("", sleeper.pid)
    sleeper.kill()
    sleeper.wait()
    assert (reader.status(), reader.statm(), reader.stat(), reader.io(), reader.cmdline(), reader.maps()) == (
        None,
        b"",
        None,
        None,
        "",
        None,
    )
    reader.close()


def test_live_mappings() -> None:
    """A real file in /dev/shm that is mapped shared counts with its pages, and stays when it is unlinked."""
    code = (
        "import mmap, os, sys\n"
        "name = f'/dev/shm/rlhfdoctor-test-{os.getpid()}'\n"
        "fd = os.open(name, os.O_RDWR | os.O_CREAT)\n"
        "os.ftruncate(fd, 1 << 20)\n"
        "kept = mmap.mmap(fd, 1 << 20)\n"
        "zero = mmap.mmap(-1, 1 << 21)\n"
        "print(name, flush=True); input(); os.unlink(name); print('gone', flush=True); input()\n"
    )
    child = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert child.stdin is not None
    assert child.stdout is not None
    path = child.stdout.readline().strip()
    reader = ProcReader("", child.pid)
    named = reader.maps()
    child.stdin.write("\n")
    child.stdin.flush()
    child.stdout.readline()
    deleted = reader.maps()
    child.kill()
    child.communicate()
    reader.close()
    assert named is not None
    assert deleted is not None
    assert (named.dev_shm_bytes, named.deleted_bytes, named.anonymous_bytes) == (MIB, 0, 2 * MIB)
    assert (deleted.dev_shm_bytes, deleted.deleted_bytes, deleted.anonymous_bytes) == (0, MIB, 2 * MIB)
    assert [(path, MIB)] == [(name, size) for _, name, size in deleted.objects]


def test_live_machine() -> None:
    """The files of this machine have what every Linux has."""
    meminfo, vmstat = parse_meminfo(read_file("/proc/meminfo") or b""), parse_vmstat(read_file("/proc/vmstat") or b"")
    assert {"total_bytes", "free_bytes", "available_bytes", "cached_bytes", "shmem_bytes", "swap_total_bytes"} <= set(
        meminfo
    )
    assert {"oom_kill_count", "major_faults_count"} <= set(vmstat)
    assert os.getpid() in list_pids()
