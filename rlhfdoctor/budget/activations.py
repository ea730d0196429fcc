"""What the layers of a transformer keep for their backward pass, in bytes.

T tokens of a micro batch, h hidden size: about 34 T h a layer in 16 bit, with flash attention (settings_notes, 3).
Where torch alone trains, by the layer's own shape: the gated MLP keeps four tensors of its inner size, attention and
norms some eleven of T h (transformers' Llama and Qwen2, operation by operation). On a CPU torch computes grouped
queries without its fused kernel (aten/native/transformers/sdp_utils_cpp.cpp), and keeps the probabilities, too.
"""

from __future__ import annotations

from rlhfdoctor.budget.plan import Model

BLOCK = 17
"""Values that a layer keeps for its backward pass, in units of T x h: 34 bytes in bf16."""
_ATTENTION, _INNER = 11.5, 4
"""The same by a layer's own shape: in units of T x h, and of T x the MLP's inner size."""


def layer_bytes(model: Model, sequences: int, device: str) -> int:
    """What one layer keeps of a micro batch."""
    tokens = sequences * model.tokens // model.parallel
    if model.backend != "plain":
        return tokens * model.shape.hidden * model.compute_width * BLOCK
    inner = model.shape.intermediate or model.shape.active_experts * model.shape.expert_intermediate
    values = tokens * (_ATTENTION * model.shape.hidden + _INNER * inner)
    if device == "cpu" and model.shape.kv_heads < model.shape.heads:
        values += tokens * model.shape.heads * model.tokens
    return round(values * model.compute_width)


def kept_bytes(model: Model, device: str) -> int:
    """What all layers keep of a micro batch that is trained on; with recomputation, what went into them."""
    if model.recompute:
        tokens = model.sequences * model.tokens // model.parallel
        return tokens * model.shape.hidden * model.compute_width * model.shape.layers
    return layer_bytes(model, model.sequences, device) * model.shape.layers
