"""The bytes of recorded and sampled incidents, explained."""

from __future__ import annotations

from pathlib import Path

import pytest

from rlhfdoctor.core.diagnose import analyze
from rlhfdoctor.explanation import Explanation
from rlhfdoctor.report.json import to_dict

SAMPLES = Path(__file__).resolve().parents[2] / "samples"


def explained(name: str, *only: str) -> Explanation:
    folder = SAMPLES / name / "run"
    found = analyze([str(folder / part) for part in only] or [str(folder)]).explained
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("name", "role", "component"),
    [
        ("openrlhf-save-kill", "actor", "optimizer"),
        ("openrlhf-72b-start", "actor", "optimizer"),
        ("openrlhf-72b-resume", "actor", "optimizer"),
        ("lab-pinned-start", "actor", "optimizer"),
        ("lab-pinned-resume", "actor", "optimizer"),
        ("lab-cache-churn", "actor", "swap blocks"),
        ("lab-driver-leak", "driver", "something else"),
        ("lab-data-loader", "data loader", "something else"),
        ("lab-reward-workers", "reward worker", "something else"),
    ],
)
def test_consumer(name: str, role: str, component: str) -> None:
    """Who held most, and with what, whatever process was killed."""
    found = explained(name)
    assert found.likely is not None
    assert (found.likely.role, found.likely.component) == (role, component)


@pytest.mark.parametrize("name", ["openrlhf-save-kill", "openrlhf-72b-start", "openrlhf-72b-resume", "lab-pinned-start"])
def test_explained_to_within_fifteen_percent(name: str) -> None:
    """Each row that holds a model, by the configuration at hand."""
    found = explained(name)
    modelled = [row for row in found.rows if row.role in ("actor", "critic")]
    assert modelled
    assert all(abs(row.rest_bytes) <= 0.15 * row.bytes for row in modelled)


@pytest.mark.parametrize("name", ["openrlhf-save-kill", "lab-checkpoint-spike", "lab-save-kill"])
def test_copies_of_a_save(name: str) -> None:
    """A rank that gathers, or all that serialise, hold more than their states."""
    copy = explained(name).copy
    assert copy is not None
    assert copy.component == "save copy"


def test_the_kernel_log_alone() -> None:
    """Without any configuration the sizes still say whose memory it is, and that it is an offloaded optimizer."""
    log = next(path.name for path in (SAMPLES / "openrlhf-save-kill" / "run").iterdir() if "dmesg" in path.name or "kernel" in path.name)
    found = explained("openrlhf-save-kill", log)
    offloaded = sum(s.probability for s in found.suspects if s.component in ("optimizer", "gradients", "page-lock rounding"))
    assert (found.rows[0].role, offloaded > 0.6) == ("actor", True)


def test_json_has_the_table() -> None:
    """`explained` beside the ledger, with probabilities that add up."""
    report = to_dict(analyze([str(SAMPLES / "openrlhf-save-kill" / "run")]))["explained"]
    assert sum(one["probability"] for one in report["consumer"]) == pytest.approx(1, abs=0.01)
    assert {"role", "name", "count", "bytes", "parts", "rest_bytes"} <= set(report["rows"][0])


def test_a_table_of_two_kills_is_read_once() -> None:
    """Of a log with several kills only the report of the one that is explained counts."""
    found = explained("lab-checkpoint-spike")
    assert next(row for row in found.rows if row.role == "actor").count == 2
