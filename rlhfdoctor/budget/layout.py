"""Settings -> Plans: the layout of each framework."""

from __future__ import annotations

from rlhfdoctor.budget.openrlhf import plan_openrlhf
from rlhfdoctor.budget.plan import Plan
from rlhfdoctor.budget.told import Told
from rlhfdoctor.budget.verl import plan_verl
from rlhfdoctor.budget.zero import plan_trainer, plan_trl
from rlhfdoctor.errors import UsageError
from rlhfdoctor.vocabulary import TRAIT

_MAKERS = {
    "openrlhf": plan_openrlhf, "verl": plan_verl, "simplerl": plan_verl, "easyr1": plan_verl, "trl": plan_trl, "rlhfdoctor": plan_trainer,
}  # fmt: skip


def make_plans(told: Told) -> list[Plan]:
    """A plan for each kind of node; the machine's flags fill in what the files do not tell.

    Raises:
        UsageError: the framework or the model's size is unknown.
    """
    name = told.framework.name if told.framework is not None else ""
    if name not in _MAKERS:
        raise UsageError(
            "the files do not tell the framework; give the launch script or configuration of an RLHF run, "
            f"or add --framework NAME[==VERSION] ({', '.join(_MAKERS)})"
        )
    if told.framework is not None and told.framework.version is None and not told.has(TRAIT.released_with_doctor):
        newest = f"as {told.release}" if told.release else "as the newest"
        told.assume(f"the release of {name} is not told: {newest} (--framework {name}==VERSION)")
    return _MAKERS[name](told)
