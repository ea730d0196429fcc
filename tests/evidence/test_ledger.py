"""The ledger of recorded runs: at the peak, by role, adding up."""

from __future__ import annotations

from pathlib import Path

import pytest

from rlhfdoctor import analyze
from rlhfdoctor.types import Incident, Part

ROOT = Path(__file__).resolve().parents[2]
KILLED = (
    "cache-churn",
    "checkpoint-spike",
    "data-loader",
    "driver-leak",
    "long-prompts",
    "node-limit",
    "pinned-resume",
    "pinned-start",
    "reward-workers",
    "save-kill",
)


def ledger(name: str) -> tuple[Incident, list[Part], int, int]:
    """(incident, named parts, their sum, the remainder)"""
    incident = analyze([str(ROOT / "samples" / name / "run")])
    parts = [part for part in incident.ledger if not part.is_rest]
    (rest,) = [part.bytes for part in incident.ledger if part.is_rest]
    return incident, parts, sum(part.bytes for part in parts), rest


@pytest.mark.parametrize("name", [f"lab-{name}" for name in KILLED])
def test_remainder_at_the_peak(name: str) -> None:
    """Where the kernel killed at a cgroup's limit, the parts make up the use to within 3 %; most to within a thousandth."""
    _, parts, total, rest = ledger(name)
    assert len(parts) >= 5
    assert abs(rest) <= 0.03 * total, (rest, total)


def test_page_locked_memory_by_role() -> None:
    """What is locked stands apart from what is anonymous, and is not called /dev/shm."""
    _, parts, _, _ = ledger("lab-pinned-start")
    sizes = {str(part.part): part.bytes for part in parts}
    assert sizes["actor page-locked"] == 2 * 822_083_584
    assert sizes.get("other shared memory (object store, /dev/shm)", 0) < 1 << 20


def test_pages_shared_after_a_fork_are_counted_once() -> None:
    """Workers of a data loader share their parent's pages: the row below zero is what they count twice."""
    _, parts, total, _ = ledger("lab-data-loader")
    shared = next(part for part in parts if str(part.part).startswith("pages that processes share"))
    assert shared.bytes < -(1 << 30) and total > 2 << 30


def test_dev_shm_is_split() -> None:
    """The object store's unlinked files, files with names and the rest are rows of their own."""
    _, parts, _, _ = ledger("lab-object-store")
    sizes = {str(part.part): part.bytes for part in parts}
    assert sizes["files in /dev/shm"] > 100 << 20
    assert "other shared memory" in sizes and not any("(object store, /dev/shm)" in name for name in sizes)


@pytest.mark.parametrize("nodes", [("node-1", "node-2"), ("node-2", "node-1"), ("here", "there")], ids=["a", "b", "c"])
def test_hosts_are_kept_apart(tmp_path: Path, nodes: tuple[str, str]) -> None:
    """Two nodes of a cluster were killed: the ledger adds up the one of the first death, whether or not the node has a known name."""
    for node, minute, gib in (nodes[0], 0, 80), (nodes[1], 9, 92):
        lines = (
            f"memory: usage {gib << 20}kB, limit {100 << 20}kB, failcnt 9",
            "Tasks state (memory values in pages):",
            "[  pid  ]   uid  tgid total_vm      rss pgtables_bytes swapents oom_score_adj name",
            f"[   4711]     0  4711 99999999 {gib << 18}  8888888        0             0 ray::ActorModelRayActor",
            "oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),oom_memcg=/docker/ab,task_memcg=/docker/ab,task=ray::ActorModel,pid=4711,uid=0",
            f"Memory cgroup out of memory: Killed process 4711 (ray::ActorModel) total-vm:399999996kB, anon-rss:{gib << 20}kB, file-rss:0kB, shmem-rss:0kB, UID:0",
        )
        (tmp_path / node).mkdir()
        (tmp_path / node / "dmesg.txt").write_text(
            "".join(f"Jan 31 12:0{minute}:00 x kernel: {line}\n" for line in lines)
        )
    incident = analyze([str(tmp_path)])
    assert incident.death is not None and incident.death.victim.bytes == 80 << 30
    assert sum(part.bytes for part in incident.ledger) == 80 << 30
    assert len([part for part in incident.ledger if part.bytes]) == 1
