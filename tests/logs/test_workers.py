"""Logs read by processes of their own: what they answer, and what is done where they do not."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta, timezone
from pathlib import Path

import pytest

from rlhfdoctor import interpreters
from rlhfdoctor.core.session import Session
from rlhfdoctor.logs import workers
from rlhfdoctor.logs.events import PATTERNS
from rlhfdoctor.logs.open import Source, find_sources
from rlhfdoctor.logs.read import Reading, read_log
from tests.build import make_scanner

EAST = timezone(timedelta(hours=8))


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    """Three logs of different lengths, one of them with a line at its end that no pattern knows."""
    for number in (1, 2, 3):
        text = "".join(f"2026-03-02 10:00:{number:02d} {pattern.sample}\n" for pattern in PATTERNS) * number
        (tmp_path / f"worker-{number}.log").write_text(text + "ERROR nobody knows this one\n" * (number == 2))
    return tmp_path


def sources_of(logs: Path) -> list[Source]:
    return list(find_sources([str(logs)], []))


def read_here(source: Source) -> Reading:
    return read_log(source, make_scanner(), Reading(), lambda _: None)


@pytest.mark.parametrize("count", [1, 2, 3])
def test_answers_are_those_of_reading_here(logs: Path, count: int) -> None:
    """However many workers read, each log's reading is the same, in the order of the logs."""
    sources = sources_of(logs)
    seen: dict[str, int] = {}

    def progress(name: str, size: int) -> None:
        seen[name] = seen.get(name, 0) + size

    found = list(workers.read_beside(sources, count, "auto", progress))
    assert found == [read_here(source) for source in sources]
    assert seen == {source.name: source.size_bytes for source in sources}


def test_host_and_zone_are_given_along(logs: Path) -> None:
    """Where a log is from, and in which zone its stamps are, a worker cannot know by itself."""
    sources = [replace(source, host="node-7", zone=EAST) for source in sources_of(logs)]
    found = next(workers.read_beside(sources, 1, "auto", lambda *_: None))
    assert found == read_here(sources[0])
    assert found is not None
    assert found.events[0].origin.host == "node-7"


def test_file_that_is_gone(logs: Path) -> None:
    """A file that vanishes before it is read ends its worker and is left to the caller; another one reads the rest."""
    sources = sources_of(logs)
    (logs / "worker-1.log").unlink()  # the smallest, and so the last
    found = list(workers.read_beside(sources, 1, "auto", lambda *_: None))
    assert found == [None, read_here(sources[1]), read_here(sources[2])]
    (logs / "worker-2.log").unlink()
    found = list(workers.read_beside(sources, 1, "auto", lambda *_: None))
    assert found == [None, None, read_here(sources[2])]


def test_nothing_of_the_working_folder_runs(logs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder that was received may hold modules with the names of the standard library's."""
    for name in ("json", "socket", "signal", "rlhfdoctor"):
        (logs / f"{name}.py").write_text(f"open({str(logs / 'ran')!r}, 'w').close()\n")
    monkeypatch.chdir(logs)
    monkeypatch.setenv("PYTHONPATH", str(logs))
    sources = [source for source in sources_of(logs) if source.name.endswith(".log")]
    found = list(workers.read_beside(sources, 1, "auto", lambda *_: None))
    assert found == [read_here(source) for source in sources]
    assert not (logs / "ran").exists()


def test_workers_that_do_not_start(logs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where no worker answers, the logs are read here, and the events are the same."""
    with Session([str(logs)]) as session:
        expected = session.events
    monkeypatch.setattr(workers, "WORTH_BYTES", 1)
    monkeypatch.setattr(interpreters.os, "sched_getaffinity", lambda _: {0, 1}, raising=False)
    monkeypatch.setattr(interpreters, "_SERVE", "import sys; sys.exit(3)")
    with Session([str(logs)]) as session:
        assert session.events == expected


def test_session_by_workers(logs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A session that reads by workers has the same events, gaps and numbers of lines."""
    with Session([str(logs)]) as session:
        expected = session.events, session.gaps, session.case.line_counts
    monkeypatch.setattr(workers, "WORTH_BYTES", 1)
    monkeypatch.setattr(interpreters.os, "sched_getaffinity", lambda _: {0, 1}, raising=False)
    with Session([str(logs)]) as session:
        assert (session.events, session.gaps, session.case.line_counts) == expected


def test_how_many(logs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No worker for little, on one core, or for one log; else one a core."""
    sources = sources_of(logs)
    monkeypatch.setattr(interpreters.os, "sched_getaffinity", lambda _: set(range(8)), raising=False)
    assert workers.count_workers(sources) == 0
    monkeypatch.setattr(workers, "WORTH_BYTES", 1)
    assert workers.count_workers(sources) == 3
    assert workers.count_workers(sources[:1]) == 0
    monkeypatch.setattr(interpreters.os, "sched_getaffinity", lambda _: {0}, raising=False)
    assert workers.count_workers(sources) == 0
