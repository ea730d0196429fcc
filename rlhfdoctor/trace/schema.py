"""The tables of a trace: which columns each has, in which unit. Written into every segment's header.

Columns are 64-bit integers; `_ratio` columns are stored as millionths, `_s` columns as thousandths. NULL means None.
A reader uses the header's list, so that an older reader shows a newer trace and the other way round.
"""

from __future__ import annotations

FORMAT = 1
"""Raised only when an older reader would misread a newer trace."""
NULL = -(2**62)
RATIO_SCALE = 1_000_000
SECONDS_SCALE = 1_000


def scale_of(column: str) -> int:
    """What a stored integer of a column must be divided by.

    >>> scale_of("busy_ratio"), scale_of("left_s"), scale_of("used_bytes"), scale_of("slope_bytes_per_s")
    (1000000, 1000, 1, 1)
    """
    if column.endswith("_ratio"):
        return RATIO_SCALE
    return SECONDS_SCALE if column.endswith("_s") and not column.endswith("_per_s") else 1


TABLES: dict[str, tuple[str, ...]] = {
    "host": (
        "total_bytes",
        "available_bytes",
        "free_bytes",
        "cached_bytes",
        "buffers_bytes",
        "shmem_bytes",
        "anon_bytes",
        "slab_bytes",
        "slab_reclaimable_bytes",
        "locked_bytes",
        "unevictable_bytes",
        "swap_total_bytes",
        "swap_free_bytes",
        "page_tables_bytes",
        "kernel_stack_bytes",
        "dirty_bytes",
        "writeback_bytes",
        "oom_kill_count",
        "foll_pin_acquired_count",
        "foll_pin_released_count",
        "swapped_out_count",
        "alloc_stall_count",
        "some_us",
        "full_us",
        "shm_size_bytes",
        "shm_used_bytes",
        "shm_unlinked_bytes",
        "shm_orphaned_bytes",
        "cpu_lists_bytes",
    ),
    "process": (
        "rss_anon_bytes",
        "rss_file_bytes",
        "rss_shmem_bytes",
        "swap_bytes",
        "locked_bytes",
        "pinned_bytes",
        "peak_bytes",
        "threads_count",
        "cpu_ticks",
        "major_faults_count",
        "read_bytes",
        "write_bytes",
    ),
    "mapping": ("plasma_bytes", "dev_shm_bytes", "deleted_bytes", "memfd_bytes", "driver_bytes", "anonymous_bytes"),
    "cgroup": (
        "current_bytes",
        "max_bytes",
        "high_bytes",
        "used_bytes",
        "anon_bytes",
        "file_bytes",
        "shmem_bytes",
        "kernel_bytes",
        "inactive_file_bytes",
        "active_file_bytes",
        "unevictable_bytes",
        "swap_bytes",
        "oom_count",
        "oom_kill_count",
    ),
    "gpu": ("total_bytes", "used_bytes", "busy_ratio"),
    "gpu_process": ("used_bytes",),
    "engine": ("running_count", "waiting_count", "cache_ratio", "preempted_count"),
    "probe": (
        "cuda_allocated_bytes",
        "cuda_reserved_bytes",
        "cuda_peak_bytes",
        "pinned_allocated_bytes",
        "pinned_active_bytes",
        "pinned_peak_bytes",
    ),
    "limit": (
        "used_bytes",
        "limit_bytes",
        "left_s",
        "left_low_s",
        "left_high_s",
        "slope_bytes_per_s",
        "rise_bytes",
        "steps_count",
        "seen_s",
        "hangs_s",
    ),
    "recorder": ("cpu_us", "rss_bytes", "sweep_us", "interval_us", "late_us", "kept_count", "stored_bytes"),
}
"""Name -> columns. The key of a row: 0 for `host` and `recorder`, the number of the process (`uid`) for
`process`, `mapping` and `probe`, of the cgroup, GPU, engine or limit for theirs, and uid * 4096 + GPU for
`gpu_process`."""
