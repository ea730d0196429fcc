"""Messages of Ray: memory kills, object store, disk, scheduling, jobs.

Six generations of the memory kill from 0.6 to 2.60 (src/ray/raylet/node_manager.cc,
src/ray/common/memory_monitor.cc, python/ray/_private/memory_monitor.py). Ray writes `GB` and
means 1024**3 bytes.
"""

from __future__ import annotations

import re

from rlhfdoctor.logs.pattern import Pattern, line
from rlhfdoctor.vocabulary import EVENT

_USED = r"(?P<used_gib>\d+\.\d+) ?GB / (?P<total_gib>\d+\.\d+) ?GB"

PATTERNS: tuple[Pattern, ...] = (
    line(
        EVENT.ray.memory_kill,
        r"Memory on the node \(IP: (?P<ip>[^,)\s]{1,60}).{0,300}?was " + _USED + r" \((?P<used_ratio>[0-9.]+)\)"
        r"(?:, which exceeds the memory usage threshold of (?P<threshold_ratio>[0-9.]*\d))?",
        "Memory on the node (IP: 10.0.0.1, ID: ab) where the task (task ID: cd, name=allocate_memory, pid=91085, "
        "memory used=24.99GB) was running was 32.62GB / 33.28GB (0.980175), which exceeds the memory usage threshold "
        "of 0.96.",
        when="2.1+",
    ),
    line(
        EVENT.ray.memory_kill_victim,
        r"where the task \((?:task ID: (?P<task_id>\w+)|actor ID: (?P<actor_id>\w+)), name=(?P<name>.{1,120}?),? ?pid="
        r"(?P<pid>\d+), "
        r"memory used=(?P<victim_gib>\d+\.\d+)GB",
        "where the task (actor ID: ab, name=SimEnv.__init__, pid=5870, memory used=3.18GB) was running was 61.02GB / "
        "64.20GB",
        when="2.2-2.54",
    ),
    line(
        EVENT.ray.memory_kill_victim,
        r"(?:task name=(?P<name>[^,\n]{1,120}),(?:[^,\n]{0,200},){0,8}? )?(?:pid=(?P<pid>\d+), )?actual memory used="
        r"(?P<victim_gib>\d+\.\d+)GB",
        "[(Task: job ID=05000000, lease ID=ab, task name=ReadRange->MapBatches(f), required resources={CPU: 1}, "
        "pid=3471, "
        "actual memory used=2.85GB, worker ID=cd)]",
        when="2.55+",
    ),
    line(
        EVENT.ray.memory_kill_numbers,
        r"^\W*"
        + _USED
        + r" \((?P<used_ratio>[0-9.]+)\), which exceeds the memory usage threshold of (?P<threshold_ratio>[0-9.]*\d)",
        "115.24GB / 126.80GB (0.908833), which exceeds the memory usage threshold of 0.905000.",
        when="2.55+ in an exception",
    ),
    line(
        EVENT.ray.memory_kill,
        r"Memory on the node \(IP: (?P<ip>[^,)\s]{1,60}).{0,200}?was (?P<used_gib>\d+\.\d+)GB used / "
        r"(?P<total_gib>\d+\.\d+)GB limit \((?P<used_ratio>[0-9.]+)\)",
        "Memory on the node (IP: 10.0.0.1, ID: 09d6) was 2.01GB used / 23.54GB limit (0.085223)",
        when="2.60",
    ),
    line(
        EVENT.ray.memory_reason,
        r"OOM kill reason: Memory usage (?P<used_bytes>\d+)B exceeded threshold of (?P<threshold_bytes>\d+)B \("
        r"(?P<threshold_pct>[0-9.]+)% of (?P<total_bytes>\d+)B limit\)",
        "OOM kill reason: Memory usage 2137358336B exceeded threshold of 2022121088B (8.0% of 25276514304B limit)",
        when="2.60",
    ),
    line(
        EVENT.ray.memory_threshold,
        r"which exceeds the memory usage threshold of (?P<threshold_ratio>[0-9.]*\d)",
        "which exceeds the memory usage threshold of 0.950000",
    ),
    line(
        EVENT.ray.memory_kill_notice,
        r"Task was killed due to the node running low on memory|exit[ _]type(?: =|:) NODE_OUT_OF_MEMORY"
        r"|worker\(s\) were killed due to the node running low on memory"
        r"|failed due to oom\. There are|Worker evicted and process killed to reclaim memory"
        r"|The node has insufficient memory to execute this workload"
        r"|Memory on the node \(IP: [0-9.a-f:]+, ID: \w+\) where the task",
        "ray.exceptions.OutOfMemoryError: Task was killed due to the node running low on memory.",
    ),
    line(
        EVENT.ray.memory_kill_old,
        r"System memory low at node with IP (?P<ip>\S+?)\. Used memory \((?P<used_gib>\d+\.\d+)GB\) / total capacity "
        r"\((?P<total_gib>\d+\.\d+)GB\)"
        r" \((?P<used_ratio>[0-9.]+)\) exceeds threshold (?P<threshold_ratio>[0-9.]*\d), killing latest task with "
        r"name (?P<name>\S+)",
        "node_manager.cc:2963: System memory low at node with IP 10.0.0.1. Used memory (23.63GB) / total capacity "
        "(33.28GB) "
        "(0.709971) exceeds threshold 0.7, killing latest task with name the_actor:Leaker.__init__ and actor ID dc0d",
        when="2.0",
    ),
    line(
        EVENT.ray.memory_error_old,
        r"More than (?P<threshold_pct>\d+)% of the memory on node (?P<ip>\S+) is used \((?P<used_gib>\d+(?:\.\d+)?) / "
        r"(?P<total_gib>\d+(?:\.\d+)?) GB\)",
        "ray.memory_monitor.RayOutOfMemoryError: More than 95% of the memory on node Local is used (15.98 / 16.82 GB). "
        "The top 5 memory consumers are:",
        follow=12,
        when="0.6-1.x",
    ),
    line(
        EVENT.ray.memory_top,
        r"Top \d+ memory users:",
        "To see the logs of the worker, use `ray logs worker-ab*out -ip 10.0.0.1. Top 10 memory users:",
        follow=14,
    ),
    line(
        EVENT.ray.memory_row,
        r"(?P<pid>\d{1,9})[ \t]{1,20}(?P<rss_gib>\d{1,9}\.\d\d)[ \t]{1,20}ray::(?P<name>\S.*)",
        "91085\t24.99\tray::allocate_memory",
    ),
    line(
        EVENT.ray.memory_summary,
        r"(?:(?P<oom_count>\d{1,9}) )?Workers \(tasks / actors\) killed due to memory pressure \(OOM\)"
        r"(?:, (?P<other_count>\d+) Workers crashed due to other reasons at node \(ID: (?P<node_id>\w+), IP: "
        r"(?P<ip>[^)\s]+)\))?",
        "node_manager.cc:3069: 1 Workers (tasks / actors) killed due to memory pressure (OOM), 0 Workers crashed due "
        "to other "
        "reasons at node (ID: ab, IP: 10.0.0.1) over the last time period.",
        when="2.1+",
    ),
    line(
        EVENT.ray.memory_advice,
        r"Refer to the documentation on how to address the out of memory issue"
        r"|to enable retry when the task crashes due to OOM"
        r"|To adjust the (?:kill|eviction) threshold, set the environment variable `RAY_memory_usage",
        "Refer to the documentation on how to address the out of memory issue: https://docs.ray.io/",
    ),
    line(
        EVENT.ray.monitor_start,
        r"MemoryMonitor initialized with usage threshold at (?P<threshold_bytes>\d+) bytes \((?P<share>[0-9.]+)"
        r"(?P<unit_text>%?)[^)]*\), "
        r"total system memory bytes: (?P<total_bytes>\d+)",
        "memory_monitor.cc MemoryMonitor initialized with usage threshold at 34664513536 bytes (0.97 system memory), "
        "total system memory bytes: 35738255360",
    ),
    line(
        EVENT.ray.killing,
        r"Killing (?:worker with task|\d+ worker\(s\))",
        "node_manager.cc:3199: Killing 1 worker(s), kill details: Memory on the node (IP: 10.0.0.1) was 2.01GB used / "
        "23.54GB limit (0.085223)",
    ),
    line(
        EVENT.ray.object_store_full,
        r"Failed to put object (?P<object_id>\w+) in object store because it is full\. Object size is "
        r"(?P<object_bytes>\d+) bytes",
        "plasma_store_provider.cc:122: Failed to put object ab in object store because it is full. Object size is "
        "42949673984 bytes.",
    ),
    line(
        EVENT.ray.object_store_error,
        r"ObjectStoreFullError|\bPlasmaStoreFull\b|local object store is full of"
        r"|Put failed since the value was either too large or the store was full",
        "ray.exceptions.ObjectStoreFullError: Failed to put object ab in object store because it is full.",
    ),
    line(
        EVENT.ray.out_of_disk,
        r"OutOfDiskError|Out-of-disk: Failed to create object|OutOfDisk: Local disk is full"
        r"|The object cannot be created because the local object store is full and the local disk",
        "ray.exceptions.OutOfDiskError: Local disk is full",
        when="1.13+; python/ray/exceptions.py",
    ),
    line(
        EVENT.ray.object_store_retry,
        r"Not enough memory to create the object (?P<object_id>\w+), data_size=(?P<object_bytes>\d+)"
        r"|Plasma store at capacity",
        "store.cc:306: Not enough memory to create the object ab, data_size=83886321, metadata_size=6, retrying after "
        "a timeout",
    ),
    line(
        EVENT.ray.object_store_capacity,
        r"\(global lru\) capacity: (?P<capacity_bytes>\d+)",
        "(global lru) capacity: 34359738368",
    ),
    line(
        EVENT.ray.object_store_usage,
        r"Current usage: (?P<used_gib>[0-9.]+) / (?P<capacity_gib>[0-9.]+) GB",
        "Current usage: 21.6407 / 13.9284 GB",
    ),
    line(
        EVENT.ray.spilled,
        r"Spilled (?P<spilled_text>\d+) MiB, (?P<object_count>\d+) objects",
        "(raylet) Spilled 14530 MiB, 228 objects, write throughput 2389 MiB/s.",
    ),
    line(
        EVENT.ray.disk_full,
        r"file_system_monitor\.cc:\d+: (?P<path_text>\S+) is over (?P<full_text>[0-9.]+)% full, available space: "
        r"(?P<available_text>[0-9]+(?:\.[0-9]+)?)",
        "file_system_monitor.cc:116: /tmp/ray/session_a is over 95% full, available space: 42.6695 GB; capacity: "
        "876.137 GB.",
    ),
    line(
        EVENT.ray.shm_small,
        r"object store is using \S{1,200} instead of /dev/shm because /dev/shm has only (?P<shm_bytes>\d+) bytes",
        "WARNING services.py:1326 -- WARNING: The object store is using /tmp instead of /dev/shm because /dev/shm has "
        "only 67108864 bytes available.",
    ),
    line(
        EVENT.ray.shm_exceeded,
        r"The configured object store size \((?P<store_text>[0-9.]+) GB\) exceeds /dev/shm size \("
        r"(?P<shm_text>[0-9.]+) GB\)",
        "ValueError: The configured object store size (21.47483648 GB) exceeds /dev/shm size (17.17986918 GB). This "
        "will harm performance.",
    ),
    line(
        EVENT.ray.unschedulable,
        r"No available node types can fulfill resource request|cannot be scheduled right now"
        r"|\d{1,6}\+? pending placement groups"
        r"|Total available GPUs [0-9.]+ is less than total desired GPUs|ActorUnschedulableError"
        r"|Requested node configuration is not available|Waiting for creating a placement group of specs",
        "(autoscaler +34s) Error: No available node types can fulfill resource request defaultdict(<class "
        "'float'>, {'CPU': 8.0, 'GPU': 8.0}).",
    ),
    line(
        EVENT.ray.task_error,
        r"ray\.exceptions\.RayTaskError(?:\((?P<error>\w+)\))?: (?:\x1b\[\d+m)?ray::(?P<name>[^\s(]+)\(\)",
        "ray.exceptions.RayTaskError(OutOfMemoryError): ray::LLMActor.backload_to_gpu() (pid=23801, ip=10.0.0.1)",
    ),
    line(
        EVENT.ray.unhandled_task_error,
        r"Unhandled error \(suppress with 'RAY_IGNORE_UNHANDLED_ERRORS=1'\): ray::(?P<name>[^\s(]+)\(\)",
        "Unhandled error (suppress with 'RAY_IGNORE_UNHANDLED_ERRORS=1'): "
        "ray::WorkerDict.actor_rollout_generate_sequences() (pid=2)",
    ),
    line(
        EVENT.ray.job_failed,
        r"\bJob '?(?P<job_text>raysubmit_\w+|[\w-]{4,80})'? (?:has )?failed(?: |$)"
        r"|Job supervisor actor for \S{1,80} died: |Job (?:monitoring|supervisor) for job \S{1,80} failed unexpectedly"
        r"|Status message: (?P<message_text>(?:Job |Unexpected |Failed ).{0,60}(?:failed|exception|died|error).{0,300})"
        r"|\bstatus\"?[:=] ?\"?(?:JobStatus\.)?FAILED\b",
        "2025-09-17 06:22:48,337 ERR cli.py:71 -- Job 'raysubmit_Qz7' failed",
    ),
    line(
        EVENT.ray.job_succeeded,
        r"\bJob '?(?P<job_text>raysubmit_\w+|[\w-]{4,80})'? succeeded\b"
        r"|\bstatus\"?[:=] ?\"?(?:JobStatus\.)?SUCCEEDED\b",
        "Job 'raysubmit_Qz7' succeeded",
    ),
)

_ROW = re.compile(
    r"(?:^|\)\s+|\s)(?P<pid>\d{1,10})[ \t]+(?P<gib>\d{1,9}(?:\.\d{1,9})?)(?:GiB|GB)?"
    r"(?:[ \t]+(?P<command>(?!\d+\.\d)\S.*?))?\s*$"
)


def read_top(lines: tuple[str, ...], first: str = "") -> list[tuple[int, int, str]]:
    """(pid, bytes, command) of the rows of a `Top 10 memory users` table.

    The one-line form of 2026 separates rows by commas after the header `PID MEM(GB) COMMAND,`.
    Rows may lack the command; reading stops at the first line that is no row.

    >>> read_top(("PID\\tMEM(GB)\\tCOMMAND", "91\\t1.50\\tray::f", "92\\t0.25\\t", "Refer to"))
    [(91, 1610612736, 'ray::f'), (92, 268435456, '')]
    """
    inline = first.partition("COMMAND, ")[2]
    rows = [*re.split(r", (?=\d+ +\d+\.\d+ )", inline)] if inline else list(lines)
    table: list[tuple[int, int, str]] = []
    for row in rows:
        if "MEM" in row and "COMMAND" in row:
            continue
        match = _ROW.search(row)
        if match is None:
            if table:
                break
            continue
        table.append((int(match["pid"]), round(float(match["gib"]) * 1024**3), (match["command"] or "")))
    return table
