"""What the report says of the axes, of what was read, and of what to do now."""

from __future__ import annotations

from pathlib import Path

import pytest

from rlhfdoctor import analyze
from rlhfdoctor.coverage import SOURCE_KINDS
from rlhfdoctor.report import json as report
from rlhfdoctor.report.composed import composed
from rlhfdoctor.report.next_step import next_step
from rlhfdoctor.report.sections.coverage import coverage_says

SAMPLES = Path(__file__).resolve().parents[2] / "samples"
RUNS = sorted(path.parent.name for path in SAMPLES.glob("*/truth.yaml"))


@pytest.mark.parametrize(
    ("sample", "parts"),
    [
        ("lab-driver-leak", ["memory limit of 2.34 GiB was full", "in driver", "risen in stairs", "a step"]),
        ("lab-pinned-resume", ["on a node with 23.5 GiB", "in 2 processes (actor)", "peaked while loading"]),
        ("lab-ray-monitor", ["Ray's threshold of 11.4 % was passed", "while loading"]),
        ("easyr1-long-prompts", ["in one piece did not fit on a GPU with 79.2 GiB", "while scoring"]),
        ("lab-shape-mismatch", []),
    ],
)
def test_composed(sample: str, parts: list[str]) -> None:
    """The limit, the consumer, the moment and the course, as far as they are known; nothing where no limit was hit."""
    says = str(composed(analyze([str(SAMPLES / sample / "run")])))
    assert [part for part in parts if part not in says] == []
    assert bool(says) == bool(parts)


@pytest.mark.parametrize("sample", RUNS)
def test_every_axis_adds_up(sample: str) -> None:
    """The shares of an axis and of something else add up to one, and the first cause stands on its own axis."""
    found = report.to_dict(analyze([str(SAMPLES / sample / "run")]))
    for name in ("limit", "consumer", "moment", "course"):
        axis = found[name]
        if axis is not None:
            total = sum(cause["share"] for cause in axis["causes"]) + axis["something_else"]
            assert total == pytest.approx(1, abs=0.02)
    first = found["findings"][0]["cause"] if found["verdict"] == "cause" else ""
    if first.startswith(("host-", "gpu-")) and found["limit"] is not None:
        causes = [cause["cause"] for name in ("limit", "consumer", "moment", "course") for cause in (found[name] or {"causes": ()})["causes"]]
        assert first in causes


@pytest.mark.parametrize("sample", RUNS)
def test_every_verdict_says_what_was_read_and_what_to_do(sample: str) -> None:
    """Never empty, whatever the verdict."""
    incident = analyze([str(SAMPLES / sample / "run")])
    read = {row.kind for row in incident.coverage.read}
    assert read | set(incident.coverage.missing) == set(SOURCE_KINDS)
    assert str(coverage_says(incident)).startswith("read")
    assert str(next_step(incident))


def test_the_jobs_log_alone_is_less_sure() -> None:
    """Who killed is unknown without the kernel's log or a recording, so the same first cause has less confidence."""
    whole = analyze([str(SAMPLES / "lab-save-kill" / "run")])
    alone = analyze([str(SAMPLES / "lab-save-kill" / "run" / "logs" / "job.log")])
    assert alone.coverage.missing == ("trace", "kernel log", "Ray's logs", "configuration")
    assert alone.findings[0].confidence < 0.9 < whole.findings[0].confidence


def test_a_killed_loader_is_no_error_of_the_program() -> None:
    """torch raises an error for a worker that something killed: the job's log alone does not call it a bug."""
    alone = analyze([str(SAMPLES / "lab-data-loader" / "run" / "logs" / "job.log")])
    assert (alone.verdict, alone.findings[0].cause) == ("undecided", "host-dataset")
