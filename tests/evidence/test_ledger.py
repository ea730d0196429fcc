"""The ledger of recorded runs: at the peak, by role, adding up."""

from __future__ import annotations

from pathlib import Path

import pytest

from rlhfdoctor import analyze
from rlhfdoctor.types import Incident, Part

ROOT = Path(__file__).resolve().parents[2]
KILLED = ("cache-churn", "checkpoint-spike", "data-loader", "driver-leak", "long-prompts", "node-limit", "pinned-resume", "pinned-start", "reward-workers", "save-kill")


def ledger(name: str) -> tuple[Incident, list[Part], int, int]:
    """(incident, named parts, their sum, the remainder)"""
    incident = analyze([str(ROOT / "samples" / name / "run")])
    parts = [part for part in incident.ledger if part.part != "unexplained"]
    (rest,) = [part.bytes for part in incident.ledger if part.part == "unexplained"]
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
    sizes = {part.part: part.bytes for part in parts}
    assert sizes["actor page-locked"] == 2 * 822_083_584
    assert sizes.get("other shared memory (object store, /dev/shm)", 0) < 1 << 20


def test_pages_shared_after_a_fork_are_counted_once() -> None:
    """Workers of a data loader share their parent's pages: the row below zero is what they count twice."""
    _, parts, total, _ = ledger("lab-data-loader")
    shared = next(part for part in parts if part.part.startswith("pages that processes share"))
    assert shared.bytes < -(1 << 30) and total > 2 << 30


def test_dev_shm_is_split() -> None:
    """The object store's unlinked files, files with names and the rest are rows of their own."""
    _, parts, _, _ = ledger("lab-object-store")
    sizes = {part.part: part.bytes for part in parts}
    assert sizes["files in /dev/shm"] > 100 << 20
    assert "other shared memory" in sizes and not any("(object store, /dev/shm)" in name for name in sizes)
