"""Before a run: paths of its configuration -> the memory that it will take on the fullest node."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from rlhfdoctor.budget.estimate import fullest
from rlhfdoctor.budget.told import Machine, Told
from rlhfdoctor.diagnose import Reading, make_case, read_all
from rlhfdoctor.estimates import Estimate
from rlhfdoctor.evidence.setup import make_told
from rlhfdoctor.logs.events import order_events
from rlhfdoctor.patch.plan import Configuration
from rlhfdoctor.patch.suggest import suggest as find_change
from rlhfdoctor.types import Patch

__all__ = ["Machine", "estimate", "suggest"]


def estimate(
    paths: Sequence[str], *, configs: Sequence[str] = (), framework: str | None = None, machine: Machine | None = None
) -> Estimate:
    """The memory budget of a configuration: by role and phase, against the limits.

    Args:
        paths: launch scripts, YAML, DeepSpeed JSON, logs that show the settings; `-` for standard input.
        configs: configuration files beside the paths.
        framework: `NAME` or `NAME==VERSION`, where the files do not tell.
        machine: what the files do not tell of the machines.

    Raises:
        SourceError: nothing could be read.
        UsageError: neither files nor flags tell the framework or the model's size.
    """
    told, reading = read_told(paths, configs=configs, framework=framework, machine=machine)
    return replace(fullest(told), gaps=tuple(reading.gaps))


def suggest(
    paths: Sequence[str], *, configs: Sequence[str] = (), framework: str | None = None, machine: Machine | None = None
) -> tuple[Estimate, list[Patch]]:
    """As `estimate`, after the smallest change of the user's settings that fits, and that change.

    Raises:
        SourceError, UsageError: as `estimate`.
    """
    told, reading = read_told(paths, configs=configs, framework=framework, machine=machine)
    configuration = Configuration(reading.texts, list(told.settings.values()), told.framework, told.versions)
    found, patches = find_change(told, configuration)
    return replace(found, gaps=tuple(reading.gaps)), patches


def read_told(
    paths: Sequence[str], *, configs: Sequence[str] = (), framework: str | None = None, machine: Machine | None = None
) -> tuple[Told, Reading]:
    """What the files and the user tell, before anything is computed from it."""
    machine = machine or Machine()
    reading = read_all([*paths, *configs])
    case = make_case(order_events(reading.events), reading, framework)
    return make_told(case, machine), reading
