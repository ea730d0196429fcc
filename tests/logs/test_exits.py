"""How processes end, in the words of shells, launchers, containers or schedulers."""

from __future__ import annotations

import pytest

from tests.build import read_log

SHELLS = [
    ("bash: line 1: 2552014 Segmentation fault      (core dumped) python x.py", "shell.segfault", 2552014),
    ("run.sh: line 12:   817 Aborted                 python x.py", "shell.aborted", 817),
    ("run.sh: line 12:   817 Floating point exception(core dumped) python x.py", "shell.crashed", 817),
    ("run.sh: 行 12:   817 已杀死               python x.py", "shell.killed", 817),
    ("run.sh: 第 12 行:   817 段错误               (核心已转储) python x.py", "shell.segfault", 817),
    ("Segmentation fault (core dumped)", "shell.segfault", None),
    ("Segmentation fault", "shell.segfault", None),
    ("Aborted (core dumped)", "shell.aborted", None),
    ("zsh: killed     python x.py", "shell.killed", None),
    ("zsh: segmentation fault (core dumped)  python x.py", "shell.segfault", None),
    ("zsh: bus error  python x.py", "shell.bus_error", None),
    ("[1]  + 123 killed     python x.py", "shell.killed", None),
    ("[1]+  Killed                  python x.py", "shell.killed", None),
    ("[2]-  Segmentation fault      (core dumped) nohup python x.py", "shell.segfault", None),
    ("[1]    40213 abort (core dumped)  python x.py", "shell.aborted", None),
    ("fish: Job 1, 'python x.py' terminated by signal SIGKILL (Forced quit)", "shell.killed", None),
    ("srun: error: node01: task 3: Segmentation fault (core dumped)", "shell.segfault", None),
    ("srun: error: node01: tasks 0-3,5: Killed", "shell.killed", None),
    ("make: *** [Makefile:3: train] Killed", "shell.killed", None),
]


@pytest.mark.parametrize(("line", "kind", "pid"), SHELLS, ids=[line for line, *_ in SHELLS])
def test_shell(line: str, kind: str, pid: int | None) -> None:
    """Every shell's report of a signal is the event of that signal, once, with the pid where the shell gives it."""
    found = [(event.kind, event.fields.get("pid")) for event in read_log(line) if event.kind.startswith("shell.")]
    assert found == [(kind, pid)]


STATUSES = [
    *[
        (line, "job.exit_137")
        for line in (
            "exit code 137",
            "exited with -9",
            "returncode=-9",
            "process exited with code -9",
            "exit status: 137",
            "Exit Code: 0:9",
            "trainer-1 exited with code 137",
            "command terminated with exit code 137",
            "Command terminated by signal 9",
            "died with <Signals.SIGKILL: 9>",
            "mpirun noticed that process rank 0 with PID 77 on node n1 exited on signal 9 (Killed).",
            "signal: killed",
            "process didn't exit successfully: `train` (signal: 9, SIGKILL: kill)",
            "train.service: Main process exited, code=killed, status=9/KILL",
            "Status message: Job entrypoint command failed with exit code 137",
            "608.0   python   gpu   acct   8   FAILED   0:9",
            "child process was killed by signal SIGKILL",
            "WIFSIGNALED: true, signal 9",
        )
    ],
    ("exit status: 139", "job.exit_139"),
    ("died with <Signals.SIGSEGV: 11>", "job.exit_139"),
    ("terminated by signal 11", "job.exit_139"),
    ("train.service: Main process exited, code=dumped, status=11/SEGV", "job.exit_139"),
    ("worker exitcode: -6", "job.exit_134"),
    ("exited with code 135", "job.exit_135"),
    ("exit code 143", "job.exit_143"),
    ("exit code 136", "job.exit_crashed"),
    ("train.service: Main process exited, code=exited, status=1/FAILURE", "job.failed"),
    ("subprocess.CalledProcessError: Command '['a']' returned non-zero exit status 1.", "job.failed"),
]


@pytest.mark.parametrize(("line", "kind"), STATUSES, ids=[line for line, _ in STATUSES])
def test_status(line: str, kind: str) -> None:
    """128 + n, -n, the number of a signal or its name is the same end in every spelling."""
    assert [event.kind for event in read_log(line) if event.kind.startswith("job.")] == [kind]


@pytest.mark.parametrize(
    "line",
    [
        "exit code 1370",
        "took 137 s",
        "batch 139 of 143",
        "signal 9000",
        "The process is killed by SIGKILL by OOM killer due to high memory usage.",
        "worker crashed unexpectedly due to SIGSEGV or other unexpected errors",
        "loss 0.137, exit code 0",
        "Aborted 3 requests",
        "Terminated episodes: 15",
        "Killed by user",
    ],
)
def test_no_exit(line: str) -> None:
    """Other numbers, guesses or sentences with those words are no end of a process."""
    assert [e.kind for e in read_log(line) if e.kind.startswith(("job.", "shell.")) and e.kind != "job.exit_0"] == []


SCHEDULERS = [
    ("608.batch  batch  OUT_OF_ME+  0:125", "slurm.task_oom"),
    ("JobState=OUT_OF_MEMORY Reason=OutOfMemory", "slurm.task_oom"),
    ("slurmstepd: error: *** STEP 12.0 ON n1 CANCELLED AT 2025-10-04T17:41:09 DUE TO TIME LIMIT ***", "slurm.cancelled"),
    ("608  train  gpu  acct  8  CANCELLED by 1000  0:0", "slurm.cancelled"),
    ("JobState=TIMEOUT Reason=TimeLimit Dependency=(null)", "slurm.cancelled"),
    ("JobState=PREEMPTED Reason=None", "slurm.preempted"),
    ("JobState=NODE_FAIL Reason=NodeDown", "slurm.node_failed"),
    ("TERM_MEMLIMIT: job killed after reaching LSF memory usage limit.", "batch.memory_limit"),
    ("=>> PBS: job killed: mem 33554432kb exceeded limit 16777216kb", "batch.memory_limit"),
    ("=>> PBS: job killed: walltime 3624 exceeded limit 3600", "batch.stopped"),
    ("TERM_RUNLIMIT: job killed after reaching LSF run time limit.", "batch.stopped"),
    ("      reason: OOMKilled", "k8s.oom_killed"),
    ("trainer-0   0/1     OOMKilled   3 (41s ago)   5m", "k8s.oom_killed"),
    ("trainer-0   0/1     Evicted     0             5m", "k8s.evicted"),
    ("  Reason:         Evicted", "k8s.evicted"),
    ("System OOM encountered, victim process: python3, pid: 48211", "k8s.system_oom"),
    ('  "OOMKilled":true,', "docker.oom_killed"),
]


@pytest.mark.parametrize(("line", "kind"), SCHEDULERS, ids=[line for line, _ in SCHEDULERS])
def test_schedulers(line: str, kind: str) -> None:
    """What schedulers or containers report is one event each."""
    assert [event.kind for event in read_log(line)] == [kind]
