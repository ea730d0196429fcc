"""DeepSpeed's own settings, for frameworks that take them in its JSON."""

from __future__ import annotations

from typing import Any

from rlhfdoctor.budget.inputs import Inputs
from rlhfdoctor.budget.layout_settings import read_sub_groups


def read_zero(inputs: Inputs, stage: int) -> dict[str, Any]:
    """DeepSpeed's own settings, as written in its JSON."""
    pins = inputs.value("offload_optimizer.pin_memory"), inputs.value("offload_param.pin_memory")
    default = not inputs.before("deepspeed", "0.19.5")
    optimizer = inputs.flag("offload_optimizer") or inputs.flag("deepspeed_config.offload_optimizer_device")
    param = stage == 3 and (inputs.flag("offload_param") or inputs.flag("deepspeed_config.offload_param_device"))
    return {
        "stage": stage,
        "offload_optimizer": optimizer and stage > 0,
        "offload_param": param,
        "pin_optimizer": optimizer and (default if pins[0] is None else bool(pins[0])),
        "pin_param": param and (default if pins[1] is None else bool(pins[1])),
        "bucket": inputs.count("zero.reduce_bucket_size", default=500_000_000),
        **read_sub_groups(inputs),
        "overlap": inputs.flag("zero.overlap_comm", default=stage == 3),
    }
