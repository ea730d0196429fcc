"""ray-disk-warning: Ray warns that the disk is over N% full, and the job finishes all the same."""

import session


def main() -> None:
    run = session.run("steps.py", "RAY_local_fs_capacity_threshold=0.5 python job.py 14\n")
    assert "% full" in run.log_text(), "Ray did not warn"
    assert "training finished" in run.driver_log
    run.keep(
        "ray-disk-warning",
        {
            "kind": "quiet",
            "verdict": "healthy",
            "killer": None,
            "accept": [],
            "story": """RAY_local_fs_capacity_threshold=0.5 on a disk that is about 70% full makes the raylet warn
                every ten seconds that object creation will fail if spilling is required. Nothing is spilled, all
                14 steps are done and the driver ends by itself.""",
        },
        with_files=("launch.sh",),
    )


if __name__ == "__main__":
    main()
