"""The reference trainer's actor on one rank, without Ray: what each ZeRO setting takes of the card and page-locked.

The files are the user's, so that `estimate` reads what the trainer runs. DeepSpeed and OmegaConf are needed, and a compiler
for DeepSpeed's CPU Adam where the optimizer is offloaded.
"""

from __future__ import annotations

import importlib.util
import json
import os
import socket
import tempfile
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from rlhfdoctor.budget.types import Estimate
from rlhfdoctor.core.estimate import Machine, estimate
from tests.gpu.meter import Meter
from tests.gpu.page_locked import stats
from tests.gpu.step import Device, Expected, Figure, Place, Step, Unknown, about
from trainer.lab.place import NOT_COMPILED, extensions, unlock

ERROR = 0.15
"""As in passes.py."""
_PINNED = {"device": "cpu", "pin_memory": True}
_SETTINGS: dict[str, tuple[dict[str, Any], str, Place]] = {
    "zero-2": (
        {"stage": 2},
        "ZeRO-2 without offload: all states are on the card",
        Place("rlhfdoctor/budget/stage_1_2.py", 'say("weights, whole on every rank")'),
    ),
    "zero-2-offload": (
        {"stage": 2, "offload_optimizer": {"device": "cpu", "pin_memory": False}},
        "ZeRO-2 with an offload that is not page-locked",
        Place("rlhfdoctor/budget/stage_1_2.py", "offload moves states and fp32 gradients to the host"),
    ),
    "zero-2-offload-pinned": (
        {"stage": 2, "offload_optimizer": _PINNED},
        "ZeRO-2 with a page-locked offload: states, gradients and staging, each rounded up",
        Place("rlhfdoctor/budget/optimizer.py", "Host buffers that may be page-locked"),
    ),
    "zero-3": (
        {"stage": 3},
        "ZeRO-3 without offload, on one rank",
        Place("rlhfdoctor/budget/stage_3.py", "weights, gradients and states in shards; layers are gathered"),
    ),
    "zero-3-offload-pinned": (
        {"stage": 3, "offload_optimizer": _PINNED, "offload_param": _PINNED},
        "ZeRO-3 with optimizer and weights page-locked on the host",
        Place("rlhfdoctor/budget/stage_3.py", "With pin_memory each parameter's shard is a page-locked buffer"),
    ),
    "zero-3-ratio": (
        {"stage": 3, "offload_optimizer": {**_PINNED, "ratio": 0.5}, "sub_group_size": 20_000_000},
        "a ratio of 0.5 leaves the states of half of the sub-groups on the card",
        Place("rlhfdoctor/budget/subgroups.py", "leaves on the GPU"),
    ),
}
_YAML = """\
deepspeed: ds.json
out: out
model: {{hidden_size: {hidden}, num_layers: {layers}, num_heads: 8, vocab_size: {words}, dtype: bfloat16}}
data: {{max_prompt_length: {half}, max_response_length: {half}}}
rollout: {{batch_size: 2, micro_batch_size: 2}}
train: {{mini_batch_size: 2, micro_batch_size: 2, steps: 2}}
cluster: {{world_size: 1, placement: separate}}
"""


def write_files(folder: Path, setting: str, device: Device) -> Path:
    """The user's YAML, and DeepSpeed's JSON beside it."""
    sizes = {"hidden": 2048, "layers": 12, "words": 32768, "half": 1024}
    if device == "cpu":
        sizes = {"hidden": 256, "layers": 4, "words": 4096, "half": 32}
    (folder / "ds.json").write_text(json.dumps({"zero_optimization": _SETTINGS[setting][0]}))
    target = folder / "train.yaml"
    target.write_text(_YAML.format(**sizes))
    return target


def needs_of(setting: str, device: Device) -> Estimate:
    """The actor's estimate, without what belongs to its process."""
    machine = Machine(gpus_per_node=1 if device == "cuda" else 0)
    with tempfile.TemporaryDirectory(prefix="rlhfdoctor-gpu-") as name:
        found = estimate([str(write_files(Path(name), setting, device))], framework="rlhfdoctor", machine=machine)
    return replace(found, needs=tuple(n for n in found.needs if n.role == "actor" and n.held_for != "process"))


def predict(setting: str, device: Device) -> Mapping[str, float]:
    """Bytes of the device in the update, and page-locked ones of the host."""
    found = needs_of(setting, device)
    pinned = replace(found, needs=tuple(n for n in found.needs if n.pinned and n.place == "host"))
    card = found.of("gpu" if device == "cuda" else "host", "update")
    return {"card": float(card), "page-locked": float(pinned.of("host", "update"))}


def train(setting: str, device: Device) -> Mapping[str, Figure]:
    """Two updates of the actor; measured peaks over predicted ones."""
    missing = [name for name in ("deepspeed", "omegaconf") if importlib.util.find_spec(name) is None]
    if missing:
        raise Unknown(f"{', '.join(missing)} not installed")
    expected = predict(setting, device)
    os.environ |= {**NOT_COMPILED, "TORCH_EXTENSIONS_DIR": str(extensions())}
    unlock()  # a step that was ended while it compiled leaves a lock that the next one would wait for
    with tempfile.TemporaryDirectory(prefix="rlhfdoctor-gpu-") as name:
        card, pinned = _peaks(write_files(Path(name), setting, device), device)
    found: dict[str, Figure] = {"card over predicted": round(card / expected["card"], 3), "card bytes": card}
    if expected["page-locked"]:
        found["page-locked over predicted"] = round(pinned / expected["page-locked"], 3)
    return found | {"page-locked bytes": pinned}


def _peaks(file: Path, device: Device) -> tuple[int, int]:
    """Peak bytes of the device and of page-locked memory, over loading and two updates."""
    from trainer.config import read_config
    from trainer.engine import start_distributed
    from trainer.roles import Actor

    config = read_config(file, [f"out={file.parent}/out"])
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    start_distributed(0, 1, "127.0.0.1", port, config)
    meter, before = Meter(device), stats(device)["allocated"] if device == "cpu" else 0
    actor = Actor(config, 0)
    for step in range(2):
        actor.begin(step)
        actor.update(_batch(config))
    return meter.peak(), _pinned_peak(device) - before


def _pinned_peak(device: Device) -> int:
    """Of the host's page-locked memory; what torch's allocator took is never given back."""
    if device == "cuda":
        import torch

        return int(torch.cuda.host_memory_stats()["allocated_bytes.peak"])
    return stats(device)["allocated"]


def _batch(config: Any) -> dict[str, Any]:
    """Two sequences at their longest."""
    import torch

    prompt, answer = config.data.max_prompt_length, config.data.max_response_length
    count = config.train.mini_batch_size
    return {
        "tokens_BT": torch.randint(4, 256, (count, prompt + answer)),
        "attention_BT": torch.ones(count, prompt + answer, dtype=torch.long),
        "mask_BA": torch.ones(count, answer),
        "logprobs_BA": torch.full((count, answer), -1.0),
        "advantages_BA": torch.randn(count, answer),
    }


def _expected(zero: Mapping[str, Any]) -> dict[str, Expected]:
    found: dict[str, Expected] = {"card over predicted": about(1, ERROR)}
    if any(isinstance(value, dict) and value.get("pin_memory") for value in zero.values()):
        found["page-locked over predicted"] = about(1, 0.05)
    return found


STEPS = tuple(
    Step(
        name=name,
        fact=fact,
        assumed=place,
        run=partial(train, name),
        predict=partial(predict, name),
        expected=_expected(zero),
        limit_s=240,  # the first one that offloads compiles DeepSpeed's CPU Adam
    )
    for name, (zero, fact, place) in _SETTINGS.items()
)
