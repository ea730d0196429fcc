"""Recorded and written incidents: the verdict of each against its truth file, which the doctor never reads."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import pytest
import yaml

from rlhfdoctor.core.diagnose import analyze
from rlhfdoctor.report import json as json_report
from rlhfdoctor.types import Incident

SAMPLES = sorted((Path(__file__).parent.parent / "samples").glob("*/truth.yaml"))


def truth(path: Path) -> dict[str, object]:
    return yaml.safe_load(path.read_text())


@pytest.fixture(scope="module", params=SAMPLES, ids=lambda path: path.parent.name)
def sample(request: pytest.FixtureRequest) -> tuple[dict[str, object], Incident]:
    return truth(request.param), analyze([str(request.param.parent / "run")])


def test_there_are_samples() -> None:
    """All samples that the catalogue rests on are there."""
    assert len(SAMPLES) >= 16


def test_verdict(sample: tuple[dict[str, object], Incident]) -> None:
    """The verdict is the true one, `undecided` included."""
    assert sample[0]["verdict"] == sample[1].verdict


def test_killer(sample: tuple[dict[str, object], Incident]) -> None:
    """The killer is the true one."""
    assert sample[0]["killer"] == (sample[1].death.killer if sample[1].death else None)


def test_first_cause(sample: tuple[dict[str, object], Incident]) -> None:
    """Where the verdict is a cause, the first finding is an accepted one."""
    if sample[0]["verdict"] != "cause":
        pytest.skip("no cause to find")
    assert sample[1].best is not None
    assert sample[1].best.cause in sample[0]["accept"]


def test_patch_touches_the_true_setting(sample: tuple[dict[str, object], Incident]) -> None:
    """The first finding's patches touch a setting that a right patch touches."""
    if not sample[0].get("patch"):
        pytest.skip("no patch recorded")
    assert sample[1].best is not None
    wanted = {str(name).lstrip("-").rsplit(".", 1)[-1].split()[0] for name in sample[0]["patch"]}
    touched = {p.spelled.lstrip("-+").rsplit(".", 1)[-1].split()[0] for p in sample[1].best.patches}
    touched |= {p.setting.rsplit(".", 1)[-1] for p in sample[1].best.patches}
    assert wanted & touched


def test_report_follows_the_schema(sample: tuple[dict[str, object], Incident]) -> None:
    """Every JSON report is valid under its own schema."""
    jsonschema.validate(json.loads(json_report.render(sample[1])), json_report.load_schema())


def test_echoes_come_after_what_explains_them(sample: tuple[dict[str, object], Incident]) -> None:
    """A finding with explained_by stands behind the finding that it names."""
    order = [f.cause for f in sample[1].findings]
    echoes = [(f.cause, f.explained_by) for f in sample[1].findings if f.explained_by]
    assert [pair for pair in echoes if order.index(str(pair[1])) > order.index(pair[0])] == []


def test_every_quote_is_in_its_file(sample: tuple[dict[str, object], Incident]) -> None:
    """File and line of a quoted log line hold the quoted text."""
    quotes = [q for f in sample[1].findings for q in f.evidence if q.kind == "log" and q.file and q.line and q.text]
    assert [q for q in quotes if not _stands_there(q.file, q.line, q.text)] == []


def _stands_there(file: str | None, line: int | None, text: str | None) -> bool:
    from rlhfdoctor.logs.blocks import _ANSI

    raw = _ANSI.sub(b"", Path(str(file)).read_bytes()).decode("utf-8", "replace")
    return str(text)[:200] in raw.split("\n")[int(line or 1) - 1]


def test_limit_around_the_job() -> None:
    """Where the limit that was full stands on a cgroup around the job, raising the job's own is not proposed."""
    found = analyze([str(SAMPLES[0].parent.parent / "lab-node-limit" / "run")]).best
    assert found is not None
    assert [
        patch.setting for patch in found.patches if patch.setting in ("container.memory", "limit around the job")
    ] == ["limit around the job"]
