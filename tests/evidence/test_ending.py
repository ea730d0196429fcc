"""How a run ended well: what shows it, and what does not."""

from __future__ import annotations

from pathlib import Path

import pytest

from rlhfdoctor import analyze


@pytest.mark.parametrize(
    "line",
    [
        "Job 'raysubmit_uEw2mR7sKcN5pZxG' succeeded",
        "{'train_runtime': 18204.7719, 'train_samples_per_second': 0.447}",
        "{'train_runtime': '18204.7719', 'epoch': '1'}",
        "Training finished: 5 steps",
        "training completed",
        "Final validation metrics: {'val/test_score': 0.61}",
        "+ echo exit=0",
        "exit code: 0",
        "Process finished with exit code 0",
        "The command exited with status 0",
        "Command python train.py exited with code 0",
    ],
)
def test_good_ends(tmp_path: Path, line: str) -> None:
    """Each of these lines says that a run ended well."""
    (tmp_path / "job.log").write_text(f"step:7 - actor/lr:0.0\n{line}\n")
    assert analyze([str(tmp_path)]).verdict == "healthy"


@pytest.mark.parametrize(
    "line",
    [
        "",
        "hello",
        "step:8 - actor/lr:0.0",
        "State: OUT_OF_MEMORY (exit code 0)",
        "exit code 10",
        "Training: 100%|##########| 8/8",
        "the evaluation finished",
        "export EXIT_CODE=0x1",
        '            "ExitCode": 0,',
        "  Exit Code:    0",
        'if [ -z "$X" ]; then exit 0; fi',
        "early exit 0/16 samples",
        "exit status: 0.7",
        "AssertionError was expected: exit code 0, got 3",
        "subprocess nvidia-smi exited with code 0",
        "Training finished: False",
        "Will push to hub after training completed",
        "[launch.py:367:main] Process 4711 exits successfully.",
    ],
)
def test_no_good_ends(tmp_path: Path, line: str) -> None:
    """These do not: nothing is healthy by default."""
    (tmp_path / "job.log").write_text(f"step:7 - actor/lr:0.0\n{line}\n")
    assert analyze([str(tmp_path)]).verdict != "healthy"


LAST_WORDS = "\r{{'train_runtime': '0.45', 'epoch': '1'}}\n\r100%|####| 6/6 [00:00<00:00, 11.9it/s]\n{bar}"
SAVING = "Writing model shards:   0%|          | 0/1 [00:00<?, ?it/s]"
SAVED = "\rWriting model shards: 100%|####| 1/1 [00:00<00:00, 949.37it/s]\n"


@pytest.mark.parametrize(
    ("bar", "verdict"), [("", "healthy"), (SAVING + SAVED, "healthy"), (SAVING, "inconclusive")]
)
def test_bars_behind_the_last_words(tmp_path: Path, bar: str, verdict: str) -> None:
    """The trainer's full bar is closed behind its last words; a save that stands is no end."""
    (tmp_path / "job.log").write_text("100%|####| 6/6 [00:00<00:00, 11.9it/s]" + LAST_WORDS.format(bar=bar))
    assert analyze([str(tmp_path)]).verdict == verdict


def test_a_program_on_the_way(tmp_path: Path) -> None:
    """A compiler that ended well before the last steps says nothing of the run."""
    (tmp_path / "job.log").write_text("exit=0\nstep:7 - actor/lr:0.0\n")
    assert analyze([str(tmp_path)]).verdict == "inconclusive"


@pytest.mark.parametrize("name", ["lab-healthy-close", "recorded-sawtooth-healthy"])
def test_a_recording_that_breaks_off(tmp_path: Path, name: str) -> None:
    """A recording without its orderly end is not healthy, whatever the log says before."""
    whole = Path(__file__).parents[2] / "samples" / name / "run"
    run = tmp_path / "run"
    run.mkdir()
    for file in whole.rglob("*"):
        if file.is_file():
            (run / file.relative_to(whole)).parent.mkdir(parents=True, exist_ok=True)
            data = file.read_bytes()
            (run / file.relative_to(whole)).write_bytes(data[: len(data) // 2] if file.suffix == ".trace" else data)
    assert analyze([str(whole)]).verdict == "healthy"
    assert analyze([str(run)]).verdict == "inconclusive"


NOISE = (
    "ERROR 01-01 00:00:01 [core_client.py:600] Engine core proc EngineCore_0 died unexpectedly, shutting down client.",
    "Exception in thread MsgRouterThr:\nTraceback (most recent call last):\n  File \"/x/router.py\", line 3, in run\nBrokenPipeError: [Errno 32] Broken pipe",
    "slurmstepd: error: *** JOB 7715 ON node01 CANCELLED AT 2025-10-04T17:41:09 ***",
)
VANISHED = "(raylet) A worker died or was killed while executing a task by an unexpected system error. To troubleshoot the problem"


@pytest.mark.parametrize("noise", NOISE)
def test_what_follows_a_good_end(tmp_path: Path, noise: str) -> None:
    """Behind the last words of a run processes are let go; before them, and behind a save that follows, each counts."""
    words, save = "{'train_runtime': 1.5, 'epoch': 1.0}\n", "Saving model checkpoint to /out\n"
    found = []
    for number, text in enumerate((words + noise, noise, words + save + noise)):
        (tmp_path / f"{number}.log").write_text(f"step:7 - actor/lr:0.0\n{text}\n")
        found.append(analyze([str(tmp_path / f"{number}.log")]).verdict == "healthy")
    assert found == [True, False, False]


def test_a_worker_that_disappears_behind_a_good_end(tmp_path: Path) -> None:
    """Whether it was let go or killed as it saved is not decided by Ray's word on it."""
    (tmp_path / "job.log").write_text("step:7 - actor/lr:0.0\n{'train_runtime': 1.5, 'epoch': 1.0}\n" + VANISHED + "\n")
    assert analyze([str(tmp_path)]).verdict == "undecided"
