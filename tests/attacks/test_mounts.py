"""A mount whose server does not answer costs what is on it, and nothing else."""

from __future__ import annotations

import ctypes
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from rlhfdoctor import analyze
from rlhfdoctor.core.session import Session
from rlhfdoctor.errors import SourceError
from rlhfdoctor.files import mounts
from rlhfdoctor.files.walk import names_ending, walk

SAMPLE = Path(__file__).resolve().parents[2] / "samples" / "openrlhf-save-kill" / "run"
DETACH = 2


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A recorded incident with a mount below it that FUSE's kernel side waits for for ever."""
    if os.geteuid() != 0 or not os.access("/dev/fuse", os.W_OK):
        pytest.skip("needs root and /dev/fuse")
    monkeypatch.setattr(mounts, "PATIENCE_S", 0.5)
    mounts._foreign_mounts.cache_clear()
    folder = tmp_path / "run"
    shutil.copytree(SAMPLE, folder)
    place = folder / "ckpt"
    place.mkdir()
    libc, handle = ctypes.CDLL(None, use_errno=True), os.open("/dev/fuse", os.O_RDWR)
    options = f"fd={handle},rootmode=40000,user_id=0,group_id=0".encode()
    try:
        if libc.mount(b"silent", os.fsencode(place), b"fuse", 0, options) != 0:
            pytest.skip(f"mount: {os.strerror(ctypes.get_errno())}")
        yield folder
    finally:
        libc.umount2(os.fsencode(place), DETACH)
        os.close(handle)
        mounts._foreign_mounts.cache_clear()


def test_folder_with_a_silent_mount(run: Path) -> None:
    """The rest is read, and a gap says what was not."""
    incident = analyze(str(run))
    assert incident.verdict == analyze(str(SAMPLE)).verdict
    assert [str(gap.what) for gap in incident.gaps if "does not answer" in str(gap.why)] == [str(run / "ckpt")]


def test_silent_mount_itself(run: Path) -> None:
    """Named alone it is an error; beside another folder it is a gap."""
    silent = str(run / "ckpt")
    with pytest.raises(SourceError, match="does not answer"):
        analyze(silent)
    with Session([str(SAMPLE), silent]) as session:
        assert [str(gap.what) for gap in session.gaps if "does not answer" in str(gap.why)] == [silent]


def test_names_of_a_silent_mount(run: Path) -> None:
    """No walk and no list of names waits for it; a link to the folder changes nothing."""
    link = run.parent / "link"
    link.symlink_to(run)
    refused: list[str] = []
    assert names_ending(link / "ckpt", "") == []
    assert [name for name, _ in walk(link, refused=lambda name, _: refused.append(name))][:1] == [str(link)]
    assert refused == [str(link / "ckpt")]


def test_mounts_that_answer(tmp_path: Path) -> None:
    """Neither a folder, nor what is missing, nor a name that no path can have is silent."""
    assert not any(map(mounts.is_silent, (tmp_path, tmp_path / "none", "a\0b", "/proc")))
    assert mounts.find_silent(tmp_path) == frozenset()
