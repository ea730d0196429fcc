"""Page-locked host memory on a machine without CUDA: mlock(2), rounded as torch's caching host allocator rounds.

On CUDA machines `pin_memory=True` goes through torch's caching host allocator
(aten/src/ATen/core/CachingHostAllocator.h, torch 2.13): every block is rounded up to a power of two, and a block that
is no longer used is kept for the next request of its size, never given back. DeepSpeed's CPU accelerator pins nothing
at all (accelerator/cpu_accelerator.py at 0.19.8). To show on any machine what pinning costs, `install` gives it this
allocator: anonymous shared mappings (they show as RssShmem and as the cgroup's shmem, as CUDA's pinned memory is
reported to) that are locked into memory (VmLck).
"""

from __future__ import annotations

import ctypes
import mmap
import os
import sys
from collections import defaultdict

import torch
from torch import Tensor

_LIBC = ctypes.CDLL(None, use_errno=True)
_blocks: dict[int, list[mmap.mmap]] = defaultdict(list)
"""Rounded size in bytes -> blocks of that size, used or free."""


def empty_pinned(shape: torch.Size | tuple[int, ...], dtype: torch.dtype) -> Tensor:
    """A page-locked tensor with whatever was in its block before.

    Raises:
        MemoryError: the kernel refuses to lock so much (`ulimit -l`, and no CAP_IPC_LOCK).
    """
    wanted_bytes = torch.Size(shape).numel() * dtype.itemsize
    if not wanted_bytes:
        return torch.empty(shape, dtype=dtype)
    block = _take(1 << (wanted_bytes - 1).bit_length())
    return torch.frombuffer(block, dtype=dtype, count=torch.Size(shape).numel()).reshape(shape)


def pinned_bytes() -> int:
    """Bytes locked by this process, in use or kept."""
    return sum(size * len(blocks) for size, blocks in _blocks.items())


def _take(size: int) -> mmap.mmap:
    for block in _blocks[size]:
        if sys.getrefcount(block) == _FREE:
            return block
    block = mmap.mmap(-1, size)  # anonymous and shared
    address = ctypes.addressof(ctypes.c_char.from_buffer(block))
    if _LIBC.mlock(ctypes.c_void_p(address), ctypes.c_size_t(size)) != 0:
        number = ctypes.get_errno()
        raise MemoryError(f"cannot page-lock {size} bytes: {os.strerror(number)} (see ulimit -l)")
    _blocks[size].append(block)
    return block


def _references_of_a_free_block() -> int:
    """What getrefcount says of a block that only its list and the loop over it know; it differs between Pythons."""
    for block in [mmap.mmap(-1, 1)]:
        found = sys.getrefcount(block)
    return found


_FREE = _references_of_a_free_block()


def install() -> None:
    """Lets DeepSpeed's CPU accelerator pin for real; on other accelerators nothing changes."""
    from deepspeed.accelerator import get_accelerator

    accelerator = get_accelerator()
    if accelerator.device_name() != "cpu":
        return

    def pin_memory(tensor: Tensor, make_copy: bool = True, match_shape: bool = True) -> Tensor:
        pinned = empty_pinned(tensor.shape, tensor.dtype)
        return pinned.copy_(tensor) if make_copy else pinned

    accelerator.pin_memory = pin_memory
