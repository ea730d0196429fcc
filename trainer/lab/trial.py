"""A trial: run a scenario, diagnose it from what it left, patch the configuration, run again, compare."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path

import yaml

from rlhfdoctor import Incident, Machine, analyze, estimate, read_trace
from trainer.lab import place
from trainer.lab.scenario import LabError, Scenario, fresh


@dataclass
class Outcome:
    """What came of one scenario."""

    name: str
    skipped: str = ""
    """Why it did not run here."""
    killer: str | None = None
    killer_right: bool = False
    first: str | None = None
    """The first cause, with its confidence, from trace, logs and configuration."""
    first_right: bool = False
    logs_right: bool = False
    """Right also without the trace."""
    logs_first: str | None = None
    patched: list[str] = field(default_factory=list)
    """Settings that `doctor patch --write` changed."""
    survives: bool | None = None
    """Whether the patched run succeeded; None: it was not run again."""
    peak_bytes: int | None = None
    second_peak_bytes: int | None = None
    rest_ratio: float | None = None
    """What the ledger leaves unexplained at the peak, of the whole use."""
    estimate_bytes: int | None = None
    """What `doctor estimate` says of the configuration's peak, and below of the patched one's; faults are not in it."""
    second_estimate_bytes: int | None = None
    seconds: float = 0.0
    cured: bool | None = None
    """What the scenario expects of `survives`."""

    @property
    def passed(self) -> bool:
        """Everything as the scenario's truth has it, judged with trace and logs."""
        return bool(self.skipped) or (self.killer_right and self.first_right and self.survives == self.cured)


def try_scenario(scenario: Scenario, folder: Path, outcome: Outcome | None = None) -> Outcome:
    """The whole trial; all that it makes stays in `folder`: config/, run/, truth.yaml, patched/, second/, outcome.json.

    Args:
        outcome: is filled in as far as the trial gets.
    """
    outcome = outcome or Outcome(scenario.name, cured=scenario.cured)
    began = time.monotonic()
    config, run = fresh(folder) / "config", folder / "run"
    scenario.write(config)
    (folder / "truth.yaml").write_text(yaml.safe_dump(scenario.truth | {"story": scenario.story}, sort_keys=False))
    if scenario.setup is not None:
        _set_up(scenario, folder, config)
    place.run(scenario, config, run)

    incident = analyze([str(run), str(config)])
    outcome.killer, outcome.killer_right, outcome.first, outcome.first_right = _judge(scenario, incident)
    bare = logs_alone(run, folder / "logs-alone")
    alone = analyze([str(bare), str(config)])
    *_, outcome.logs_first, outcome.logs_right = _judge(scenario, alone)
    outcome.logs_right = outcome.logs_right or alone.verdict == scenario.truth.get("from_logs")
    outcome.peak_bytes = peak_bytes(run)
    outcome.rest_ratio = rest_ratio(incident)
    outcome.estimate_bytes = estimated_bytes(config)

    if scenario.cured is not None:
        patched = folder / "patched"
        shutil.copytree(config, patched, ignore=shutil.ignore_patterns("out"))
        if scenario.setup is not None:
            shutil.copytree(config / "out", patched / "out")
        first = incident.findings[0].cause if incident.findings else ""
        outcome.patched = patch(run, patched, [first] if first in scenario.consent else [])
        if outcome.patched:
            status = place.run(scenario, patched, folder / "second")
            healthy = status == 0 and analyze([str(folder / "second"), str(patched)]).verdict == "healthy"
            outcome.survives = healthy and _reached(folder / "second", scenario.reaches)
            outcome.second_peak_bytes = peak_bytes(folder / "second")
            outcome.second_estimate_bytes = estimated_bytes(patched)
    outcome.seconds = time.monotonic() - began
    (folder / "outcome.json").write_text(json.dumps(asdict(outcome), indent=1))
    return outcome


def rest_ratio(incident: Incident) -> float | None:
    """The ledger's remainder as a share of what it adds up to."""
    rest = [part.bytes for part in incident.ledger if part.is_rest]
    whole = sum(part.bytes for part in incident.ledger)
    return rest[0] / whole if rest and whole else None


def estimated_bytes(config: Path) -> int:
    """The peak of host memory that a configuration is said to need."""
    machine = Machine() if place.has_gpu() else Machine(gpus_per_node=0)
    found = estimate([str(path) for path in _files(config)], machine=machine)
    return max(found.of("host", phase) + found.of("shm", phase) for phase in found.phases)


def _reached(run: Path, text: str) -> bool:
    """Whether the job's log holds the text: a patched run that leaves the dangerous part out has proved nothing."""
    return any(text in path.read_text(errors="replace") for path in run.glob("logs/job.*log"))


def _set_up(scenario: Scenario, folder: Path, config: Path) -> None:
    """A run before, with other settings, whose `out` the scenario finds."""
    before = folder / "setup"
    changed = {**scenario.config}
    for section, values in (scenario.setup or {}).items():
        changed[section] = {**changed.get(section, {}), **values}
    Scenario(
        name=scenario.name,
        story="",
        config=changed,
        truth={},
        deepspeed=scenario.deepspeed,
        environment=scenario.environment,
    ).write(before)
    if place.run(scenario, before, folder / "setup-run", limited=False) != 0:
        raise LabError(f"{scenario.name}: the run before did not end well; see {folder / 'setup-run'}")
    shutil.move(before / "out", config / "out")


def _judge(scenario: Scenario, incident: Incident) -> tuple[str | None, bool, str | None, bool]:
    """Killer and first cause, and whether each is right."""
    killer = incident.death.killer if incident.death else None
    best = incident.findings[0] if incident.findings else None
    said = f"{best.cause} {best.confidence:.2f}" if best else None
    if incident.verdict != "cause":
        said = f"{incident.verdict}{f' ({said})' if said else ''}"
    wanted = scenario.truth
    right = incident.verdict == wanted["verdict"]
    if wanted["verdict"] == "cause":
        right = right and best is not None and best.cause in wanted["accept"]
    if "phase" in wanted:
        right = right and incident.death is not None and incident.death.phase == wanted["phase"]
    return killer, killer in wanted.get("killers", [wanted.get("killer")]), said, right


def logs_alone(run: Path, target: Path) -> Path:
    """What a run without `doctor watch` leaves: the logs, and the kernel's, which root can still read."""
    shutil.rmtree(target, ignore_errors=True)
    return Path(shutil.copytree(run / "logs", target))


def patch(run: Path, config: Path, consent: list[str]) -> list[str]:
    """`doctor patch --write` on the configuration, with consent to these rules; the changed lines."""
    before = {path: path.read_text() for path in _files(config)}
    words = [str(run), str(config), "--write"]
    for rule in consent:
        words += ["--consent", rule]
    found = subprocess.run(
        [sys.executable, "-m", "rlhfdoctor", "patch", *words],
        cwd=place.ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    (config / "doctor-patch.txt").write_text(found.stdout + found.stderr)
    changed = []
    for path, text in before.items():
        old, new = text.splitlines(), path.read_text().splitlines()
        changed += [line.strip() for line in new if line not in old]
    return changed


def _files(config: Path) -> list[Path]:
    return [config / name for name in ("train.yaml", "ds.json", "launch.sh")]


def peak_bytes(run: Path) -> int | None:
    """The most that the job's cgroup held that cannot be reclaimed; None without a trace of it."""
    try:
        table = read_trace(run)["cgroup"]
    except Exception:  # no trace, or no cgroup in it: the table shows a dash
        return None
    import polars as pl

    own = table.filter(pl.col("path").str.ends_with("/job"))
    held = own["current_bytes"] - own["active_file_bytes"].fill_null(0) - own["inactive_file_bytes"].fill_null(0)
    return int(held.max()) if len(held) and held.max() is not None else None  # type: ignore[arg-type]
