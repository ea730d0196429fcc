"""A scenario: one YAML file below scenarios/ -> what to run, where; what is true about it."""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml
from omegaconf import OmegaConf

FOLDER = Path(__file__).parent / "scenarios"
BASE = Path(__file__).parent / "base.yaml"


class LabError(Exception):
    """The lab cannot do what it was asked to; said in one line."""


@dataclass(frozen=True)
class Place:
    """Where a run lives, and what is short there."""

    memory: str | None = None
    """Memory of the job as Slurm takes it (`2400M`); in the launch script, where a patch may change it."""
    node_memory: str | None = None
    """Limit of the cgroup around the job's: what the node has for all jobs."""
    shm: str | None = None
    """Size of /dev/shm."""
    disk: str | None = None
    """Size of the file system that `out` is on."""
    ray_disk: str | None = None
    """Size of the file system of Ray's session, where objects go that the store has no room for."""
    open_files: int | None = None
    """`ulimit -n`."""
    ray_free: str | None = None
    """Ray's memory monitor kills when the node's use has grown by that much."""


@dataclass(frozen=True)
class Scenario:
    """One incident."""

    name: str
    story: str
    """What happens, and why."""
    config: dict[str, Any]
    """What differs from base.yaml."""
    truth: dict[str, Any]
    """verdict, killer or killers, accept (causes that are right as the first one), phase, from_logs (the right verdict
    if logs alone do not suffice); never shown to the doctor."""
    deepspeed: dict[str, Any] = field(default_factory=lambda: {"zero_optimization": {"stage": 2}})
    place: Place = field(default_factory=Place)
    environment: dict[str, str] = field(default_factory=dict)
    """Exports of the launch script."""
    setup: dict[str, Any] | None = None
    """A run before, without limits, with these changes (for example to have a checkpoint)."""
    act: dict[str, Any] | None = None
    """`at`: text of the job's log at which the action `do` (kill-rank, ray-stop) is performed."""
    consent: tuple[str, ...] = ()
    """Rules whose consent patches the user agrees to."""
    cured: bool | None = None
    """Whether the patched run must survive; None: no patch can help."""
    reaches: str = "Training finished"
    """What the patched run's log must hold, so that it did not just leave out what was dangerous."""
    gpu: str = ""
    """Why it needs a GPU."""
    seed: bool = False
    """One of the five incidents that this project was started for; runs in `make test`."""

    def write(self, folder: Path) -> None:
        """The user's side: train.yaml, ds.json and launch.sh."""
        folder.mkdir(parents=True)
        merged = OmegaConf.merge(OmegaConf.load(BASE), OmegaConf.create(self.config))
        (folder / "train.yaml").write_text(OmegaConf.to_yaml(merged))
        (folder / "ds.json").write_text(json.dumps(self.deepspeed, indent=2) + "\n")
        lines = ["#!/bin/bash"]
        if self.place.memory:
            lines.append(f"#SBATCH --mem={self.place.memory}")
        lines += [f"export {key}={value}" for key, value in self.environment.items()]
        if self.place.ray_free:
            lines.append(f"export RAY_memory_usage_threshold={_threshold(self.place.ray_free):.6f}")
        if self.place.open_files:
            lines.append(f"ulimit -n {self.place.open_files}")
        lines.append("exec python -m trainer.train --config train.yaml --deepspeed ds.json")
        (folder / "launch.sh").write_text("\n".join(lines) + "\n")


def _threshold(free: str) -> float:
    """Share of the node's memory that is in use now, and `free` more; by available memory, as Ray counts it."""
    import psutil

    memory = psutil.virtual_memory()
    return (memory.total - memory.available + size_of(free)) / memory.total


def size_of(text: str) -> int:
    """Bytes of a size as Slurm and mount(8) write it: `64M`, `2G`.

    >>> size_of("64M")
    67108864
    """
    return int(float(text[:-1]) * {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}[text[-1].upper()])


def load_scenario(name: str) -> Scenario:
    """A scenario by its file's name.

    Raises:
        LabError: no such scenario, or a fault in its file.
    """
    path = FOLDER / f"{name}.yaml"
    if not path.exists():
        raise LabError(f"no scenario {name!r}; `python -m trainer.lab list` shows them")
    try:
        found = yaml.safe_load(path.read_text())
        place = Place(**found.pop("place", {}))
        return Scenario(name=name, place=place, consent=tuple(found.pop("consent", ())), **found)
    except (yaml.YAMLError, TypeError, AttributeError) as error:
        raise LabError(f"{path}: {error}") from None


def load_all() -> list[Scenario]:
    """All scenarios; the five that started the project come first."""
    found = [load_scenario(path.stem) for path in sorted(FOLDER.glob("*.yaml"))]
    return sorted(found, key=lambda s: (not s.seed, bool(s.gpu), s.name))


def fresh(folder: Path) -> Path:
    """An empty folder."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    return folder
