"""A large log read in parts: the same events at the same lines as in one reading, by however many workers."""

from __future__ import annotations

import random
from dataclasses import replace
from datetime import timezone
from pathlib import Path

import pytest

from rlhfdoctor import interpreters
from rlhfdoctor.core.session import Session
from rlhfdoctor.logs import parts, workers
from rlhfdoctor.logs.events import PATTERNS
from rlhfdoctor.logs.flood import KEEP_COUNT
from rlhfdoctor.logs.open import Part, Source, find_sources
from rlhfdoctor.logs.read import Reading, read_log
from rlhfdoctor.logs.window import Window
from rlhfdoctor.types import Event
from tests.build import make_scanner

TRACE = "Traceback (most recent call last):\n" + "".join(f'  File "/a/{n}.py", line {n}, in f\n    g()\n' for n in range(30)) + "ValueError: broken\n"


def text_of(megabytes: float, seed: int = 1) -> str:
    """Every known message, tracebacks, steps, and words between."""
    dice = random.Random(seed)
    lines: list[str] = []
    size = 0.0
    while size < megabytes * 1e6:
        choice = dice.random()
        if choice < 0.01:
            lines.append(f"2026-03-02 10:{len(lines) % 60:02d}:00 {dice.choice(PATTERNS).sample}\n")
        elif choice < 0.012:
            lines.append(TRACE)
        elif choice < 0.1:
            lines.append(f"step:{len(lines)} - actor/loss:0.1\n")
        else:
            lines.append("nothing of note stands on this line of a log, which is as long as they are\n")
        size += len(lines[-1])
    return "".join(lines) + "ERROR nobody knows this one\n"


def one_source(path: Path) -> Source:
    """The log as it is found."""
    (source,) = find_sources([str(path)], [])
    return source


def in_order(events: list[Event]) -> list[Event]:
    """By line; a flood's last events come behind all others in a single reading."""
    return sorted(events, key=lambda event: (event.origin.line or 0, str(event.kind), event.text))


def read_whole(path: Path) -> Reading:
    """In one reading."""
    return read_log(one_source(path), make_scanner(), Reading(), lambda _: None)


def read_parts(path: Path) -> Reading:
    """As a session does."""
    return next(workers.read_files([one_source(path)], [Reading()], make_scanner(), lambda *_: None, 1))


@pytest.mark.parametrize("size", [700_000, 1_000_000, 1_333_333, 2_500_000])
def test_parts_are_the_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    """Events, lines, what is behind a hit, bytes and line ends; of floods the ends, and how many were left out."""
    path = tmp_path / "train.log"
    path.write_text(text_of(5.3))
    whole = read_whole(path)
    monkeypatch.setattr(parts, "PART_BYTES", size)
    assert len(parts.cut(one_source(path))) == int(5.3e6 // size)
    joined = read_parts(path)
    assert (joined.line_end_count, joined.byte_count) == (whole.line_end_count, whole.byte_count)
    assert in_order(joined.events) == in_order(whole.events)
    assert sorted(map(str, joined.gaps)) == sorted(map(str, whole.gaps))
    assert whole.left_out and set(joined.left_out) == set(whole.left_out)
    behind = 1 + 128 * 1024 * len(parts.cut(one_source(path))) / 5.3e6  # what is read behind a part is counted there, too
    assert all(count <= joined.left_out[kind] <= 1 + count * behind * 1.2 for kind, count in whole.left_out.items())


def test_a_message_on_the_cut_is_seen_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Wherever the cut falls into a traceback and its error, they are read as without it."""
    head = "a line\n" * 200
    path = tmp_path / "train.log"
    path.write_text(head + TRACE + "a line\n" * 2000)
    whole = read_whole(path)
    for size in range(len(head) - 3, len(head) + len(TRACE) + 3, 37):
        monkeypatch.setattr(parts, "PART_BYTES", size)
        assert in_order(read_parts(path).events) == in_order(whole.events), size


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("a.log", b"no line end" * 300_000),
        ("a.log", b"\n" * 3_000_000),
        ("a.log", b"x\r" * 1_500_000 + b"\n"),
        ("a.log", b"\xef\xbb\xbfstep:1 - x:1\n" * 40_000),
    ],
)
def test_odd_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, data: bytes) -> None:
    """One endless line, nothing but line ends, a bar, marks: all bytes are read once."""
    path = tmp_path / name
    path.write_bytes(data)
    whole = read_whole(path)
    monkeypatch.setattr(parts, "PART_BYTES", min(1_000_000, len(data) // 3))
    joined = read_parts(path)
    assert (joined.byte_count, joined.line_end_count) == (len(data), data.count(b"\n"))
    assert {event.kind for event in joined.events} == {event.kind for event in whole.events}


@pytest.mark.parametrize("data", [("x\n" * 2_000_000).encode("utf-16"), bytes(3_000_000), b""])
def test_what_is_not_cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, data: bytes) -> None:
    """Another encoding, a binary file, nothing: as they are without parts."""
    monkeypatch.setattr(parts, "PART_BYTES", 1_000_000)
    path = tmp_path / "a.log"
    path.write_bytes(data)
    source = Source(str(path), lambda: iter((data,)), len(data), is_file=True)
    assert parts.cut(source) == [source]
    member = replace(source, is_file=False, size_bytes=1 << 40)
    packed = replace(source, name="a.log.gz", size_bytes=1 << 40)
    assert (parts.cut(member), parts.cut(packed)) == ([member], [packed])


def test_a_file_that_is_gone_or_cut_short(tmp_path: Path) -> None:
    """A part that is not there any more is a gap; nothing is raised."""
    path = tmp_path / "train.log"
    path.write_text("step:1 - x:1\n" * 1000)
    source = one_source(path)
    short = parts.read_part(source, Part(10**6, None), make_scanner(), lambda _: None)
    path.unlink()
    gone = parts.read_part(source, Part(0, None), make_scanner(), lambda _: None)
    assert (short.byte_count, short.gaps, gone.byte_count, len(gone.gaps)) == (0, [], 0, 1)


def test_a_session_by_workers_is_a_session(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The parts of one log go to two workers, and nothing is different but the time that it takes."""
    path = tmp_path / "train.log"
    path.write_text(text_of(4))
    monkeypatch.setattr(parts, "PART_BYTES", 700_000)
    with Session([str(path)]) as session:
        expected = session.events, session.gaps, session.case.line_counts
    monkeypatch.setattr(workers, "WORTH_BYTES", 1)
    monkeypatch.setattr(interpreters.os, "sched_getaffinity", lambda _: {0, 1}, raising=False)
    given: list[int] = []
    real = workers.read_beside
    monkeypatch.setattr(workers, "read_beside", lambda sources, *rest: given.append(len(sources)) or real(sources, *rest))
    with Session([str(path)]) as session:
        assert (session.events, session.gaps, session.case.line_counts) == expected
    assert given == [5]


def test_ctrl_c_keeps_the_parts_that_were_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The verdict rests on them, and a gap says that the reading was stopped."""
    path = tmp_path / "train.log"
    path.write_text("ERROR torch.OutOfMemoryError: CUDA out of memory.\n" + text_of(4))
    monkeypatch.setattr(parts, "PART_BYTES", 1_000_000)

    def progress(_name: str, size: int) -> None:
        if size > 2_500_000:
            raise KeyboardInterrupt

    with Session([str(path)], progress=progress, interruptible=True) as session:
        lines = {event.origin.line for event in session.events}
        assert 1 in lines and 20_000 < max(line or 0 for line in lines) < 40_000
        assert any("stopped by Ctrl-C" in str(gap.why) for gap in session.gaps)


def test_a_window_holds_in_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lines keep their numbers where text outside of a window is skipped."""
    path = tmp_path / "train.log"
    lines = [f"2026-03-02 {n // 3600:02d}:{n // 60 % 60:02d}:{n % 60:02d} {'ERROR torch.OutOfMemoryError: CUDA out of memory.' if not n % 3600 else 'words ' * 9}\n" for n in range(12 * 3600)]
    path.write_text("".join(lines))
    monkeypatch.setattr(parts, "PART_BYTES", 300_000)
    window = Window(1772409600.0 + 8 * 3600, None)
    source = replace(one_source(path), window=window, zone=timezone.utc)
    reading = next(workers.read_files([source], [Reading()], make_scanner(), lambda *_: None, 1))
    inside = [event.origin.line for event in reading.events if window.holds(event.time) and event.time is not None]
    assert sorted(set(inside)) == [n + 1 for n in range(8 * 3600, 12 * 3600, 3600)]
    assert len(reading.events) < 2 * KEEP_COUNT
