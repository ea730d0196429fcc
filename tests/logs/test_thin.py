"""More events than can be held: what stays, and what is reported of the rest."""

from __future__ import annotations

from pathlib import Path

import pytest

from rlhfdoctor.core import intake
from rlhfdoctor.core.session import Session
from rlhfdoctor.logs.thin import thin
from tests.build import make_event


def test_few_events_are_kept_all() -> None:
    """Below the limit nothing is left out."""
    events = [make_event() for _ in range(9)]
    assert (thin([events], 9), len(events)) == (0, 9)


def test_of_many_events_the_ends_of_each_kind_stay() -> None:
    """A rare kind keeps all of its events; of a frequent one the first and the last stay, log by log."""
    marks = [make_event("phase.step", line=line) for line in range(1, 101)]
    logs = [[*marks[:50], make_event("kernel.killed", line=777), *marks[50:]], list(marks)]
    left_out = thin(logs, 21)
    kept = [[event.origin.line for event in events] for events in logs]
    assert kept == [[1, 2, 3, 4, 5, 777, 96, 97, 98, 99, 100], [1, 2, 3, 4, 5, 96, 97, 98, 99, 100]]
    assert left_out == 180


def test_one_at_either_end_stays() -> None:
    """However small the limit is."""
    logs = [[make_event("phase.step", line=line) for line in range(1, 10)] for _ in range(5)]
    assert thin(logs, 1) == 5 * 7
    assert [[event.origin.line for event in events] for events in logs] == [[1, 9]] * 5


@pytest.mark.parametrize("files", [3, 40])
def test_a_session_holds_no_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, files: int) -> None:
    """The verdict's events are there, the marks between are counted in a gap; with many logs the limit gives way."""
    for number in range(files):
        text = "".join(f"step:{n} - actor/loss:0.{number}\n" for n in range(300))
        (tmp_path / f"worker-{number:02d}.log").write_text(text + "torch.OutOfMemoryError: CUDA out of memory.\n")
    with Session([str(tmp_path)]) as session:
        every = len(session.events)
        assert not session.gaps
    monkeypatch.setattr(intake, "_MOST_EVENTS", 100)
    with Session([str(tmp_path)]) as session:
        assert len(session.events) <= max(100, 16 * files)
        assert sum(event.kind == "cuda.oom" or "OutOfMemory" in event.text for event in session.events) >= files
        (gap,) = session.gaps
        assert str(gap.why).startswith(f"{every - len(session.events)} events between")
