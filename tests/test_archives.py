"""Archives read beside each other: the session is the one that reads them here, in order."""

from __future__ import annotations

import io
import tarfile
import zipfile
from pathlib import Path

import pytest

from rlhfdoctor import interpreters
from rlhfdoctor.core import archives
from rlhfdoctor.core.session import Session
from rlhfdoctor.logs.events import PATTERNS

TEXT = "".join(f"2026-03-02 10:00:{n % 60:02d} {pattern.sample}\n" for n, pattern in enumerate(PATTERNS)).encode()
FILES = {
    "logs/worker-1.err": TEXT,
    "logs/raylet.out": TEXT[: len(TEXT) // 2] + b"ERROR nobody knows this one\n",
    "launch.sh": b"python -m openrlhf.cli.train_ppo_ray --zero_stage 2 --adam_offload\n",
    "model.safetensors": b"x",
    "binary.log": bytes(range(256)) * 40,
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """What three nodes were packed into, one of them damaged, beside a log."""
    with zipfile.ZipFile(tmp_path / "b.zip", "w", zipfile.ZIP_DEFLATED) as packed:
        for name, data in FILES.items():
            packed.writestr(name, data)
    for name in ("a.tar.gz", "c.tgz"):
        with tarfile.open(tmp_path / name, "w:gz") as archive:
            for inner, data in FILES.items():
                info = tarfile.TarInfo(inner)
                info.size, info.mtime = len(data), 1_772_445_600
                archive.addfile(info, io.BytesIO(data))
    whole = (tmp_path / "c.tgz").read_bytes()
    (tmp_path / "c.tgz").write_bytes(whole[: len(whole) * 2 // 3])
    (tmp_path / "d.log").write_bytes(TEXT)
    return tmp_path


def seen(folder: Path) -> tuple[object, ...]:
    """All that a session knows."""
    sizes: list[int] = []
    with Session([str(folder)], progress=lambda _name, size: sizes.append(size)) as session:
        assert sizes == sorted(sizes)
        return session.events, session.gaps, session.texts, list(session.logs), session.case.line_counts, session.newest_s, sizes[-1]


@pytest.fixture
def cores(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two cores, and archives that are worth them."""
    monkeypatch.setattr(archives, "WORTH_BYTES", 1)
    monkeypatch.setattr(interpreters.os, "sched_getaffinity", lambda _: {0, 1}, raising=False)


def test_a_session_by_workers_is_a_session(folder: Path, request: pytest.FixtureRequest) -> None:
    """Events, gaps, configuration, the order of all of it, and the bytes that progress comes to."""
    expected = seen(folder)
    request.getfixturevalue("cores")
    assert seen(folder) == expected
    assert len(expected[0]) > 300  # type: ignore[arg-type]


@pytest.mark.usefixtures("cores")
def test_workers_that_do_not_start(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What no worker answers is read here."""
    expected = seen(folder)
    monkeypatch.setattr(interpreters, "_SERVE", "import sys; sys.exit(3)")
    assert seen(folder) == expected


def test_one_archive_or_small_ones_are_read_here(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker takes longer to start than these to read."""
    monkeypatch.setattr(interpreters.os, "sched_getaffinity", lambda _: {0, 1}, raising=False)
    monkeypatch.setattr(interpreters, "answers", lambda *_: pytest.fail("a worker was started"))
    assert seen(folder)
    monkeypatch.setattr(archives, "WORTH_BYTES", 1)
    (folder / "b.zip").unlink()
    (folder / "c.tgz").unlink()
    assert seen(folder)


@pytest.mark.usefixtures("cores")
def test_a_window_holds_in_workers(folder: Path) -> None:
    """What is outside of it does not count."""
    with Session([str(folder)], since=1_772_445_630.0) as session:
        times = [event.time for event in session.case.events if event.time is not None]
    assert times and min(times) >= 1_772_445_630.0
