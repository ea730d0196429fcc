"""simpleRL-reason: as the verl that it was made of."""

from __future__ import annotations

from rlhfdoctor.budget.inputs import Inputs
from rlhfdoctor.budget.plan import Plan
from rlhfdoctor.frameworks.verl.layout import Variant, plan_variant
from rlhfdoctor.units import GIB

_SWAP_GIB = 40
"""Its own default, allocated with every release of vLLM."""


class _SimpleRL(Variant):
    def sleep_level(self, inputs: Inputs) -> int:
        return 2

    def late_cache(self, inputs: Inputs) -> bool:
        return False

    def swap_bytes(self, inputs: Inputs) -> int:
        return int(inputs.number("rollout.swap_space", default=_SWAP_GIB) * GIB)

    def reference_default_width(self, inputs: Inputs) -> int:
        return 2

    def entropy_always(self, inputs: Inputs) -> bool:
        return True

    def divides_anew(self, inputs: Inputs) -> bool:
        return False


def make_plans(inputs: Inputs) -> list[Plan]:
    """Nodes of a simpleRL-reason run."""
    return plan_variant(inputs, _SimpleRL())
