"""simpleRL-reason: as the verl that it was made of."""

from __future__ import annotations

from rlhfdoctor.budget.plan import Plan
from rlhfdoctor.budget.told import Told
from rlhfdoctor.frameworks.verl.layout import Variant, plan_variant
from rlhfdoctor.units import GIB

_SWAP_GIB = 40
"""Its own default, allocated whatever vLLM's release is."""


class _SimpleRL(Variant):
    def sleep_level(self, told: Told) -> int:
        return 2

    def late_cache(self, told: Told) -> bool:
        return False

    def swap_bytes(self, told: Told) -> int:
        return int(told.number("rollout.swap_space", default=_SWAP_GIB) * GIB)

    def reference_default_width(self, told: Told) -> int:
        return 2

    def entropy_always(self, told: Told) -> bool:
        return True

    def divides_anew(self, told: Told) -> bool:
        return False


def make_plans(told: Told) -> list[Plan]:
    """Nodes of a simpleRL-reason run."""
    return plan_variant(told, _SimpleRL())
