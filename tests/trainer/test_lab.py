"""The lab's scenarios without running them: each is complete, its configuration is one that the trainer takes, its truth is spelled right."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

pytest.importorskip("omegaconf")

import yaml

from rlhfdoctor import analyze
from rlhfdoctor.engine.catalogue import load_rules
from rlhfdoctor.vocabulary.run import KILLERS
from trainer.config import ConfigError, read_config
from trainer.data import find_function
from trainer.lab.__main__ import _try
from trainer.lab.scenario import LabError, Place, Scenario, load_all, load_scenario, size_of
from trainer.lab.trial import _reached, rest_ratio
from trainer.train import find_latest, name_latest

SCENARIOS = load_all()
each = pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.name)


def test_the_five_come_first() -> None:
    """The incidents that started the project; the one with two deaths is two scenarios."""
    seeds = [scenario.name for scenario in SCENARIOS if scenario.seed]
    assert seeds == ["cache-churn", "generate-desync", "long-prompts", "pinned-resume", "pinned-start", "save-kill"]
    assert [scenario.name for scenario in SCENARIOS[: len(seeds)]] == seeds


@each
def test_configuration_is_taken(scenario: Scenario, tmp_path: Path) -> None:
    """What the lab writes for the user passes the trainer's own checks, with functions that exist."""
    scenario.write(tmp_path / "config")
    config = read_config(tmp_path / "config" / "train.yaml", [f"deepspeed={tmp_path / 'config' / 'ds.json'}"])
    for setting, name in (
        ("data.task", config.data.task),
        ("reward.function", config.reward.function),
        ("train.callback", config.train.callback),
    ):
        assert name is None or callable(find_function(name, setting))


@each
def test_truth_is_spelled_right(scenario: Scenario) -> None:
    """Verdicts, killers and causes are the vocabulary's, and every accepted cause has a rule."""
    truth, causes = scenario.truth, {rule.id for rule in load_rules()}
    killers = truth.get("killers") or [truth["killer"]]
    assert truth["verdict"] in ("cause", "undecided", "healthy")
    assert set(killers) <= {*KILLERS, None}
    assert set(truth.get("accept", [])) | set(scenario.consent) <= causes
    assert (truth["verdict"] == "cause") == bool(truth.get("accept"))


@each
def test_truth_stays_with_the_lab(scenario: Scenario, tmp_path: Path) -> None:
    """Neither the truth nor the story is in what the doctor reads."""
    scenario.write(tmp_path / "config")
    written = "".join(path.read_text() for path in (tmp_path / "config").iterdir())
    words = [*scenario.truth.get("accept", []), scenario.truth.get("killer") or "-none-", scenario.story.strip()[:40]]
    assert [word for word in words if word in written] == []


@each
def test_limits_are_set(scenario: Scenario) -> None:
    """A scenario that ends in a memory kill says what is short."""
    killers = [str(killer) for killer in scenario.truth.get("killers") or [scenario.truth["killer"]]]
    if any(killer.startswith("kernel-oom") for killer in killers):
        assert scenario.place.memory
    assert scenario.cured is None or scenario.truth["verdict"] == "cause"


def test_faults_in_a_file_are_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A name that does not exist, and a key that no scenario has."""
    with pytest.raises(LabError, match="no scenario 'nothing'"):
        load_scenario("nothing")
    monkeypatch.setattr("trainer.lab.scenario.FOLDER", tmp_path)
    (tmp_path / "odd.yaml").write_text(yaml.safe_dump({"story": "", "config": {}, "truth": {}, "odd": 1}))
    with pytest.raises(LabError, match="odd"):
        load_scenario("odd")


@pytest.mark.parametrize(
    ("text", "size"),
    [("64M", 64 << 20), ("2G", 2 << 30), ("3450m", 3450 << 20), ("1.5g", 3 << 29), ("512K", 512 << 10)],
)
def test_sizes(text: str, size: int) -> None:
    """As Slurm and mount(8) write them, in either case."""
    assert size_of(text) == size


def test_launch_script(tmp_path: Path) -> None:
    """Limit, environment and open files stand in the launch script, where a patch can change them."""
    place = Place(memory="2G", open_files=512)
    Scenario(name="x", story="", config={}, truth={}, place=place, environment={"A": "1"}).write(tmp_path / "c")
    lines = (tmp_path / "c" / "launch.sh").read_text().splitlines()
    assert lines[:4] == ["#!/bin/bash", "#SBATCH --mem=2G", "export A=1", "ulimit -n 512"]
    assert {field.name for field in dataclasses.fields(Place)} >= {"memory", "open_files"}


def test_a_checkpoint_counts_when_it_is_named(tmp_path: Path) -> None:
    """`latest` decides: none, a step, and something that is no step."""
    config = read_config(None, [f"out={tmp_path}"])
    config.checkpoints.mkdir()
    assert find_latest(config) == 0
    name_latest(config, 7)
    assert find_latest(config) == 7
    (config.checkpoints / "latest").write_text("seven")
    with pytest.raises(ConfigError, match="does not name a step"):
        find_latest(config)


def test_rest_of_the_ledger() -> None:
    """Of a recorded incident of the lab the share that the ledger leaves unexplained is known, and small."""
    ratio = rest_ratio(analyze([str(Path(__file__).parents[2] / "samples" / "lab-pinned-start" / "run")]))
    assert ratio is not None and 0 < abs(ratio) <= 0.03


def test_what_is_left_out_is_no_cure(tmp_path: Path) -> None:
    """A patched run must reach what killed the first one."""
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "job.log").write_text("step 1/4 phase update\nTraining finished: 4 steps\n")
    assert _reached(tmp_path, "Training finished")
    assert not _reached(tmp_path, "phase checkpoint")


def test_an_error_of_one_scenario_stays_with_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """What cannot be run is reported in its row, and a folder of the user's is left alone."""

    def broken(*_: object) -> None:
        raise OSError("no room")

    monkeypatch.setattr("trainer.lab.__main__.try_scenario", broken)
    outcome = _try(load_scenario("software-error"), tmp_path / "new")
    assert (outcome.passed, outcome.first) == (False, "OSError: no room")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").touch()
    assert "left alone" in str(_try(load_scenario("software-error"), tmp_path / "mine").first)
    assert (tmp_path / "mine" / "thesis.txt").exists()
