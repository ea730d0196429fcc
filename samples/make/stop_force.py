"""ray-stop-force: somebody types `ray stop --force` on the node while the actor works.

The run has a PID namespace of its own, because `ray stop` ends every Ray process that it can see.
What `ray stop` itself prints stays on the operator's terminal and is not handed over. The driver
waits for the GCS before it gives up; the wait is cut from 60 s to 20 s to keep the run short.
"""

import session


def main() -> None:
    launch = "export RAY_gcs_rpc_server_reconnect_timeout_s=20\nray start --head --num-cpus=2\npython job.py 60\n"
    run = session.run("steps.py", launch, after=(15, "ray stop --force"))
    operator = (run.scratch / "operator.log").read_text()
    assert "via SIGKILL" in operator and "Stopped all" in operator, operator
    assert "step 1" in run.driver_log and "training finished" not in run.driver_log
    run.keep(
        "ray-stop-force",
        {
            "kind": "undecidable",
            "verdict": "undecided",
            "killer": "sigkill-unknown",
            "accept": [],
            "story": """`ray stop --force` SIGKILLs raylet, agents, workers and GCS within two seconds while the Trainer
                actor works; the driver finds the GCS gone and gives up. No file names the sender: raylet.out and
                gcs_server.out end in mid-work, without the "received SIGTERM" of an orderly stop, and the driver
                only offers "terminated by `ray stop` or is killed unexpectedly". That everything but the driver
                went at once speaks for a stop of the whole session rather than one process out of memory, but a
                kill of the container's or job's other processes would leave the same files. The operator's
                terminal or shell history, or a kernel log without an OOM kill, would settle it.""",
        },
        with_files=("launch.sh",),
    )


if __name__ == "__main__":
    main()
