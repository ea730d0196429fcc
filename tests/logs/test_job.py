"""Slurm, Kubernetes, docker, shells, Python and DeepSpeed's launcher, and what people note of a host."""

from __future__ import annotations

import pytest

from rlhfdoctor.types import Value
from rlhfdoctor.units import GIB, MIB, TIB
from tests.build import fields_of, read_kind, read_log


@pytest.mark.parametrize(
    ("line", "count", "step"),
    [
        ("slurmstepd: error: Detected 2 oom-kill event(s) in step 3756240.batch cgroup.", 2, "step 3756240.batch"),
        (
            "slurmstepd: error: Detected 1 oom-kill event(s) in StepId=2043.batch cgroup. Some of your processes may have been killed by "
            "the cgroup out-of-memory handler.",
            1,
            "StepId=2043.batch",
        ),
        (
            "slurmstepd: error: Detected 1 oom_kill event in StepId=32436650.batch. Some of the step tasks have been OOM Killed.",
            1,
            "StepId=32436650.batch",
        ),
        (
            "slurmstepd-node01: error: Detected 12 oom_kill events in StepId=3.0. Some of the step tasks have been OOM Killed.",
            12,
            "StepId=3.0",
        ),
    ],
    ids=["17.11", "19", "21", "many"],
)
def test_slurm_oom(line: str, count: int, step: str) -> None:
    """Slurm's count of kills and the step are read in all wordings."""
    assert [{"kill_count": count, "step_text": step}] == fields_of(line, "slurm.oom")


@pytest.mark.parametrize(
    ("line", "step", "used", "limit"),
    [
        (
            "slurmstepd: error: Job 7518 exceeded memory limit (626359956 > 512000000), being killed",
            "7518",
            626359956,
            512000000,
        ),
        (
            "slurmstepd-node01: error: Step 1141809.0 exceeded memory limit (41393168 > 20971520), being killed",
            "1141809.0",
            41393168,
            20971520,
        ),
    ],
)
def test_slurm_polling(line: str, step: str, used: int, limit: int) -> None:
    """The old polling limit is in kB."""
    expected = {"step_text": step, "used_bytes": used * 1024, "limit_bytes": limit * 1024}
    assert [expected] == fields_of(line, "slurm.limit_killed")


@pytest.mark.parametrize(
    ("line", "unit"),
    [
        ("slurmstepd: error: StepId=88.0 exceeded memory limit (2126805504 > 1589934592), being killed", 1),
        ("slurmstepd: error: Step 88.0 exceeded memory limit (21268055042 > 15899345920), being killed", 1),
        ("[2025-10-04T17:41:09.117] Job 88 exceeded memory limit (40423>20480), cancelling it", 1024**2),
    ],
)
def test_slurm_polling_units(line: str, unit: int) -> None:
    """Since 18.08 slurmstepd writes bytes; slurmd always wrote MiB."""
    used, limit = (int(text) * unit for text in line[line.index("(") + 1 : line.index(")")].split(">"))
    (found,) = fields_of(line, "slurm.limit_killed")
    assert (found["used_bytes"], found["limit_bytes"]) == (used, limit)


@pytest.mark.parametrize(
    "line",
    [
        "slurmstepd: error: Step 88.0 exceeded memory limit (2126805504 > 1589934592), being killed",
        "slurmstepd: error: StepId=88.0 exceeded virtual memory limit (21268055042 > 15899345920), being killed",
    ],
)
def test_slurm_polling_without_figures(line: str) -> None:
    """Ten digits may be kB or bytes, and a limit of address space is none of memory: neither is taken."""
    (found,) = fields_of(line, "slurm.limit_killed")
    assert "limit_bytes" not in found


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (
            "slurmstepd: error: *** JOB 7715 ON node01 CANCELLED AT 2025-10-04T17:41:09 DUE TO TIME LIMIT ***",
            "TIME LIMIT",
        ),
        (
            "slurmstepd: error: *** JOB 7715 ON node01 CANCELLED AT 2025-10-04T17:41:09 DUE TO PREEMPTION ***",
            "PREEMPTION",
        ),
        (
            "slurmstepd: error: *** JOB 7715 ON node01 CANCELLED AT 2025-10-04T17:41:09 DUE TO JOB REQUEUE ***",
            "JOB REQUEUE",
        ),
        ("slurmstepd-node01: error: *** STEP 6053.0 ON node01 CANCELLED AT 2025-10-04T17:41:09 ***", None),
    ],
)
def test_slurm_cancelled(line: str, reason: str | None) -> None:
    """A job ended from outside names node and reason; no reason is scancel."""
    found = fields_of(line, "slurm.cancelled")
    assert [("node01", reason)] == [(fields["ip"], fields.get("reason_text")) for fields in found]


@pytest.mark.parametrize(
    "line",
    [
        "srun: error: node01: task 0: Out Of Memory",
        "srun: error: node01: tasks 0-3,5: Out Of Memory",
        "608.batch  batch  OUT_OF_ME+  0:125",
        "State: OUT_OF_MEMORY (exit code 0)",
    ],
)
def test_slurm_task(line: str) -> None:
    """srun, sacct and seff say that a task was out of memory."""
    assert [event.kind for event in read_log(line)] == ["slurm.task_oom"]


@pytest.mark.parametrize(
    ("line", "kind", "pid"),
    [
        (
            "/var/spool/slurmd/job18837441/slurm_script: line 48: 880015 Killed                  python3 x.py",
            "shell.killed",
            880015,
        ),
        ("Killed", "shell.killed", None),
        ("Killed\r", "shell.killed", None),
        ("run.sh: line 61:  30418 Terminated              python3 main.py", "shell.terminated", 30418),
        ("run.sh: line 3:  77 Bus error               (core dumped) python3 main.py", "shell.bus_error", 77),
        ("Bus error (core dumped)", "shell.bus_error", None),
    ],
)
def test_shell(line: str, kind: str, pid: int | None) -> None:
    """The shell says which process a signal ended."""
    assert [(kind, pid)] == [(e.kind, e.fields.get("pid")) for e in read_log(line) if e.kind.startswith("shell.")]


@pytest.mark.parametrize("line", ["Killed by user", "was Killed", "Not Killed"])
def test_bare_word_inside_a_sentence(line: str) -> None:
    """Only a line that is nothing but `Killed` is the shell's."""
    assert read_kind(line, "shell.killed") == []


KUBERNETES = {
    "describe": (
        "    Last State:     Terminated\n      Reason:       OOMKilled\n      Exit Code:    137\n",
        ["k8s.oom_killed", "k8s.exit"],
    ),
    "2015": (
        "Last Termination State: Terminated\n  Reason: OOM Killed\n  Exit Code: 137\n",
        ["k8s.oom_killed", "k8s.exit"],
    ),
    "exit 0": ("    State: Terminated\n      Reason: OOMKilled\n      Exit Code: 0\n", ["k8s.oom_killed", "k8s.exit"]),
    "yaml": ("        terminated:\n          exitCode: 137\n          reason: OOMKilled\n", ["k8s.exit", "k8s.oom_killed"]),
    "json": ('"reason": "OOMKilled",\n', ["k8s.oom_killed"]),
    "other": ("    Reason:       Error\n    Exit Code:    1\n", ["k8s.exit"]),
}


@pytest.mark.parametrize(("text", "expected"), KUBERNETES.values(), ids=KUBERNETES)
def test_kubernetes(text: str, expected: list[str]) -> None:
    """`kubectl describe` and the pod's status show a kill, whatever the exit code."""
    assert expected == [event.kind for event in read_log(text) if event.kind.startswith("k8s.")]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (
            "The node was low on resource: memory. Container ppo was using 7340032Ki, which exceeds its request of 0.",
            {"resource_text": "memory", "name": "ppo", "used_bytes": 7340032 * 1024, "request_text": "0"},
        ),
        ("The node was low on resource: ephemeral-storage.", {"resource_text": "ephemeral-storage"}),
        ("The node had condition: [MemoryPressure].", {"condition_text": "MemoryPressure"}),
        (
            "The node was low on resource: memory. Threshold quantity: 100Mi, available: 88200Ki. Container ppo was using 7340032Ki, "
            "request is 1Gi, has larger consumption of memory.",
            {"resource_text": "memory", "name": "ppo", "used_bytes": 7340032 * 1024, "request_text": "1Gi"},
        ),
    ],
)
def test_eviction(line: str, expected: dict[str, Value]) -> None:
    """An eviction gives the resource, the container and what it used."""
    assert [expected] == fields_of(line, "k8s.evicted")


@pytest.mark.parametrize(("flag", "code"), [("true", 0), ("false", 137), ("true", 137)])
def test_docker_inspect(flag: str, code: int) -> None:
    """`docker inspect` gives flag and code apart, for neither follows from the other."""
    text = f'            "Dead": false,\n            "OOMKilled": {flag},\n            "ExitCode": {code},\n'
    assert [("docker.oom_killed", {"flag": flag}), ("docker.exit", {"exit_code": code})] == [
        (event.kind, event.fields) for event in read_log(text)
    ]


@pytest.mark.parametrize(
    "line",
    [
        "exited with code 137",
        "command terminated with exit code 137",
        "exit status 137",
        "exit code -9",
        "subprocess.CalledProcessError: Command '['python']' died with <Signals.SIGKILL: 9>.",
    ],
)
def test_exit_by_sigkill(line: str) -> None:
    """137 and -9 are the same end."""
    assert len(read_kind(line, "job.exit_137")) == 1


@pytest.mark.parametrize("line", ["exit code 1", "exit code 1370", "exited with code 13"])
def test_other_exits(line: str) -> None:
    """Other codes are no SIGKILL."""
    assert read_kind(line, "job.exit_137") == []


# --- the host ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "kind", "expected"),
    [
        ("MemTotal:       1031798784 kB", "host.meminfo", {"name": "MemTotal", "size_bytes": 1031798784 * 1024}),
        ("Mlocked:           26592 kB", "host.meminfo", {"name": "Mlocked", "size_bytes": 26592 * 1024}),
        (
            "tmpfs            64M     0   64M   0% /dev/shm",
            "host.df",
            {
                "device_text": "tmpfs",
                "size_text": "64M",
                "used_text": "0",
                "free_text": "64M",
                "full_ratio": 0.0,
                "mount_text": "/dev/shm",
            },
        ),
        ("docker memory request/limit: 500G", "host.note_limit", {"limit_bytes": 500 * GIB}),
        ("pod memory limit: 64Gi", "host.note_limit", {"limit_bytes": 64 * GIB}),
        ("RAM per node: 1600GB", "host.note_total", {"total_bytes": 1600 * GIB}),
        ("host memory: 2 TB", "host.note_total", {"total_bytes": 2 * TIB}),
        ("MEM used: 537GB", "host.note_used", {"used_bytes": 537 * GIB}),
        ("/sys/fs/cgroup/memory.max: 536870912000", "host.cgroup_limit", {"limit_bytes": 536870912000}),
        ("/sys/fs/cgroup/memory.max: max", "host.cgroup_limit", {"limit_bytes": "max"}),
    ],
)
def test_host(line: str, kind: str, expected: dict[str, Value]) -> None:
    """What people hand over of a host is read in bytes."""
    assert [expected] == fields_of(line, kind)


def test_free() -> None:
    """The six columns of `free -h` are kept as written."""
    text = "               total        used        free      shared  buff/cache   available\nMem:           1.0Ti       537Gi        12Gi       3.1Gi       458Gi       430Gi\n"
    (fields,) = fields_of(text, "host.free")
    assert (fields["total_text"], fields["shared_text"], fields["available_text"]) == ("1.0Ti", "3.1Gi", "430Gi")


def test_cat_of_a_cgroup_file() -> None:
    """The number behind `cat memory.max` is on the next line."""
    (event,) = read_kind("$ cat /sys/fs/cgroup/memory.max\n536870912000\n$ ls\n", "host.cgroup_file")
    assert (event.fields["file_text"], event.after) == ("memory.max", ("536870912000",))


# --- Python and DeepSpeed ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "kind", "expected"),
    [
        (
            "AttributeError: 'DeepSpeedZeRoOffload' object has no attribute 'x'",
            "python.error",
            {"name": "AttributeError", "message_text": "'DeepSpeedZeRoOffload' object has no attribute 'x'"},
        ),
        ("(pid=7) ValueError: no", "python.error", {"name": "ValueError", "message_text": "no"}),
        (
            "[rank0]: torch.cuda.OutOfMemoryError: CUDA",
            "python.error",
            {"name": "torch.cuda.OutOfMemoryError", "message_text": "CUDA"},
        ),
        ("[rank0]: AssertionError", "python.bare_error", {"name": "AssertionError"}),
        ("(pid=6120) Fatal Python error: Bus error", "python.fatal", {"error_text": "Bus error"}),
        (
            "(AsyncActor pid=46603) *** SIGSEGV received at time=1743606120 on cpu 3 ***",
            "python.signal",
            {"name": "SIGSEGV"},
        ),
        (
            "terminate called after throwing an instance of 'c10::DistBackendError'",
            "python.abort",
            {"error_text": "c10::DistBackendError"},
        ),
        (
            "RuntimeError: [enforce fail at alloc_cpu.cpp:83] err == 0. DefaultCPUAllocator: can't allocate memory: you tried to allocate 4096 bytes.",
            "python.memory_error",
            {},
        ),
        (
            "[2025-02-18 09:14:03,530] [INFO] [launch.py:316:sigkill_handler] Killing subprocess 410126",
            "deepspeed.killing",
            {"pid": 410126},
        ),
        (
            "[ERROR] [launch.py:321:sigkill_handler] ['/usr/bin/python3', '-u', 'run.py'] exits with return code = -9",
            "deepspeed.exit",
            {"exit_code": -9},
        ),
        (
            "step:3 - perf/max_memory_allocated_gb:41.5 - actor/lr:0.0",
            "gpu.used",
            {"what_text": "allocated", "used_bytes": 83 * 512 * MIB},
        ),
    ],
)
def test_programs(line: str, kind: str, expected: dict[str, Value]) -> None:
    """Errors, signals and launchers give their names and numbers."""
    assert [expected] == fields_of(line, kind)


def test_frame_has_its_source_line() -> None:
    """A frame of a traceback brings the source line behind it."""
    text = '  File "/opt/verl/workers/fsdp_workers.py", line 463, in generate_sequences\n    self.rollout.run()\n'
    (event,) = read_kind(text, "python.frame")
    assert (
        event.fields["line"],
        event.fields["function_text"],
        event.after,
    ) == (463, "generate_sequences", ("    self.rollout.run()",))
