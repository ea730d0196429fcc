"""The shape of a model, from its config.json, its public name or a number of parameters.

Parameter counts are exact for the families of models.yaml (decoder-only transformers with gated MLPs and RMS norms:
Qwen2, Qwen3, Llama, Mistral, Mixtral, Baichuan); `heads x head_dim` may differ from `hidden`.
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

from rlhfdoctor import documents
from rlhfdoctor.errors import SourceError, UsageError
from rlhfdoctor.files.read import read_bytes
from rlhfdoctor.i18n.message import joined, quoted, say

_BILLIONS = re.compile(r"(?<![\w.])(\d{1,4}(?:\.\d+)?)b(?![a-z0-9])", re.I)
_TYPICAL_LAYER_RATIO = 128
"""Hidden size per layer of dense models between 0.5B and 100B, for shapes known by their size only."""

_MOST_BYTES = 8 << 20
_MOST_LAYERS, _MOST_WIDE = 10_000, 100_000_000
"""Of a model that exists; layers are counted one by one."""
_WIDTHS = {"float32": 4, "bfloat16": 2, "float16": 2}


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """A decoder-only transformer."""

    name: str
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    intermediate: int
    """Of the dense MLP; 0 where all layers are mixtures."""
    vocabulary: int
    tied: bool
    """Whether the output head is the embedding matrix."""
    experts: int = 0
    active_experts: int = 0
    expert_intermediate: int = 0
    shared_intermediate: int = 0
    """Of an expert that every token visits."""
    attention_bias: bool = False
    """Qwen2: biases on q, k and v."""
    head_norms: bool = False
    """Qwen3: a norm over each head of q and k."""
    given_parameters: int | None = None
    """Where only the number of parameters is known."""
    stored_width: int | None = None
    """Bytes of a weight in the model's files; None if unknown."""

    def __post_init__(self) -> None:
        """
        Raises:
            UsageError: a size that no model has.
        """
        sizes = (self.hidden, self.heads, self.kv_heads, self.head_dim, self.intermediate, self.vocabulary)
        counts = (self.layers, self.experts, self.active_experts)
        if min(*sizes, *counts) < 0 or max(sizes) > _MOST_WIDE or max(counts) > _MOST_LAYERS:
            raise UsageError(say("{model}: no model has such sizes", model=self.name))

    @property
    def parameters(self) -> int:
        """All weights."""
        if self.given_parameters is not None:
            return self.given_parameters
        head = 0 if self.tied else self.vocabulary * self.hidden
        return self.layers * self.layer_parameters + self.vocabulary * self.hidden + head + self.hidden

    @property
    def layer_parameters(self) -> int:
        """Weights of one block."""
        queries, keys = self.heads * self.head_dim, self.kv_heads * self.head_dim
        attention = self.hidden * (2 * queries + 2 * keys)
        attention += (queries + 2 * keys) * self.attention_bias + 2 * self.head_dim * self.head_norms
        if self.experts:
            mlp = self.experts * 3 * self.hidden * self.expert_intermediate + self.hidden * self.experts
            mlp += 3 * self.hidden * self.shared_intermediate
        else:
            mlp = 3 * self.hidden * self.intermediate
        return attention + mlp + 2 * self.hidden

    @property
    def largest_parameter(self) -> int:
        """Elements of the largest single weight."""
        mlp = self.hidden * max(self.intermediate, self.expert_intermediate)
        return max(self.vocabulary * self.hidden, mlp, self.hidden * self.heads * self.head_dim)

    def adapter_parameters(self, rank: int) -> int:
        """Weights of LoRA adapters of a rank on all matrices of the blocks."""
        heads, keys = self.heads * self.head_dim, self.kv_heads * self.head_dim
        inner = self.expert_intermediate * self.experts if self.experts else self.intermediate
        sides = 2 * (self.hidden + heads) + 2 * (self.hidden + keys) + 3 * (self.hidden * max(self.experts, 1) + inner)
        return rank * self.layers * sides

    def parameter_sizes(self) -> list[tuple[int, int]]:
        """Elements of each weight matrix and how many there are of it; norms and biases are left out."""
        table = (self.vocabulary * self.hidden, 1 if self.tied else 2)
        return [table, *((size, many * self.layers) for size, many in self.layer_sizes())]

    def layer_sizes(self) -> list[tuple[int, int]]:
        """The same of one block."""
        heads, keys = self.heads * self.head_dim, self.kv_heads * self.head_dim
        sizes = [(self.hidden * heads, 2), (self.hidden * keys, 2)]
        if self.experts:
            sizes.append((self.hidden * self.expert_intermediate, 3 * self.experts))
        if self.intermediate or self.shared_intermediate:
            sizes.append((self.hidden * (self.shared_intermediate if self.experts else self.intermediate), 3))
        return [(size, many) for size, many in sizes if size]

    def cache_bytes_per_token(self, tensor_parallel: int = 1, width: int = 2) -> int:
        """Bytes of the KV cache for one token on one GPU."""
        heads = -(-self.kv_heads // tensor_parallel)
        return 2 * self.layers * heads * self.head_dim * width


@functools.cache
def _table() -> tuple[tuple[re.Pattern[str], tuple[Any, ...]], ...]:
    text = (resources.files("rlhfdoctor.budget") / "models.yaml").read_text()
    rows = documents.parse(text)["models"]
    return tuple((re.compile(f"(?:^|[-/.])(?:{row[0]})(?![0-9])"), tuple(row[1:])) for row in rows)


def find_shape(name: str) -> Shape | None:
    """The shape of a public model by its name or path; None if neither family nor size can be read from the name.

    >>> find_shape("/models/Qwen2.5-7B-Instruct").parameters
    7615616512
    >>> round(find_shape("my-own-13B").parameters / 1e9), find_shape("policy")
    (13, None)
    """
    plain = re.sub(r"[\s_]", "-", name.lower()).rstrip("/")
    for pattern, row in _table():
        if pattern.search(plain):
            layers, hidden, heads, kv_heads, head_dim, intermediate, vocabulary, tied, *moe = row
            experts, active, expert_intermediate, shared = moe or (0, 0, 0, 0)
            return Shape(
                name=name,
                layers=layers,
                hidden=hidden,
                heads=heads,
                kv_heads=kv_heads,
                head_dim=head_dim,
                intermediate=intermediate,
                vocabulary=vocabulary,
                tied=tied,
                experts=experts,
                active_experts=active,
                expert_intermediate=expert_intermediate,
                shared_intermediate=shared,
                attention_bias=_is_qwen2(plain),
                head_norms="qwen3" in plain,
                stored_width=2,
            )
    sizes = _BILLIONS.findall(plain.rsplit("/", 1)[-1])
    return of_size(float(sizes[-1]) * 1e9, name) if sizes else None


def _is_qwen2(plain: str) -> bool:
    return "qwen2" in plain or "qwq" in plain or "distill-qwen" in plain


def of_size(parameters: float, name: str = "") -> Shape:
    """A typical dense shape with this number of parameters, with groups of four queries and a vocabulary of 128k."""
    layers = 8
    while layers < 160 and 12 * layers * (layers * _TYPICAL_LAYER_RATIO) ** 2 < parameters:
        layers += 4
    hidden = max(round((parameters / (12 * layers)) ** 0.5 / 128), 1) * 128
    heads = max(hidden // 128, 1)
    return Shape(
        name=name or f"{parameters / 1e9:g}B",
        layers=layers,
        hidden=hidden,
        heads=heads,
        kv_heads=max(heads // 4, 1),
        head_dim=128,
        intermediate=hidden * 7 // 2,
        vocabulary=128_256,
        tied=False,
        given_parameters=round(parameters),
    )


def read_shape(path: Path) -> Shape:
    """The shape described by a model's config.json (or its folder).

    Raises:
        SourceError: no such file, or no JSON.
        UsageError: the file describes no decoder-only transformer.
    """
    file = path / "config.json" if path.is_dir() else path
    try:
        config = json.loads(read_bytes(file, _MOST_BYTES))
    except OSError as error:
        raise SourceError(joined(quoted(file), quoted(error.strerror or error), by=": ")) from None
    except (ValueError, RecursionError) as error:
        raise SourceError(say("{file}: no JSON ({error})", file=str(file), error=str(error))) from None
    if not isinstance(config, dict):
        raise UsageError(say("{file}: not the config.json of a decoder-only transformer", file=str(file)))
    return of_config(config, str(path))


def of_config(config: Mapping[str, Any], name: str) -> Shape:
    """The shape of a Hugging Face configuration; the text part of one with several parts.

    Raises:
        UsageError: a size is missing.
    """
    config = config.get("text_config") or config
    kind = str(config.get("model_type", ""))
    try:
        heads, hidden = int(config["num_attention_heads"]), int(config["hidden_size"])
        experts = int(
            config.get("num_experts") or config.get("num_local_experts") or config.get("n_routed_experts") or 0
        )
        return Shape(
            name=name,
            layers=int(config["num_hidden_layers"]),
            hidden=hidden,
            heads=heads,
            kv_heads=int(config.get("num_key_value_heads") or heads),
            head_dim=int(config.get("head_dim") or hidden // heads),
            intermediate=0 if experts else int(config["intermediate_size"]),
            vocabulary=int(config["vocab_size"]),
            tied=bool(config.get("tie_word_embeddings", kind in ("gemma", "gemma2"))),
            experts=experts,
            active_experts=int(config.get("num_experts_per_tok") or 0),
            expert_intermediate=int(config.get("moe_intermediate_size") or config["intermediate_size"])
            if experts
            else 0,
            shared_intermediate=int(config.get("shared_expert_intermediate_size") or 0),
            attention_bias=kind.startswith("qwen2") or bool(config.get("attention_bias")),
            head_norms=kind.startswith("qwen3"),
            stored_width=_WIDTHS.get(str(config.get("dtype") or config.get("torch_dtype"))),
        )
    except (KeyError, TypeError, ValueError, ArithmeticError) as error:
        raise UsageError(
            say(
                "{file}: not the config.json of a decoder-only transformer ({error})",
                file=name,
                error=f"{type(error).__name__}: {error}",
            )
        ) from None
