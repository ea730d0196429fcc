"""Documents, data and reports beside a run's log quote failures of other runs."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner

from rlhfdoctor.cli import main
from rlhfdoctor.core.diagnose import analyze
from tests.evidence.test_survived import CUDA, KILL

SAMPLES = Path(__file__).parents[2] / "samples"
TRACEBACK = f'Traceback (most recent call last):\n  File "/opt/train.py", line 3, in step\n    loss.backward()\n{CUDA}\n'
QUOTING = {
    "README.md": f"If you see\n\n{TRACEBACK}\nor\n\n[71832.442247] {KILL}\n\nlower the batch.\n",
    "CHANGELOG": f"- fixed: {KILL}\n",
    "docs/faq.rst": TRACEBACK,
    "notes.txt": f"yesterday:\n{CUDA}\n",
    "pytest.txt": f"E   AssertionError\n{TRACEBACK}",
    "doctor-report.html": f"<pre>2025-01-09 10:00:00 {CUDA}</pre>\n",
    "a.ipynb": json.dumps({"cells": [{"outputs": [{"text": [TRACEBACK]}]}]}, indent=1),
    "data/train.jsonl": json.dumps({"text": f"Q: why\n{CUDA}\nA: x"}) + "\n",
    "data/train.json": json.dumps([{"instruction": "why", "output": f"It\n{KILL}\nA: x"}], indent=2),
    "data/train.csv": f'q,a\nwhy,"{CUDA}"\n',
}


@pytest.mark.parametrize("name", QUOTING)
def test_a_file_that_quotes_a_failure(tmp_path: Path, name: str) -> None:
    """Beside a log with steps it decides nothing and is a gap; alone, or named, it is read."""
    shutil.copytree(SAMPLES / "openrlhf-healthy" / "run", tmp_path / "run")
    file = tmp_path / "run" / name
    file.parent.mkdir(exist_ok=True)
    file.write_text(QUOTING[name])
    incident = analyze([str(tmp_path / "run")])
    assert (incident.verdict, [str(gap.what) for gap in incident.gaps if "no log by its name" in str(gap.why)]) == ("healthy", [str(file)])
    assert analyze([str(file)]).death is not None
    assert analyze([str(tmp_path / "run"), str(file)]).death is not None


@pytest.mark.parametrize("name", ["README.md", "notes.txt", "fix.diff"])
@pytest.mark.parametrize("is_recorded", [True, False])
def test_a_run_whose_logs_have_no_steps(tmp_path: Path, is_recorded: bool, name: str) -> None:
    """Its trace, or Ray's own logs of its end, are enough: the verdict was undecided, for the README's error."""
    run = tmp_path / "run"
    shutil.copytree(SAMPLES / "lab-shm-full" / "run", run)
    if not is_recorded:
        (run / "run.json").unlink()
        (run / "000001.trace").unlink()
    before = analyze([str(run)])
    (run / name).write_text(f"Last week:\n{TRACEBACK}{KILL}\n")
    after = analyze([str(run)])
    assert (after.verdict, after.death and after.death.killer) == (before.verdict, before.death and before.death.killer)
    assert [str(gap.what) for gap in after.gaps if "no log by its name" in str(gap.why)] == [str(run / name)]


@pytest.mark.parametrize("name", ["dmesg.txt", "stderr.txt", "err.json"])
def test_logs_with_such_names(tmp_path: Path, name: str) -> None:
    """A time, a process or the kernel's uptime shows that a program has logged the line."""
    lines = {
        "dmesg.txt": f"[71832.442247] {KILL}\n",
        "stderr.txt": f"(TaskRunner pid=7) {CUDA}\n",
        "err.json": json.dumps({"time": "2026-01-09T10:00:00Z", "log": CUDA}) + "\n",
    }
    (tmp_path / "job.log").write_text("step:7 - actor/lr:0.0\n")
    (tmp_path / name).write_text(lines[name])
    assert analyze([str(tmp_path)]).death is not None


@pytest.mark.parametrize(("form", "name"), [("json", "x.json"), ("sarif", "x.json"), ("text", "verdict.txt"), ("text", "doctor.log"), ("md", "x.md"), ("html", "x.html")])
def test_its_own_report_beside_the_run(tmp_path: Path, form: str, name: str) -> None:
    """Is no evidence: it was what the next verdict pointed to."""
    run = tmp_path / "run"
    shutil.copytree(SAMPLES / "lab-shm-full" / "run", run)
    CliRunner().invoke(main, ["analyze", str(run), "--format", form, "--out", str(run / name)])
    assert (run / name).stat().st_size > 500
    before, after = analyze([str(SAMPLES / "lab-shm-full" / "run")]), analyze([str(run)])
    assert after.death is not None and before.death is not None
    assert (after.verdict, after.death.killer, after.death.event.text) == (before.verdict, before.death.killer, before.death.event.text)
    assert name not in [Path(event.origin.file).name for event in after.timeline]
