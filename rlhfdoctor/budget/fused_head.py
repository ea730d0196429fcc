"""Bytes of an output head whose logits are made a tile at a time, as in TRL's trainers.

TRL 1.16.0: kernels/chunked_logprob.py (tiles of 4096 tokens by 32768 words; the head's gradient adds up in fp32) and
trainer/utils.py, `add_fused_lm_head`. Without Triton each tile passes through some torch tensors of its size.
"""

from __future__ import annotations

from rlhfdoctor.budget.plan import Model

_TOKENS = 4096
_WORDS = 32_768
_FORWARD = 13
"""Bytes an element of the largest set of torch tensors that `_forward_tile` has at a time, beside the tile."""
_BACKWARD = 29
"""The same of `_backward_tile`."""


def tile_bytes(model: Model, sequences: int, device: str, *, trains: bool) -> int:
    """What the head takes at its peak, beside the weight's gradient in its own type, which is made after the tiles."""
    positions = model.tokens if model.answer_tokens is None else model.answer_tokens
    words, width = min(model.shape.vocabulary, _WORDS), model.compute_width
    tile, weights = min(sequences * positions, _TOKENS) * words, words * model.shape.hidden
    cast = width * weights if model.mixed else 0
    head = model.shape.vocabulary * model.shape.hidden if trains and model.width < 4 else 0
    sums, own = 4 * head, 0 if model.accumulates else model.width * head
    if device == "cuda":
        return max(tile * width + cast + sums - own, sums)
    folded = tile * (width + (_BACKWARD if trains else _FORWARD))
    added = (tile * (width + 4) + 4 * weights) if trains and width < 4 else 0  # `_addmm_fp32` adds fp32 copies
    return max(max(folded, added) + cast + sums - own, sums)
