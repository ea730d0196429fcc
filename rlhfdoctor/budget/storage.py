"""Checkpoints: what is in host memory only while one is written or read.

OpenRLHF: rank 0 gathers whole weights for a Hugging Face save, below stage 3 every rank copies its own since 0.7.5. So
does transformers' Trainer at any release (accelerate, `get_state_dict`; DeepSpeed's clone_tensors_for_torch_save).
FSDP: every rank makes a sharded state dict of its weights on the host (verl with FSDP2: none), EasyR1 one of Adam's
states, too, which verl writes from where they are (utils/checkpoint/fsdp_checkpoint_manager.py, verl 0.2 to 0.9.0,
EasyR1 0.3.0 to 0.3.2).

A resume reads the rank's file with torch.load; the optimizer keeps the moments that were read, and only the rest is
there twice (torch/optim/optimizer.py since 2.1, `load_state_dict`; DeepSpeed stage3.py, `_rigid_load_state_dict`;
measured on CPU, tests/bench/BUDGET.md). A universal checkpoint needs more: at stage 3 optimizer_state.pt is the whole
old shard of rank 0, and every rank reads it (checkpoint/ds_to_universal.py, `_save_optimizer_state_stage3`, 0.14.5 to
0.19.8); at stages 1 and 2 moments are cut out one parameter at a time before they are joined (base_optimizer.py,
universal_checkpoint.py). Also measured.
"""

from __future__ import annotations

from collections.abc import Iterator

from rlhfdoctor.budget.plan import Model, Plan
from rlhfdoctor.budget.subgroups import elements_on_gpu
from rlhfdoctor.budget.types import Need
from rlhfdoctor.i18n.message import NOTHING, Message, say

_GROWTH = 9 / 8
"""io.BytesIO takes an eighth more than it holds when it grows (Modules/_io/bytesio.c, resize_buffer)."""
_MASTER, _MOMENTS = 4, 8
_STATES = _MASTER + _MOMENTS
"""Bytes a parameter of fp32 master weights and two moments."""
_MAPPED = 32 << 20
"""Bytes from which malloc maps a block, and gives it back when it is freed (M_MMAP_THRESHOLD at its largest)."""
_MALLOC_KEEPS = 0.9
"""Of the blocks below (0.6 to 1.1, measured with seven universal checkpoints and glibc 2.36)."""
_ALIGNED = 2
"""Elements per rank: at stages 1 and 2 a partition ends with padding if the size is not a multiple
(nccl_start_alignment_factor, _get_padded_tensor)."""


def storage_needs(model: Model, plan: Plan) -> Iterator[Need]:
    """What one model's ranks on the node need for a moment."""
    if not model.trained:
        return
    if plan.saves:
        yield from _checkpoint(model, plan, "checkpoint")
    if plan.saves_at_end == "checkpoint":
        yield from _checkpoint(model, plan, "final_save")
    elif plan.saves_at_end == "weights":
        yield from _exported(model, plan, "final_save")
    if plan.resumes:
        yield from _resumed(model, plan)


def _resumed(model: Model, plan: Plan) -> Iterator[Need]:
    """What is read and not kept; Adam's moments of the shard, which a budget counts in this phase, are made of it."""
    weights, states = model.width * model.share, model.states
    if model.backend.startswith("fsdp"):
        moments = 2 * model.width * states
        kept = moments if model.offload_optimizer or model.on_host else 0
        read = (weights if _passes_host(model, plan) or model.on_host else 0) + (
            moments if kept or plan.copies_states else 0
        )
        yield _moment(
            model, "resume", read - kept, model.local_ranks, say("the rank's file beside what is made of it"), "read"
        )
        return
    if model.stage == 0:
        yield from _resumed_whole(model, plan.device)
        return
    kept = 0
    if model.since("0.13.2"):  # before, a first step had made moments, which those that are read replace
        if plan.device == "cpu":
            kept = _MOMENTS * states
        elif model.offload_optimizer:
            kept = _MOMENTS * (states - elements_on_gpu(model))
    if plan.reads == "universal":
        yield from _resumed_universal(model)
    else:
        at_once = 1 if plan.reads == "in turn" and model.stage == 3 else model.local_ranks
        what = say("the rank's file beside what is made of it")
        yield _moment(model, "resume", _STATES * states - kept, at_once, what, "read")
    if model.stage == 3:
        return
    if plan.reads != "universal" and model.trainable % (_ALIGNED * model.ranks):
        what = say("master weights, copied once more to be padded")
        yield _moment(model, "resume", _MASTER * states, 1, what, "read")
    # read before the states, so that the moments are not there yet
    what = say("whole weights, read by every rank")
    yield _moment(model, "resume", max(model.width * model.parameters - kept, 0), model.local_ranks, what, "weights")


def _resumed_universal(model: Model) -> Iterator[Need]:
    """In addition to what is kept; assumes that as many ranks wrote the checkpoint as there are now.

    Files hold one whole parameter in fp32 each; malloc keeps what was freed of those below its threshold for mappings.
    """
    small = sum(numel * many for numel, many in model.shape.parameter_sizes() if _MASTER * numel < _MAPPED)
    what = say("files of single parameters that were read and freed, which malloc keeps")
    yield _moment(model, "resume", round(_MALLOC_KEEPS * _MASTER * small), model.local_ranks, what, "read")
    if model.stage == 3:
        what = say("rank 0's whole old shard, read by every rank from a universal checkpoint")
        yield _moment(model, "resume", _STATES * model.states, model.local_ranks, what, "read")
        return
    what = say("moments, a parameter each, beside those put together")
    both = _MASTER * model.states + _MASTER * min(
        small // model.ranks, model.states
    )  # of two moments one is freed by then, the small ones' not
    yield _moment(model, "resume", both, model.local_ranks, what, "read")


def _resumed_whole(model: Model, device: str) -> Iterator[Need]:
    """Stage 0 has weights and states in one file, whole."""
    low = (
        model.width == 2 and model.backend == "deepspeed"
    )  # with masters, and moments that the start has made already (fp16/unfused_optimizer.py)
    moments = (_MOMENTS if model.backend == "deepspeed" else 2 * model.width) * model.trainable
    read = (_MASTER * model.trainable if low else 0) + moments + model.width * model.parameters
    kept = moments if device == "cpu" and not low else 0
    yield _moment(
        model, "resume", read - kept, model.local_ranks, say("whole weights and states, read by every rank"), "read"
    )


def _checkpoint(model: Model, plan: Plan, phase: str) -> Iterator[Need]:
    """Weights and states of every rank; DeepSpeed writes them from where they are."""
    share, count = model.states, model.parameters
    if model.backend.startswith("fsdp"):
        size = model.width * (
            (model.share if _passes_host(model, plan) else 0) + (2 * share if plan.copies_states else 0)
        )
        what = say(
            "state dict of the shard's weights{copies_states}, on the host",
            copies_states=(say(" and of Adam") if plan.copies_states else NOTHING),
        )
        yield _moment(model, phase, size, model.local_ranks, what)
    elif plan.saves_in_memory:
        copies = (share, model.local_ranks) if model.stage == 3 else (count if model.local_ranks else 0, 1)
        states = round(_STATES * share * _GROWTH)
        yield _moment(model, phase, states, model.local_ranks, say("optimizer states, serialised in memory"))
        yield _moment(model, phase, model.width * copies[0], copies[1], say("weights, serialised in memory"))
    if plan.saves_hf:
        yield from _exported(model, plan, phase)


def _exported(model: Model, plan: Plan, phase: str) -> Iterator[Need]:
    """Whole weights in Hugging Face's form."""
    if not model.saved:
        return
    whole = model.width * model.parameters
    if model.clones:
        yield _moment(model, phase, whole, model.local_ranks, say("whole weights, copied to the host by every rank"))
    elif model.gathers:
        yield _moment(model, phase, whole, 1, say("whole weights, gathered on rank 0"))
    written = model.trainable if model.lora_rank else model.parameters  # of adapters nothing else is saved
    size = min(model.width * written, plan.file_bytes)
    yield _moment(model, phase, size, 1, say("a file of weights as it is written"))


def _passes_host(model: Model, plan: Plan) -> bool:
    """Whether a checkpoint's weights go through host memory: verl saves FSDP2's as they are (get_fsdp_state_ctx)."""
    return model.backend == "fsdp1" or plan.copies_weights


def _moment(model: Model, phase: str, size: int, count: int, what: Message, moment: str = "save") -> Need:
    return Need(
        role=model.role,
        process=model.process,
        place="host",
        phases=(phase,),
        bytes=size,
        count=count,
        what=what,
        transient=moment,
    )
