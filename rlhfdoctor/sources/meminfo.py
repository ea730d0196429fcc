"""Memory of the whole machine: /proc/meminfo, /proc/zoneinfo, /proc/vmstat (proc(5))."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping

from rlhfdoctor.units import KIB

PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_MEMINFO = {
    b"\nMemTotal:": "total_bytes",
    b"\nMemFree:": "free_bytes",
    b"\nMemAvailable:": "available_bytes",
    b"\nCached:": "cached_bytes",
    b"\nBuffers:": "buffers_bytes",
    b"\nShmem:": "shmem_bytes",
    b"\nAnonPages:": "anon_bytes",
    b"\nSlab:": "slab_bytes",
    b"\nSReclaimable:": "slab_reclaimable_bytes",
    b"\nMlocked:": "locked_bytes",
    b"\nUnevictable:": "unevictable_bytes",
    b"\nSwapTotal:": "swap_total_bytes",
    b"\nSwapFree:": "swap_free_bytes",
    b"\nPageTables:": "page_tables_bytes",
    b"\nKernelStack:": "kernel_stack_bytes",
    b"\nDirty:": "dirty_bytes",
    b"\nWriteback:": "writeback_bytes",
}
_PAGESET = re.compile(rb"^ +count: +(\d+)$", re.M)
_VMSTAT = {
    b"\noom_kill ": "oom_kill_count",
    b"\nnr_foll_pin_acquired ": "foll_pin_acquired_count",
    b"\nnr_foll_pin_released ": "foll_pin_released_count",
    b"\npgmajfault ": "major_faults_count",
    b"\npswpout ": "swapped_out_count",
    b"\nallocstall_normal ": "alloc_stall_count",
}


def parse_meminfo(data: bytes) -> dict[str, int]:
    """Bytes by our names; lines that are missing or damaged are left out.

    >>> parse_meminfo(b"MemTotal:       16 kB\\nHugePages_Total:   0\\nShmem: x kB\\n")
    {'total_bytes': 16384}
    """
    return find_numbers(data, _MEMINFO, KIB)


def find_numbers(data: bytes, names: Mapping[bytes, str], factor: int = 1) -> dict[str, int]:
    """Numbers behind names at the start of a line; finding a dozen names is faster than splitting 150 lines."""
    found: dict[str, int] = {}
    data = b"\n" + data
    for name, key in names.items():
        at = data.find(name)
        if at >= 0:
            start = at + len(name)
            number = data[start : data.find(b"\n", start)].split()
            if number and number[0].isdigit():
                found[key] = int(number[0]) * factor
    return found


def parse_zoneinfo(data: bytes) -> int:
    """Bytes in the free lists of the CPUs, which no line of meminfo counts; up to an eighth of a zone since Linux 6.7.

    mm/page_alloc.c, `pcp->high_max`; read from the `count:` lines below `pagesets` of /proc/zoneinfo.

    >>> text = b"  pagesets\\n    cpu: 0\\n              count:    3\\n              high:     14\\n"
    >>> parse_zoneinfo(text) == 3 * PAGE_BYTES
    True
    """
    return sum(int(match) for match in _PAGESET.findall(data)) * PAGE_BYTES


def parse_vmstat(data: bytes) -> dict[str, int]:
    """Counters by our names.

    >>> parse_vmstat(b"nr_free_pages 5\\noom_kill 3\\n")
    {'oom_kill_count': 3}
    """
    return find_numbers(data, _VMSTAT)
