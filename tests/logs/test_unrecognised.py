"""Lines at a log's end that read like a failure and that no pattern knows."""

from __future__ import annotations

from pathlib import Path

import pytest

from rlhfdoctor import analyze
from rlhfdoctor.logs.unrecognised import Tail
from tests.build import make_source


def lines_of(text: str) -> list[str]:
    """What is found in a log of which no line is known."""
    tail = Tail(make_source(text))
    for _ in tail.stream():
        pass
    return [event.text for event in tail.unrecognised(text.count("\n"), lambda _: False)]


@pytest.mark.parametrize(
    "line",
    [
        "FATAL: the frobnicator is gone",
        "2026-01-02 ERROR [trainer] could not go on",
        "mylauncher: job 7 exited with status 3",
        "rank 3 got SIGABRT",
        "child ended by signal 6",
        "my_package.errors.FrobnicationException",
        "run was preempted by the pool",
        "训练失败：显存不足",
        "进程被杀死，退出码 9",
        "Abnormal end: core dumped",
    ],
)
def test_reads_like_a_failure(line: str) -> None:
    """Severity words, names of exceptions, signals, statuses, words for an end, in both languages."""
    assert lines_of(f"step 1\n{line}\n") == [line]


@pytest.mark.parametrize(
    "line",
    [
        "step 12 | loss 0.3 | error 0.02",
        "0 errors, 3 warnings",
        "WARNING: error while reading the cache, retrying",
        "errors: 0",
        "    raise RuntimeError(",
        "exit status 0",
        "训练结束，没有错误",
        "hello",
    ],
)
def test_reads_like_nothing(line: str) -> None:
    """Warnings, figures and code are no failures."""
    assert lines_of(f"{line}\n") == []


def test_only_the_end_counts_and_no_line_that_is_known(tmp_path: Path) -> None:
    """An ERROR that a long run went on from is forgotten; a line that a pattern knows is not quoted as unknown."""
    early = "ERROR: a hiccup\n" + "step went fine, nothing to see here\n" * 2000
    assert lines_of(early) == []
    (tmp_path / "a.log").write_text("Killed\n")
    assert analyze([str(tmp_path)]).unrecognised == ()


def test_last_three_with_their_numbers() -> None:
    """In the order of the file; a carriage return shows the last text of its line."""
    tail = Tail(make_source("".join(f"10%\rERROR {n}\n" for n in range(1, 9))))
    for _ in tail.stream():
        pass
    assert [(e.origin.line, e.text) for e in tail.unrecognised(8, lambda _: False)] == [(6, "ERROR 6"), (7, "ERROR 7"), (8, "ERROR 8")]


@pytest.mark.parametrize(
    ("text", "verdict"),
    [
        ("hello\n", "inconclusive"),
        ("FATAL: the frobnicator is gone\n", "undecided"),
        ("FATAL: the frobnicator is gone\nTraining finished: 5 steps\n", "healthy"),
    ],
)
def test_verdict(tmp_path: Path, text: str, verdict: str) -> None:
    """Such a line makes it undecided, unless something says that the run ended well."""
    (tmp_path / "a.log").write_text(text)
    assert analyze([str(tmp_path)]).verdict == verdict


def test_line_that_a_pattern_knows_and_that_is_no_event() -> None:
    """One of many, of which only the first and the last ones are kept as events."""
    tail = Tail(make_source("ERROR 1\nERROR 2\n"))
    for _ in tail.stream():
        pass
    assert [event.text for event in tail.unrecognised(2, lambda line: line.endswith(b"1"))] == ["ERROR 2"]
