"""What people note of the host, or tools print of it.

Notes such as `container memory limit: 480G` or the output of `free`, `df /dev/shm`, `cat
memory.limit_in_bytes` are often handed over with the logs; they are read here too.
"""

from __future__ import annotations

from rlhfdoctor.logs.pattern import Pattern, line
from rlhfdoctor.vocabulary import EVENT

PATTERNS: tuple[Pattern, ...] = (
    line(
        EVENT.host.meminfo,
        r"(?P<name>MemTotal|MemAvailable|MemFree|Cached|Shmem|Mlocked|SwapTotal|SwapFree): +(?P<size_kb>\d+) kB",
        "MemTotal:    1031798784 kB",
    ),
    line(
        EVENT.host.free,
        r"^\W*(?:Mem:|内存：) +(?P<total_text>[0-9.]+[A-Za-z]*) +(?P<used_text>[0-9.]+[A-Za-z]*) +"
        r"(?P<free_text>[0-9.]+[A-Za-z]*) +(?P<shared_text>[0-9.]+[A-Za-z]*) "
        r"+(?P<cache_text>[0-9.]+[A-Za-z]*) +(?P<available_text>[0-9.]+[A-Za-z]*)",
        "Mem:           1.0Ti       537Gi        12Gi       3.1Gi       458Gi       430Gi",
    ),
    line(
        EVENT.host.df,
        r"^(?P<device_text>\S+) +(?P<size_text>[0-9.]+[KMGTP]?) +(?P<used_text>[0-9.]+[KMGTP]?) +"
        r"(?P<free_text>[0-9.]+[KMGTP]?) +(?P<full_pct>\d+)% "
        r"+(?P<mount_text>/\S*)",
        "tmpfs           755G  2.1M  755G   1% /dev/shm",
    ),
    line(
        EVENT.host.note_limit,
        r"(?:docker|container|cgroup|pod|job) mem(?:ory)?[a-z /]{0,40}limit[a-z ]{0,40}: {0,20}"
        r"(?P<limit_size>[0-9.]+ ?[KMGT]i?B?)",
        "container memory limit: 480G",
    ),
    line(
        EVENT.host.note_total,
        r"(?:MEM total|RAM per node|memory per node|host memory|total memory|RAM): *"
        r"(?P<total_size>[0-9.]+ ?[KMGT]i?B?)\b",
        "RAM per node: 1024GB",
    ),
    line(
        EVENT.host.note_used,
        r"(?:MEM used|memory used): *(?P<used_size>[0-9.]+ ?[KMGT]i?B?)\b",
        "memory used: 611GB",
    ),
    line(
        EVENT.host.cgroup_limit,
        r"(?:memory\.limit_in_bytes|memory\.max)\b.{0,40}?(?P<limit_bytes>\d{6,20}|max)\b",
        "/sys/fs/cgroup/memory/memory.limit_in_bytes: 536870912000",
    ),
    line(
        EVENT.host.cgroup_file,
        r"cat \S*/(?P<file_text>memory\.limit_in_bytes|memory\.usage_in_bytes|memory\.max|memory\.current)\s*$",
        "$ cat /sys/fs/cgroup/memory/memory.limit_in_bytes",
        follow=1,
    ),
    line(
        EVENT.host.no_space,
        r"No space left on device|\[Errno 28\]|Disk quota exceeded|\[Errno 122\]",
        "OSError: [Errno 28] No space left on device: '/data/ckpt/global_step_100'",
    ),
    line(
        EVENT.host.process_limit,
        r"can't start new thread|Too many open files|Resource temporarily unavailable|pthread_create failed"
        r"|fork: retry|\[Errno 24\]|Too many workers, failed to create a file|`ulimit -n <num_files>` then restart Ray",
        "what():  thread: Resource temporarily unavailable [system:11]",
    ),
    line(
        EVENT.host.gpu_unreachable,
        r"Unable to determine the device handle for GPU|GPU is lost"
        r"|nvidia-smi has failed because it couldn't communicate",
        "Unable to determine the device handle for GPU0000:41:00.0: Unknown Error",
    ),
)
