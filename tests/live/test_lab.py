"""The five incidents that this project was started for (one has two deaths), made on purpose, diagnosed, patched, and run again.

Each is a real training on Ray and DeepSpeed in a real memory cgroup, under `doctor watch`; `trainer/lab/scenarios` says what
is true about it.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

pytest.importorskip("ray")
pytest.importorskip("deepspeed")

from trainer.lab import place
from trainer.lab.scenario import load_all, load_scenario
from trainer.lab.trial import try_scenario

WHY_NOT = place.why_not()
pytestmark = [
    pytest.mark.lab,
    pytest.mark.skipif(bool(WHY_NOT), reason=f"the lab cannot run here: {WHY_NOT}"),
    pytest.mark.usefixtures("kernel_alone"),
]
SEEDS = [scenario.name for scenario in load_all() if scenario.seed]


@pytest.fixture(scope="module", autouse=True)
def compiled() -> None:
    """DeepSpeed's operators are compiled once, outside of the limits."""
    place.warm()


@pytest.mark.parametrize("name", SEEDS)
def test_incident(name: str, tmp_path: Path) -> None:
    """The killer is the real one, the first cause a right one, and the patched configuration survives."""
    scenario = load_scenario(name)
    outcome = try_scenario(scenario, tmp_path / name)
    sys.stdout.write(f"{outcome}\n")  # shown when it fails, with the end of the patched run
    for log in (tmp_path / name / "second" / "logs").glob("job.*log"):
        sys.stdout.write(log.read_text(errors="replace")[-4000:])
    assert (outcome.killer_right, outcome.first_right, outcome.survives) == (True, True, scenario.cured)
    if scenario.place.memory or scenario.place.node_memory:  # what others do on the node is in no process of the run
        assert outcome.rest_ratio is not None and abs(outcome.rest_ratio) <= 0.03, "the ledger adds up at the peak"
