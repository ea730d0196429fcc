"""A window of time: what is outside is not scanned, and nothing inside is lost or moves."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest

from rlhfdoctor.core.session import Session
from rlhfdoctor.logs.window import ALWAYS, Window

START = datetime(2026, 3, 2, tzinfo=timezone.utc)
HOUR_S = 3600.0


def text_of(hours: int, every_s: int = 5, stamp: str = "%Y-%m-%d %H:%M:%S") -> str:
    """A log of so many hours: a step every five seconds, an error every hour, an undated one behind it."""
    lines = []
    for second in range(0, hours * 3600, every_s):
        when = (START + timedelta(seconds=second)).strftime(stamp)
        lines.append(f"{when},000 INFO step {second // every_s}/99999 | loss 0.1 | some words to make the line as long as others are")
        if second % 3600 == 1800:
            lines += [f"{when},000 ERROR torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.", "Traceback (most recent call last):"]
    return "\n".join(lines) + "\n"


def at(hour: float) -> float:
    """Unix seconds."""
    return START.timestamp() + hour * HOUR_S


def pieces(text: str, size: int = 100_000) -> list[bytes]:
    """As a stream gives them, cut anywhere."""
    data = text.encode()
    return [data[place : place + size] for place in range(0, len(data), size)]


@pytest.mark.parametrize("bounds", [(8, None), (None, 3), (8, 9), (100, None)])
def test_what_is_inside_is_that_of_the_whole(tmp_path: Path, bounds: tuple[float | None, float | None]) -> None:
    """The same events with the same lines as a reading without a window has between the bounds."""
    since, until = (None if bound is None else at(bound) for bound in bounds)
    path = tmp_path / "train.log"
    path.write_text(text_of(12))
    with Session([str(path)]) as whole, Session([str(path)], since=since, until=until) as part:
        window = Window(since, until)
        inside = [(str(e.kind), e.origin.line, e.time) for e in part.events if e.time is not None and window.holds(e.time) and e.kind.scope != "phase"]
        expected = [(str(e.kind), e.origin.line, e.time) for e in whole.events if e.time is not None and window.holds(e.time) and e.kind.scope != "phase"]
        assert inside == expected
        assert len(part.events) < len(whole.events)


@pytest.mark.parametrize("size", [70_000, 100_000, 300_000])
def test_lines_keep_their_numbers(size: int) -> None:
    """As many line ends as before, and of the text that is left no line is cut."""
    text = text_of(12)
    kept = b"".join(Window(at(9), None).blank(pieces(text, size), timezone.utc))
    lines = kept.decode().split("\n")
    assert len(lines) == len(text.split("\n"))
    assert all(not line or line == whole for line, whole in zip(lines, text.split("\n")))
    assert sum(map(bool, lines)) < len(lines) * 0.7


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (text_of(12, stamp="%m-%d %H:%M:%S"), "no year"),
        ("no stamp on this line of a log\n" * 20_000, "no stamp"),
        ("x" * 3_000_000, "no line end"),
        (text_of(1, every_s=60), "little text"),
    ],
)
def test_what_cannot_be_placed_stays(text: str, why: str) -> None:
    """Nothing is left out by a guess."""
    kept = b"".join(Window(at(30), None).blank(pieces(text), timezone.utc))
    assert kept.decode() == text, why


def test_the_zone_counts() -> None:
    """A stamp without a zone is one of its node's clock."""
    east = timezone(timedelta(hours=8))
    text = text_of(12)
    steps = [b"".join(Window(at(5), None).blank(pieces(text), zone)).count(b"step") for zone in (timezone.utc, east)]
    assert steps[0] > text.count("step") / 2 > 10 * steps[1]


def test_bounds() -> None:
    """What has no time is inside; a clock that is ahead has later bounds."""
    window = Window(10.0, 20.0)
    assert [window.holds(time) for time in (None, 9.0, 10.0, 20.0, 21.0)] == [True, False, True, True, False]
    assert (window.moved(5.0), ALWAYS.moved(5.0), ALWAYS.is_open(), window.is_open()) == (Window(15.0, 25.0), ALWAYS, True, False)
