"""ray-healthy: a few tasks, and an actor whose array grows to 600 MB and shrinks again."""

import session


def main() -> None:
    run = session.run("grow_and_shrink.py", "python job.py\n")
    assert "training finished" in run.driver_log
    run.keep(
        "ray-healthy",
        {
            "kind": "quiet",
            "verdict": "healthy",
            "killer": None,
            "accept": [],
            "story": """Six steps, each with four small tasks and one update of a Trainer actor whose array grows to
                600 MB and shrinks to 4 MB. Everything succeeds; the driver ends by itself and Ray shuts down.""",
        },
    )


if __name__ == "__main__":
    main()
