"""A rule that is being written: its skeleton, then what its folder still lacks."""

from __future__ import annotations

import re
from collections.abc import Collection
from pathlib import Path
from typing import Any

import yaml

from rlhfdoctor.engine.rulefile import KINDS
from rlhfdoctor.engine.schema import Rule, named_causes
from rlhfdoctor.engine.skeleton import SAID, left_of_skeleton, said, skeleton
from rlhfdoctor.errors import UsageError
from rlhfdoctor.i18n import catalogue
from rlhfdoctor.i18n.language import languages
from rlhfdoctor.i18n.message import say
from rlhfdoctor.places import rules_folder


def write_skeleton(folder: Path) -> Path:
    """Writes rule.yaml, fires/ and silent/ of a new rule, all of it to be filled in.

    In the catalogue that comes with the package its translations, too; a catalogue of one's own needs none.

    Raises:
        UsageError: the name is no id, or the folder exists.
    """
    if not re.fullmatch(rf"(?:{'|'.join(KINDS)})(?:-[a-z0-9]+)+", folder.name):
        raise UsageError(
            say(
                "'{name}' is no rule id; expected e.g. host-my-cause: what gave out ({kinds:, }), then the cause",
                name=folder.name,
                kinds=KINDS,
            )
        )
    if folder.exists():
        raise UsageError(say("{folder} exists already", folder=str(folder)))
    sample = "RuntimeError: CUDA error: out of memory\n"
    for kind, text in (("fires/example", sample), ("silent/look-alike", "Job finished\n")):
        (folder / kind).mkdir(parents=True)
        (folder / kind / "driver.log").write_text(text)
    (folder / "rule.yaml").write_text(skeleton(folder.name))
    english = dict.fromkeys(sentences(folder / "rule.yaml"), "")
    for language in languages()[1:] if _is_shipped(folder) else ():
        file = folder / f"{language}.po"
        file.write_text(catalogue.update(file, english, {}, language), encoding="utf-8")
    return folder / "rule.yaml"


def sentences(path: Path, keys: Collection[str] = SAID) -> list[str]:
    """Every sentence of a rule file that a reader sees, in order, each once.

    Args:
        keys: under which sentences are.
    """
    return said(_plain(path), keys)


def missing_parts(rule: Rule, causes: Collection[str]) -> list[str]:
    """What is missing in a rule's folder, one sentence each.

    Args:
        causes: the ids that a rule may name.
    """
    found = [f"{rule.path}: still the skeleton's: '{text}'" for text in left_of_skeleton(_plain(rule.path))]
    found += [
        f"{rule.path}: '{key}' names {name}, and no rule has that id"
        for key, name in named_causes(rule)
        if name not in causes
    ]
    for language in languages()[1:]:
        file = rule.path.with_name(f"{language}.po")
        if file.exists() or _is_shipped(rule.path.parent):
            found += catalogue.faults(file, dict.fromkeys(sentences(rule.path), ""))
    return found


def _is_shipped(folder: Path) -> bool:
    """Whether a rule's folder is in the catalogue in use itself."""
    return folder.parent.resolve() == rules_folder().resolve()


def _plain(path: Path) -> Any:
    return yaml.safe_load(path.read_text(encoding="utf-8"))
