"""EasyR1: as verl, with settings of its own."""

from __future__ import annotations

from typing import Any

from rlhfdoctor.budget.inputs import Inputs
from rlhfdoctor.budget.plan import Plan
from rlhfdoctor.frameworks.verl.layout import LOGITS, Variant, copied_logits, plan_variant


class _EasyR1(Variant):
    model = "worker.actor.model.model_path"
    actor = "worker.actor"
    estimator = "grpo"
    tensor_parallel = 2
    reference_has_batches = False
    packs_tokens = False
    copies_states = True
    saves_at_end = True

    def sleep_level(self, inputs: Inputs) -> int:
        return 1

    def late_cache(self, inputs: Inputs) -> bool:
        return not inputs.before("vllm", "0.8.3")

    def has_reference(self, inputs: Inputs) -> bool:
        return not inputs.flag("algorithm.disable_kl")

    def reference_offloaded(self, inputs: Inputs) -> bool:
        return inputs.flag("ref.cpu_offload", default=True)

    def reference_default_width(self, inputs: Inputs) -> int:
        return 2

    def logit_widths(self, inputs: Inputs, reference: bool = False) -> dict[str, Any]:
        """It never computes an entropy (log_probs_from_logits at 0.3.0 to 0.3.2)."""
        return {"logit_width": 2 * LOGITS, "scored_logit_width": LOGITS + copied_logits(inputs)}


def make_plans(inputs: Inputs) -> list[Plan]:
    """Nodes of an EasyR1 run."""
    return plan_variant(inputs, _EasyR1())
