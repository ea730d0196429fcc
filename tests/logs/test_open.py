"""Folders, archives, compressed and damaged files, encodings, standard input."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import os
import sys
import tarfile
import tempfile
import threading
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import zstandard

from rlhfdoctor.errors import SourceError
from rlhfdoctor.i18n.message import quoted, say
from rlhfdoctor.logs import archive as members
from rlhfdoctor.logs.open import find_sources
from rlhfdoctor.types import Gap
from tests.build import read_folder

TEXT = "".join(f"line {number} of the log, {number * 7919 % 1009}\n" for number in range(20_000)).encode()


def tar_of(members: dict[str, bytes], mode: str = "w") -> bytes:
    """A tar archive."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode=mode) as archive:  # type: ignore[call-overload]
        for name, data in members.items():
            info = tarfile.TarInfo(name)
            info.size, info.mtime = len(data), 1_743_606_120
            archive.addfile(info, io.BytesIO(data))
    return out.getvalue()


def zip_of(members: dict[str, bytes]) -> bytes:
    """A zip archive."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    return out.getvalue()


def zst(data: bytes) -> bytes:
    """Data as a zstd frame."""
    return zstandard.ZstdCompressor().compress(data)


# --- plain files and folders -------------------------------------------------------------------


def test_single_file(tmp_path: Path) -> None:
    """A file given by its name is read, under that name."""
    path = tmp_path / "run.log"
    path.write_bytes(TEXT)
    assert ({str(path): TEXT}, []) == read_folder([path])


def test_folder_in_a_stable_order(tmp_path: Path) -> None:
    """The files of a folder and its folders come in the order of their names."""
    for name in ("b.log", "a.log", "sub/z.log", "sub/c.log"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(name.encode())
    found, gaps = read_folder([tmp_path])
    assert (
        [str(Path(name).relative_to(tmp_path)) for name in found],
        gaps,
    ) == (["a.log", "b.log", "sub/c.log", "sub/z.log"], [])


def test_sources_know_size_and_time(tmp_path: Path) -> None:
    """A source of a file knows its size and when it was written."""
    path = tmp_path / "run.log"
    path.write_bytes(b"12345")
    os.utime(path, (1_743_606_120, 1_743_606_120))
    (source,) = find_sources([str(path)], [])
    assert (source.size_bytes, source.modified) == (5, 1_743_606_120.0)


@pytest.mark.parametrize("limit", [1, 1000, 10**9])
def test_read_up_to_a_limit(tmp_path: Path, limit: int) -> None:
    """A source may be read at once up to a limit."""
    path = tmp_path / "run.sh"
    path.write_bytes(TEXT)
    (source,) = find_sources([str(path)], [])
    assert TEXT[:limit] == source.read(limit)


@pytest.mark.parametrize(
    "name",
    [".hidden", "model.safetensors", "core.pt", "a.pyc", ".git/config", "node_modules/a.log", "__pycache__/a.log"],
)
def test_what_is_no_log(tmp_path: Path, name: str) -> None:
    """Hidden files, weights and folders of tools are not read, and are no gap."""
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_bytes(b"text")
    assert read_folder([tmp_path]) == ({}, [])


def test_empty_folder(tmp_path: Path) -> None:
    """An empty folder holds nothing."""
    assert read_folder([tmp_path]) == ({}, [])


def test_empty_file(tmp_path: Path) -> None:
    """An empty file is no source, and no gap."""
    (tmp_path / "worker.err").touch()
    assert read_folder([tmp_path]) == ({}, [])


def test_missing_path(tmp_path: Path) -> None:
    """A path that is not there is the user's error, and the message tells what to give."""
    with pytest.raises(SourceError, match=r"nothere: no such file or folder\.\nGive the folder"):
        read_folder([tmp_path / "nothere"])


@pytest.mark.parametrize(
    "pack", [bytes, gzip.compress, lzma.compress, lambda data: zst(data)], ids=["plain", "gz", "xz", "zst"]
)
def test_standard_input(monkeypatch: pytest.MonkeyPatch, pack: Callable[[bytes], bytes]) -> None:
    """`-` is standard input, compressed or not."""
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(pack(TEXT))))
    assert read_folder(["-"]) == ({"-": TEXT}, [])


def test_binary_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    """Binary standard input is a gap, as a binary file is."""
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(bytes(range(256)) * 64)))
    assert [Gap(what=quoted("-"), why=say("binary file, not read"))] == read_folder(["-"])[1]


def test_utf16_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    """UTF-16 without a mark is recognised on standard input too."""
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(TEXT.decode().encode("utf-16-le"))))
    assert read_folder(["-"]) == ({"-": TEXT}, [])


def test_symlink_to_a_folder_above(tmp_path: Path) -> None:
    """A link to a folder above does not lead round in a circle."""
    (tmp_path / "a.log").write_bytes(b"text")
    (tmp_path / "loop").symlink_to(tmp_path)
    assert ({str(tmp_path / "a.log"): b"text"}, []) == read_folder([tmp_path])


def test_symlinks_to_each_other(tmp_path: Path) -> None:
    """Two links that point at each other are gaps, and the rest is read."""
    (tmp_path / "a.log").write_bytes(b"text")
    (tmp_path / "x.log").symlink_to(tmp_path / "y.log")
    (tmp_path / "y.log").symlink_to(tmp_path / "x.log")
    why = "Too many levels of symbolic links"
    expected = [Gap(what=quoted(tmp_path / name), why=quoted(why)) for name in ("x.log", "y.log")]
    assert ({str(tmp_path / "a.log"): b"text"}, expected) == read_folder([tmp_path])


def test_symlink_to_another_folder(tmp_path: Path) -> None:
    """A link to a folder elsewhere is a gap: what is received may link to anything."""
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "a.log").write_bytes(b"text")
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "logs").symlink_to(tmp_path / "elsewhere")
    why = "a link that leads out of the folder; name it itself to read it"
    read, gaps = read_folder([tmp_path / "run"])
    assert (read, [(str(gap.what), str(gap.why)) for gap in gaps]) == ({}, [(str(tmp_path / "run" / "logs"), why)])
    assert read_folder([tmp_path / "run" / "logs"]) == ({str(tmp_path / "run" / "logs" / "a.log"): b"text"}, [])


def test_symlink_to_a_file(tmp_path: Path) -> None:
    """A link to a file of the same folder is read, one to a file elsewhere is a gap."""
    (tmp_path / "secret").write_bytes(b"secret")
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "a.log").write_bytes(b"text")
    (tmp_path / "run" / "b.log").symlink_to("a.log")
    (tmp_path / "run" / "c.log").symlink_to(tmp_path / "secret")
    read, gaps = read_folder([tmp_path / "run"])
    assert (list(read.values()), [gap.what for gap in gaps]) == ([b"text"] * 2, [quoted(tmp_path / "run" / "c.log")])


def test_dangling_symlink(tmp_path: Path) -> None:
    """A link to a file that is gone is a gap."""
    (tmp_path / "x.log").symlink_to(tmp_path / "gone.log")
    assert [Gap(what=quoted(tmp_path / "x.log"), why=quoted("No such file or directory"))] == read_folder([tmp_path])[1]


def test_session_latest(tmp_path: Path) -> None:
    """A link to a folder, as Ray's session_latest, may be given."""
    (tmp_path / "session_1").mkdir()
    (tmp_path / "session_1" / "raylet.out").write_bytes(b"text")
    (tmp_path / "session_latest").symlink_to(tmp_path / "session_1")
    assert list(read_folder([tmp_path / "session_latest"])[0].values()) == [b"text"]


def test_fifo_in_a_folder(tmp_path: Path) -> None:
    """A FIFO in a folder is passed over; opening it would wait for ever."""
    os.mkfifo(tmp_path / "a.log")
    (tmp_path / "b.log").write_bytes(b"text")
    assert ({str(tmp_path / "b.log"): b"text"}, []) == read_folder([tmp_path])


def test_fifo_by_its_name(tmp_path: Path) -> None:
    """A FIFO given by its name, as the shell's `<(...)`, is read to its end."""
    path = tmp_path / "a.log"
    os.mkfifo(path)
    threading.Thread(target=path.write_bytes, args=(b"text",), daemon=True).start()
    assert read_folder([path]) == ({str(path): b"text"}, [])


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root: a pipe of another user")
def test_fifo_of_another_user(tmp_path: Path) -> None:
    """A shell's pattern names it beside the logs: nobody may ever write to it, so it costs a gap."""
    os.mkfifo(tmp_path / "a.log")
    os.chown(tmp_path / "a.log", 65534, 65534)
    (tmp_path / "b.log").write_bytes(b"text")
    found, gaps = read_folder([tmp_path / "a.log", tmp_path / "b.log"])
    assert found == {str(tmp_path / "b.log"): b"text"}
    assert [str(gap.why) for gap in gaps] == ["is a pipe of another user, which may never end"]


@pytest.fixture
def unprivileged() -> Iterator[Path]:
    """A folder outside of root's own, while this process has the rights of nobody."""
    with tempfile.TemporaryDirectory() as name:
        root = os.geteuid() == 0
        folder = Path(name)
        folder.chmod(0o755)
        (folder / "secret.log").write_bytes(b"secret")
        (folder / "secret.log").chmod(0)
        (folder / "open.log").write_bytes(b"text")
        (folder / "closed").mkdir()
        (folder / "closed").chmod(0)
        if root:
            os.seteuid(65534)
        try:
            yield folder
        finally:
            if root:
                os.seteuid(0)
            (folder / "closed").chmod(0o700)


def test_unreadable_file(unprivileged: Path) -> None:
    """A file and a folder that may not be read are gaps, and the rest is read."""
    found, gaps = read_folder([unprivileged])
    expected = [
        Gap(what=quoted(unprivileged / name), why=quoted("Permission denied")) for name in ("closed", "secret.log")
    ]
    assert ({str(unprivileged / "open.log"): b"text"}, expected) == (found, sorted(gaps, key=lambda gap: str(gap.what)))


# --- compressed files and archives -------------------------------------------------------------

PACKED: dict[str, Callable[[bytes], bytes]] = {
    "run.log.gz": gzip.compress,
    "run.log.zst": zst,
    "run.log.bz2": bz2.compress,
    "run.log.xz": lzma.compress,
    "RUN.LOG.GZ": gzip.compress,
}


@pytest.mark.parametrize(("name", "pack"), PACKED.items(), ids=PACKED)
def test_compressed_file(tmp_path: Path, name: str, pack: Callable[[bytes], bytes]) -> None:
    """A compressed file is read under its name."""
    path = tmp_path / name
    path.write_bytes(pack(TEXT))
    assert ({str(path): TEXT}, []) == read_folder([path])


@pytest.mark.parametrize(("name", "pack"), PACKED.items(), ids=PACKED)
def test_several_frames(tmp_path: Path, name: str, pack: Callable[[bytes], bytes]) -> None:
    """A file of several compressed parts, as logrotate appends them, is read whole."""
    path = tmp_path / name
    path.write_bytes(pack(TEXT) + pack(b"second\n"))
    assert ({str(path): TEXT + b"second\n"}, []) == read_folder([path])


ARCHIVES: dict[str, Callable[[dict[str, bytes]], bytes]] = {
    "bundle.zip": zip_of,
    "bundle.tar": tar_of,
    "bundle.tar.gz": lambda members: tar_of(members, "w:gz"),
    "bundle.tgz": lambda members: tar_of(members, "w:gz"),
    "bundle.tar.zst": lambda members: zst(tar_of(members)),
    "bundle.tar.bz2": lambda members: tar_of(members, "w:bz2"),
    "bundle.tar.xz": lambda members: tar_of(members, "w:xz"),
}
each_archive = pytest.mark.parametrize(("name", "pack"), ARCHIVES.items(), ids=ARCHIVES)


@each_archive
def test_archive(tmp_path: Path, name: str, pack: Callable[[dict[str, bytes]], bytes]) -> None:
    """The members of an archive are read as `archive!member`; empty ones and weights are not."""
    path = tmp_path / name
    path.write_bytes(pack({"logs/a.log": TEXT, "logs/b.log": b"text", "model.pt": b"weights"}))
    assert ({f"{path}!logs/a.log": TEXT, f"{path}!logs/b.log": b"text"}, []) == read_folder([path])


@each_archive
def test_compressed_members(tmp_path: Path, name: str, pack: Callable[[dict[str, bytes]], bytes]) -> None:
    """Compressed files inside of an archive are read as text."""
    path = tmp_path / name
    path.write_bytes(pack({f"logs/{inner}": packed(TEXT[:5000]) for inner, packed in PACKED.items()}))
    assert ({f"{path}!logs/{inner}": TEXT[:5000] for inner in PACKED}, []) == read_folder([path])


@each_archive
def test_names_that_lead_out(tmp_path: Path, name: str, pack: Callable[[dict[str, bytes]], bytes]) -> None:
    """A member may be called `../x`: it is read, and nothing is written anywhere."""
    folder = tmp_path / "in"
    folder.mkdir()
    path = folder / name
    path.write_bytes(pack({"../../evil.log": b"text", "/abs.log": b"more"}))
    found, gaps = read_folder([path])
    assert ([b"text", b"more"], [], [folder, path]) == (list(found.values()), gaps, sorted(tmp_path.rglob("*")))


def test_archive_in_a_folder(tmp_path: Path) -> None:
    """Archives inside of folders are opened."""
    (tmp_path / "nodes.tar.gz").write_bytes(tar_of({"10.0.0.2/raylet.out": b"text"}, "w:gz"))
    assert [f"{tmp_path}/nodes.tar.gz!10.0.0.2/raylet.out"] == list(read_folder([tmp_path])[0])


def test_time_of_a_member(tmp_path: Path) -> None:
    """A member of a tar archive knows when it was written."""
    (tmp_path / "a.tar").write_bytes(tar_of({"a.log": b"text"}))
    assert [source.modified for source in find_sources([str(tmp_path)], [])] == [1_743_606_120]


def test_special_members(tmp_path: Path) -> None:
    """Folders, links and devices in an archive are passed over."""
    with tarfile.open(tmp_path / "a.tar", "w") as archive:
        for kind, name in (
            (tarfile.DIRTYPE, "d"),
            (tarfile.SYMTYPE, "s"),
            (tarfile.FIFOTYPE, "f"),
            (tarfile.CHRTYPE, "c"),
        ):
            info = tarfile.TarInfo(name)
            info.type, info.linkname = kind, "/etc/passwd"
            archive.addfile(info)
    assert read_folder([tmp_path]) == ({}, [])


# --- damage ------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["run.log.gz", "run.log.zst", "run.log.bz2", "run.log.xz"])
def test_truncated_file_leaves_a_gap(tmp_path: Path, name: str) -> None:
    """A compressed file that was cut off leaves one gap under its name."""
    path = tmp_path / name
    path.write_bytes(PACKED[name](TEXT)[:-100])
    assert [str(path)] == [str(gap.what) for gap in read_folder([path])[1]]


@pytest.mark.parametrize("name", ["run.log.gz", "run.log.zst"])
def test_truncated_file_is_read_to_its_end(tmp_path: Path, name: str) -> None:
    """Of a compressed file that was cut off, what can be read is kept."""
    data = b"".join(PACKED[name](TEXT[start : start + 50_000]) for start in range(0, len(TEXT), 50_000))
    path = tmp_path / name
    path.write_bytes(data[: len(data) * 9 // 10])
    text = b"".join(read_folder([path])[0].values())
    assert (TEXT.startswith(text), len(text) > len(TEXT) // 2) == (True, True)


@pytest.mark.parametrize("name", ["run.log.gz", "run.log.zst"])
def test_file_cut_within_its_only_frame(tmp_path: Path, name: str) -> None:
    """Of a file of one frame, cut off near its end, most can be read."""
    big = os.urandom(400_000).hex().encode()
    path = tmp_path / name
    packed = PACKED[name](big)
    path.write_bytes(packed[: len(packed) * 9 // 10])
    text = b"".join(read_folder([path])[0].values())
    assert (big.startswith(text), len(text) > len(big) // 2) == (True, True)


def test_file_that_was_unpacked_under_its_name(tmp_path: Path) -> None:
    """Browsers and proxies unpack a .gz, and keep the name: it is read as what it is."""
    path = tmp_path / "run.log.gz"
    path.write_bytes(b"plain text, not compressed at all\n" * 10)
    assert read_folder([path]) == ({str(path): path.read_bytes()}, [])


@pytest.mark.parametrize("name", ["run.log.zst", "run.log.bz2", "run.log.xz"])
def test_file_with_a_false_ending(tmp_path: Path, name: str) -> None:
    """Text under the name of another compressed file is a gap."""
    path = tmp_path / name
    path.write_bytes(b"plain text, not compressed at all\n" * 10)
    found, gaps = read_folder([path])
    assert ({str(path): b""}, [str(path)]) == (found, [str(gap.what) for gap in gaps])


@pytest.mark.parametrize("name", ["run.log.gz", "run.log.zst", "run.log.bz2", "run.log.xz"])
def test_corrupted_file(tmp_path: Path, name: str) -> None:
    """A flipped byte inside a compressed file is a gap, not a crash."""
    path = tmp_path / name
    packed = bytearray(PACKED[name](TEXT))
    packed[len(packed) // 2 : len(packed) // 2 + 40] = b"\xa5" * 40
    path.write_bytes(packed)
    assert [str(path)] == [str(gap.what) for gap in read_folder([path])[1]]


TRUNCATED = [
    "bundle.tar",
    "bundle.tar.gz",
    "bundle.tgz",
    "bundle.tar.bz2",
    "bundle.tar.xz",
    "bundle.tar.zst",
]


@pytest.mark.parametrize("name", TRUNCATED)
def test_truncated_archive(tmp_path: Path, name: str) -> None:
    """Of an archive that was cut off the whole members are kept, and there is a gap."""
    members = {f"{number}.log": os.urandom(60_000).hex().encode() for number in range(8)}
    path = tmp_path / name
    packed = ARCHIVES[name](members)
    path.write_bytes(packed[: len(packed) * 6 // 10])
    found, gaps = read_folder([path])
    first = found.get(f"{path}!0.log", b"")
    assert (members["0.log"] if name != "bundle.tar.bz2" else first, True) == (first, len(gaps) > 0)


@pytest.mark.parametrize("cut", [10, 100, -10])
def test_corrupted_zip(tmp_path: Path, cut: int) -> None:
    """A zip whose directory is gone is a gap."""
    path = tmp_path / "bundle.zip"
    path.write_bytes(zip_of({"a.log": TEXT})[:cut])
    found, gaps = read_folder([path])
    assert ({}, [str(path)]) == (found, [str(gap.what) for gap in gaps])


def test_corrupted_member_of_a_zip(tmp_path: Path) -> None:
    """A damaged member is a gap, and the next one is read."""
    path = tmp_path / "bundle.zip"
    data = bytearray(zip_of({"a.log": TEXT, "b.log": b"text"}))
    data[200:260] = b"\xa5" * 60
    path.write_bytes(data)
    found, gaps = read_folder([path])
    assert (b"text", [f"{path}!a.log"]) == (found[f"{path}!b.log"], [str(gap.what) for gap in gaps])


@pytest.mark.parametrize("name", [*ARCHIVES])
def test_archive_of_nothing_but_noise(tmp_path: Path, name: str) -> None:
    """Text under the name of an archive is a gap."""
    path = tmp_path / name
    path.write_bytes(b"no archive at all\n" * 100)
    found, gaps = read_folder([path])
    assert (found, len(gaps)) == ({}, 1)


# --- encodings ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("encoding", "mark"),
    [
        ("utf-16-le", b"\xff\xfe"),
        ("utf-16-be", b"\xfe\xff"),
        ("utf-16-le", b""),
        ("utf-16-be", b""),
    ],
    ids=["LE with mark", "BE with mark", "LE", "BE"],
)
def test_utf16(tmp_path: Path, encoding: str, mark: bytes) -> None:
    """UTF-16, as PowerShell writes it, becomes UTF-8, with a mark or without."""
    path = tmp_path / "run.log"
    path.write_bytes(mark + TEXT.decode().encode(encoding))
    assert ({str(path): TEXT}, []) == read_folder([path])


@pytest.mark.parametrize(
    "data",
    [
        b"short",
        b"na\xc3\xafve \xe4\xba\x8c\n",
        b"latin \xe9\n",
        b"\x1b[31mred\x1b[0m\n",
    ],
)
def test_bytes_stay_as_they_are(tmp_path: Path, data: bytes) -> None:
    """Text that is not UTF-16 is handed on as it is, whatever its encoding."""
    path = tmp_path / "run.log"
    path.write_bytes(data)
    assert read_folder([path]) == ({str(path): data}, [])


def test_mark_of_utf8(tmp_path: Path) -> None:
    """The mark that Windows puts before UTF-8 stays in the bytes: spans of settings count it."""
    path = tmp_path / "run.log"
    path.write_bytes(b"\xef\xbb\xbfKilled\n")
    assert read_folder([path]) == ({str(path): b"\xef\xbb\xbfKilled\n"}, [])


@pytest.mark.parametrize(
    "data",
    [bytes(range(256)) * 64, b"\x7fELF\x02\x01\x01" + bytes(500) + bytes(range(1, 30)) * 90, b"\x01\x02\x03\x04" * 100],
    ids=["all bytes", "elf", "controls"],
)
def test_binary_file(tmp_path: Path, data: bytes) -> None:
    """A binary file is a gap."""
    path = tmp_path / "core.4711"
    path.write_bytes(data)
    assert [Gap(what=quoted(path), why=say("binary file, not read"))] == read_folder([path])[1]


def test_hole_at_the_start(tmp_path: Path) -> None:
    """A log that was rotated by copy and truncation begins with zeros, and is read."""
    path = tmp_path / "run.log"
    path.write_bytes(bytes(100_000) + TEXT)
    found, gaps = read_folder([path])
    assert (found[str(path)].lstrip(b"\0"), gaps) == (TEXT, [])


@pytest.mark.parametrize("place", ["behind", "within"])
def test_zeros_are_no_sign_of_a_binary_file(tmp_path: Path, place: str) -> None:
    """A power loss or a full disk leaves blocks of zeros behind the text, and the next start writes on behind them."""
    (tmp_path / "train.log").write_bytes(TEXT + bytes(50_000) + (TEXT if place == "within" else b""))
    found, gaps = read_folder([tmp_path])
    assert gaps == [] and found[str(tmp_path / "train.log")].startswith(TEXT)


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("a.log.zst", zstandard.compress(b"step 1\n") + b"\x50\x2a\x4d\x18\0\0\0\0" * 20_000),
        ("a.log.xz", lzma.compress(b"step 1\n") + lzma.compress(b"") * 20_000),
        ("a.log.gz", gzip.compress(b"step 1\n") + gzip.compress(b"") * 100_000),
        ("a.log.gz", gzip.compress(b"step 1\n") + b"\x1f\x8b\x08\x08" + bytes(6) + b"A" * 2_000_000 + b"\0"),
    ],
    ids=["zst", "xz", "gz", "name"],
)
def test_frames_without_content(tmp_path: Path, name: str, data: bytes) -> None:
    """What is before them counts; they are given up with a gap that names the limit."""
    (tmp_path / name).write_bytes(data)
    gaps: list[Gap] = []
    (source,) = find_sources([str(tmp_path)], gaps)
    assert source.read() == b"step 1\n"
    assert [("without content" in str(gap.why)) or ("hold no text" in str(gap.why)) for gap in gaps] == [True]


@pytest.mark.parametrize(("what", "says"), [("cut", "not readable to its end (truncated header); 3 files before that were read"), ("cut between", "not readable to its end (it has no end); 3 files before that were read"), ("header", "not readable to its end (bad checksum); 3 files before that were read"), ("long", "more than 4 members; the rest was not read")])
def test_what_of_a_tar_was_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str, says: str) -> None:
    """A gap says what became of the files before the damage, or the limit; tarfile alone is silent about damage."""
    data = tar_of({f"{number}.log": b"hello\n" for number in range(9)})
    path = tmp_path / "x.tar"
    end = {"cut": 3 * 1024 + 200, "cut between": 3 * 1024}.get(what)
    path.write_bytes(data[:end] if what != "header" else data.replace(b"3.log", b"x.log"))
    monkeypatch.setattr(members, "_MOST_MEMBERS", 4)
    gaps: list[Gap] = []
    read = [member.name for member in members.read_members(path, gaps, wanted=lambda name: True, most_bytes=1 << 20)]
    assert ([str(gap.why) for gap in gaps], len(read)) == ([says], 4 if what == "long" else 3)
