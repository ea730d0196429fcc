"""Page-locked memory without CUDA: rounding, reuse, what the kernel counts, and what it refuses."""

from __future__ import annotations

import gc
import os
import shutil
import subprocess
import sys
import types
from collections import defaultdict
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="mlock(2) and /proc/self/status are Linux's")
torch = pytest.importorskip("torch")

from trainer import pinned  # noqa: E402

PAGE = os.sysconf("SC_PAGE_SIZE")
ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(autouse=True)
def own_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each test begins without any block; those of others stay with them."""
    gc.collect()
    monkeypatch.setattr(pinned, "_blocks", defaultdict(list))


def take(size: int) -> torch.Tensor:
    """A pinned tensor of that many bytes."""
    return pinned.empty_pinned((size,), torch.uint8)


def locked_bytes() -> int:
    """VmLck of this process."""
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmLck:"))
    return int(line.split()[1]) * 1024


# --- sizes -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [(1, 1), (2, 2), (3, 4), (4, 4), (5, 8), (4095, 4096), (4096, 4096), (4097, 8192), (12_289, 16_384)],
)
def test_rounding(wanted: int, expected: int) -> None:
    """A block is the next power of two of the bytes asked for; a power of two stays as it is."""
    kept = take(wanted)
    assert (expected, wanted) == (pinned.pinned_bytes(), kept.numel())


@pytest.mark.parametrize(
    ("shape", "dtype", "expected"),
    [
        ((3, 5), torch.float32, 64),
        ((3, 5), torch.bfloat16, 32),
        ((), torch.float64, 8),
        ((2, 2, 2), torch.bool, 8),
        (torch.Size((7,)), torch.int64, 64),
    ],
)
def test_shape_and_dtype(shape: tuple[int, ...], dtype: torch.dtype, expected: int) -> None:
    """The tensor has the shape and the type asked for; the block counts bytes, not elements."""
    tensor = pinned.empty_pinned(shape, dtype)
    assert (torch.Size(shape), dtype, expected) == (tensor.shape, tensor.dtype, pinned.pinned_bytes())


def test_empty_tensor() -> None:
    """A tensor without elements (a rank's share of a small parameter) can be pinned."""
    assert pinned.empty_pinned((0,), torch.float32).numel() == 0


# --- reuse -------------------------------------------------------------------------------------


def test_reuse_of_a_free_block() -> None:
    """A block that nobody uses any more serves the next request that rounds to its size."""
    first = take(PAGE)
    address = first.data_ptr()
    del first
    second = take(PAGE // 2 + 1)
    assert (address, PAGE) == (second.data_ptr(), pinned.pinned_bytes())


def test_no_reuse_of_a_used_block() -> None:
    """A block in use is left alone: a second one of its size is made."""
    first, second = take(PAGE), take(PAGE)
    assert first.data_ptr() != second.data_ptr()
    assert pinned.pinned_bytes() == 2 * PAGE


def test_no_reuse_while_a_view_lives() -> None:
    """A view keeps the block in use when the tensor that it came from is gone."""
    first = take(PAGE)
    view = first[10:20].view(2, 5)
    address = first.data_ptr()
    del first
    assert address != take(PAGE).data_ptr()
    assert address + 10 == view.data_ptr()


def test_no_reuse_for_another_size() -> None:
    """A free block is kept for its own size only: a smaller request takes a block of its own."""
    take(2 * PAGE)
    take(PAGE)
    assert pinned.pinned_bytes() == 3 * PAGE


def test_nothing_is_given_back() -> None:
    """Freed blocks stay locked: growing requests leave the smaller blocks behind, as CUDA's host cache does."""
    before = locked_bytes()
    take(PAGE)
    take(2 * PAGE)
    take(4 * PAGE)
    assert 7 * PAGE == pinned.pinned_bytes() == locked_bytes() - before


def test_contents_survive() -> None:
    """What was written stays, whatever is taken and freed meanwhile."""
    tensor = pinned.empty_pinned((100,), torch.int32).copy_(torch.arange(100))
    take(400).fill_(255)
    take(400).fill_(254)
    assert torch.equal(torch.arange(100, dtype=torch.int32), tensor)


def test_contents_of_a_reused_block() -> None:
    """A reused block still has what was in it: it is empty, not zeroed."""
    take(64).fill_(7)
    assert torch.equal(torch.full((64,), 7, dtype=torch.uint8), take(64))


# --- what the kernel says ----------------------------------------------------------------------


def test_locked_memory_grows() -> None:
    """VmLck grows by the rounded size: three pages asked for are four pages locked."""
    before = locked_bytes()
    kept = take(3 * PAGE)
    assert locked_bytes() - before == 4 * PAGE
    assert kept.numel() == 3 * PAGE


def test_pinned_memory_is_shmem() -> None:
    """The block is a shared mapping: RssShmem grows, as with CUDA's pinned memory."""

    def shared_bytes() -> int:
        line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("RssShmem:"))
        return int(line.split()[1]) * 1024

    before = shared_bytes()
    kept = take(8 * PAGE).zero_()
    assert shared_bytes() - before == 8 * PAGE
    assert kept.sum() == 0


REFUSED = """
import resource, torch
from trainer import pinned  # noqa: E402
resource.setrlimit(resource.RLIMIT_MEMLOCK, (65536, 65536))
kept = pinned.empty_pinned((1000,), torch.uint8)
try:
    pinned.empty_pinned((1000000,), torch.uint8)
except MemoryError as error:
    print(error)
print(pinned.pinned_bytes())
"""
PLAIN_USER = ["setpriv", "--bounding-set=-ipc_lock", "--inh-caps=-ipc_lock"] if os.geteuid() == 0 else []


@pytest.mark.skipif(
    bool(PLAIN_USER) and shutil.which("setpriv") is None, reason="root may lock all, and no `setpriv` to give that up"
)
def test_refusal() -> None:
    """Beyond `ulimit -l`, without CAP_IPC_LOCK, the error says how much and where to look; the block does not count."""
    done = subprocess.run(
        [*PLAIN_USER, sys.executable, "-c", REFUSED], cwd=ROOT, capture_output=True, text=True, timeout=120, check=False
    )
    expected = "cannot page-lock 1048576 bytes: Cannot allocate memory (see ulimit -l)\n1024\n"
    assert expected == done.stdout, done.stderr


# --- DeepSpeed's accelerator -------------------------------------------------------------------


def accelerator(monkeypatch: pytest.MonkeyPatch, name: str) -> types.SimpleNamespace:
    """What `get_accelerator` returns from now on."""
    made = types.SimpleNamespace(device_name=lambda: name, pin_memory=lambda tensor: tensor)
    module = types.ModuleType("deepspeed.accelerator")
    module.get_accelerator = lambda: made
    monkeypatch.setitem(sys.modules, "deepspeed", types.ModuleType("deepspeed"))
    monkeypatch.setitem(sys.modules, "deepspeed.accelerator", module)
    return made


def test_install(monkeypatch: pytest.MonkeyPatch) -> None:
    """On CPUs the accelerator's `pin_memory` then copies into a locked block."""
    made = accelerator(monkeypatch, "cpu")
    pinned.install()
    tensor = torch.arange(6).reshape(2, 3)
    found = made.pin_memory(tensor)
    assert torch.equal(tensor, found)
    assert tensor.data_ptr() != found.data_ptr()
    assert pinned.pinned_bytes() == 64


def test_install_without_copy(monkeypatch: pytest.MonkeyPatch) -> None:
    """`make_copy=False` asks for a buffer of the same shape and type, with nothing copied."""
    made = accelerator(monkeypatch, "cpu")
    pinned.install()
    take(64).fill_(7)
    found = made.pin_memory(torch.zeros(8, dtype=torch.int64), make_copy=False)
    assert ((8,), torch.int64) == (found.shape, found.dtype)
    assert (found.view(torch.uint8) == 7).all()


def test_install_on_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where torch pins for real, nothing changes."""
    made = accelerator(monkeypatch, "cuda")
    before = made.pin_memory
    pinned.install()
    assert before is made.pin_memory
