"""Whose a kill is: the kernel log is the node's, and other jobs run there."""

from __future__ import annotations

from pathlib import Path

import pytest

from rlhfdoctor import analyze
from rlhfdoctor.report.next_step import next_step

KILL = (
    "[2026-03-01T10:00:00.000000+00:00] {comm} invoked oom-killer: gfp_mask=0xcc0(GFP_KERNEL), order=0, oom_score_adj=0\n"
    "[2026-03-01T10:00:00.000100+00:00] oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),oom_memcg=/{group},"
    "task_memcg=/{group},task={comm},pid={pid},uid=0\n"
    "[2026-03-01T10:00:00.000200+00:00] Memory cgroup out of memory: Killed process {pid} ({comm}) total-vm:900000kB, "
    "anon-rss:700000kB, file-rss:1000kB, shmem-rss:0kB, UID:0\n"
)
STEP = "2026-03-01 {at} INFO step:{step} - actor/lr:0.0\n"
VANISHED = "(raylet) [2026-03-01 {at},000 E 5 5] A worker died or was killed while executing a task by an unexpected system error.\n"
DIED = "ray.exceptions.ActorDiedError: The actor died unexpectedly before finishing this task.\n"
ON_REQUEST = DIED + "The actor is dead because it was killed by `ray.kill`.\n"
STATUS_1 = DIED + (
    "The actor is dead because its worker process has died. Worker exit type: SYSTEM_ERROR Worker exit detail: Worker "
    "exits with an exit code 1. sys.exit was called.\n"
)
TIMED_OUT = (
    "RuntimeError: [../third_party/gloo/gloo/transport/tcp/unbound_buffer.cc:81] Timed out waiting 4000ms for recv "
    "operation to complete\n"
    "  exitcode  : -15 (pid: 21)  (SIGTERM)\n  traceback : Signal 15 (SIGTERM) received by PID 21\n"
)
OWN_ERROR = "Traceback (most recent call last):\n  File \"train.py\", line 3, in <module>\n    main()\nKeyError: 'answer'\n"


def killers(folder: Path, job: str, kill: str) -> tuple[str, str | None]:
    """(verdict, killer) of a job's log beside the node's kernel log."""
    (folder / "job.log").write_text(job)
    (folder / "dmesg.txt").write_text(kill)
    incident = analyze([str(folder)])
    return incident.verdict, incident.death.killer if incident.death else None


@pytest.mark.parametrize(
    ("job", "kill", "killer"),
    [
        pytest.param(STEP.format(at="09:59:50", step=4), {}, "kernel-oom-cgroup", id="its log ends there"),
        pytest.param(OWN_ERROR, {}, "exception", id="its own error"),
        pytest.param(
            f"(ActorModelRayActor pid=41) step:4 - actor/lr:0.0\n{OWN_ERROR}", {"pid": 41}, "kernel-oom-cgroup", id="its pid"
        ),
        pytest.param(DIED, {}, "kernel-oom-cgroup", id="an actor is gone"),
        pytest.param(ON_REQUEST, {}, "other", id="ray.kill"),
        pytest.param(STATUS_1, {}, "exception", id="an actor's exit status"),
        pytest.param(STATUS_1 + VANISHED.format(at="10:00:20"), {}, "kernel-oom-cgroup", id="one that vanished too"),
        pytest.param(TIMED_OUT, {}, "collective-timeout", id="the launcher's SIGTERM"),
        pytest.param("Training finished: 5 steps\n", {}, None, id="it finished"),
        pytest.param(VANISHED.format(at="10:00:20"), {}, "kernel-oom-cgroup", id="a worker vanished then"),
        pytest.param(VANISHED.format(at="11:30:00"), {}, "sigkill-unknown", id="a worker vanished later"),
        pytest.param(
            STEP.format(at="09:59:50", step=4) + STEP.format(at="10:20:00", step=9), {}, None, id="it went on behind it"
        ),
        pytest.param(
            "slurmstepd: error: *** JOB 7715 ON node01 CANCELLED AT 2026-03-01T10:00:01 DUE TO TIME LIMIT ***\n",
            {"group": "slurm/uid_1/job_9001"},
            "other",
            id="another job's number",
        ),
    ],
)
def test_whose_kill(tmp_path: Path, job: str, kill: dict[str, object], killer: str | None) -> None:
    """By pid, job number and time; what nothing ties to the run is not said of it where its own end is known."""
    words = {"comm": "python", "pid": 977, "group": "kubepods/pod9"} | kill
    assert killers(tmp_path, job, KILL.format(**words))[1] == killer


def test_a_kernel_log_alone(tmp_path: Path) -> None:
    """Nothing speaks against any kill in it."""
    (tmp_path / "dmesg.txt").write_text(KILL.format(comm="python", pid=7, group="a"))
    incident = analyze([str(tmp_path)])
    assert incident.death is not None
    assert incident.death.killer == "kernel-oom-cgroup"


def test_what_was_left_out_is_said(tmp_path: Path) -> None:
    """As a gap, with the number of kills."""
    (tmp_path / "job.log").write_text("Training finished: 5 steps\n")
    (tmp_path / "dmesg.txt").write_text(KILL.format(comm="java", pid=7, group="a") * 2)
    incident = analyze([str(tmp_path)])
    assert [str(gap.why) for gap in incident.gaps] == ["2 kills of other jobs on this node left out"]
    assert incident.verdict == "healthy"


UNDATED = (
    "[48000.10] {comm} invoked oom-killer: gfp_mask=0xcc0(GFP_KERNEL), order=0, oom_score_adj=977\n"
    "[48000.11] memory: usage 2097152kB, limit 2097152kB, failcnt 8214\n"
    "[48000.12] [  pid  ]   uid  tgid total_vm      rss pgtables_bytes swapents oom_score_adj name\n"
    "{rows}"
    "[48000.14] oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),oom_memcg=/a,task_memcg=/a,task={comm},pid=977,uid=0\n"
    "[48000.15] Memory cgroup out of memory: Killed process 977 ({comm}) total-vm:2500000kB, anon-rss:2048640kB, "
    "file-rss:30656kB, shmem-rss:0kB, UID:0\n"
)
ROW = "[48000.13] [{0:7d}]     0 {0:7d}  1294731   519824  4653056        0           977 python\n"
STOPS = "step 1/9 loss 0.5\nstep 2/9 loss 0.5\n"
RANK = "  exitcode  : -9 (pid: 12616)  (SIGKILL)\n  traceback : Signal 9 (SIGKILL) received by PID 12616\n"


def test_a_kill_that_nothing_ties_to_the_run(tmp_path: Path) -> None:
    """Without times it may be the run's: the cause is named, not decided, and the next step is to get the tie."""
    assert killers(tmp_path, STOPS, UNDATED.format(comm="python", rows=ROW.format(977))) == ("undecided", "kernel-oom-cgroup")
    incident = analyze([str(tmp_path)])
    assert incident.findings[0].confidence < 0.9
    assert incident.death is not None
    assert not incident.death.certain
    assert "dmesg -T" in str(next_step(incident))


@pytest.mark.parametrize(
    "job",
    [
        pytest.param("Killed\n", id="something was killed"),
        pytest.param("(ActorModelRayActor pid=977) step:2 - actor/lr:0.0\n", id="its pid"),
        pytest.param("alpha\nbeta\n", id="no log that is understood"),
    ],
)
def test_a_kill_that_something_ties_to_the_run(tmp_path: Path, job: str) -> None:
    """Also without times."""
    assert killers(tmp_path, job, UNDATED.format(comm="python", rows=ROW.format(977)))[0] == "cause"


@pytest.mark.parametrize(
    ("rows", "killer"), [((977,), "sigkill-unknown"), ((975, 977), "kernel-oom-cgroup"), ((), "kernel-oom-cgroup")]
)
def test_a_cgroup_with_fewer_processes_than_the_run(tmp_path: Path, rows: tuple[int, ...], killer: str) -> None:
    """torchrun and its rank are two; a list that was cut says nothing."""
    kill = UNDATED.format(comm="python", rows="".join(map(ROW.format, rows)))
    assert killers(tmp_path, STOPS + RANK, kill)[1] == killer


LOST = STEP.format(at="09:00:00", step=1) + STEP.format(at="09:50:00", step=4) + (
    "The actor is dead because its worker process has died. Worker exit type: SYSTEM_ERROR Worker exit detail: Worker "
    "unexpectedly exits with a connection error code 2. End of file.\n"
)


@pytest.mark.parametrize(
    ("day", "pid", "killer"),
    [
        ("2026-03-01", 7, "kernel-oom-cgroup"),
        ("2026-02-21", 7, "sigkill-unknown"),
        ("2026-02-21", 41, "sigkill-unknown"),
        ("2026-03-05", 7, "sigkill-unknown"),
        ("2026-03-02T08", 7, "kernel-oom-cgroup"),
    ],
    ids=["that hour", "a week before", "a week before, the number of its process", "days later", "silent for a night"],
)
def test_time_of_a_kill_beside_a_loss_without_one(tmp_path: Path, day: str, pid: int, killer: str) -> None:
    """Where the loss itself has no time, the kill's must be one at which the run may have lived."""
    kill = KILL.replace("2026-03-01T10" if "T" in day else "2026-03-01", day).format(comm="python3", group="pod", pid=pid)
    assert killers(tmp_path, f"(ActorModelRayActor pid=41) {LOST}", kill)[1] == killer


def test_piece_of_a_foreign_report(tmp_path: Path) -> None:
    """The use of a cgroup behind the last kill, all of which are other jobs', is no death of the run."""
    usage = "[2026-03-01T10:00:01.000000+00:00] memory: usage 67108864kB, limit 67108864kB, failcnt 99\n"
    kill = KILL.format(comm="java", group="pod", pid=7) + usage
    assert killers(tmp_path, "Training finished: 5 steps\n", kill) == ("healthy", None)
