"""`doctor rules`: the catalogue on the command line."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from rlhfdoctor.cli.console import echo, language_option, tell
from rlhfdoctor.errors import UsageError
from rlhfdoctor.i18n.message import NOTHING, joined, plural, say


@click.group()
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
@language_option
def rules_list(lang: str) -> None:
    """All rules with their titles."""
    from rlhfdoctor.engine.catalogue import load_rules
    from rlhfdoctor.i18n.language import load_language
    from rlhfdoctor.i18n.message import template

    words = load_language(lang)

    for rule in load_rules():
        echo(f"{rule.id:32} {words(template(rule.title))}")


@rules.command("explain")
@click.argument("rule_id", metavar="ID")
@language_option
def rules_explain(rule_id: str, lang: str) -> None:
    """What a cause means, how to check it by hand, what looks alike, how it is treated.

    \b
    Example:
      doctor rules explain host-pinned-offload
    """
    from rlhfdoctor.engine.catalogue import load_rules
    from rlhfdoctor.engine.explain import explain
    from rlhfdoctor.i18n.language import load_language

    found = next((rule for rule in load_rules() if rule.id == rule_id), None)
    if found is None:
        import difflib

        near = difflib.get_close_matches(rule_id, [rule.id for rule in load_rules()], 3, 0.4)
        raise UsageError(
            say("no rule '{name}'. Did you mean {near:, }?", name=rule_id, near=tuple(near))
            if near
            else say("no rule '{name}'. See doctor rules list.", name=rule_id)
        )
    echo(explain(found, load_language(lang)))
    echo("")
    tell(say("How to read a verdict, and what a confidence means: doctor help verdict"))


@rules.command("test")
@click.argument("folder", required=False, type=click.Path(path_type=Path, exists=True, file_okay=False))
def rules_test(folder: Path | None) -> None:
    """Check every rule against its own samples under fires/ and silent/, and name what a rule lacks.

    FOLDER is a catalogue or a single rule; by default the bundled catalogue.
    """
    from rlhfdoctor.core.rule_testing import check_parts, check_rules

    missing = check_parts(folder)
    failures, count = check_rules(folder)
    for line in (*failures, *missing):
        echo(line, err=True)
    passed = say("{good} of {count} samples pass", good=count - len(failures), count=count)
    lacking = plural("{n} part is missing", "{n} parts are missing", len(missing)) if missing else NOTHING
    tell(joined(passed, lacking, by=", "))
    sys.exit(1 if failures or missing else 0)


@rules.command("new")
@click.argument("rule_id", metavar="ID")
@click.option("--folder", type=click.Path(path_type=Path), help="The catalogue to add it to.")
def rules_new(rule_id: str, folder: Path | None) -> None:
    """Make the folder of a new rule with an example to fill in; `doctor rules test` names what is left to do."""
    from rlhfdoctor.engine.draft import write_skeleton
    from rlhfdoctor.places import rules_folder

    path = write_skeleton((folder or rules_folder()) / rule_id)
    tell(
        say(
            "wrote {file}; fill it in until 'doctor rules test {folder}' names nothing more",
            file=str(path),
            folder=str(path.parent),
        )
    )
