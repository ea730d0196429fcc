"""Kernel messages from 2.6.32 to 7.x, with the prefixes that dmesg, syslog and journals put before them."""

from __future__ import annotations

import pytest

from rlhfdoctor.logs.kernel import read_oom_kill, read_task
from tests.build import fields_of, read_log

INVOKED = "invoked oom-killer: gfp_mask="


@pytest.mark.parametrize(
    ("line", "comm", "gfp"),
    [
        ("python invoked oom-killer: gfp_mask=0x1201d2, order=0, oomkilladj=0", "python", "0x1201d2"),
        ("sshd invoked oom-killer: gfp_mask=0x201da, order=0, oom_adj=-17, oom_score_adj=-1000", "sshd", "0x201da"),
        ("python invoked oom-killer: gfp_mask=0xd0, order=0, oom_score_adj=0", "python", "0xd0"),
        (
            "java invoked oom-killer: gfp_mask=0x14200ca(GFP_HIGHUSER_MOVABLE), nodemask=(null),  order=0, oom_score_adj=0",
            "java",
            "0x14200ca",
        ),
        (
            "oom invoked oom-killer: gfp_mask=0x6280ca(GFP_HIGHUSER_MOVABLE|__GFP_ZERO), order=0, oom_score_adj=0",
            "oom",
            "0x6280ca",
        ),
        ("perl invoked oom-killer: gfp_mask=0xcc0(GFP_KERNEL), order=0, oom_score_adj=985", "perl", "0xcc0"),
        (
            "ray::WorkerDict invoked oom-killer: gfp_mask=0x140cca(GFP_HIGHUSER_MOVABLE|__GFP_COMP), order=0, oom_score_adj=0",
            "ray::WorkerDict",
            "0x140cca",
        ),
        (f"CPU 0/KVM {INVOKED}0xcc0(GFP_KERNEL), order=0, oom_score_adj=0", "CPU 0/KVM", "0xcc0"),
        (f"GC Thread#9 {INVOKED}0xcc0(GFP_KERNEL), order=0, oom_score_adj=0", "GC Thread#9", "0xcc0"),
        (f"VLLM::EngineCor {INVOKED}0xcc0(GFP_KERNEL), order=0, oom_score_adj=0", "VLLM::EngineCor", "0xcc0"),
        (f"ray::leaks_memo {INVOKED}0xcc0(GFP_KERNEL), order=0, oom_score_adj=1000", "ray::leaks_memo", "0xcc0"),
        (f"pt_main_thread {INVOKED}0xcc0(GFP_KERNEL), order=0, oom_score_adj=0", "pt_main_thread", "0xcc0"),
        (f"php.bin {INVOKED}0xcc0(GFP_KERNEL), order=0, oom_score_adj=0", "php.bin", "0xcc0"),
        (f"tmux: server {INVOKED}0xcc0(GFP_KERNEL), order=0, oom_score_adj=0", "tmux: server", "0xcc0"),
    ],
)
@pytest.mark.parametrize("prefix", ["", "[ 2929.921270] "], ids=["bare", "dmesg"])
def test_first_line(line: str, comm: str, gfp: str, prefix: str) -> None:
    """The first line of a report names the process that asked, whatever its name holds."""
    assert [{"comm": comm, "gfp_text": gfp}] == fields_of(prefix + line, "kernel.oom_invoked")


PREFIXES = [
    "[ 2929.921270] ",
    "[9204417.118830] ",
    "[Fri Nov 21 16:40:12 2025] ",
    "[二 9月  3 05:57:48 2024] ",
    "[月  1月 26 01:49:41 2026] ",
    "[  +0.000427] ",
    "2024-04-29T14:55:41,678628+02:00 ",
    "kern  :info  : [Thu Aug 17 17:29:27 2023] ",
    "Jul 15 19:05:27 host kernel: ",
    "May 15 20:18:46 host kernel: [  318.445021] ",
    "2026-09-25T07:58:02.631401+00:00 host kernel: ",
    "kern:     err: [2026-07-25T14:23:17.527285605Z]: ",
    "4,900,1,-;",
    '  "textPayload": "[195998.443208] ',
    "> ",
    "> [ 2929.921270] ",
    "",
]


@pytest.mark.parametrize("prefix", PREFIXES)
def test_prefix_before_the_first_line(prefix: str) -> None:
    """The name of the process that asked is read behind every prefix."""
    line = prefix + "python invoked oom-killer: gfp_mask=0xcc0(GFP_KERNEL), order=0, oom_score_adj=0"
    assert [fields["comm"] for fields in fields_of(line, "kernel.oom_invoked")] == ["python"]


@pytest.mark.parametrize("prefix", PREFIXES)
def test_prefix_before_the_verdict(prefix: str) -> None:
    """The Killed line, the oom-kill line, the usage line and a task row are read behind every prefix."""
    text = "".join(
        f"{prefix}{line}\n"
        for line in (
            "memory: usage 204800kB, limit 204800kB, failcnt 70",
            "[  pid  ]   uid  tgid total_vm      rss pgtables_bytes swapents oom_score_adj name",
            "[   5127]     0  5127  2623712   126625  4014080        0             0 python",
            "oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=x,mems_allowed=0,oom_memcg=/docker/x,"
            "task_memcg=/docker/x,task=python,pid=5127,uid=0",
            "Memory cgroup out of memory: Killed process 5127 (python) total-vm:1kB, anon-rss:2kB, file-rss:3kB, "
            "shmem-rss:4kB, UID:0 pgtables:10048kB oom_score_adj:0",
        )
    )
    expected = ["kernel.memcg_usage", "kernel.task_header", "kernel.task", "kernel.oom_kill", "kernel.killed"]
    assert expected == [event.kind for event in read_log(text) if event.kind.startswith("kernel.")]


def test_serial_console_of_gcp() -> None:
    """A line quoted as JSON with its line end in escapes is read up to the escapes."""
    line = (
        '"textPayload": "[195998.443208] Memory cgroup out of memory: Killed process 7 (node) total-vm:8kB, '
        'anon-rss:4kB, file-rss:0kB, shmem-rss:0kB, UID:0 pgtables:1kB oom_score_adj:0\\r\\n"'
    )
    assert [fields["comm"] for fields in fields_of(line, "kernel.killed")] == ["node"]


# --- memory state ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "usage", "limit", "count"),
    [
        ("memory: usage 204800kB, limit 204800kB, failcnt 70", 209715200, 209715200, 70),
        ("[ 7781.402913] memory: usage 4194304kB, limit 4194304kB, failcnt 90412", 2**32, 2**32, 90412),
        ("memory: usage 100kB, limit 9007199254740988kB, failcnt 0", 102400, 9007199254740988 * 1024, 0),
        ("memory: usage 100kB, limit 18014398509481983kB, failcnt 0", 102400, 18014398509481983 * 1024, 0),
    ],
)
def test_usage_of_the_cgroup(line: str, usage: int, limit: int, count: int) -> None:
    """Usage and limit of the cgroup that hit its limit come out in bytes."""
    expected = [{"usage_bytes": usage, "limit_bytes": limit, "fail_count": count}]
    assert expected == fields_of(line, "kernel.memcg_usage")


@pytest.mark.parametrize(
    "line",
    [
        "memory+swap: usage 2592556kB, limit 9007199254740988kB, failcnt 0",
        "kmem: usage 7260kB, limit 9007199254740988kB, failcnt 0",
        "swap: usage 0kB, limit 0kB, failcnt 0",
    ],
)
def test_other_counters_are_not_memory(line: str) -> None:
    """The lines of swap and kernel memory are not taken for the line of memory."""
    assert fields_of(line, "kernel.memcg_usage") == []


def test_task_and_limit_before_4_19() -> None:
    """Up to 4.18 a line names the cgroup of the task and the one at its limit."""
    line = "[ 99.1] Task in /slurm/uid_1/job_7/step_0 killed as a result of limit of /slurm/uid_1/job_7"
    expected = [{"task_memcg_text": "/slurm/uid_1/job_7/step_0", "oom_memcg_text": "/slurm/uid_1/job_7"}]
    assert expected == fields_of(line, "kernel.memcg_task")


def test_global_state() -> None:
    """The node's RAM is read from the report of a global kill."""
    text = (
        "Node 0 Normal free:55196kB boost:0kB min:55360kB low:69200kB high:83040kB\n"
        "Free swap  = 12kB\nTotal swap = 4194300kB\n4166576 pages RAM\n0 pages HighMem/MovableOnly\n"
    )
    expected = [
        ("kernel.ram", {"ram_pages": 4166576}),
    ]
    assert expected == [(event.kind, dict(event.fields)) for event in read_log(text)]


# --- task table --------------------------------------------------------------------------------

TABLES = {
    "2.6.32": (
        "[ pid ]   uid  tgid total_vm      rss cpu oom_adj oom_score_adj name",
        "[ 1743]     0  1743    16029      172   5     -17         -1000 sshd",
        {"cpu": 5, "oom_adj": -17, "oom_score_adj": -1000},
    ),
    "3.10": (
        "[ pid ]   uid  tgid total_vm      rss nr_ptes swapents oom_score_adj name",
        "[ 1733]     0  1733   235663    51626     116        0             0 python",
        {"nr_ptes": 116, "swapents": 0, "oom_score_adj": 0},
    ),
    "4.1": (
        "[ pid ]   uid  tgid total_vm      rss nr_ptes nr_pmds swapents oom_score_adj name",
        "[ 1733]     0  1733   235663    51626     116       4       11             0 python",
        {"nr_ptes": 116, "nr_pmds": 4, "swapents": 11, "oom_score_adj": 0},
    ),
    "4.11": (
        "[ pid ]   uid  tgid total_vm      rss nr_ptes nr_pmds nr_puds swapents oom_score_adj name",
        "[ 1733]     0  1733   235663    51626     116       4       3       11           -5 python",
        {"nr_ptes": 116, "nr_pmds": 4, "nr_puds": 3, "swapents": 11, "oom_score_adj": -5},
    ),
    "4.15": (
        "[ pid ]   uid  tgid total_vm      rss pgtables_bytes swapents oom_score_adj name",
        "[ 1733]     0  1733   235663    51626         573440        0          1000 python",
        {"pgtables_bytes": 573440, "swapents": 0, "oom_score_adj": 1000},
    ),
    "5.15": (
        "[  pid  ]   uid  tgid total_vm      rss pgtables_bytes swapents oom_score_adj name",
        "[    774]     0   774    20911     1057   212992      197             0 systemd-journal",
        {"pgtables_bytes": 212992, "swapents": 197, "oom_score_adj": 0},
    ),
    "6.7": (
        "[  pid  ]   uid  tgid total_vm      rss rss_anon rss_file rss_shmem pgtables_bytes swapents oom_score_adj name",
        "[1204417]  1000 1204417 91234567 12345678 12000000   345000       678    123456789        0             0 VLLM::EngineCor",
        {
            "rss_anon": 12000000,
            "rss_file": 345000,
            "rss_shmem": 678,
            "pgtables_bytes": 123456789,
            "swapents": 0,
            "oom_score_adj": 0,
        },
    ),
}


@pytest.mark.parametrize(("header", "row", "expected"), TABLES.values(), ids=TABLES)
def test_row_by_its_header(header: str, row: str, expected: dict[str, int]) -> None:
    """The columns of a row are named by the header of its kernel."""
    columns = str(fields_of(f"[ 12.345678] {header}", "kernel.task_header")[0]["columns_text"])
    (fields,) = fields_of(f"[ 12.345678] {row}", "kernel.task")
    assert expected == read_task(fields, columns)


@pytest.mark.parametrize(("header", "row", "expected"), TABLES.values(), ids=TABLES)
def test_row_has_its_pages_and_name(header: str, row: str, expected: dict[str, int]) -> None:
    """Process id, pages and name of a row are read whatever stands between them."""
    words = row.replace("[", " ").replace("]", " ").split()
    (fields,) = fields_of(row, "kernel.task")
    want = (int(words[0]), int(words[3]), int(words[4]), words[-1])
    assert want == (fields["pid"], fields["total_vm_pages"], fields["rss_pages"], fields["comm"])


@pytest.mark.parametrize("kernel", ["3.10", "4.1", "5.15", "6.7"])
def test_row_without_a_header(kernel: str) -> None:
    """Where `grep` took the header away, the number of columns tells them (3.10 writes pages of tables)."""
    _, row, expected = TABLES[kernel]
    (fields,) = fields_of(row, "kernel.task")
    assert expected["oom_score_adj"] == read_task(fields, None)["oom_score_adj"]


def test_row_with_unknown_columns() -> None:
    """A row of a width that no kernel has gives no columns rather than wrong ones."""
    assert read_task({"rest_text": "1 2 3 4 5 6 7"}, None) == {}


@pytest.mark.parametrize("name", ["tmux: server", "(sd-pam)", "CPU 0/KVM", "[celeryd: w@a:M", "kworker/u8:2", "npm ci"])
def test_names_in_the_table(name: str) -> None:
    """Names of processes may hold blanks, colons, brackets and slashes."""
    row = f"[   1208]  1000  1208    26122      716    81920        0             0 {name}"
    assert [name] == [fields["comm"] for fields in fields_of(row, "kernel.task")]


@pytest.mark.parametrize("name", ["7z", "-bash", "3proxy"])
def test_names_that_begin_with_a_digit_or_a_dash(name: str) -> None:
    """Names of processes may begin with a digit or a dash."""
    row = f"[   1208]  1000  1208    26122      716    81920        0             0 {name}"
    assert [name] == [fields["comm"] for fields in fields_of(row, "kernel.task")]


def test_indented_header() -> None:
    """A header of the new columns under the old narrow `[ pid ]` is a header too."""
    line = "[ pid ]   uid  tgid total_vm      rss pgtables_bytes swapents oom_score_adj name"
    assert [fields["columns_text"] for fields in fields_of(line, "kernel.task_header")] == [
        "pgtables_bytes swapents oom_score_adj name"
    ]


# --- verdict -----------------------------------------------------------------------------------

VERDICTS = {
    "cgroup": (
        "oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=5e1b,mems_allowed=0,oom_memcg=/docker/5e1b,"
        "task_memcg=/docker/5e1b,task=python,pid=5127,uid=0",
        "CONSTRAINT_MEMCG",
        {
            "global": False,
            "nodemask": "(null)",
            "cpuset": "5e1b",
            "mems_allowed": "0",
            "oom_memcg": "/docker/5e1b",
            "task_memcg": "/docker/5e1b",
            "task": "python",
            "pid": 5127,
            "uid": 0,
        },
    ),
    "global": (
        "oom-kill:constraint=CONSTRAINT_NONE,nodemask=(null),cpuset=/,mems_allowed=0-7,global_oom,"
        "task_memcg=/user.slice/user-21417.slice/session-2.scope,task=perl,pid=1440763,uid=21417",
        "CONSTRAINT_NONE",
        {
            "global": True,
            "nodemask": "(null)",
            "cpuset": "/",
            "mems_allowed": "0-7",
            "task_memcg": "/user.slice/user-21417.slice/session-2.scope",
            "task": "perl",
            "pid": 1440763,
            "uid": 21417,
        },
    ),
    "numa": (
        "oom-kill:constraint=CONSTRAINT_MEMORY_POLICY,nodemask=3,cpuset=/,mems_allowed=0-3,global_oom,"
        "task_memcg=/a,task=python3,pid=7,uid=1000",
        "CONSTRAINT_MEMORY_POLICY",
        {
            "global": True,
            "nodemask": "3",
            "cpuset": "/",
            "mems_allowed": "0-3",
            "task_memcg": "/a",
            "task": "python3",
            "pid": 7,
            "uid": 1000,
        },
    ),
    "cpuset": (
        "oom-kill:constraint=CONSTRAINT_CPUSET,nodemask=0-2,4,cpuset=job_7,mems_allowed=0-2,4,global_oom,"
        "task_memcg=/a,task=npm ci,pid=7,uid=1000",
        "CONSTRAINT_CPUSET",
        {
            "global": True,
            "nodemask": "0-2,4",
            "cpuset": "job_7",
            "mems_allowed": "0-2,4",
            "task_memcg": "/a",
            "task": "npm ci",
            "pid": 7,
            "uid": 1000,
        },
    ),
    "5.0-5.2": (
        "oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),oom_memcg=/leaker,task_memcg=/leaker,task=leaker,"
        "pid=23793,uid=0",
        "CONSTRAINT_MEMCG",
        {
            "global": False,
            "nodemask": "(null)",
            "oom_memcg": "/leaker",
            "task_memcg": "/leaker",
            "task": "leaker",
            "pid": 23793,
            "uid": 0,
        },
    ),
}


@pytest.mark.parametrize(("line", "constraint", "expected"), VERDICTS.values(), ids=VERDICTS)
def test_oom_kill_line(line: str, constraint: str, expected: dict[str, object]) -> None:
    """The `oom-kill:` line gives the constraint and all its keys, commas and blanks inside values included."""
    (fields,) = fields_of(f"[ 4127.318402] {line}", "kernel.oom_kill")
    assert (constraint, expected) == (fields["constraint"], read_oom_kill(str(fields["rest_text"])))


def test_global_kill_of_a_docker_process() -> None:
    """A docker path in cpuset and task_memcg does not make a kill one of the cgroup."""
    rest = ",nodemask=(null),cpuset=docker-ab.scope,mems_allowed=0,global_oom,task_memcg=/system.slice/docker-ab.scope,task=python,pid=7,uid=0"
    found = read_oom_kill(rest)
    assert (found["global"], found.get("oom_memcg")) == (True, None)


KILLED = {
    "el6": (
        "Killed process 29591, UID 500, (python2.7) total-vm:3446192kB, anon-rss:2751508kB, file-rss:20kB",
        {"pid": 29591, "comm": "python2.7", "total_vm_bytes": 3446192, "anon_bytes": 2751508, "file_bytes": 20},
    ),
    "el7 .327": (
        "Killed process 28438 (java) total-vm:20255636kB, anon-rss:466160kB, file-rss:13684kB",
        {"pid": 28438, "comm": "java", "total_vm_bytes": 20255636, "anon_bytes": 466160, "file_bytes": 13684},
    ),
    "el7 .1127": (
        "Killed process 1733 (python), UID 0, total-vm:942652kB, anon-rss:204596kB, file-rss:1884kB, shmem-rss:0kB",
        {
            "pid": 1733,
            "comm": "python",
            "total_vm_bytes": 942652,
            "anon_bytes": 204596,
            "file_bytes": 1884,
            "shmem_bytes": 0,
        },
    ),
    "4.19": (
        "Memory cgroup out of memory: Killed process 23793 (leaker) total-vm:2623712kB, anon-rss:506500kB, "
        "file-rss:1268kB, shmem-rss:0kB",
        {
            "scope": "Memory cgroup out of memory",
            "pid": 23793,
            "comm": "leaker",
            "total_vm_bytes": 2623712,
            "anon_bytes": 506500,
            "file_bytes": 1268,
            "shmem_bytes": 0,
        },
    ),
    "5.3": (
        "Out of memory: Killed process 3921 (uvicorn) total-vm:9008816kB, anon-rss:1169716kB, file-rss:256kB, "
        "shmem-rss:12kB, UID:0 pgtables:10048kB oom_score_adj:0",
        {
            "scope": "Out of memory",
            "pid": 3921,
            "comm": "uvicorn",
            "total_vm_bytes": 9008816,
            "anon_bytes": 1169716,
            "file_bytes": 256,
            "shmem_bytes": 12,
        },
    ),
    "compact": (
        "Out of memory (oom_kill_allocating_task): Killed process 5 (a b) total-vm:4kB, anon-rss:3kB, file-rss:2kB, shmem-rss:1kB",
        {
            "scope": "Out of memory",
            "pid": 5,
            "comm": "a b",
            "total_vm_bytes": 4,
            "anon_bytes": 3,
            "file_bytes": 2,
            "shmem_bytes": 1,
        },
    ),
}


@pytest.mark.parametrize(("line", "expected"), KILLED.values(), ids=KILLED)
def test_killed_line(line: str, expected: dict[str, int | str]) -> None:
    """The Killed line gives pid, name and the three kinds of RSS in bytes, in every generation."""
    want = {key: value * 1024 if key.endswith("_bytes") else value for key, value in expected.items()}  # type: ignore[operator]
    assert [want] == fields_of(line, "kernel.killed")


@pytest.mark.parametrize(
    ("line", "scope", "pid"),
    [
        ("Out of memory: Kill process 29591 (python2.7) score 658 or sacrifice child", "Out of memory", 29591),
        (
            "Memory cgroup out of memory: Kill process 1733 (python) score 980 or sacrifice child",
            "Memory cgroup out of memory",
            1733,
        ),
    ],
)
def test_choice_before_the_kill(line: str, scope: str, pid: int) -> None:
    """Up to 4.20 a line names the chosen process, which need not be the one that dies."""
    assert [(scope, pid)] == [(found["scope"], found["pid"]) for found in fields_of(line, "kernel.kill_choice")]


def test_child_is_sacrificed() -> None:
    """The chosen and the killed process may be two, and both are kept."""
    text = (
        "Out of memory: Kill process 100 (raylet) score 9 or sacrifice child\n"
        "Killed process 101 (python), UID 0, total-vm:1kB, anon-rss:1kB, file-rss:0kB, shmem-rss:0kB\n"
    )
    assert [(e.kind, e.fields["pid"]) for e in read_log(text)] == [("kernel.kill_choice", 100), ("kernel.killed", 101)]


@pytest.mark.parametrize(
    ("line", "kind"),
    [
        (
            "Tasks in /kubepods.slice/kubepods-burstable.slice are going to be killed due to memory.oom.group set",
            "kernel.oom_group",
        ),
        ("session-21.scope: A process of this unit has been killed by the OOM killer.", "kernel.memcg_gone"),
        ("The kernel OOM killer killed some processes in this unit.", "kernel.memcg_gone"),
        ("app.service: Failed with result 'oom-kill'.", "kernel.memcg_gone"),
        ("Out of memory and no killable processes...", "kernel.no_killable"),
        ("systemd-oomd[812]: Killed /user.slice/a due to memory pressure for /user.slice", "kernel.userspace_oom"),
        ("python3[4711]: segfault at 0 ip 00007f sp 00007ffd error 4 in libc.so.6", "kernel.segfault"),
        ("NVRM: fallen off the bus and is not responding to commands.", "kernel.gpu_lost"),
        ("NVRM: nvAssertOkFailedNoLog: Assertion failed: Reset required [NV_ERR_RESET_REQUIRED]", "kernel.gpu_lost"),
    ],
)
def test_other_verdicts(line: str, kind: str) -> None:
    """Group kills, systemd's notes, hopeless kernels and lost GPUs are reported from each other."""
    assert [kind] == [event.kind for event in read_log(f"[ 12.345678] {line}")]


@pytest.mark.parametrize(
    ("line", "xid"),
    [
        ("NVRM: Xid (PCI:0000:02:00): 79, GPU has fallen off the bus.", 79),
        ("NVRM: Xid (PCI:0000:00:05): 43, pid=733190, name=pt_main_thread, Ch 00000008", 43),
        ("NVRM: Xid (PCI:0000:c1:00): 119, pid='<unknown>', name=<unknown>, Timeout after 6s", 119),
        ("NVRM: Xid (PCI:0000:00:05): 45, pid=1818990, name=python3, Ch 00000001 caused by previous Xid 149", 45),
        ("NVRM: Xid (PCI:0001:00:00): 149, NETIR_LINK_EVT Fatal XC0 i0 Link 00 (0x025001c6 0x00000000)", 149),
        (
            "NVRM: Xid (PCI:0000:00:05): 31, pid=7, name=a, MMU Fault: ENGINE GRAPHICS GPCCLIENT_T1_8 faulted @ 0x73ac",
            31,
        ),
    ],
)
def test_xid(line: str, xid: int) -> None:
    """The number of an Xid is read in all its wordings, not the one that it quotes."""
    assert [xid] == [fields["xid"] for fields in fields_of(line, "kernel.xid")]


def test_filtered_journal() -> None:
    """The header without rows, as `grep oom` leaves it, is an event by itself and no row."""
    text = "[ 1.000000] [  pid  ]   uid  tgid total_vm      rss pgtables_bytes swapents oom_score_adj name\n"
    assert [event.kind for event in read_log(text)] == ["kernel.task_header"]


@pytest.mark.parametrize(
    "line",
    [
        "the oom-killer was not invoked",
        "There are some potential root causes. (1) The process is killed by SIGKILL by OOM killer due to high memory usage.",
        "torch.cuda.OutOfMemoryError",
        "Killed process group",
        "memory usage: 5kB",
    ],
)
def test_talk_about_kills_is_no_kill(line: str) -> None:
    """Advice and talk about the OOM killer is no message of the kernel."""
    assert [event.kind for event in read_log(line) if event.kind.startswith("kernel.")] == []
