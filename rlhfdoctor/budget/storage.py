"""Saving and resuming: what is in host memory only while a checkpoint is written or read.

OpenRLHF and DeepSpeed: rank 0 gathers whole weights for a Hugging Face save; a resume loads a rank's file with torch.load
before it is copied (12 to 14 N/d). FSDP (verl): every rank makes a sharded state dict of weights and states on the host
(settings_notes section 3).
"""

from __future__ import annotations

from collections.abc import Iterator

from rlhfdoctor.budget.plan import Model, Plan
from rlhfdoctor.estimates import Need

_GROWTH = 9 / 8
"""io.BytesIO takes an eighth more than it holds when it grows (Modules/_io/bytesio.c, resize_buffer)."""
_STATES = 12
"""Bytes a parameter of fp32 master weights and two moments."""


def storage_needs(model: Model, plan: Plan) -> Iterator[Need]:
    """What one model's ranks on the node need for a moment."""
    if not model.trained:
        return
    share, count = model.states, model.parameters
    if plan.saves:
        if model.backend.startswith("fsdp"):
            yield _moment(
                model, "checkpoint", _STATES * share, model.here, "state dict of weights and optimizer on the host"
            )
        elif plan.saves_in_memory:
            weights = model.width * (share if model.stage == 3 else count if model.here else 0)
            yield _moment(
                model,
                "checkpoint",
                round(_STATES * share * _GROWTH),
                model.here,
                "optimizer states, serialised in memory",
            )
            yield _moment(
                model, "checkpoint", weights, model.here if model.stage == 3 else 1, "weights, serialised in memory"
            )
    if plan.saves_hf and model.saved:
        if model.gathers:
            yield _moment(model, "checkpoint", model.width * count, 1, "whole weights, gathered on rank 0")
        written = model.trainable if model.lora_rank else count  # of adapters nothing else is saved
        size = min(model.width * written, plan.file_bytes)
        yield _moment(model, "checkpoint", size, 1, "a file of weights as it is written")
    if plan.resumes:
        yield _moment(
            model,
            "resume",
            _STATES * share + (model.width * share if model.stage == 3 else 0),
            model.here,
            "the rank's file, loaded before it is copied",
        )


def _moment(model: Model, phase: str, size: int, count: int, what: str) -> Need:
    return Need(
        role=model.role,
        process=model.process,
        place="host",
        phases=(phase,),
        bytes=size,
        count=count,
        what=what,
        moment="save",
    )
