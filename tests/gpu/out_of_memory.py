"""Torch's CUDA out-of-memory errors, one of each kind that the rules tell apart, and what the doctor makes of the message.

Most of the card is taken first, so that little is left to compute. Each message that torch really raises is stored in
tests/gpu/messages/ (a sample for the rules' folders); on a CPU the messages are fixtures/oom-*.txt, written by us after
c10/cuda/CUDACachingAllocator.cpp of torch 2.11.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from rlhfdoctor import analyze
from rlhfdoctor.logs.torch import read_cuda_oom
from rlhfdoctor.units import GIB, MIB
from tests.gpu.step import Device, Figure, Place, Step, Unknown, about

FIXTURES = Path(__file__).with_name("fixtures")
MESSAGES = Path(__file__).with_name("messages")
_LEFT = 6 * GIB
"""Of the card, for the computation that fails."""


def _fill(left: int = _LEFT) -> Any:
    """Takes all of the card but so much."""
    import torch

    free, _ = torch.cuda.mem_get_info()
    return torch.empty(max(free - left, 0), dtype=torch.uint8, device="cuda")


def long_sequences() -> None:
    """Scores of every pair of tokens of long sequences."""
    import torch

    kept, tokens = _fill(), 65536
    queries = torch.zeros(1, 8, tokens, 64, device="cuda", dtype=torch.bfloat16)
    torch.softmax(queries @ queries.transpose(-1, -2), dim=-1)
    del kept


def logits_upcast() -> None:
    """Logits in bf16 fit; their fp32 copy does not."""
    import torch

    kept, words = _fill(), 151936
    logits = torch.zeros(4 * GIB // (2 * words), words, device="cuda", dtype=torch.bfloat16)
    logprobs = torch.log_softmax(logits.float(), dim=-1)
    del kept, logprobs


def fragmentation() -> None:
    """Half of all blocks are free, and no two of them are neighbours."""
    import torch

    kept = _fill(24 * GIB)
    blocks = [torch.empty(256 * MIB, dtype=torch.uint8, device="cuda") for _ in range(88)]
    del blocks[::2]
    torch.empty(6 * GIB, dtype=torch.uint8, device="cuda")
    del kept


_FOREIGN = """
import torch
free, total = torch.cuda.mem_get_info()
kept = torch.empty(free - {left}, dtype=torch.uint8, device="cuda")
print("ready", flush=True)
import sys; sys.stdin.read()
"""


def foreign_process() -> None:
    """Another process holds most of the card."""
    import torch

    other = subprocess.Popen(
        [sys.executable, "-c", _FOREIGN.format(left=_LEFT)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert other.stdout is not None
    try:
        other.stdout.readline()
        torch.empty(8 * GIB, dtype=torch.uint8, device="cuda")
    finally:
        other.kill()
        other.wait()


def message(name: str, cause: Callable[[], None], device: Device) -> str:
    """The traceback, as it ends a log."""
    if device == "cpu":
        return (FIXTURES / f"oom-{name}.txt").read_text()
    import torch

    try:
        cause()
    except torch.OutOfMemoryError:
        text = traceback.format_exc()
    else:
        raise Unknown("it fitted: no error was raised")
    MESSAGES.mkdir(exist_ok=True)
    (MESSAGES / f"{name}.txt").write_text(text)
    if out := os.environ.get("OUT"):
        Path(out, "messages").mkdir(parents=True, exist_ok=True)
        shutil.copy(MESSAGES / f"{name}.txt", Path(out, "messages"))
    return text


def read_message(name: str, cause: Callable[[], None], device: Device) -> Mapping[str, Figure]:
    """What the doctor reads of the message, and the cause that it finds."""
    total = 80 * GIB
    if device == "cuda":
        import torch

        total = torch.cuda.mem_get_info()[1]
    text = message(name, cause, device)
    with tempfile.TemporaryDirectory(prefix="rlhfdoctor-gpu-") as folder:
        Path(folder, "train.log").write_text(text)
        incident = analyze([folder])
    capacity = read_cuda_oom(text).get("total_bytes")
    found: dict[str, Figure] = {
        "killer": str(incident.death.killer) if incident.death is not None else "none",
        "cause": incident.findings[0].cause if incident.findings else "none",
        "verdict": incident.verdict,
    }
    if isinstance(capacity, int):
        found["capacity"] = round(capacity / total, 3)
    return found


_CASES: dict[str, tuple[Callable[[], None], str, str]] = {
    "long-sequences": (long_sequences, "gpu-long-sequences", "scores of long sequences that do not fit"),
    "logits-upcast": (logits_upcast, "gpu-logits-upcast", "an fp32 copy of the logits that does not fit"),
    "fragmentation": (fragmentation, "gpu-fragmentation", "free memory in pieces, reserved and not allocated"),
    "foreign-process": (foreign_process, "gpu-foreign-process", "a card that another process holds"),
}
STEPS = tuple(
    Step(
        name=f"oom-{name}",
        fact=f"torch's message of {what} is read as {cause}",
        assumed=Place("rlhfdoctor/logs/torch.py", "EVENT.torch.cuda_oom,"),
        run=partial(read_message, name, run),
        expected={"killer": "cuda-oom", "cause": cause, "capacity": about(1, 0.05)},
    )
    for name, (run, cause, what) in _CASES.items()
)
