"""A recorded day of 64 processes, as speed.py makes a report of it.

The courses are made up (a leak under a sawtooth of steps); the trace is written by the recorder's own writer.
"""

from __future__ import annotations

import math
from pathlib import Path

from tests.record.build import phase, steps, write_run

DAY_S = 86400
STEP_S = 300
ROLES = ("actor", "critic", "reference", "reward", "rollout engine", "data loader", "driver", "raylet")


def write_day(folder: Path, seconds: int = DAY_S) -> Path:
    """64 processes in eight roles, one sample a second, phases of every step, a slow leak of the driver."""

    def course(number: int):  # type: ignore[no-untyped-def]
        role = ROLES[number % len(ROLES)]
        base, swing = 300 + 20 * number, 120 if role in ("actor", "critic") else 15

        def at(t: int) -> float:
            leak = t / 200 if role == "driver" else 0.0
            return base + leak + swing * math.sin(2 * math.pi * t / STEP_S) + (t * 7919 + number) % 5

        return at

    courses = {f"{ROLES[n % len(ROLES)]}#{n}": course(n) for n in range(64)}
    marks = [*steps(seconds // STEP_S, STEP_S)]
    for begin in range(0, seconds, STEP_S):
        marks += [
            phase(begin + offset, name)
            for offset, name in ((1, "rollout"), (120, "score"), (160, "update"), (290, "weight_sync"))
        ]
    marks.sort(key=lambda mark: mark["wall_ns"])
    return write_run(
        folder,
        seconds,
        use=lambda t: 62000 + 8 * t / 200,
        anon=courses,
        host={"anon": lambda t: 62000.0},
        events=marks,
        limit_bytes=80 << 30,
    )
