"""The `doctor` command: flags in, exit code out; everything heavy is imported inside its command.

Exit codes (contract.md): 0 nothing wrong found, 1 an incident, 2 wrong use or unreadable input.
"""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rlhfdoctor import __version__
from rlhfdoctor.errors import DoctorError, UsageError

if TYPE_CHECKING:
    from rlhfdoctor.types import Incident, Patch

_SETTINGS = {"help_option_names": ["-h", "--help"], "max_content_width": 100}


class _Group(click.Group):
    """Prints the errors that users may see without a traceback, and exits with 2."""

    def invoke(self, ctx: click.Context) -> Any:
        for stream in (sys.stdout, sys.stderr):
            if isinstance(stream, io.TextIOWrapper):
                stream.reconfigure(errors="backslashreplace")
        try:
            return super().invoke(ctx)
        except DoctorError as error:
            click.echo(f"doctor: {error}", err=True)
            ctx.exit(2)
        except BrokenPipeError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            ctx.exit(0)
        except (click.ClickException, click.exceptions.Exit, click.Abort, KeyboardInterrupt):
            raise
        except Exception as error:
            if os.environ.get("RLHFDOCTOR_DEBUG"):
                raise
            told = f"{type(error).__name__}: {error}"[:300]
            click.echo(
                f"doctor: an error of the doctor itself, not of your run: {told}\n"
                "Please report it with the output of the same command under RLHFDOCTOR_DEBUG=1.",
                err=True,
            )
            ctx.exit(2)


@click.group(cls=_Group, context_settings=_SETTINGS)
@click.version_option(__version__, prog_name="doctor")
def main() -> None:
    """The doctor for RLHF training runs: what killed the run, why, and what to change.

    \b
    Examples:
      doctor analyze /tmp/ray/session_latest/logs launch.sh
      dmesg -T | doctor analyze -
      doctor patch ray_logs launch.sh --write
      doctor rules explain host-pinned-offload
    """


_PATHS = click.argument("paths", nargs=-1, required=True)


def _reading_options(command: Callable[..., Any]) -> Callable[..., Any]:
    for option in (
        click.option(
            "--config",
            "configs",
            multiple=True,
            metavar="FILE",
            help="Configuration file beside the paths; repeatable.",
        ),
        click.option("--framework", metavar="NAME[==VERSION]", help="Training framework, where the files do not tell."),
        click.option("--since", metavar="TIME", help="Ignore what happened before (2026-01-31 12:00, UTC)."),
        click.option("--until", metavar="TIME", help="Ignore what happened after."),
    ):
        command = option(command)
    return command


@main.command()
@_PATHS
@_reading_options
@click.option("--format", "form", type=click.Choice(["text", "json", "md"]), default="text", show_default=True)
@click.option(
    "--out", type=click.Path(dir_okay=False), metavar="FILE", help="Write the report here instead of standard output."
)
@click.option("--min-confidence", type=click.FloatRange(0, 1), default=0.0, help="Leave out findings below.")
@click.option("--lang", type=click.Choice(["en"]), default="en", help="Language of the report.")
@click.option("--all", "all_findings", is_flag=True, help="Show every finding with all of its evidence.")
def analyze(
    paths: tuple[str, ...],
    form: str,
    out: str | None,
    min_confidence: float,
    lang: str,
    all_findings: bool,
    **reading: Any,
) -> None:
    """Say what ended a run, from what it left behind.

    PATHS is any mix of Ray session or log folders, log files, .gz/.zst/.tar.*/.zip archives,
    launch scripts, YAML, DeepSpeed JSON, and - for standard input.

    \b
    Examples:
      doctor analyze /tmp/ray/session_latest/logs train.log launch.sh
      doctor analyze incident.tar.gz --format json --out report.json
      dmesg -T | doctor analyze - --framework openrlhf==0.5.3
    """
    incident = _analyze(paths, min_confidence=min_confidence, **reading)
    text = _render(incident, form, out is not None, all_findings)
    _write(text, out)
    sys.exit(1 if incident.verdict != "healthy" else 0)


@main.command()
@_PATHS
@_reading_options
@click.option("--write", is_flag=True, help="Apply the safe patches to the files.")
@click.option("--consent", multiple=True, metavar="RULE", help="Apply this rule's consent patches too; repeatable.")
@click.option("--revert", is_flag=True, help="Restore the files as they were before --write, byte for byte.")
def patch(paths: tuple[str, ...], write: bool, consent: tuple[str, ...], revert: bool, **reading: Any) -> None:
    """Show the patches for an incident as unified diffs, apply them, or take them back.

    Safe patches change neither what is learned nor whether the run starts. Consent patches cost
    something and need --consent RULE. Shown ones are never written.

    \b
    Examples:
      doctor patch ray_logs launch.sh
      doctor patch ray_logs launch.sh --write --consent host-container-limit
      doctor patch launch.sh --revert
    """
    from rlhfdoctor.patch.apply import revert_files, selected

    if revert:
        restored = revert_files([Path(path) for path in paths])
        for path in restored:
            click.echo(f"restored {path}")
        if not restored:
            raise UsageError("nothing to take back: no patched file below " + ", ".join(paths))
        return
    incident = _analyze(paths, **reading)
    known = {finding.cause for finding in incident.findings}
    for rule in consent:
        if rule not in known:
            raise UsageError(f"--consent {rule}: no such finding here. Findings: {', '.join(sorted(known)) or 'none'}")
    chosen = selected(incident.findings, consent)
    if not write:
        for finding in incident.findings:
            for item in finding.patches:
                _show_patch(finding.cause, item, item in chosen)
        sys.exit(1 if incident.verdict != "healthy" else 0)
    _write_patches(incident, paths, consent, reading)


def _show_patch(cause: str, item: Patch, wanted: bool) -> None:
    state = "would be written" if wanted else f"not written: {item.safety}" if item.diff else "no file to change"
    change = "" if item.after in (None, "null") else f" {item.before or '(not set)'} -> {item.after}"
    click.echo(f"# {cause}: {item.spelled}{change} [{item.safety}] {state}")
    click.echo(item.diff.encode("utf-8", "surrogateescape"), nl=False)


def _write_patches(
    incident: Incident, paths: tuple[str, ...], consent: tuple[str, ...], reading: dict[str, Any]
) -> None:
    """One patch after the other: each is planned anew on the text that the one before left."""
    from rlhfdoctor.patch.apply import selected, write_file
    from rlhfdoctor.patch.merge import apply_all

    chosen = selected(incident.findings, consent)
    inside = next((p.file for p in chosen if p.file and "!" in p.file), None)
    if inside is not None:
        raise UsageError(f"{inside}: stands in an archive; unpack it to patch it")
    texts = apply_all(chosen)
    if not texts:
        click.echo("nothing written: no patch of a known cause is safe or has your consent", err=True)
        sys.exit(1)
    for name, (text, count) in texts.items():
        write_file(Path(name), text)
        click.echo(f"patched {name} ({count} change{'s' if count > 1 else ''}); take it back with: doctor patch {name} --revert")  # fmt: skip


def _analyze(
    paths: tuple[str, ...], configs: tuple[str, ...], framework: str | None, since: str | None, until: str | None,
    min_confidence: float = 0.0,
) -> Incident:  # fmt: skip
    from rlhfdoctor.diagnose import analyze as run
    from rlhfdoctor.logs.clock import read_time

    if min_confidence != min_confidence:
        raise UsageError("--min-confidence takes a number from 0 to 1")
    if framework is not None and not framework.partition("==")[0].strip():
        raise UsageError(f"--framework '{framework}': write NAME or NAME==VERSION, such as openrlhf==0.5.3")
    bounds = []
    for name, text in (("--since", since), ("--until", until)):
        full = None if text is None else text if ":" in text else f"{text} 00:00"
        value = None if full is None else read_time(full if full.count(":") > 1 else f"{full}:00")
        if full is not None and value is None:
            raise UsageError(f"{name} {text}: write a time such as '2026-01-31 12:00'")
        bounds.append(value)
    with _Progress() as progress:
        return run(
            paths, configs=configs, framework=framework, since=bounds[0], until=bounds[1],
            min_confidence=min_confidence, progress=progress,
        )  # fmt: skip


class _Progress:
    """A line on standard error while reading takes long; nothing on a pipe or for a quick run."""

    def __enter__(self) -> Callable[[str, int], None] | None:
        import time

        self.shown = False
        if not sys.stderr.isatty():
            return None
        last = time.monotonic() + 0.5

        def show(name: str, count: int) -> None:
            nonlocal last
            if time.monotonic() - last < 0.2:
                return
            last, self.shown = time.monotonic(), True
            sys.stderr.write(f"\r\x1b[Kreading {count / 1048576:,.0f} MiB  {name[-60:]}")
            sys.stderr.flush()

        return show

    def __exit__(self, *_error: object) -> None:
        if self.shown:
            sys.stderr.write("\r\x1b[K")


def _render(incident: Incident, form: str, to_file: bool, all_findings: bool) -> str:
    if form == "json":
        from rlhfdoctor.report import json as json_report

        return json_report.render(incident)
    if form == "md":
        from rlhfdoctor.report import markdown

        return markdown.render(incident)
    from rich.console import Console

    from rlhfdoctor.report import terminal

    plain = to_file or sys.stdout is None or not sys.stdout.isatty()
    console = Console(
        file=io.StringIO(), force_terminal=not plain, no_color=plain or bool(os.environ.get("NO_COLOR")), highlight=False,
        width=160 if plain else min(max(Console().width, 60), 160), emoji=False, markup=False,
    )  # fmt: skip
    terminal.render(incident, console, all_findings)
    return console.file.getvalue()  # type: ignore[attr-defined,no-any-return]


def _write(text: str, out: str | None) -> None:
    if out is None:
        if sys.stdout is None:
            raise UsageError("standard output is closed; use --out FILE")
        try:
            sys.stdout.write(text)
            sys.stdout.flush()
        except BrokenPipeError:
            raise
        except OSError as error:
            raise UsageError(f"standard output: {error.strerror}") from None
        return
    try:
        Path(out).write_text(text, encoding="utf-8", errors="backslashreplace")
    except OSError as error:
        raise UsageError(f"--out {out}: {error.strerror}") from None
    click.echo(f"wrote {out}", err=True)


@main.group()
def rules() -> None:
    """The catalogue of causes.

    \b
    Examples:
      doctor rules list
      doctor rules explain gpu-fragmentation
      doctor rules test
      doctor rules new host-my-cause
    """


@rules.command("list")
def rules_list() -> None:
    """All rules with their titles."""
    from rlhfdoctor.engine.catalogue import load_rules

    for rule in load_rules():
        click.echo(f"{rule.id:32} {rule.title}")


@rules.command("explain")
@click.argument("rule_id", metavar="ID")
def rules_explain(rule_id: str) -> None:
    """What a cause means, how to check it by hand, what looks alike, how it is treated.

    \b
    Example:
      doctor rules explain host-pinned-offload
    """
    from rlhfdoctor.engine.catalogue import load_rules
    from rlhfdoctor.engine.explain import explain

    found = next((rule for rule in load_rules() if rule.id == rule_id), None)
    if found is None:
        import difflib

        near = difflib.get_close_matches(rule_id, [rule.id for rule in load_rules()], 3, 0.4)
        raise UsageError(f"no rule '{rule_id}'." + (f" Did you mean {', '.join(near)}?" if near else " See doctor rules list."))  # fmt: skip
    click.echo(explain(found))


@rules.command("test")
@click.argument("folder", required=False, type=click.Path(path_type=Path, exists=True, file_okay=False))
def rules_test(folder: Path | None) -> None:
    """Check every rule against its own samples under fires/ and silent/.

    FOLDER is a catalogue or a single rule; by default the bundled catalogue.
    """
    from rlhfdoctor.selftest import check_rules

    failures, count = check_rules(folder)
    for failure in failures:
        click.echo(failure, err=True)
    click.echo(f"{count - len(failures)} of {count} samples pass")
    sys.exit(1 if failures else 0)


@rules.command("new")
@click.argument("rule_id", metavar="ID")
@click.option("--folder", type=click.Path(path_type=Path), help="The catalogue to add it to.")
def rules_new(rule_id: str, folder: Path | None) -> None:
    """Make the folder of a new rule with an example to fill in."""
    from rlhfdoctor.engine.catalogue import rules_folder
    from rlhfdoctor.engine.explain import write_skeleton

    click.echo(f"wrote {write_skeleton((folder or rules_folder()) / rule_id)}")
