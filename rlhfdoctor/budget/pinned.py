"""Page-locked memory: what torch's host allocator takes for a buffer."""

from __future__ import annotations


def pinned_size(size: int, buffer: int) -> int:
    """Bytes that page-locked buffers of this size take: torch's host allocator rounds each up to a power of two.

    Args:
        size: bytes requested in total.
        buffer: bytes of one buffer; the last one is smaller.

    aten/src/ATen/core/CachingHostAllocator.h, `PowerOf2Ceil`; pytorch issues 95823 and 150517.

    >>> pinned_size(2415919104, 2415919104), pinned_size(300, 100)
    (4294967296, 384)
    """
    if size <= 0 or buffer <= 0:
        return 0
    whole, rest = divmod(size, buffer)
    return whole * ceil_power_of_two(buffer) + (ceil_power_of_two(rest) if rest else 0)


def ceil_power_of_two(size: int) -> int:
    """The least power of two that is not below.

    >>> ceil_power_of_two(1), ceil_power_of_two(5), ceil_power_of_two(8)
    (1, 8, 8)
    """
    return 1 << (size - 1).bit_length() if size > 1 else max(size, 0)
