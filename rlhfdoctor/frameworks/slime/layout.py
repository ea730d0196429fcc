"""slime trains with Megatron, which the estimate does not support yet."""

from __future__ import annotations

from rlhfdoctor.budget.inputs import Inputs
from rlhfdoctor.budget.plan import Plan
from rlhfdoctor.errors import UsageError
from rlhfdoctor.i18n.message import quoted, say


def make_plans(inputs: Inputs) -> list[Plan]:
    """No plan.

    Raises:
        UsageError: always, with what trains the run.
    """
    backend = say("FSDP of its own") if str(inputs.value("train_backend")) == "fsdp" else quoted("Megatron")
    raise UsageError(
        say(
            "slime trains with {backend}, whose memory is not modelled; the estimate knows the FSDP and DeepSpeed of "
            "other frameworks",
            backend=backend,
        )
    )
