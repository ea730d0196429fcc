"""Who killed what: one line of each kind of death, and the order among several."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pytest

from rlhfdoctor.types import Incident

Case = Callable[[Mapping[str, str]], Incident]
VANISHED = (
    "The actor is dead because its worker process has died. Worker exit type: SYSTEM_ERROR Worker exit detail: Worker unexpectedly exits with a "
    "connection error code 2. End of file. There are some potential root causes. (1) The process is killed by SIGKILL by OOM killer due to high memory usage."
)


@pytest.mark.parametrize(
    ("line", "killer"),
    [
        (VANISHED, "sigkill-unknown"),
        (
            "oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),oom_memcg=/a,task_memcg=/a,task=python,pid=7,uid=0",
            "kernel-oom-cgroup",
        ),
        (
            "oom-kill:constraint=CONSTRAINT_NONE,nodemask=(null),cpuset=docker-ab.scope,global_oom,task_memcg=/docker/a,task=python,pid=7",
            "kernel-oom-node",
        ),
        ("Memory cgroup out of memory: Kill process 1733 (python) score 980 or sacrifice child", "kernel-oom-cgroup"),
        ("  Reason:       OOMKilled", "kernel-oom-cgroup"),
        ('   "OOMKilled": true,', "kernel-oom-cgroup"),
        (
            "slurmstepd: error: Detected 1 oom_kill event in StepId=32436650.0. Some of the step tasks have been OOM Killed.",
            "kernel-oom-cgroup",
        ),
        (
            "1 Workers (tasks / actors) killed due to memory pressure (OOM), 0 Workers crashed due to other reasons at node (ID: a, IP: b)",
            "ray-memory-monitor",
        ),
        ("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.00 GiB.", "cuda-oom"),
        ("CUDA Error: out of memory at /workspace/csrc/cumem_allocator.cpp:56", "cuda-oom"),
        (
            "ray.exceptions.ObjectStoreFullError: Failed to put object ab in object store because it is full.",
            "object-store-full",
        ),
        ("(pid=6120) Fatal Python error: Bus error", "sigbus"),
        ("[ERROR] [launch.py:321:sigkill_handler] ['python'] exits with return code = -7", "sigbus"),
        ("*** SIGSEGV received at time=1 on cpu 3 ***", "sigsegv"),
        ("[ERROR] [launch.py:321:sigkill_handler] ['python'] exits with return code = -11", "sigsegv"),
        (
            "[Rank 6] Watchdog caught collective operation timeout: WorkNCCL(OpType=ALLREDUCE, Timeout(ms)=1800000) ran for 1801377 milliseconds",
            "collective-timeout",
        ),
        ("KeyError: 'actor'", "exception"),
        ("slurmstepd: error: *** JOB 7715 ON n1 CANCELLED AT 2025-10-04T17:41:09 DUE TO PREEMPTION ***", "other"),
        ("failed (exitcode: -9) local_rank: 0 (pid: 598577) of binary: /usr/bin/python", "sigkill-unknown"),
    ],
)
def test_killer(case: Case, line: str, killer: str) -> None:
    """A line of this kind names this killer."""
    death = case({"driver.log": line + "\n"}).death
    assert death is not None
    assert death.killer == killer


@pytest.mark.parametrize(
    "line",
    [
        '   "OOMKilled": false,',
        "0 Workers (tasks / actors) killed due to memory pressure (OOM), 1 Workers crashed due to other reasons at node (ID: a, IP: b)",
        "resource_tracker: There appear to be 6 leaked shared_memory objects to clean up at shutdown",
        "[WARNING] [stage3.py:1939:step] 13 pytorch allocator cache flushes since last step. this happens when there is high memory pressure",
        "slurmstepd: Exceeded step memory limit at some point.",
        "INFO [shm_broadcast.py:466] No available shared memory broadcast block found in 60 seconds.",
        "[rank2]:[W109 19:57:12.611840192 TCPStore.cpp:122] [c10d] recvValue failed on SocketImpl(fd=91): Connection reset by peer",
        "UserWarning: out of memory is spelled here",
        "(raylet) Spilled 14530 MiB, 228 objects, write throughput 2389 MiB/s.",
        "[2025-04-02 15:02:00,117 I 1 1] (raylet) main.cc:812: received SIGTERM. Existing local drain request = None",
    ],
)
def test_frightening_but_harmless(case: Case, line: str) -> None:
    """A line of this kind is no death."""
    assert case({"driver.log": line + "\nstep:9 - actor/lr:0.0\n"}).death is None


def test_certain_killer_outranks_what_it_causes(case: Case) -> None:
    """The kernel's kill is the death, the vanished worker and the timeout are not."""
    kill = "Memory cgroup out of memory: Killed process 7 (ray::ActorModel) total-vm:9kB, anon-rss:8kB, file-rss:1kB, shmem-rss:0kB, UID:0"
    death = case({"dmesg.txt": kill, "driver.log": VANISHED}).death
    assert death is not None
    assert (death.killer, death.victim.role, death.victim.pid) == ("kernel-oom-cgroup", "actor", 7)


def test_phase_of_a_kernel_kill_comes_from_the_driver(case: Case) -> None:
    """dmesg knows no phase; the driver's log around the lost worker does."""
    kill = "Memory cgroup out of memory: Killed process 7 (ray::ActorModel) total-vm:9kB, anon-rss:8kB, file-rss:1kB, shmem-rss:0kB, UID:0"
    log = (
        'Traceback (most recent call last):\n  File "/w/train_ppo_ray.py", line 9, in train\n    ray.get(actor.async_save_actor_model())\n'
        + VANISHED
    )
    death = case({"dmesg.txt": kill, "driver.log": log}).death
    assert death is not None
    assert death.phase == "checkpoint"


def test_vanished_before_the_timeout(case: Case) -> None:
    """A process that was gone before the others timed out is the first failure."""
    lost = "[2025-04-02 14:00:01,117 E 9 9] A worker died or was killed while executing a task by an unexpected system error.\n"
    wait = (
        "[2025-04-02 14:30:05,117] [Rank 3] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=7, OpType=BROADCAST, "
        "Timeout(ms)=1800000) ran for 1800061 milliseconds before timing out.\n"
    )
    death = case({"driver.log": lost + wait}).death
    assert death is not None
    assert (death.killer, death.certain) == ("sigkill-unknown", False)


def test_a_program_that_can_raise_has_not_raised(case: Case) -> None:
    """Error names in source code and scripts are no deaths."""
    code = "except ObjectStoreFullError:\n    raise OutOfDiskError('KeyError: x')\n# Out of memory: Killed process 7 (python) total-vm:9kB, anon-rss:8kB, file-rss:1kB\n"
    assert case({"job.py": code, "launch.sh": f"# {code}", "driver.log": "step:1 - actor/lr:0.0\n"}).death is None


BUSY = 'Traceback (most recent call last):\n  File "/usr/lib/python3.11/http/server.py", line 136, in server_bind\n    socketserver.TCPServer.server_bind(self)\nOSError: [Errno 98] Address already in use\n'


@pytest.mark.parametrize("name", ["logs/monitor.log", "logs/dashboard_agent.log", "logs/runtime_env_agent.log"])
def test_a_service_of_ray_that_logs_an_exception_is_no_death(name: str, case: Case) -> None:
    """Ray's monitor could not start its metrics server, and went on; in the job's own log the same is an exception."""
    lines = (
        "2026-11-22 00:19:03,811\tERROR monitor.py:218 -- An exception occurred while starting the metrics server.\n"
        + BUSY
    )
    assert case({name: lines, "driver.log": "step:1 - actor/lr:0.0\n"}).death is None
    found = case({"driver.log": lines}).death
    assert found is not None and found.killer == "exception"


LOST_PEER = (
    "Saving model checkpoint to out/checkpoint-20\n"
    "[rank1]: Traceback (most recent call last):\n"
    '[rank1]:   File "train.py", line 39, in <module>\n'
    "[rank1]:     loss.backward()\n"
    "[rank1]: RuntimeError: [../third_party/gloo/gloo/transport/tcp/pair.cc:553] Connection closed by peer [127.0.0.1]:2208\n"
)
FAILED = (
    "E1123 12:30:58.931000 39 torch/distributed/elastic/multiprocessing/api.py:1002] failed (exitcode: {code}) local_rank: 0 "
    "(pid: 67) of binary: python\n"
)


@pytest.mark.parametrize(("code", "killer", "phase"), [(-9, "sigkill-unknown", "checkpoint"), (1, "exception", "update")])
def test_what_a_survivor_raises(code: int, killer: str, phase: str, case: Case) -> None:
    """Its lost connection is an echo of the rank that was killed, and its frames do not say what that one was doing."""
    death = case({"job.log": LOST_PEER + FAILED.format(code=code)}).death
    assert death is not None
    assert (death.killer, death.phase) == (killer, phase)


@pytest.mark.parametrize("first", ["a.out", "b.out"])
def test_files_that_have_no_order(first: str, case: Case) -> None:
    """Two tries without times: the one that memory ended, however the files are named."""
    second = "a.out" if first == "b.out" else "b.out"
    limit = "TERM_MEMLIMIT: job killed after reaching LSF memory usage limit.\n"
    death = case({first: "Exited with exit code 139.\n", second: limit}).death
    assert death is not None
    assert death.killer == "kernel-oom-cgroup"
