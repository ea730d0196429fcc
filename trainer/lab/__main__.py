"""`python -m trainer.lab list | run NAME... | run --all`: flags in, table out."""

from __future__ import annotations

import signal
import sys
import tempfile
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table

from rlhfdoctor import DoctorError
from trainer.lab import place
from trainer.lab.scenario import LabError, Scenario, load_all, load_scenario
from trainer.lab.trial import Outcome, try_scenario

_MARK = {True: "[green]yes[/]", False: "[red]no[/]", None: "[dim]-[/]"}


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def main() -> None:
    """Real incidents, made on purpose: run, diagnose, patch, run again.

    \b
    Examples:
      python -m trainer.lab list
      python -m trainer.lab run driver-leak --keep /tmp/driver-leak
      python -m trainer.lab run --all
    """


@main.command(name="list")
def show_list() -> None:
    """What there is to run."""
    table = Table("scenario", "killer", "right first causes", "what happens", box=None, padding=(0, 2, 0, 0))
    for scenario in load_all():
        gpu = f"[dim]gpu: {scenario.gpu}[/] " if scenario.gpu else ""
        table.add_row(
            scenario.name,
            ", ".join(scenario.truth.get("killers", [scenario.truth.get("killer") or "-"])),
            ", ".join(scenario.truth.get("accept", [])) or scenario.truth["verdict"],
            gpu + " ".join(scenario.story.split()),
        )
    Console(width=None if sys.stdout.isatty() else 160).print(table)


@main.command()
@click.argument("names", nargs=-1, metavar="[NAME]...")
@click.option("--all", "every", is_flag=True, help="All scenarios; some 25 minutes on two cores.")
@click.option(
    "--keep",
    type=click.Path(path_type=Path, resolve_path=True),
    help="Keep everything that is made, one folder a scenario.",
)
def run(names: tuple[str, ...], every: bool, keep: Path | None) -> None:
    """Run scenarios and say what came of each; exit status 1 if one did not go as its truth says."""
    try:
        chosen = load_all() if every else [load_scenario(name) for name in names]
    except LabError as error:
        raise click.UsageError(str(error)) from None
    if every and names:
        raise click.UsageError("--all runs every scenario; leave the names out")
    if not chosen:
        raise click.UsageError("name a scenario, or --all; `python -m trainer.lab list` shows them")
    missing = place.why_not()
    if missing:
        raise click.ClickException(f"the lab cannot run here: {missing}")
    console = Console(stderr=True)
    console.print("compiling DeepSpeed's CPU Adam, unless it has been (a few minutes, once) ...", highlight=False)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that cgroups and processes are taken away
    try:
        place.warm()
    except LabError as error:
        raise click.ClickException(str(error)) from None
    outcomes = []
    with tempfile.TemporaryDirectory(prefix="lab-") as scratch:
        for number, scenario in enumerate(chosen, 1):
            console.print(f"[{number}/{len(chosen)}] {scenario.name} ...", highlight=False)
            outcomes.append(_try(scenario, (keep or Path(scratch)) / scenario.name))
            console.print(f"    {_line(outcomes[-1])}", highlight=False)
    Console(width=None if sys.stdout.isatty() else 200).print(show(outcomes))
    if not all(outcome.passed for outcome in outcomes):
        sys.exit(1)


def _try(scenario: Scenario, folder: Path) -> Outcome:
    if scenario.gpu and not place.has_gpu():
        return Outcome(scenario.name, skipped=f"needs a GPU: {scenario.gpu}")
    if folder.exists() and any(folder.iterdir()) and not (folder / "truth.yaml").exists():
        return Outcome(scenario.name, first=f"{folder} holds something else; it is left alone", cured=scenario.cured)
    outcome = Outcome(scenario.name, cured=scenario.cured)
    try:
        try_scenario(scenario, folder, outcome)
    except (LabError, DoctorError, OSError, ValueError) as error:  # the others go on
        outcome.first, outcome.first_right = f"{outcome.first or ''} {type(error).__name__}: {error}".strip(), False
    return outcome


def _line(outcome: Outcome) -> str:
    if outcome.skipped:
        return f"[dim]skipped, {outcome.skipped}[/]"
    word = "[green]as it should be[/]" if outcome.passed else "[red]not as it should be[/]"
    return f"{word}: {outcome.killer or 'no killer'}, {outcome.first}, {outcome.seconds:.0f} s"


def show(outcomes: list[Outcome]) -> Table:
    """The table of all outcomes; `predicted` is the peak that `doctor estimate` predicts."""
    table = Table(
        "scenario",
        "killer",
        "right",
        "first cause",
        "right",
        "logs alone",
        "patch",
        "survives",
        "peak",
        "predicted",
        "after",
        "predicted",
        "ledger rest",
        "s",
        box=None,
        padding=(0, 1, 0, 0),
    )
    for o in outcomes:
        if o.skipped:
            table.add_row(o.name, f"[dim]{o.skipped}[/]")
            continue
        table.add_row(
            o.name,
            o.killer or "-",
            _MARK[o.killer_right],
            o.first or "-",
            _MARK[o.first_right],
            _MARK[o.logs_right],
            "; ".join(o.patched) or "-",
            _MARK[o.survives],
            _mib(o.peak_bytes),
            _mib(o.estimate_bytes),
            _mib(o.second_peak_bytes),
            _mib(o.second_estimate_bytes),
            "-" if o.rest_ratio is None else f"{o.rest_ratio:+.1%}",
            f"{o.seconds:.0f}",
        )
    ran = [o for o in outcomes if not o.skipped]
    table.add_section()
    table.add_row(
        f"{len(ran)} run",
        "",
        str(sum(o.killer_right for o in ran)),
        "",
        str(sum(o.first_right for o in ran)),
        str(sum(o.logs_right for o in ran)),
        str(sum(bool(o.patched) for o in ran)),
        f"{sum(o.survives is True for o in ran)} of {sum(o.cured is not None for o in ran)}",
        "",
        "",
        "",
        "",
        f"{max((abs(o.rest_ratio) for o in ran if o.rest_ratio is not None), default=0.0):.1%} at most",
        f"{sum(o.seconds for o in ran):.0f}",
    )
    return table


def _mib(size: int | None) -> str:
    return "-" if size is None else f"{size >> 20} MiB"


if __name__ == "__main__":
    main()
