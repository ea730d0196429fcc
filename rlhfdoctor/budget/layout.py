"""Settings -> Plans: by the layout in the framework's folder."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.util import find_spec

from rlhfdoctor.budget.inputs import Inputs
from rlhfdoctor.budget.plan import Plan
from rlhfdoctor.budget.types import Hazard
from rlhfdoctor.errors import UsageError
from rlhfdoctor.i18n.message import quoted, say
from rlhfdoctor.plugins import folders
from rlhfdoctor.vocabulary import TRAIT


@dataclass(frozen=True, slots=True)
class Layout:
    """What a framework's `layout.py` offers."""

    make_plans: Callable[[Inputs], list[Plan]]
    """A plan for each kind of node."""
    find_hazards: Callable[[Inputs, Plan], Iterator[Hazard]] | None = None
    """Traps that only this framework has; optional."""


@functools.cache
def find_layout(framework: str) -> Layout | None:
    """The layout of a framework, imported on first use; None if it has no layout."""
    module = f"rlhfdoctor.frameworks.{framework}.layout"
    if framework not in folders.names() or find_spec(module) is None:
        return None
    found = importlib.import_module(module)
    return Layout(found.make_plans, getattr(found, "find_hazards", None))


def make_plans(inputs: Inputs) -> list[Plan]:
    """A plan for each kind of node; the machine's flags fill in what is unknown from the files.

    Raises:
        UsageError: the framework or the model's size is unknown, or what it trains with is not modelled.
    """
    name = inputs.framework.name if inputs.framework is not None else ""
    layout = find_layout(name)
    if layout is None:
        raise UsageError(
            say(
                "the framework cannot be detected; give the launch script or configuration of an RLHF run, "
                "or add --framework NAME[==VERSION] ({known:, })",
                known=tuple(name for name in folders.names() if find_layout(name) is not None),
            )
        )
    if inputs.framework is not None and inputs.framework.version is None and not inputs.has(TRAIT.released_with_doctor):
        newest = quoted(inputs.release) if inputs.release else say("the newest")
        inputs.assume(
            say("release of {name} unknown; assuming {newest} (--framework {name}==VERSION)", name=name, newest=newest)
        )
    return layout.make_plans(inputs)
