"""What a pass takes of a card: activations with and without recomputation, logits; the budget's figures beside measured ones.

No framework: a transformer of transformers with random weights, gradients there before anything is measured. On CUDA it
is a Qwen2.5-1.5B in bf16 with one sequence of 4096 tokens, on a CPU a toy.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache, partial
from typing import Any, TypeAlias

from rlhfdoctor.budget.compute import compute_needs
from rlhfdoctor.budget.plan import Model
from rlhfdoctor.budget.shapes import Shape, find_shape
from tests.gpu.meter import Meter
from tests.gpu.step import Device, Figure, Place, Step, about

ERROR = 0.15
"""Judgement: a budget that is this far off still names the setting that has to change."""
_COMPUTE = "rlhfdoctor/budget/compute.py"
Peak: TypeAlias = Callable[[Device, bool], int]


def budget_model(device: Device, recompute: bool = False) -> Model:
    """The model as the budget sees it: one rank, weights of two bytes."""
    shape = find_shape("Qwen/Qwen2.5-1.5B") if device == "cuda" else _TOY
    assert shape is not None
    return Model(
        role="actor",
        shape=shape,
        trained=True,
        ranks=1,
        local_ranks=1,
        backend="plain",
        width=2,
        sequences=1,
        tokens=4096 if device == "cuda" else 128,
        recompute=recompute,
    )


_TOY = Shape(
    name="toy", layers=2, hidden=128, heads=4, kv_heads=2, head_dim=32, intermediate=512, vocabulary=2048, tied=True
)


def predicted(moment: str, phase: str, only: str, recompute: bool, device: Device) -> Mapping[str, float]:
    """Bytes that the budget says for a moment of a phase; `only`: of needs that begin so."""
    needs = compute_needs(budget_model(device, recompute), "cuda")
    chosen = [n.bytes for n in needs if n.transient == moment and phase in n.phases and str(n.what).startswith(only)]
    return {"bytes": float(sum(chosen))}


@cache
def make(device: Device, head: bool = False) -> Any:
    """The transformer on the device, every weight with a gradient."""
    import torch
    from transformers import AutoModel, AutoModelForCausalLM, Qwen2Config

    shape = budget_model(device).shape
    config = Qwen2Config(
        vocab_size=shape.vocabulary,
        hidden_size=shape.hidden,
        intermediate_size=shape.intermediate,
        num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads,
        num_key_value_heads=shape.kv_heads,
        tie_word_embeddings=shape.tied,
    )
    kind = AutoModelForCausalLM if head else AutoModel
    with torch.device(device):
        model = kind.from_config(config, dtype=torch.bfloat16)
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    return model.train()


def _tokens(device: Device) -> Any:
    import torch

    model = budget_model(device)
    return torch.randint(0, model.shape.vocabulary, (1, model.tokens), device=device)


def backward_peak(device: Device, recompute: bool) -> int:
    """Highest bytes of a forward and a backward pass through the layers, without a head; the second of two passes."""
    import torch

    model, tokens = make(device), _tokens(device)
    if recompute:
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})

    def once() -> None:
        hidden = model(tokens, use_cache=False).last_hidden_state
        hidden.backward(torch.ones_like(hidden))

    once()
    meter = Meter(device)
    once()
    return meter.peak()


def logits_peak(device: Device, scored: bool) -> int:
    """Highest bytes of the head and the log-probabilities, as OpenRLHF's actor.forward computes them: an fp32 copy."""
    import torch

    model = budget_model(device)
    weight = torch.randn(model.shape.vocabulary, model.shape.hidden, device=device, dtype=torch.bfloat16)
    hidden = torch.randn(model.tokens, model.shape.hidden, device=device, dtype=torch.bfloat16)
    labels = torch.randint(0, model.shape.vocabulary, (model.tokens, 1), device=device)
    weight.requires_grad_(not scored), hidden.requires_grad_(not scored)
    weight.grad, hidden.grad = (None, None) if scored else (torch.zeros_like(weight), torch.zeros_like(hidden))

    def once() -> None:
        logits = (hidden @ weight.T).float()
        logprobs = logits.gather(-1, labels).squeeze(-1) - logits.logsumexp(-1)
        if not scored:
            logprobs.sum().backward()

    with torch.set_grad_enabled(not scored):
        once()
        meter = Meter(device)
        once()
        return meter.peak()


def whole_peak(device: Device, recompute: bool) -> int:
    """Highest bytes of a whole training pass, the head included."""
    model, tokens = make(device, head=True), _tokens(device)
    if recompute:
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})

    def once() -> None:
        logits = model(tokens, use_cache=False).logits[0].float()
        (logits.gather(-1, tokens[0, :, None]).squeeze(-1) - logits.logsumexp(-1)).sum().backward()

    once()
    meter = Meter(device)
    once()
    return meter.peak()


def _whole(recompute: bool, device: Device) -> Mapping[str, float]:
    parts = [predicted(moment, "update", "", recompute, device)["bytes"] for moment in ("backward", "head")]
    return {"bytes": max(parts)}


def _against(
    measure: Callable[[Device, bool], int], option: bool, predict: Callable[[Device], Mapping[str, float]], device: Device
) -> Mapping[str, Figure]:
    size = measure(device, option)
    return {"over predicted": round(size / predict(device)["bytes"], 3), "bytes": size}


def _step(name: str, fact: str, place: str, measure: Peak, option: bool, predict: Callable[[Device], Mapping[str, float]]) -> Step:
    return Step(
        name=name,
        fact=fact,
        assumed=Place(_COMPUTE, place),
        run=partial(_against, measure, option, predict),
        predict=predict,
        expected={"over predicted": about(1, ERROR)},
    )


STEPS = (
    _step(
        "activations",
        "without recomputation a layer keeps 34 bytes for each token and hidden value",
        "about 34 T h per layer (flash attention)",
        backward_peak,
        False,
        partial(predicted, "backward", "update", "", False),
    ),
    _step(
        "activations-recomputed",
        "with recomputation the inputs of the layers stay, and one layer is whole",
        "With recomputation the inputs of the layers stay",
        backward_peak,
        True,
        partial(predicted, "backward", "update", "", True),
    ),
    _step(
        "logits-trained",
        "logits and their gradients take 12 bytes for each token and word",
        "bytes per token and vocabulary entry in training",
        logits_peak,
        False,
        partial(predicted, "head", "update", "logits", False),
    ),
    _step(
        "logits-scored",
        "without gradients they take 6",
        "about the same backward; actor.forward), 6 forward only",
        logits_peak,
        True,
        partial(predicted, "head", "score", "logits", False),
    ),
    _step(
        "whole-pass",
        "the larger of the backward pass and the head is the peak of a training pass",
        "on a GPU the logits take the place of what one",
        whole_peak,
        False,
        partial(_whole, False),
    ),
    _step(
        "whole-pass-recomputed",
        "so it is with recomputation",
        "on a GPU the logits take the place of what one",
        whole_peak,
        True,
        partial(_whole, True),
    ),
)
