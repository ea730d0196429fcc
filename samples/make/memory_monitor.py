"""ray-memory-monitor: Ray's memory monitor kills an actor at a threshold far too low for the node.

The threshold is the node's present use plus 1.5 GB, so an actor that wants 3.8 GB crosses it while
most of the node is free.
"""

import session

HEADROOM = 1.5e9


def main() -> None:
    total, used = session.memory_total_and_used()
    threshold = round((used + HEADROOM) / total, 2)
    launch = f"RAY_memory_usage_threshold={threshold} python job.py\n"
    run = session.run("train.py", launch)
    assert "running low on memory" in run.driver_log, "the monitor killed nobody"
    run.keep(
        "ray-memory-monitor",
        {
            "kind": "decidable",
            "verdict": "cause",
            "killer": "ray-memory-monitor",
            "accept": ["host-ray-threshold"],
            "story": f"""launch.sh sets RAY_memory_usage_threshold={threshold} on a node of {total / 1e9:.0f} GB. A
                Trainer actor that allocates 3.8 GB of optimizer states crosses the threshold while more than
                three quarters of the node are free, and Ray's memory monitor kills it. Nothing else is short.""",
        },
        with_files=("launch.sh", "job.py"),
    )


if __name__ == "__main__":
    main()
