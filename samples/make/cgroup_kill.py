"""ray-cgroup-kill and ray-cgroup-kill-no-kernel-log: the kernel kills an actor at a cgroup limit.

The whole Ray session lives in a memory cgroup of 2 GB on a much larger node, as under Slurm: Ray
sees the node's memory, so its own memory monitor (left on) has no reason to act. The second sample
is the same run, handed over without the kernel log.
"""

import shutil

import session

NAME = "ray-cgroup-kill"
BLIND = "ray-cgroup-kill-no-kernel-log"
LIMIT = 2048 * session.MIB


def main() -> None:
    run = session.run("train.py", "python job.py\n", memory_limit=LIMIT)
    assert "constraint=CONSTRAINT_MEMCG" in run.kernel_log, "the kernel killed nobody"
    run.keep(
        NAME,
        {
            "kind": "decidable",
            "verdict": "cause",
            "killer": "kernel-oom-cgroup",
            "accept": ["host-container-limit"],
            "story": """A Trainer actor allocates 3.8 GB of optimizer states on a node of 25 GB, most of
                it free, while the whole Ray session sits in a memory cgroup limited to 2 GB (memory+swap
                too). The kernel kills the actor's process at that limit. Ray's memory monitor is on but
                looks at the node's memory (raylet.out: total system memory bytes), so it never triggers.""",
        },
    )
    target = session.SAMPLES / BLIND / "run"
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(session.SAMPLES / NAME / "run", target, ignore=shutil.ignore_patterns("dmesg.txt"))
    session.write_truth(
        BLIND,
        {
            "kind": "undecidable",
            "verdict": "undecided",
            "killer": "sigkill-unknown",
            "accept": [],
            "story": """The run of ray-cgroup-kill, without dmesg.txt. What is left is Ray's vanished-worker
                text, whose "killed by the OOM killer" is guess (1) of three; no exit status or signal of the
                worker is in any file. The one positive fact is an absence: a worker that crashes by SIGSEGV
                prints a stack to its .err, and this one is silent, so SIGKILL is likely, but not who sent it. That the actor was allocating when it went is a hint, no proof. The
                kernel log (or the cgroup's memory.oom_control / memory.events) would settle it.""",
        },
    )


if __name__ == "__main__":
    main()
