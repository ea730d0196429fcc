"""Sub-groups of ZeRO-3: how a rank's shard is cut for the optimizer step; which of them `ratio` moves to the GPU.

DeepSpeed runtime/zero/stage3.py at 0.12.3 to 0.19.5: `_create_fp16_sub_groups` closes a sub-group once it has
sub_group_size elements, `_create_fp32_partitions` counts them out in whole ones. OpenRLHF and transformers give the
optimizer two groups of parameters, with weight decay and without; norms and biases are the second.
"""

from __future__ import annotations

from collections.abc import Iterator

from rlhfdoctor.budget.plan import Model

_SINCE, _FIRST_ON_GPU = "0.12.3", "0.18.0"
"""Releases: before, there is no ratio; from then on the first sub-groups go to the GPU, before the last ones."""


def elements_on_gpu(model: Model) -> int:
    """Elements of a rank's optimizer states that `offload_optimizer.ratio` leaves on the GPU.

    0 for adapters, which are one sub-group.

    >>> from rlhfdoctor.budget.shapes import find_shape
    >>> qwen = Model(role="actor", shape=find_shape("Qwen2.5-72B"), trained=True, ranks=8, local_ranks=8, stage=3,
    ...              backend="deepspeed", version="0.15.0", offload_optimizer=True, ratio=0.9)
    >>> f"{elements_on_gpu(qwen):.1e}"  # of 10 sub-groups one: that of norms and biases
    '2.7e+05'
    """
    if (
        not model.offload_optimizer
        or model.stage != 3
        or model.ratio >= 1
        or model.lora_rank
        or not model.since(_SINCE)
    ):
        return 0
    sizes = list(_sub_groups(model))
    scale = min(model.states / max(sum(sizes), 1), 1)  # of a shape with only the total size known
    if model.since(_FIRST_ON_GPU):
        return int(scale * sum(sizes[: int((1 - model.ratio) * len(sizes))]))
    return int(scale * sum(sizes[int(model.ratio * len(sizes)) :]))


def _sub_groups(model: Model) -> Iterator[int]:
    """Elements of each, in order; weights come in the order of the model."""
    decayed = open_ = 0
    for numel in _in_order(model):
        part = -(-numel // model.ranks)
        decayed, open_ = decayed + part, open_ + part
        if open_ >= model.sub_group:
            yield open_
            open_ = 0
    if open_:
        yield open_
    yield max(model.states - decayed, 0)


def _in_order(model: Model) -> Iterator[int]:
    shape = model.shape
    table = shape.vocabulary * shape.hidden
    sizes = shape.layer_sizes()
    yield table
    for _ in range(shape.layers):
        for numel, many in sizes:
            yield from [numel] * many
    if not shape.tied and not model.value_head:
        yield table
