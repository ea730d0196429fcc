"""Hits become events: origin, time, repeats, order, floods."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timezone

import pytest

from rlhfdoctor.logs import blocks
from rlhfdoctor.logs.blocks import Candidate
from rlhfdoctor.logs.events import order_events, read_events
from rlhfdoctor.logs.maker import Maker, read_origin
from rlhfdoctor.types import Event, Gap
from tests.build import make_event, make_scanner, make_source, read_kind, read_log, split_at

DEAD = "To avoid data inconsistency, we are taking the entire process down."


@pytest.mark.parametrize(
    ("prefix", "actor", "pid", "host"),
    [
        ("(ActorModelRayActor pid=204417, ip=10.0.0.2) ", "ActorModelRayActor", 204417, "10.0.0.2"),
        ("(WorkerDict pid=77) ", "WorkerDict", 77, None),
        ("(pid=6120) ", None, 6120, None),
        ("(pid=6120, ip=10.0.0.9) ", None, 6120, "10.0.0.9"),
        ("(RolloutWorker rank=3, pid=9) ", "RolloutWorker", 9, None),
        (
            "(create_colocated_worker_cls.<locals>.WorkerDict pid=5) ",
            "create_colocated_worker_cls.<locals>.WorkerDict",
            5,
            None,
        ),
        ("\x1b[36m(TaskRunner pid=1)\x1b[0m ", "TaskRunner", 1, None),
        ("(raylet) ", "raylet", None, None),
        ("(raylet, ip=10.0.0.7) ", "raylet", None, "10.0.0.7"),
        ("(autoscaler) ", "autoscaler", None, None),
        ("(gcs_server) ", "gcs_server", None, None),
        ("(EngineCore_DP0 pid=17374) ", "EngineCore_DP0", 17374, None),
        ("", None, None, None),
    ],
)
def test_prefix(prefix: str, actor: str | None, pid: int | None, host: str | None) -> None:
    """Ray's prefix says class, process and node."""
    (event,) = read_kind(prefix + DEAD, "nccl.down")
    assert (actor, pid, host) == (event.origin.actor, event.origin.pid, event.origin.host)


@pytest.mark.parametrize(
    ("text", "rank"),
    [
        ("[rank3]:[E408 10:01:52.863 x.cpp:1] " + DEAD, 3),
        ("[rank 12]: " + DEAD, 12),
        ("[Rank 5] " + DEAD, 5),
        ("(A pid=1, ip=10.0.0.2) [rank0]:[E x.cpp:1] " + DEAD, 0),
        (DEAD, None),
    ],
)
def test_rank(text: str, rank: int | None) -> None:
    """The rank is read behind or without Ray's prefix; rank 0 is a rank."""
    (event,) = read_kind(text, "nccl.down")
    assert rank == event.origin.rank


@pytest.mark.parametrize(
    ("suffix", "count"),
    [
        ("", 1),
        (" [repeated 12x across cluster]", 12),
        (" [repeated 3x across cluster] (Ray deduplicates logs by default. Set RAY_DEDUP_LOGS=0 to disable)", 3),
        ("\x1b[32m [repeated 7x across cluster]\x1b[0m", 7),
    ],
)
def test_repeats(suffix: str, count: int) -> None:
    """A line that Ray folded stands for all that it folded."""
    (event,) = read_kind(DEAD + suffix, "nccl.down")
    assert count == event.repeats_count


WORKER = "75ab" * 14


@pytest.mark.parametrize(
    ("file", "pid", "host"),
    [
        (f"logs/worker-{WORKER}-01000000-4711.out", 4711, None),
        (f"logs/worker-{WORKER}-01000000-4711.err", 4711, None),
        (f"logs/python-core-worker-{WORKER}_4711.log", 4711, None),
        ("bundle.tar.gz!10.0.0.3/logs/raylet.out", None, "10.0.0.3"),
        ("run/node-2/dmesg.txt", None, "node-2"),
        ("run/host7/dmesg.txt", None, "host7"),
        ("dmesg_10.0.0.4.log", None, "10.0.0.4"),
        ("raylet.out", None, None),
        ("10.0.0.3.zip!raylet.out", None, None),
    ],
)
def test_file_name(file: str, pid: int | None, host: str | None) -> None:
    """The name of a file tells process and node where the line does not; that of the archive does not count."""
    origin = read_origin("text", file, 3, {})
    assert (file, 3, pid, host) == (origin.file, origin.line, origin.pid, origin.host)


def test_line_goes_before_the_file_name() -> None:
    """What the line says of node and process goes before the file's name."""
    origin = read_origin("(A pid=1, ip=10.0.0.2) x", f"10.0.0.9/worker-{WORKER}-01-4711.out", 1, {})
    assert (origin.pid, origin.host) == (1, "10.0.0.2")


def test_fields_give_the_origin() -> None:
    """Node and rank that only the message names go to the origin."""
    origin = read_origin("text", "a.log", 1, {"ip": "10.0.0.5", "rank": 0})
    assert (origin.host, origin.rank) == ("10.0.0.5", 0)


def test_year_of_the_file() -> None:
    """A stamp without a year takes the year in which its file was written."""
    modified = datetime(2024, 6, 1, tzinfo=timezone.utc).timestamp()
    (event,) = read_kind(f"INFO 04-02 15:02:00 x.py:1] {DEAD}", "nccl.down", modified=modified)
    assert datetime(2024, 4, 2, 15, 2, tzinfo=timezone.utc).timestamp() == event.time


def test_year_of_the_stamps_before() -> None:
    """A stamp without a year takes the year of the stamps before it in its file."""
    text = f"[2023-04-02 15:02:00,000 E 1 1] {DEAD}\nINFO 04-02 15:03:00 x.py:1] {DEAD}\n"
    events = read_kind(text, "nccl.down", modified=datetime(2025, 1, 1, tzinfo=timezone.utc).timestamp())
    assert (events[1].time or 0) - (events[0].time or 0) == 60.0


def test_turn_of_the_year() -> None:
    """A stamp of December in a file last written in January is of the year before."""
    modified = datetime(2025, 1, 2, tzinfo=timezone.utc).timestamp()
    (event,) = read_kind(f"INFO 12-31 23:02:00 x.py:1] {DEAD}", "nccl.down", modified=modified)
    assert datetime(2024, 12, 31, 23, 2, tzinfo=timezone.utc).timestamp() == event.time


def test_events_in_order_of_time() -> None:
    """Lines of several files are put in the order of their stamps."""
    events = [
        make_event(file="a", line=1, time=3.0),
        make_event(file="a", line=2, time=4.0),
        make_event(file="b", line=1, time=1.0),
        make_event(file="b", line=2, time=3.5),
    ]
    expected = [("b", 1), ("a", 1), ("b", 2), ("a", 2)]
    assert expected == [(e.origin.file, e.origin.line) for e in order_events(events)]


def test_lines_without_a_stamp_keep_their_place() -> None:
    """A line without a stamp stays behind the line before it in its file."""
    events = [
        make_event(file="a", line=1, time=3.0),
        make_event(file="a", line=2),
        make_event(file="b", line=1, time=1.0),
        make_event(file="b", line=2),
    ]
    expected = [("b", 1), ("b", 2), ("a", 1), ("a", 2)]
    assert expected == [(e.origin.file, e.origin.line) for e in order_events(events)]


def test_order_is_stable() -> None:
    """Lines of one moment stay in the order in which they were read."""
    events = [make_event(line=line, time=1.0) for line in (3, 1, 2)]
    assert [event.origin.line for event in order_events(events)] == [3, 1, 2]


def test_flood_keeps_both_ends() -> None:
    """Of a flood of one kind the first and last 400 are kept, and a gap says how many are not."""
    gaps: list[Gap] = []
    events = read_log("".join(f"{DEAD}\n" for _ in range(1000)), gaps=gaps)
    assert [*range(1, 401), *range(601, 1001)] == [event.origin.line for event in events]
    assert [(str(gap.what), str(gap.why)) for gap in gaps] == [
        ("run.log: nccl.down", "200 more lines of this kind left out")
    ]


def test_flood_of_marks_is_no_gap() -> None:
    """Step marks are many in a healthy run, so leaving some out is no gap."""
    gaps: list[Gap] = []
    read_log("".join(f"step:{i} - x:1\n" for i in range(1000)), gaps=gaps)
    assert gaps == []


def flood(count: int) -> bytes:
    """A long log of steps, some of which look like one and are none, over a new year that only they show; with a table."""
    lines = []
    for step in range(count):
        day, second = divmod(step * 60, 86400)
        stamp = f"2025-12-31 {second // 3600:02d}:{second // 60 % 60:02d}:00" if not day else f"2026-01-{day:02d} 00:00:00"
        lines.append(f"{stamp} trainer step={step}, skipped=0")
        lines.append(f"{stamp} step {step}, of which nothing is known, or lr {step % 7 or ''}")
        if not step % 3:
            lines.append(f"Dec 31 23:00:00 node kernel: Memory cgroup out of memory: Killed process {step} (python)")
        if not step % 5:
            lines += ["Top 10 memory users:", f"{step}\t1.00\tray::f", "", f"{step + 1}\t2.00\tray::g", "text"]
    return "\n".join(lines).encode() + b"\n"


@pytest.mark.parametrize("engine", ["hyperscan", "re"])
def test_flood_is_what_reading_every_line_gives(engine: str) -> None:
    """What is parsed at the end only is what would have been kept of all events."""
    source = make_source(flood(9000), modified=1_767_400_000.0)
    every: dict[str, list[Event]] = {}
    maker = Maker(source)
    for hit in make_scanner(engine).scan(source.stream()):
        event = maker.make(hit)
        every.setdefault(event.kind, []).append(event)
    kept = {kind: [*found[:400], *found[400:][-400:]] for kind, found in every.items()}
    read: dict[str, list[Event]] = {}
    for event in read_events(source, make_scanner(engine), []):
        read.setdefault(event.kind, []).append(event)
    assert max(map(len, every.values())) > 2000
    assert read == kept


def test_long_text_is_cut_around_the_message() -> None:
    """Of a very long line the event keeps 2,000 characters with the message inside."""
    (event,) = read_kind("x" * 5000 + " " + DEAD + " " + "y" * 5000, "nccl.down")
    assert (len(event.text), DEAD.split(", ")[1] in event.text) == (2000, True)


def test_text_without_colours() -> None:
    """The text of an event holds no colour codes."""
    (event,) = read_kind(f"\x1b[31m\x1b[1m{DEAD}\x1b[0m\n", "nccl.down")
    assert event.text == DEAD


def test_flood_within_one_endless_line() -> None:
    """Bars that are drawn for hours without an end of line are read in pieces, of which the ends repeat."""
    drawn = "".join(f"\rTraining Progress: {n % 100:3d}%|###| {n}/90000 [02:10<2:41:01]" for n in range(180_000))
    text = "".join(f"Training Progress: 1%|#| {n}/90000 [00:10<2:41:01]\n" for n in range(900)) + drawn
    data = text.encode()
    source = replace(make_source(data), stream=lambda: split_at(data, range(500_000, len(data), 500_000)))
    found = [event for event in read_events(source, make_scanner(), []) if event.kind == "phase.step"]
    assert [event.origin.line for event in found[-3:]] == [901, 901, 901]
    assert found[-1].fields["step"] == 179_999


def test_a_second_flood_is_counted_once_it_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    """Marks of one kind by another pattern than the first ones' are parsed until they are known to be marks; not each of a million."""
    first = "".join(f"step={n}, skipped={n}\n" for n in range(2_000))
    second = "".join(f"step:{n} - actor/loss:0.1 and some words that make the line as long as others are\n" for n in range(60_000))
    parsed: list[int] = []
    real = Candidate.hit
    monkeypatch.setattr(blocks, "BLOCK_BYTES", 16_384)
    monkeypatch.setattr(Candidate, "hit", lambda self: parsed.append(self.line) or real(self))
    source = replace(make_source(""), stream=lambda: iter(split_at((first + second).encode(), range(16_384, 4_000_000, 16_384))))
    events = [event for event in read_events(source, make_scanner(), []) if event.kind == "phase.step"]
    assert max(event.origin.line or 0 for event in events) == 62_000
    assert len({event.origin.line for event in events if (event.origin.line or 0) > 2_000}) >= 100
    assert len(parsed) < 30_000
