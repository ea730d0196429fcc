"""One way to what others made: what is refused, what a write leaves behind, and that no other way is taken."""

from __future__ import annotations

import ast
import os
import stat
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from rlhfdoctor.files import write
from rlhfdoctor.files.read import Refused, open_sized, read_bytes
from rlhfdoctor.files.walk import DEEPEST, walk

PACKAGE = Path(__file__).resolve().parents[1] / "rlhfdoctor"
GUARDED = ("core", "logs", "patch", "privacy", "record", "settings", "sources", "trace")
"""Packages that read, record or patch what others made."""
OPENS = {"open", "read_text", "read_bytes", "write_text", "write_bytes", "fdopen", "copy", "copyfile", "copy2", "mkstemp", "rename", "renames", "replace"}
OWN = {
    ("core/bundle.py", "open"): "the archive that it makes, by its descriptor",
    ("core/node_logs.py", "read_text"): "/proc of this machine",
    ("core/node_logs.py", "read_bytes"): "/proc of this machine",
    ("logs/archive.py", "open"): "a member of an archive",
    ("logs/finders.py", "read_bytes"): "this package's own code",
    ("logs/open.py", "open"): "a named pipe; a member, an address",
    ("record/recorder_config.py", "fdopen"): "memory that is inherited",
    ("record/log_tailer.py", "replace"): "a copy of ours in our folder; a link there is renamed itself",
    ("record/daemon.py", "open"): "/proc/self",
    ("record/machine.py", "open"): "a GPU's library",
    ("record/wakeups.py", "open"): "files of the kernel's cgroups",
    ("settings/spell.py", "read_text"): "this package's own tables",
    ("sources/kept.py", "open"): "files of the kernel",
    ("sources/kmsg.py", "open"): "/dev/kmsg, by its name",
    ("sources/pressure.py", "open"): "files of the kernel",
    ("sources/procfs.py", "open"): "/proc/PID, through its own descriptor",
}
"""What is opened otherwise, and why that is no file that others made."""


def _opened(path: Path) -> set[str]:
    """Names of calls that open, copy or rename a file, but those of `files`."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if not isinstance(node, ast.Call):
            continue
        called = node.func
        if isinstance(called, ast.Name) and called.id == "open":
            found.add("open")
        elif isinstance(called, ast.Attribute) and called.attr in OPENS:
            owner = called.value.id if isinstance(called.value, ast.Name) else ""
            safe = owner == "write" or (called.attr in ("replace", "fdopen") and owner != "os") or (called.attr == "fdopen" and _is_checked(node))
            if not safe and not (called.attr == "copy" and owner != "shutil"):
                found.add(called.attr)
    return found


def _is_checked(node: ast.Call) -> bool:
    """Whether what `os.fdopen` gets comes from `files`."""
    inner = node.args[0]
    called = inner.func if isinstance(inner, ast.Call) else None
    name = called.attr if isinstance(called, ast.Attribute) else called.id if isinstance(called, ast.Name) else ""
    return name in ("append", "create", "open_descriptor")


@pytest.mark.parametrize("path", sorted(p for name in GUARDED for p in (PACKAGE / name).glob("*.py")), ids=lambda p: f"{p.parent.name}-{p.stem}")
def test_no_other_way_is_taken(path: Path) -> None:
    """Every file that others made is opened by rlhfdoctor.files."""
    name = str(path.relative_to(PACKAGE))
    assert {call for call in _opened(path) if (name, call) not in OWN} == set()


def test_every_exception_is_needed() -> None:
    """The list above holds nothing that is not there any more."""
    assert {key for key in OWN if key[1] not in _opened(PACKAGE / key[0])} == set()


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (lambda path: os.mkfifo(path), "no regular file"),
        (lambda path: path.symlink_to("/dev/zero"), "no regular file"),
        (lambda path: path.mkdir(), "Is a directory"),
    ],
)
def test_what_is_no_file_is_refused(tmp_path: Path, make: Callable[[Path], None], why: str) -> None:
    """At once: a pipe without a writer is not waited for."""
    make(tmp_path / "x")
    with pytest.raises(OSError, match=why):
        read_bytes(tmp_path / "x", 10)


def test_links(tmp_path: Path) -> None:
    """Followed within their folder, if at all."""
    (tmp_path / "in").mkdir()
    (tmp_path / "secret").write_bytes(b"secret")
    (tmp_path / "in" / "a").write_bytes(b"text")
    (tmp_path / "in" / "b").symlink_to("a")
    (tmp_path / "in" / "c").symlink_to("../secret")
    below = os.path.realpath(tmp_path / "in")
    assert read_bytes(tmp_path / "in" / "b", 10, below=below) == b"text"
    with pytest.raises(Refused, match="leads out of the folder"):
        read_bytes(tmp_path / "in" / "c", 10, below=below)
    with pytest.raises(Refused, match="is a link"):
        read_bytes(tmp_path / "in" / "b", 10, follow=False)


def test_another_users_file_is_refused(tmp_path: Path) -> None:
    """Where it is said whose files are read."""
    (tmp_path / "a").write_bytes(b"text")
    assert read_bytes(tmp_path / "a", 10, owners=(os.geteuid(),)) == b"text"
    with pytest.raises(Refused, match="another user"):
        read_bytes(tmp_path / "a", 10, owners=(os.geteuid() + 1,))


def test_a_file_that_grows_has_an_end(tmp_path: Path) -> None:
    """The size is that of the start."""
    path = tmp_path / "a"
    path.write_bytes(b"x" * 1000)
    with open_sized(path) as file, path.open("ab") as more:
        first = file.read(10)
        more.write(b"y" * 5000)
        more.flush()
        assert first + file.read() == b"x" * 1000


def test_files_of_the_kernel_are_read() -> None:
    """Their size is 0."""
    assert b"MemTotal" in read_bytes("/proc/meminfo", 1 << 16)


def test_a_write_leaves_no_trace_where_it_fails(tmp_path: Path) -> None:
    """The file is as it was, and nothing lies beside it."""
    (tmp_path / "a").mkdir()
    with pytest.raises(OSError):
        write.replace(tmp_path / "a", b"text")
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


def test_a_write_replaces_a_link(tmp_path: Path) -> None:
    """What it led to stays."""
    (tmp_path / "victim").write_bytes(b"victim")
    (tmp_path / "a").symlink_to("victim")
    write.replace(tmp_path / "a", b"text")
    assert ((tmp_path / "victim").read_bytes(), (tmp_path / "a").read_bytes()) == (b"victim", b"text")
    assert stat.S_IMODE((tmp_path / "a").stat().st_mode) == write.PRIVATE


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may give files to another user")
def test_a_write_keeps_owner_mode_attributes(tmp_path: Path) -> None:
    """Where it is asked to."""
    path = tmp_path / "a"
    path.write_bytes(b"before")
    path.chmod(0o751)
    os.chown(path, 65534, 65534)
    try:
        os.setxattr(path, "user.note", b"mine")
    except OSError:
        pytest.skip("a file system without extended attributes")
    write.replace(path, b"after", keep=True)
    info = path.stat()
    assert (info.st_uid, info.st_gid, stat.S_IMODE(info.st_mode), os.getxattr(path, "user.note")) == (65534, 65534, 0o751, b"mine")


@pytest.mark.parametrize("make", [lambda path: path.symlink_to("victim"), lambda path: os.mkfifo(path)])
def test_nothing_is_appended_through_a_link(tmp_path: Path, make: Callable[[Path], None]) -> None:
    """Nor to a pipe, which is not waited for."""
    (tmp_path / "victim").write_bytes(b"victim")
    make(tmp_path / "a")
    with pytest.raises(OSError):
        os.close(write.append(tmp_path / "a"))
    assert (tmp_path / "victim").read_bytes() == b"victim"


def test_a_deep_tree_is_walked_to_a_depth(tmp_path: Path) -> None:
    """By no recursion; what is deeper is reported."""
    here = os.open(tmp_path, os.O_RDONLY)
    for _ in range(3000):
        os.mkdir("d", dir_fd=here)
        inner = os.open("d", os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = inner
    os.close(here)
    refused: list[str] = []
    found: list[int] = []
    thread = threading.Thread(target=lambda: found.append(len(list(walk(tmp_path, refused=lambda _, why: refused.append(why))))))
    thread.start()
    thread.join()
    subprocess.run(["rm", "-rf", tmp_path / "d"], check=True)  # deeper than shutil goes
    assert (found, len(refused)) == ([DEEPEST + 1], 1)
