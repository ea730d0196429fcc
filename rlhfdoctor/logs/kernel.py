"""What the Linux kernel, the NVIDIA driver or systemd says in dmesg, journal or syslog.

Wording from 2.6.32 to 7.x (mm/oom_kill.c, mm/memcontrol.c; shared/knowledge/log_formats.md).
An OOM report of kernel 5.15:

    python invoked oom-killer: gfp_mask=0xcc0(GFP_KERNEL), order=0, oom_score_adj=0
    memory: usage 204800kB, limit 204800kB, failcnt 70
    [  pid  ]   uid  tgid total_vm      rss pgtables_bytes swapents oom_score_adj name
    [   5127]     0  5127  2623712   126625        4014080        0             0 python
    oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=x,...,oom_memcg=/docker/x,...
    Memory cgroup out of memory: Killed process 5127 (python) total-vm:..kB, anon-rss:..kB, ...
"""

from __future__ import annotations

import re

from rlhfdoctor.logs.pattern import Pattern, line
from rlhfdoctor.types import Value
from rlhfdoctor.units import is_whole
from rlhfdoctor.vocabulary import EVENT

_TOTAL = r"(?P<total_vm_kb>\d+) ?kB"
_RSS = (
    r"(?:[^\n]{0,80}?anon-rss: ?(?P<anon_kb>\d+) ?kB)?"
    r"(?:[^\n]{0,80}?file-rss: ?(?P<file_kb>\d+) ?kB)?(?:[^\n]{0,80}?shmem-rss: ?(?P<shmem_kb>\d+) ?kB)?"
)
_WHO = r"(?:(?P<pid>\d+),?(?: UID \d+,?)?)?(?: ?\((?P<comm>[^\n]{0,40}?)\))?"

PATTERNS: tuple[Pattern, ...] = (
    line(
        EVENT.kernel.oom_invoked,
        r"(?:^|[\]:>|] +|;|[+-]\d\d:\d\d )(?:> *)?(?P<comm>[^\]>;\s][^\]>;\n]{0,14}?) "
        r"invoked oom-killer(?:: ?gfp_mask=(?P<gfp_text>0x[0-9a-f]+))?",
        "[ 4127.318402] python invoked oom-killer: gfp_mask=0xcc0(GFP_KERNEL), order=0, oom_score_adj=0",
    ),
    line(
        EVENT.kernel.memcg_trace,
        r"\bmem_cgroup_(?:out_of_memory|oom_synchronize)\+0x",
        "[ 7781.402900]  mem_cgroup_out_of_memory+0xbb/0xd0",
        when="mm/memcontrol.c, every release with CONFIG_MEMCG; the node's own kills go without it",
    ),
    line(
        EVENT.kernel.memcg_usage,
        r"(?:^|[^+\w])memory: usage (?P<usage_kb>\d+) ?kB(?:, ?limit (?P<limit_kb>\d+) ?kB)?"
        r"(?:, ?failcnt (?P<fail_count>\d+))?",
        "[ 7781.402913] memory: usage 4194304kB, limit 4194304kB, failcnt 90412",
    ),
    line(
        EVENT.kernel.memcg_task,
        r"Task in (?P<task_memcg_text>\S+) killed as a result of limit of (?P<oom_memcg_text>\S+)",
        "Task in /docker/a killed as a result of limit of /docker/a",
        when="to 4.18",
    ),
    line(
        EVENT.kernel.task_header,
        r"\[ *pid *\] +uid +tgid +total_vm +rss (?P<columns_text>.*oom_score_adj name)",
        "[  pid  ]   uid  tgid total_vm      rss pgtables_bytes swapents oom_score_adj name",
    ),
    line(
        EVENT.kernel.task,
        r"\[ *(?P<pid>\d+)\] +(?P<uid>\d+) +(?P<tgid>\d+) +(?P<total_vm_pages>\d+) +(?P<rss_pages>\d+)"
        r"(?P<rest_text>(?: +-?\d+){2,7}) +(?P<comm>\S.*)",
        "[ 5127]     0  5127  2623712   126625        4014080        0             0 python",
    ),
    line(
        EVENT.kernel.oom_kill,
        r"oom-kill: ?constraint=(?P<constraint>CONSTRAINT_[A-Z_]+)?(?P<rest_text>.*)",
        "oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=a,mems_allowed=0,"
        "oom_memcg=/docker/a,task_memcg=/docker/a,task=python,pid=5127,uid=0",
        when="4.19+",
    ),
    line(
        EVENT.kernel.killed,
        r"(?P<scope>Memory cgroup out of memory|Out of memory)[^:]{0,40}: ?Killed process "
        + _WHO
        + rf"(?:[^\n]{{0,80}}?total-vm: ?{_TOTAL})?"
        + _RSS,
        "Memory cgroup out of memory: Killed process 23793 (leaker) total-vm:2623712kB, "
        "anon-rss:506500kB, file-rss:1268kB, shmem-rss:0kB",
    ),
    line(
        EVENT.kernel.killed,
        r"(?:^|[^: ] |kernel: ?)Killed process " + _WHO + rf"[^\n]{{0,10}}?(?:total-vm: ?){_TOTAL}" + _RSS,
        "Killed process 29591 (python2.7) total-vm:1040264kB, anon-rss:1013612kB, file-rss:0kB",
        when="to 4.20, below the choice; in reports since then, where the head of the line is cut",
    ),
    line(
        EVENT.kernel.kill_choice,
        r"(?P<scope>Memory cgroup out of memory|Out of memory)[^:]{0,40}: ?[Kk]ill process (?P<pid>\d+)"
        r"(?: ?\((?P<comm>[^\n]{0,40}?)\))?(?: score (?P<score>\d+))?",
        "Out of memory: Kill process 29591 (python2.7) score 658 or sacrifice child",
        when="to 4.20",
    ),
    line(
        EVENT.kernel.reaped,
        r"\boom_reaper: ?reaped process (?P<pid>\d+)(?: ?\((?P<comm>[^\n]{0,40}?)\))?",
        "oom_reaper: reaped process 23793 (leaker), now anon-rss:0kB, file-rss:0kB, shmem-rss:0kB",
        when="4.6+",
    ),
    line(
        EVENT.kernel.oom_group,
        r"Tasks in (?P<memcg_text>\S+) are going to be killed due to memory\.oom\.group set",
        "Tasks in /kubepods.slice/a are going to be killed due to memory.oom.group set",
    ),
    line(
        EVENT.kernel.no_killable,
        r"Out of memory and no killable processes|Kernel panic - not syncing: (?:Out of memory|System is deadlocked)",
        "Out of memory and no killable processes...",
    ),
    line(EVENT.kernel.ram, r"(?P<ram_pages>\d{1,18}) pages RAM\b", "[  913.207716] 6144000 pages RAM"),
    line(
        EVENT.kernel.memcg_gone,
        r"A process of this unit has been killed by the OOM killer"
        r"|The kernel OOM killer killed some processes in this unit|Failed with result 'oom-kill'",
        "session-21.scope: A process of this unit has been killed by the OOM killer.",
    ),
    line(
        EVENT.kernel.userspace_oom,
        r"systemd-oomd\[\d+\]: Killed (?P<cgroup_text>\S+) due to"
        r"|earlyoom.{0,200}?sending SIG(?:TERM|KILL) to process (?P<pid>\d+)",
        "systemd-oomd[812]: Killed /user.slice/user-1000.slice due to memory pressure for /user.slice",
    ),
    line(
        EVENT.kernel.pids_limit,
        r"cgroup: fork rejected by pids controller in (?P<cgroup_text>\S+)",
        "[ 1101.987163] cgroup: fork rejected by pids controller in /user.slice/user-1000.slice/session-3.scope",
        when="4.8+; once a cgroup",
    ),
    line(
        EVENT.kernel.segfault,
        r"(?P<comm>ray::[^\]\[\n]{0,11}|[^\s\]\[:][^\]\[:\n]{0,15})\[(?P<pid>\d+)\](?:: segfault"
        r"(?: at (?P<address_text>[0-9a-f]+))?| general protection)",
        "[ 2233.123456] python3[4711]: segfault at 0 ip 00007f0000000000 sp 00007ffd00000000 error 4",
        when="traps: ... general protection fault ip:..., too",
    ),
    line(
        EVENT.kernel.trap,
        r"\btraps: (?P<comm>[^\]\[\n]{1,16})\[(?P<pid>\d+)\] trap (?P<error_text>invalid opcode|divide error|int3)",
        "traps: python3[4711] trap invalid opcode ip:7f0000000000 sp:7ffd00000000 error:0 in libtorch_cpu.so",
    ),
    line(
        EVENT.kernel.xid,
        r"NVRM: Xid \(PCI:(?P<pci_text>[0-9A-Fa-f:.]+)\): (?P<xid>\d+),? ?(?P<detail_text>.*)",
        "NVRM: Xid (PCI:0000:02:00): 79, GPU has fallen off the bus.",
    ),
    line(
        EVENT.kernel.gpu_lost,
        r"fallen off the bus and is not responding|NV_ERR_RESET_REQUIRED|GPU has fallen off the bus",
        "NVRM: fallen off the bus and is not responding to commands.",
    ),
    line(
        EVENT.kernel.pcie,
        r"PCIe Bus Error: severity=(?P<severity>\w+)(?: \((?P<class_text>\w+)\))?",
        "pcieport 0000:40:01.0: PCIe Bus Error: severity=Corrected, type=Data Link Layer, (Transmitter ID)",
    ),
)

_KEY = re.compile(r",(oom_memcg|task_memcg|task|pid|uid|nodemask|cpuset|mems_allowed)=")
#: nodemask and mems_allowed may hold commas, task names may hold blanks, so split at known keys only
HARDWARE_XIDS = frozenset({48, 62, 63, 64, 74, 79, 92, 94, 95, 119, 120, 121, 140, *range(144, 151), 154})
"""Xids that point to hardware or firmware, 144 to 150 to NVLink; 13, 31 and 43 are first of all application faults
(NVIDIA's Xid catalogue)."""
_PREVIOUS = re.compile(r"caused by previous Xid (\d+)")
_MOST_DIGITS = 20
"""Of the kernel's numbers, which have 64 bits."""


def read_xid(number: Value, detail: Value) -> Value:
    """The Xid that was first: 45 ends what another one had broken, and names it.

    >>> read_xid(45, "pid=7, name=python3, Ch 00000001 caused by previous Xid 149"), read_xid(79, "")
    (149, 79)
    """
    previous = _PREVIOUS.search(str(detail)) if number == 45 else None
    return int(previous[1]) if previous is not None else number


def read_oom_kill(rest: str) -> dict[str, Value]:
    """Keys of the `oom-kill:` line after the constraint.

    >>> read_oom_kill(",nodemask=0-2,4,global_oom,task_memcg=/a,task=npm ci,pid=7,uid=0")["task"]
    'npm ci'
    """
    parts = _KEY.split(rest)
    found: dict[str, Value] = {"global": ",global_oom" in rest}
    for key, value in zip(parts[1::2], parts[2::2], strict=False):
        text = value.replace(",global_oom", "")
        found[key] = int(text) if key in ("pid", "uid") and is_whole(text) else text
    return found


def read_task(fields: dict[str, Value], columns: str | None) -> dict[str, Value]:
    """The numbers between `rss` and the name of a task row, by the header's columns.

    Without a header (cut by `grep`) the columns are inferred from their count: 6.7+ has six
    (rss_anon rss_file rss_shmem pgtables_bytes swapents oom_score_adj), older kernels 3 or 4.
    """
    words = str(fields["rest_text"]).split()
    numbers = [int(word) for word in words] if max(map(len, words), default=0) <= _MOST_DIGITS else []
    names = columns.split()[:-1] if columns else []
    if len(names) != len(numbers):
        known = {
            3: ["pgtables_bytes", "swapents", "oom_score_adj"],
            4: ["nr_ptes", "nr_pmds", "swapents", "oom_score_adj"],
            6: [
                "rss_anon",
                "rss_file",
                "rss_shmem",
                "pgtables_bytes",
                "swapents",
                "oom_score_adj",
            ],
        }
        names = known.get(len(numbers), [])
    return dict(zip(names, numbers, strict=False))
