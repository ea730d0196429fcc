"""Log files that are followed: new lines, rotation, bursts, copies, marks."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from rlhfdoctor.logs.pattern import compiled
from rlhfdoctor.record.log_tailer import LogTailer

Mark = tuple[str, object]
KEEP_BYTES, MOST_PER_READ = 1 << 20, 256 << 10
"""Of a copy before it is turned; of a file in one read."""


def read(tailer: LogTailer) -> list[Mark]:
    """Kind and step of the marks that are new."""
    return [(pattern.kind, fields.get("step")) for pattern, fields, _ in tailer.read()]


def append(path: Path, data: str | bytes) -> None:
    """Writes on."""
    with path.open("ab") as handle:
        handle.write(data.encode() if isinstance(data, str) else data)


def step(number: int, end: str = "\n") -> str:
    """A line of verl's."""
    return f"(main_task pid=7) step:{number} - reward/mean:0.5{end}"


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """A log file, empty at first."""
    (tmp_path / "job.log").touch()
    return tmp_path / "job.log"


@pytest.fixture
def tailer(tmp_path: Path, log: Path) -> LogTailer:
    """Follows the log without a copy."""
    found = LogTailer(str(tmp_path / "logs"))
    found.add(str(log))
    return found


def copies(tmp_path: Path) -> dict[str, bytes]:
    """The copies by their names."""
    folder = tmp_path / "logs"
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


def after(tailer: LogTailer, log: Path, *pieces: str | bytes) -> list[list[Mark]]:
    """What is found after each piece that is appended."""

    def one(piece: str | bytes) -> list[Mark]:
        append(log, piece)
        return read(tailer)

    return [one(piece) for piece in pieces]


def test_new_lines_only(tailer: LogTailer, log: Path) -> None:
    """Each line is given once, from the beginning of the file on."""
    found = after(tailer, log, step(1) + step(2), "", step(3))
    assert found == [[("phase.step", 1), ("phase.step", 2)], [], [("phase.step", 3)]]


def test_partial_lines(tailer: LogTailer, log: Path) -> None:
    """A line counts when it is complete, in however many pieces it came."""
    assert after(tailer, log, step(1, "")[:22], step(1, "")[22:], "\n" + step(2, ""), "\r\n") == [
        [],
        [],
        [("phase.step", 1)],
        [("phase.step", 2)],
    ]


def test_character_in_two_pieces(tailer: LogTailer, log: Path) -> None:
    """A character of several bytes that is cut between two reads is no trouble."""
    line = "Running step 3:   7%|▋         | 3.00/80.0\n".encode()
    at = line.index("▋".encode()) + 1
    assert after(tailer, log, line[:at], line[at:]) == [[], [("phase.step", 3)]]


@pytest.mark.parametrize(
    ("line", "mark"),
    [
        ("(main_task pid=40817) step:1 - response_length/mean:612.402\n", ("phase.step", 1)),
        ("Episode [1/10000]:   7%|7         | 9/210 [2:51:33<63:48:10, 1142.70s/it]\r", ("phase.episode", 9)),
        ("Train epoch [1/1]:  62%|#| 5/8 [01:12<00:43, 14.41s/it]\r", ("phase.update", None)),
        ("Processed prompts:  85%|########5 | 870/1024 [03:19<00:35,  4.37it/s]\r", ("phase.rollout", None)),
        (
            "(WorkerDict pid=18233) Saving sharded model checkpoint to /ckpt/global_step_1/actor\n",
            ("phase.checkpoint", None),
        ),
        ("\x1b[36m(main_task pid=7)\x1b[0m step:4 - a\n", ("phase.step", 4)),
    ],
)
def test_marks(tailer: LogTailer, log: Path, line: str, mark: Mark) -> None:
    """Lines of the frameworks tell step and phase; a progress bar's carriage return ends a line as well."""
    assert after(tailer, log, line) == [[mark]]


def test_no_marks(tailer: LogTailer, log: Path) -> None:
    """Other lines, blank ones and binary garbage say nothing."""
    assert after(tailer, log, "loss 0.1\n\n\r\n", bytes(range(256)) * 8 + b"\n") == [[], []]


def test_memory_is_no_phase(tailer: LogTailer, log: Path) -> None:
    """A line that only tells figures marks neither step nor phase."""
    assert after(tailer, log, "perf/max_memory_allocated_gb:41.2 - perf/cpu_memory_used_gb:612.25\n") == [[]]


def test_rotation(tailer: LogTailer, log: Path) -> None:
    """A new file under the same name is read from its beginning; what was left of the old line is dropped."""
    before = after(tailer, log, step(1) + "(main_task pid=7) st")
    log.rename(log.with_suffix(".1"))
    assert (before, after(tailer, log, "ep:9 - x\n" + step(2))) == ([[("phase.step", 1)]], [[("phase.step", 2)]])


def test_truncation(tailer: LogTailer, log: Path) -> None:
    """A file that was cut is read from its beginning."""
    before = after(tailer, log, step(1) + step(2))
    os.truncate(log, 0)
    assert (before, after(tailer, log, step(3))) == ([[("phase.step", 1), ("phase.step", 2)]], [[("phase.step", 3)]])


def test_file_that_comes_later(tmp_path: Path) -> None:
    """A file that is not there yet is no failure, and is read as soon as it is."""
    tailer, log = LogTailer(str(tmp_path)), tmp_path / "later.log"
    tailer.add(str(log))
    assert (read(tailer), after(tailer, log, step(1)), tailer.failed) == ([], [[("phase.step", 1)]], set())


def test_burst(tmp_path: Path, log: Path) -> None:
    """Of a burst the end is read and copied, and the copy says how much is missing."""
    tailer = LogTailer(str(tmp_path / "logs"))
    tailer.add(str(log), "worker.out")
    filler = b"x" * 99 + b"\n"
    size = len(filler) * 10000 + len(step(1)) + len(step(2))
    assert after(tailer, log, step(1).encode() + filler * 10000 + step(2).encode()) == [[("phase.step", 2)]]
    note = b"\nrlhfdoctor: %d bytes of a burst were not copied\n" % (size - MOST_PER_READ)
    assert copies(tmp_path) == {"worker.out": note + log.read_bytes()[-MOST_PER_READ:]}


def test_copy(tmp_path: Path, log: Path) -> None:
    """The copy holds the same bytes, incomplete lines as well; without a name there is no copy."""
    tailer = LogTailer(str(tmp_path / "logs"))
    tailer.add(str(log), "ray/worker.out")
    tailer.add(str(tmp_path / "other.log"))
    append(tmp_path / "other.log", step(5))
    after(tailer, log, step(1), b"\xff\0half")
    assert copies(tmp_path) == {"ray/worker.out": step(1).encode() + b"\xff\0half"}


def test_copies_are_bounded(tmp_path: Path, log: Path) -> None:
    """Of a file that grows for ever its last megabyte is there, in two files that stay small."""
    tailer = LogTailer(str(tmp_path / "logs"))
    tailer.add(str(log), "worker.out")
    after(tailer, log, *[b"%06d" % number + b"x" * 102393 + b"\n" for number in range(50)])
    found = copies(tmp_path)
    assert sorted(found) == ["worker.1.out", "worker.out"]
    assert log.read_bytes().endswith(found["worker.1.out"] + found["worker.out"])
    assert KEEP_BYTES <= sum(map(len, found.values())) <= 2 * (KEEP_BYTES + MOST_PER_READ)


def test_copies_are_as_small_as_they_say(tmp_path: Path, log: Path) -> None:
    """A copy holds at most twice a megabyte."""
    tailer = LogTailer(str(tmp_path / "logs"))
    tailer.add(str(log), "worker.out")
    after(tailer, log, *[b"x" * 102399 + b"\n"] * 22)
    assert sum(map(len, copies(tmp_path).values())) <= 2 * KEEP_BYTES


def test_copy_is_not_made_twice(tmp_path: Path, log: Path) -> None:
    """A second recorder in the same folder copies on from where the first one ended."""
    first = LogTailer(str(tmp_path / "logs"))
    first.add(str(log), "worker.out")
    after(first, log, step(1))
    second = LogTailer(str(tmp_path / "logs"), from_end=True)
    second.add(str(log), "worker.out")
    after(second, log, step(2))
    assert copies(tmp_path) == {"worker.out": (step(1) + step(2)).encode()}


def test_unreadable_file(tmp_path: Path, log: Path) -> None:
    """What cannot be read is reported once, and the others are read all the same."""
    tailer, folder = LogTailer(str(tmp_path / "logs")), tmp_path / "folder.log"
    folder.mkdir()
    tailer.add(str(folder))
    tailer.add(str(log))
    found = after(tailer, log, step(1), step(2), step(3))
    assert ([len(some) for some in found], tailer.failed) == ([1, 1, 1], {f"{folder}: Is a directory"})


def test_copies_that_cannot_be_written(tmp_path: Path, log: Path) -> None:
    """Where no copy can be made this is reported once, and the marks are found all the same."""
    (tmp_path / "logs").touch()
    tailer = LogTailer(str(tmp_path / "logs"))
    tailer.add(str(log), "ray/worker.out")
    found = after(tailer, log, step(1), step(2))
    assert (found, len(tailer.failed)) == ([[("phase.step", 1)], [("phase.step", 2)]], 1)


def make_session(folder: Path, *names: str) -> str:
    """The logs of a Ray session, with a step in each file."""
    folder.mkdir(exist_ok=True)
    for number, name in enumerate(names, 1):
        (folder / name).write_text(step(number))
    return str(folder)


def test_session(tmp_path: Path) -> None:
    """Of a Ray session the logs of workers and services are followed, also those that come later."""
    tailer = LogTailer(str(tmp_path / "logs"))
    session = make_session(tmp_path / "a", "worker-1-01-7.out", "raylet.err", "events.json", "old")
    tailer.add_session(session)
    tailer.add_session(session)
    early = read(tailer)
    tailer.look()
    first = sorted(read(tailer))
    make_session(tmp_path / "a", "gcs_server.out")
    tailer.look()
    assert (early, first, read(tailer)) == ([], [("phase.step", 1), ("phase.step", 2)], [("phase.step", 1)])
    assert sorted(copies(tmp_path)) == ["ray/gcs_server.out", "ray/raylet.err", "ray/worker-1-01-7.out"]


def test_two_sessions(tmp_path: Path) -> None:
    """Copies of a second session do not mix with those of the first."""
    tailer = LogTailer(str(tmp_path / "logs"))
    tailer.add_session(make_session(tmp_path / "a", "raylet.out"))
    tailer.add_session(make_session(tmp_path / "b", "raylet.out"))
    tailer.look()
    assert (len(read(tailer)), sorted(copies(tmp_path))) == (2, ["ray-2/raylet.out", "ray/raylet.out"])


def test_session_that_is_not_there(tmp_path: Path) -> None:
    """A session without a folder is no failure."""
    tailer = LogTailer(str(tmp_path / "logs"))
    tailer.add_session(str(tmp_path / "nowhere"))
    tailer.look()
    assert (read(tailer), tailer.failed) == ([], set())


def test_many_files(tmp_path: Path) -> None:
    """Only so many files are followed as fit into a tick."""
    tailer = LogTailer(str(tmp_path / "logs"))
    tailer.add_session(make_session(tmp_path / "a", *[f"worker-{number}.out" for number in range(500)]))
    tailer.look()
    assert len(read(tailer)) == 400


def test_session_is_not_listed_for_ever(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Once as many files are followed as can be, no session is listed any more."""
    tailer, listed = LogTailer(str(tmp_path / "logs")), []
    monkeypatch.setattr(
        "rlhfdoctor.record.log_tailer.names_in",
        lambda logs, most: listed.append(logs) or [f"worker-{number}.out" for number in range(most)],
    )
    tailer.add_session(str(tmp_path))
    for _ in range(3):
        tailer.look()
    assert listed == [str(tmp_path)]


def test_bytes_of_a_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All files share the bytes of a read; the next one begins with those that waited, and the last one takes all."""
    monkeypatch.setattr("rlhfdoctor.record.log_tailer._MOST_PER_READ", 1000)
    tailer = LogTailer(str(tmp_path / "logs"))
    logs = [tmp_path / f"{number}.log" for number in range(10)]
    for number, log in enumerate(logs):
        log.write_text("\n" * 500 + step(number))
        tailer.add(str(log))
    found = [[fields for _, fields, _ in tailer.read(most)] for most in (1500, 1500, 1 << 30, 1500)]
    assert [len(some) for some in found] == [3, 3, 4, 0]
    assert sorted(mark["step"] for some in found for mark in some) == list(range(10))


def test_very_many_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of very many short lines only the last ones are tried, those of other files as well, all of it is copied."""
    tried = []
    monkeypatch.setattr("rlhfdoctor.record.log_tailer.compiled", lambda regex: tried.append(regex) or compiled(regex))
    tailer = LogTailer(str(tmp_path / "logs"))
    for name in ("a.log", "b.log"):
        (tmp_path / name).write_bytes(b"x\n" * 100_000 + step(5).encode())
        tailer.add(str(tmp_path / name), name)
    assert (read(tailer), 25_000 < len(tried) <= 50_000) == ([("phase.step", 5)] * 2, True)
    assert len(copies(tmp_path)["a.log"]) == (tmp_path / "a.log").stat().st_size
