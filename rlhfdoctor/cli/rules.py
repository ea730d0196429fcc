"""`doctor rules`: the catalogue on the command line."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from rlhfdoctor.cli.console import echo, language, language_option, make_page, rules_option, tell, trimmed, write
from rlhfdoctor.cli.project import ProjectCommand
from rlhfdoctor.errors import UsageError
from rlhfdoctor.i18n.message import NOTHING, Message, joined, plural, quoted, say
from rlhfdoctor.report.sanitize import shell_path


@click.group()
def rules() -> None:
    """The catalogue of causes.

    \b
    Examples:
      doctor rules list
      doctor rules explain gpu-fragmentation
      doctor rules test
      doctor rules new host-my-cause
      doctor analyze ray_logs --rules rules
    """


@rules.command("list", cls=ProjectCommand)
@rules_option
@language_option
def rules_list(rules: tuple[Path, ...], lang: str) -> None:
    """All rules with their titles."""
    from rlhfdoctor.engine.catalogue import load_catalogue
    from rlhfdoctor.i18n.message import template
    from rlhfdoctor.report.page import Page

    words = language()
    page = Page(make_page(False), words)
    for rule in load_catalogue(*rules):
        title = say("(a draft, not used)") if rule.is_draft else template(rule.title)
        page.print(page.lines((words(title), ""), first=f"{rule.id:32} ", rest=" " * 4))
    write(trimmed(page.console), None)


@rules.command("explain", cls=ProjectCommand)
@click.argument("rule_id", metavar="ID")
@rules_option
@language_option
def rules_explain(rule_id: str, rules: tuple[Path, ...], lang: str) -> None:
    """What a cause means, how to check it by hand, what looks alike, how it is treated.

    \b
    Example:
      doctor rules explain host-pinned-offload
    """
    from rlhfdoctor.engine.catalogue import load_catalogue
    from rlhfdoctor.engine.explain import explain

    catalogue = load_catalogue(*rules)
    found = next((rule for rule in catalogue if rule.id == rule_id), None)
    if found is None:
        import difflib

        near = difflib.get_close_matches(rule_id, [rule.id for rule in catalogue], 3, 0.4)
        raise UsageError(
            say("no rule '{name}'. Did you mean {near:, }?", name=rule_id, near=tuple(near))
            if near
            else say("no rule '{name}'. See doctor rules list.", name=rule_id)
        )
    echo(explain(found, language()))
    echo("")
    if found.is_draft:
        tell(_is_draft(found.path.parent), err=True)
    tell(say("How to read a verdict, and what a confidence means: doctor help verdict"))


def _is_draft(folder: Path) -> Message:
    return say("a draft, not used. What is left to fill in: doctor rules test {folder}", folder=shell_path(str(folder)))


@rules.command("test", cls=ProjectCommand)
@click.argument("folder", required=False, type=click.Path(path_type=Path, exists=True, file_okay=False))
@rules_option
def rules_test(folder: Path | None, rules: tuple[Path, ...]) -> None:
    """Check every rule against its own samples under fires/ and silent/, and name what a rule lacks.

    FOLDER is a catalogue or a single rule; by default those of --rules, else the bundled catalogue. The rules compete
    with the bundled ones, and with those of --rules.
    """
    from rlhfdoctor.core.rule_testing import check_parts, check_rules

    missing: list[str] = []
    failures: list[str] = []
    count = 0
    for one in (folder,) if folder is not None or not rules else rules:
        missing += check_parts(one, rules)
        failed, tried = check_rules(one, rules)
        failures += failed
        count += tried
    for line in (*failures, *missing):
        echo(line, err=True)
    passed = say("{good} of {count} samples pass", good=count - len(failures), count=count)
    lacking = plural("{n} part is missing", "{n} parts are missing", len(missing)) if missing else NOTHING
    tell(joined(passed, lacking, by=", "))
    sys.exit(1 if failures or missing else 0)


@rules.command("new", cls=ProjectCommand)
@click.argument("rule_id", metavar="ID")
@click.option("--folder", type=click.Path(path_type=Path), help="The catalogue to add it to.  [default: rules]")
def rules_new(rule_id: str, folder: Path | None) -> None:
    """Make the folder of a new rule with an example to fill in, in the folder `rules` of the current one.

    The rule is a draft, and says nothing of any run, until no sentence of the example is left; `doctor rules test`
    names what is left to do. `--rules rules`, or `rules = ["rules"]` in rlhfdoctor.toml, puts it to use.

    \b
    Example:
      doctor rules new host-my-cause
    """
    from rlhfdoctor.engine.draft import write_skeleton

    try:
        path = write_skeleton((folder or Path("rules")) / rule_id)
    except OSError as error:
        raise UsageError(joined(quoted(error.filename), quoted(error.strerror), by=": ")) from None
    tell(
        say(
            "wrote {file}, a draft: fill it in until 'doctor rules test {folder}' names nothing more",
            file=str(path),
            folder=shell_path(str(path.parent)),
        )
    )
    tell(say("to use it:  doctor analyze PATH --rules {folder}", folder=shell_path(str(path.parent.parent))))
