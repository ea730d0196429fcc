"""Short ways from a text to its patched text, by the road that `doctor patch` takes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rlhfdoctor.conditions.match import Facts
from rlhfdoctor.engine.schema import Treatment
from rlhfdoctor.patch.merge import apply_all
from rlhfdoctor.patch.plan import Configuration, plan_patches
from rlhfdoctor.patch.spans import splice
from rlhfdoctor.settings.read import read_configuration
from rlhfdoctor.types import Framework, Patch, Setting

OPENRLHF = Framework(name="openrlhf", version="0.5.4")
DOTTED = Framework(name="openrlhf", version="0.11.2")
VERL = Framework(name="verl", version="0.6.1")
EASYR1 = Framework(name="easyr1", version="0.3.1")


def read(name: str, text: str, framework: Framework | None = None) -> dict[str, Setting]:
    """Canonical name -> the setting in force in one file."""
    settings, gaps = read_configuration(name, text, framework.name if framework else None)
    assert gaps == []
    return {setting.name: setting for setting in settings}


def value_of(name: str, text: str, setting: str, framework: Framework | None = None) -> Any:
    """What a setting of a file is, None where it is not set."""
    found = read(name, text, framework).get(setting)
    return None if found is None else found.value


def plan(
    name: str,
    text: str,
    setting: str,
    to: Any,
    *,
    add: bool = False,
    framework: Framework | None = None,
    versions: dict[str, tuple[str, str]] | None = None,
) -> Patch | None:
    """The patch for one treatment of one file."""
    settings, _ = read_configuration(name, text, framework.name if framework else None)
    treatment = Treatment(setting=setting, to=to, safety="safe", effect="for a test", add=add)
    facts = Facts(events={}, evidence={}, settings={})
    configuration = Configuration({name: text}, settings, framework, versions or {})
    return next(iter(plan_patches([treatment], facts, configuration)), None)


def patched(name: str, text: str, setting: str, to: Any, **how: Any) -> str:
    """The file's text after the patch for one treatment."""
    patch = plan(name, text, setting, to, **how)
    assert patch is not None, "no patch is proposed"
    assert patch.diff, f"the patch is only told: {patch.spelled}"
    return splice(text, patch.replacements)


def texts_after(patches: Sequence[Patch]) -> dict[str, tuple[str, int]]:
    """File -> its text after the patches, and how many they are."""
    return {change.file: (change.after, change.count) for change in apply_all(patches)}
