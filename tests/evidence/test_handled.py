"""Exceptions that somebody caught, close to the end of what a log shows: they end no run, and outvote no kill."""

from __future__ import annotations

from pathlib import Path

import pytest

import rlhfdoctor

STEPS = "".join(f"step:{number} - actor/pg_loss:0.1 - actor/lr:1e-06\n" for number in range(1, 21))
LATER = "step:21 - actor/pg_loss:0.1 - actor/lr:1e-06\n"
FRAME = 'Traceback (most recent call last):\n  File "{}", line 12, in score\n    send(url)\n'
KILL = "Memory cgroup out of memory: Killed process 4242 (python3) total-vm:9008816kB, anon-rss:8169716kB, file-rss:256kB, shmem-rss:0kB"
HANDLED = {
    "warning": "WARNING reward: sample 7 gave RuntimeError: no answer within 10 s\n",
    "warning with a time": "2026-11-20 01:02:03,456 - WARNING - judge.py:33 - got ValueError: no score\n",
    "behind Ray's prefix": "(RewardWorker pid=7) WARNING judge: got ValueError: no score\n",
    "retry": "reward server: TimeoutError: timed out, retrying in 5 s\n",
    "fallback": "ImportError: flash_attn is missing, falling back to sdpa\n",
    "ignored": "Exception ignored in: <function Pool.__del__ at 0x7f00>\n" + FRAME.format("/opt/pool.py") + "OSError: bad file descriptor\n",
    "never retrieved": "ERROR:asyncio:Task exception was never retrieved\n" + FRAME.format("/opt/net.py") + "ValueError: no score\n",
    "a model's program": FRAME.format("<string>") + "IndexError: list index out of range\n",
    "in a file of its own": FRAME.format("/tmp/tmpk3j4h5x_.py") + "IndexError: list index out of range\n",
}


@pytest.mark.parametrize("text", HANDLED.values(), ids=HANDLED)
def test_a_handled_error_ends_no_run(tmp_path: Path, text: str) -> None:
    """Not even as the last line that was flushed so far."""
    (tmp_path / "train.log").write_text(STEPS + text)
    assert rlhfdoctor.analyze(str(tmp_path)).death is None


@pytest.mark.parametrize("text", HANDLED.values(), ids=HANDLED)
def test_it_outvotes_no_kill(tmp_path: Path, text: str) -> None:
    """The kernel's line behind it is the cause."""
    (tmp_path / "train.log").write_text(STEPS + text + LATER + f"[71832.442247] {KILL}\n")
    found = rlhfdoctor.analyze(str(tmp_path))
    assert found.death is not None and found.death.killer == "kernel-oom-cgroup"


@pytest.mark.parametrize(
    "text",
    [
        FRAME.format("/opt/train.py") + "ValueError: no such group\n",
        "ValueError: no such group\n",
        'Traceback (most recent call last):\n  File "<string>", line 1, in <module>\n  File "/opt/train.py", line 3, in fit\nValueError: no\n',
        "WARNING: a word of no weight\n" + FRAME.format("/opt/train.py") + "ValueError: no such group\n",
    ],
    ids=["traceback", "bare", "started from a text", "behind a warning"],
)
def test_an_error_that_nobody_caught(tmp_path: Path, text: str) -> None:
    """It is the cause where it is the last word, and not sure where the run goes on for a moment."""
    (tmp_path / "train.log").write_text(STEPS + text)
    assert rlhfdoctor.analyze(str(tmp_path)).findings[0].cause == "other-software-error"
    (tmp_path / "train.log").write_text(STEPS + text + LATER)
    found = rlhfdoctor.analyze(str(tmp_path))
    assert (found.death is not None, found.verdict) == (True, "undecided")
