"""Which /dev/shm is measured: the one that the largest followed process has."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from rlhfdoctor.record.job_shm import JobShm
from rlhfdoctor.record.target import Target
from rlhfdoctor.sources.shm import read_shm
from tests.fake_tree import FakeTree


class Node:
    """Files of a node whose /dev/shm is a folder; process 7 has that one, process 8 the real one of this machine."""

    def __init__(self, folder: Path) -> None:
        self.tree = FakeTree(folder)
        self.tree.add_folder("dev/shm")
        self.tree.add_process(7, anon_kb=3000)
        self.tree.add_process(8, 7, anon_kb=90000)
        os.symlink(self.tree.root, Path(self.tree.root, "proc/7/root"))
        os.symlink("/", Path(self.tree.root, "proc/8/root"))
        self.tree.write("proc/8/mountinfo", b"60 59 0:25 / /dev/shm rw,nosuid - tmpfs tmpfs rw\n")
        self.target = Target(self.tree.root, pids=[7])
        self.target.discover()
        self.target.sweep(lambda process: True)
        self.shm = JobShm(self.tree.root)

    def size(self) -> int | None:
        """Size of the one that is measured."""
        found = self.shm.read(self.target.processes)
        return found.size_bytes if found is not None else None


@pytest.fixture
def node(tmp_path: Path) -> Node:
    """A node; its files must be on another file system than this machine's /dev/shm."""
    if not Path("/dev/shm").is_dir() or os.stat("/dev/shm").st_dev == os.stat(tmp_path).st_dev:
        pytest.skip("needs a /dev/shm of its own")
    return Node(tmp_path)


def size_of(path: str) -> int:
    """Size of a file system."""
    found = read_shm(path)
    assert found is not None
    return found.size_bytes


def test_ours(node: Node) -> None:
    """Before any process is known, and where all have ours, ours is measured."""
    before = node.size()
    node.shm.place(7)
    assert (before, node.size(), node.shm.device) == (*[size_of(f"{node.tree.root}/dev/shm")] * 2, 0)


def test_that_of_the_largest(node: Node) -> None:
    """A launcher outside of the container has ours; the container's is measured."""
    for pid in (7, 8):
        node.shm.place(pid)
    assert (node.size(), node.shm.device) == (size_of("/dev/shm"), os.stat("/dev/shm").st_dev)


def test_it_is_gone(node: Node) -> None:
    """After its last process nothing is measured, rather than the launcher's."""
    for pid in (7, 8):
        node.shm.place(pid)
    node.size()
    node.target.drop(node.target.processes[8])
    assert (node.size(), node.shm.list_objects()[1:]) == (None, ([], None))


def test_names(node: Node) -> None:
    """Objects have the path that the job knows."""
    with open(f"/dev/shm/rlhfdoctor-test-{os.getpid()}", "wb") as file:
        file.write(b"x" * 4096)
        file.flush()
        try:
            node.shm.place(8)
            node.size()
            assert file.name in [item.path for item in node.shm.list_objects()[1]]
        finally:
            os.unlink(file.name)


def test_a_process_that_we_may_not_look_into(node: Node) -> None:
    """It counts as having ours."""
    os.unlink(Path(node.tree.root, "proc/8/root"))
    node.shm.place(8)
    assert node.size() == size_of(f"{node.tree.root}/dev/shm")


@pytest.mark.parametrize("what", ["dev", "dev/shm"])
def test_a_link_in_its_namespace_is_not_followed(node: Node, tmp_path: Path, what: str) -> None:
    """It would lead into ours: any user can have a namespace with links of his own making."""
    theirs = tmp_path / "theirs"
    (theirs / what).parent.mkdir(parents=True)
    (theirs / what).symlink_to("/" + what)
    Path(node.tree.root, "proc/8/root").unlink()
    os.symlink(theirs, Path(node.tree.root, "proc/8/root"))
    for pid in (7, 8):
        node.shm.place(pid)
    assert node.shm.device == 0
    assert node.size() == size_of(f"{node.tree.root}/dev/shm")


def test_only_a_tmpfs_is_asked(node: Node) -> None:
    """A file system that a user serves may never answer."""
    node.tree.write("proc/8/mountinfo", b"60 59 0:25 / /dev/shm rw,nosuid - fuse.sshfs x rw\n")
    node.shm.place(8)
    assert node.size() == size_of(f"{node.tree.root}/dev/shm")


@pytest.mark.parametrize(
    ("mounts", "is_asked"),
    [
        ("24 27 /dev devtmpfs, 25 24 /dev/shm tmpfs, 27 1 / ext4", True),  # of this order, as an initial RAM disk leaves them
        ("1 1 / rootfs, 27 1 / ext4, 24 27 /dev devtmpfs, 25 24 /dev/shm tmpfs, 30 25 /dev/shm tmpfs", True),
        ("27 1 / ext4, 25 27 /dev/shm tmpfs", True),
        ("24 9 /dev tmpfs, 25 24 /dev/shm tmpfs", True),  # chroot
        ("27 1 / overlay, 24 27 /dev tmpfs", False),
        ("27 1 / overlay, 25 27 /dev/shm tmpfs, 26 25 /dev/shm fuse.x", False),
        ("27 1 / overlay, 24 27 /dev tmpfs, 25 24 /dev/shm tmpfs, 26 24 /dev fuse", False),
        ("26 24 /dev fuse, 27 1 / overlay, 24 27 /dev tmpfs, 25 24 /dev/shm tmpfs", False),  # moved there
        ("27 1 / overlay, 24 27 /dev tmpfs, 25 24 /dev/shm tmpfs, 26 27 / fuse", False),
        ("27 1 / overlay, 24 27 /dev tmpfs, 25 24 /dev/shm tmpfs, 26 27 / xfs", False),
        ("27 1 / overlay, 25 27 /dev/shm tmpfs, 26 27 /dev xfs", False),
        ("27 1 / fuse.x, 24 27 /dev tmpfs, 25 24 /dev/shm tmpfs", False),
        ("25 24 /dev/shm tmpfs, 27 1 / fuse", False),
        ("24 25 /dev tmpfs, 25 24 /dev/shm tmpfs", False),
        ("", False),
    ],
)
def test_a_tmpfs_below_another_mount_is_not_asked(
    node: Node, monkeypatch: pytest.MonkeyPatch, mounts: str, is_asked: bool
) -> None:
    """What a path finds counts, in whatever order mounts are listed: a tmpfs that is covered is not what would be opened."""
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    lines = [one.split() for one in mounts.split(", ") if one]
    text = "".join(f"{mount} {parent} 0:25 / {place} rw - {kind} x rw\n" for mount, parent, place, kind in lines)
    node.tree.write("proc/8/mountinfo", text.encode())
    node.shm.place(8)
    assert (node.size() == size_of("/dev/shm")) == is_asked


def test_a_list_of_mounts_that_is_cut_off(node: Node) -> None:
    """A user may have a hundred thousand: what covers /dev may stand behind the part that is read."""
    many = b"".join(b"%d 60 0:25 / /mnt/%d rw - tmpfs tmpfs rw\n" % (n, n) for n in range(100, 40_000))
    node.tree.write("proc/8/mountinfo", b"60 59 0:25 / /dev/shm rw,nosuid - tmpfs tmpfs rw\n" + many)
    node.shm.place(8)
    assert node.size() == size_of(f"{node.tree.root}/dev/shm")


def test_the_real_list_of_mounts(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process of this machine has this machine's."""
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    node.tree.write("proc/8/mountinfo", Path("/proc/self/mountinfo").read_bytes())
    node.shm.place(8)
    assert node.size() == size_of("/dev/shm")
