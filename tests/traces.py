"""The recorded runs in the samples of rules, made from courses: `python -m tests.traces --write` writes them anew.

A sample needs one fact of a trace, not a machine with the same fault; samples/recorded-* are real recordings.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from tests.record.build import Course, event, kernel_lines, phase, steps, write_run

RULES = Path(__file__).resolve().parent.parent / "rules"
SECONDS = 240
LIMIT_MIB = 16 * 1024


def flat(mib: float) -> Course:
    """Memory that stands still."""
    return lambda t: mib


def climb(start: float, end: float, since: int = 0) -> Course:
    """Memory that grows to the end of the run."""
    return lambda t: start + (end - start) * max(0, t - since) / (SECONDS - 1 - since)


def total(*courses: Course) -> Course:
    """The use of the cgroup: what the processes hold, together with what they share."""
    return lambda t: sum(course(t) for course in courses)


def write(
    sample: str, anon: Mapping[str, Course], use: Course, killed: str, events: Iterable[Mapping[str, Any]], **more: Any
) -> None:
    """A run whose process of role `killed` is killed by the kernel at the end."""
    folder = RULES / sample / "run"
    shutil.rmtree(folder, ignore_errors=True)
    pid = 1001 + list(anon).index(killed)
    gone = event(
        "process.gone",
        SECONDS - 0.5,
        pid=pid,
        uid=pid - 1000,
        name=killed,
        role=killed,
        rss_anon_bytes=int(anon[killed](SECONDS - 1)) << 20,
    )
    write_run(folder, SECONDS, use=use, anon=anon, events=[*events, gone], **more)
    (folder / "lock").unlink(missing_ok=True)
    (folder / "logs" / "kernel.log").write_text(kernel_lines(SECONDS - 0.5, pid))


def workers(role: str, count: int, course: Course) -> dict[str, Course]:
    """Several processes of one role."""
    return {f"{role}#{index}": course for index in range(count)}


def host_reward_workers() -> None:
    grown = climb(200, 1400)
    write(
        "host-reward-workers/fires/growing",
        {"actor": flat(5000), "driver": flat(300), **workers("reward worker", 8, grown)},
        total(flat(5300), *[grown] * 8),
        "actor",
        [*steps(20, 11, 8)],
    )
    actor = climb(3000, 15000)
    write(
        "host-reward-workers/silent/actor-grows",
        {"actor": actor, "driver": flat(300), **workers("reward worker", 4, flat(150))},
        total(actor, flat(900)),
        "actor",
        [*steps(20, 11, 8)],
    )


def host_dataset() -> None:
    grown = climb(150, 1350)
    write(
        "host-dataset/fires/loader-copies",
        {"actor": flat(4500), "driver": flat(500), **workers("data loader", 8, grown)},
        total(flat(5000), *[grown] * 8),
        "actor",
        [*steps(20, 11, 8)],
    )
    driver = climb(300, 15400, 20)
    write(
        "host-dataset/fires/tokenised-in-driver",
        {"driver": driver, "actor": flat(350), "critic": flat(350)},
        total(driver, flat(700)),
        "driver",
        [phase(2, "load")],
    )
    actor, shared = climb(3000, 12900), 3000
    write(
        "host-dataset/silent/shared-pages",
        {"actor": actor, "driver": flat(shared), **workers("data loader", 6, flat(shared + 40))},
        total(actor, flat(shared + 6 * 40)),
        "actor",
        [*steps(20, 11, 8)],
    )


def shm_leaked_objects() -> None:
    def host(size: float, used: Course, unlinked: Course, orphaned: Course) -> dict[str, Course]:
        return {
            "shm_size_bytes": flat(size),
            "shm_used_bytes": used,
            "shm_unlinked_bytes": unlinked,
            "shm_orphaned_bytes": orphaned,
        }

    left = climb(0, 9600, 30)
    files = total(left, flat(64))
    write(
        "shm-leaked-objects/fires/orphans",
        {"actor": flat(5800), "driver": flat(300)},
        total(flat(6100), files),
        "actor",
        steps(20, 11, 8),
        host=host(32 * 1024, files, flat(0), left),
        level={"shmem_bytes": files},
    )
    write(
        "shm-leaked-objects/fires/never-unlinked",
        {"actor": flat(5800), "driver": flat(300)},
        total(flat(6100), files),
        "actor",
        steps(20, 11, 8),
        host=host(32 * 1024, files, flat(0), flat(0)),
        level={"shmem_bytes": files},
    )
    store, actor = climb(100, 7000), climb(2500, 9000)
    write(
        "shm-leaked-objects/silent/object-store",
        {"actor": actor, "driver": flat(300)},
        total(actor, flat(300), store),
        "actor",
        steps(20, 11, 8),
        host=host(32 * 1024, store, store, flat(0)),
        level={"shmem_bytes": store},
    )


MAKERS: tuple[Callable[[], None], ...] = (host_reward_workers, host_dataset, shm_leaked_objects)


if __name__ == "__main__":
    if sys.argv[1:] != ["--write"]:
        sys.exit(__doc__)
    for make in MAKERS:
        make()
