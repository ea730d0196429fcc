"""/dev/shm: what it holds, who maps it, what nobody uses any more."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from multiprocessing.shared_memory import SharedMemory
from pathlib import Path

import pytest

from rlhfdoctor.sources.procfs import Mappings, ProcReader
from rlhfdoctor.sources.shm import SharedObject, find_orphans, find_owners, list_objects, read_shm
from rlhfdoctor.units import MIB
from tests.fake_tree import FakeTree


def make_object(
    path: str = "/dev/shm/a", inode: int = 9, size: int = MIB, modified: float = 1000.0, **given: object
) -> SharedObject:
    """An object of user 1000."""
    return SharedObject(path=path, inode=inode, size_bytes=size, modified=modified, uid=1000, **given)  # type: ignore[arg-type]


def make_maps(*objects: tuple[int, str, int]) -> Mappings:
    """Mappings of one process, of which only the objects matter."""
    return Mappings(0, 0, 0, 0, 0, 0, objects)


@pytest.fixture
def shared() -> Iterator[SharedMemory]:
    """A real object of 1 MiB with all its pages, made by this process."""
    memory = SharedMemory(create=True, size=MIB, name=f"rlhfdoctor-test-{os.getpid()}")
    assert memory.buf is not None
    memory.buf[:] = b"x" * MIB
    yield memory
    memory.close()
    Path(f"/dev/shm/{memory.name}").unlink(missing_ok=True)


@pytest.mark.parametrize("path", ["/dev/shm/none/such", "/nowhere", ""])
def test_no_shm(path: str) -> None:
    """A machine without the file system has no figures and no objects."""
    assert (read_shm(path), list_objects(path)) == (None, [])


def test_read_shm() -> None:
    """The real file system has a size, and what is used is no more."""
    found = read_shm()
    assert found is not None
    assert (found.size_bytes > 0, 0 <= found.used_bytes <= found.size_bytes) == (True, True)


def test_list_objects(tmp_path: Path) -> None:
    """All files, in folders too, the largest first, by the pages that they hold."""
    tree = FakeTree(tmp_path)
    tree.write("small", b"x" * 4096)
    tree.write("sub/folder/large", b"x" * 65536)
    tree.write("empty", b"")
    (tmp_path / "link").symlink_to("sub/folder/large")
    with (tmp_path / "sparse").open("wb") as file:
        file.truncate(1 << 30)
    found = list_objects(tree.root)
    assert [(x.path.removeprefix(f"{tree.root}/"), x.size_bytes) for x in found[:2]] == [
        ("sub/folder/large", 65536),
        ("small", 4096),
    ]
    assert {Path(x.path).name: x.size_bytes for x in found[2:]} == {"empty": 0, "link": 0, "sparse": 0}
    assert (os.getuid(), (tmp_path / "sub/folder/large").stat().st_ino) == (found[0].uid, found[0].inode)


def test_list_few(tmp_path: Path) -> None:
    """A folder of very many objects is not listed to its end."""
    tree = FakeTree(tmp_path)
    tree.add_folder("x", {str(number): number for number in range(20)})
    assert len(list_objects(tree.root, most_count=6)) == 6


def test_owners() -> None:
    """An object has the pids that map it, and one that nobody maps has none."""
    maps = {8: make_maps((9, "/dev/shm/a", MIB)), 7: make_maps((9, "/dev/shm/a", MIB)), 6: make_maps()}
    found = find_owners([make_object(), make_object("/dev/shm/b", 10, 2 * MIB)], maps)
    assert [(x.path, x.owners, x.deleted) for x in found] == [("/dev/shm/b", (), False), ("/dev/shm/a", (7, 8), False)]


def test_unlinked() -> None:
    """What only maps still show was unlinked; its size is the largest mapping, and it is counted once."""
    maps = {
        7: make_maps((5, "/dev/shm/plasmaX", MIB)),
        8: make_maps((5, "/dev/shm/plasmaX", 3 * MIB)),
        9: make_maps((5, "/dev/shm/plasmaX", 2 * MIB)),
    }
    expected = SharedObject(
        path="/dev/shm/plasmaX", inode=5, size_bytes=3 * MIB, modified=0.0, uid=-1, owners=(7, 8, 9), deleted=True
    )
    assert [expected] == find_owners([], maps)


def test_owners_keep_the_rest() -> None:
    """Size, time and user of a named object are those of the file system."""
    expected = SharedObject(path="/dev/shm/a", inode=9, size_bytes=4096, modified=5.0, uid=1000, owners=(7,))
    assert [expected] == find_owners([make_object(size=4096, modified=5.0)], {7: make_maps((9, "/dev/shm/a", MIB))})


def test_no_objects() -> None:
    """Without objects and maps there is nothing."""
    assert find_owners([], {}) == []


def test_same_inode_in_another_container() -> None:
    """An object of another /dev/shm with the same inode and another name is another object."""
    found = find_owners([make_object("/dev/shm/a", 9)], {7: make_maps((9, "/dev/shm/b", MIB))})
    assert sorted((x.path, x.owners) for x in found) == [("/dev/shm/a", ()), ("/dev/shm/b", (7,))]


@pytest.mark.parametrize(
    ("item", "expected"),
    [
        (make_object(), True),
        (make_object(owners=(7,)), False),
        (make_object(modified=1950.0), False),
        (make_object(modified=1940.0), False),
        (make_object(modified=1939.0), True),
        (make_object(modified=3000.0), False),
        (make_object(size=0), False),
        (make_object(deleted=True), False),
    ],
    ids=["old", "owned", "young", "a minute", "more than a minute", "from the future", "empty", "deleted"],
)
def test_orphans(item: SharedObject, expected: bool) -> None:
    """What has a name, holds pages, is mapped by nobody and was not written for a minute was left behind."""
    assert expected == (find_orphans([item], now=2000.0) == [item])


def test_real_object(shared: SharedMemory) -> None:
    """An object of multiprocessing is listed with its pages and its owner, and while it is mapped it is no orphan."""
    reader = ProcReader("", os.getpid())
    maps = reader.maps()
    reader.close()
    assert maps is not None
    (found,) = [x for x in find_owners(list_objects(), {os.getpid(): maps}) if x.path == f"/dev/shm/{shared.name}"]
    assert (MIB, (os.getpid(),), False, os.getuid()) == (found.size_bytes, found.owners, found.deleted, found.uid)
    assert find_orphans([found], time.time() + 3600) == []


def test_real_orphan(shared: SharedMemory) -> None:
    """The same object that nobody maps is an orphan once it is old enough."""
    found = [x for x in find_owners(list_objects(), {}) if x.path == f"/dev/shm/{shared.name}"]
    assert ([], found) == (find_orphans(found, time.time()), find_orphans(found, time.time() + 3600))
    assert len(found) == 1


def test_real_unlinked_object(shared: SharedMemory) -> None:
    """An object that was unlinked and that another process still maps shows up as deleted, with its owner."""
    path = f"/dev/shm/{shared.name}"
    code = (
        "import mmap, os, sys\n"
        "kept = mmap.mmap(os.open(sys.argv[1], os.O_RDWR), 0)\n"
        "os.unlink(sys.argv[1]); print('up', flush=True); input()\n"
    )
    child = subprocess.Popen(
        [sys.executable, "-c", code, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert child.stdout is not None
    child.stdout.readline()
    reader = ProcReader("", child.pid)
    maps = reader.maps()
    child.kill()
    child.communicate()
    reader.close()
    assert maps is not None
    found = [x for x in find_owners(list_objects(), {child.pid: maps}) if x.path == path]
    assert [(MIB, (child.pid,), True)] == [(x.size_bytes, x.owners, x.deleted) for x in found]
    assert maps.deleted_bytes == MIB
