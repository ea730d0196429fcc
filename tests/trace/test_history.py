"""What a picture is drawn from: every sample, in the sums that the whole tables give."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from rlhfdoctor.trace.events import Recorded
from rlhfdoctor.trace.history import LOCKED, OF_CGROUP, OF_NODE, read_history
from rlhfdoctor.trace.read import read_node
from rlhfdoctor.trace.schema import NULL
from rlhfdoctor.vocabulary import RECORD_FIELD as R
from tests.record.build import event, write_run

SAMPLES = Path(__file__).resolve().parents[2] / "samples"
RUNS = sorted(path.parent for path in SAMPLES.glob("*/run/*.trace") if path.name == "000001.trace")


def roles_of(trace: Recorded) -> dict[int, str]:
    """Every process with its role."""
    return {int(uid): str(row.get(R.role) or "other") for uid, row in trace.known["process"].items()}


def summed(trace: Recorded, roles: dict[int, str]) -> tuple[dict[str, dict[int, int]], dict[int, int]]:
    """Role -> time -> bytes, and time -> page-locked bytes, from whole tables."""
    table = trace.node.tables["process"]
    held: dict[str, dict[int, int]] = {}
    locked: dict[int, int] = {}
    for place, uid in enumerate(table.keys):
        at = table.times_ns[place]
        anon, shmem, pinned = (
            max(table.values[name][place], 0) for name in ("rss_anon_bytes", "rss_shmem_bytes", "locked_bytes")
        )
        sums = held.setdefault(roles[uid], {})
        sums[at] = sums.get(at, 0) + anon + min(shmem, pinned)
        locked[at] = locked.get(at, 0) + min(shmem, pinned)
    return held, locked


@pytest.mark.parametrize("run", RUNS, ids=lambda run: run.parent.name)
def test_the_same_as_whole_tables(run: Path) -> None:
    """Of every recorded sample: sums by role, the owner's columns, the clock."""
    trace = Recorded(read_node(run))
    roles = roles_of(trace)
    cgroup = next(iter(trace.keys("cgroup")), None)
    found = read_history(run, roles, cgroup)
    assert found.times_ns == trace.node.times_ns and len(found.times_ns) > 5
    held, locked = summed(trace, roles)
    assert set(found.roles.values) == set(held)
    for role, line in found.roles.values.items():
        assert dict(zip(found.roles.times_ns, line, strict=True)) == dict.fromkeys(found.roles.times_ns, 0) | held[role]
    owner, columns, key = ("host", OF_NODE, 0) if cgroup is None else ("cgroup", OF_CGROUP, cgroup)
    table = trace.node.tables[owner]
    mine = [place for place, at in enumerate(table.keys) if at == key]
    assert list(found.owner.times_ns) == [table.times_ns[place] for place in mine]
    for name in columns:
        assert list(found.owner.values[name]) == [table.values[name][place] for place in mine]
    assert list(found.owner.values[LOCKED]) == [locked.get(at, 0) for at in found.owner.times_ns]


def test_processes_come_and_go(tmp_path: Path) -> None:
    """A role is 0 while it has no process; who is not asked for is in no sum."""
    anon = {"actor": lambda t: 10.0 if t < 5 else -1.0, "critic": lambda t: 20.0 if t >= 3 else -1.0, "raylet": lambda t: 7.0}
    found = read_history(write_run(tmp_path / "run", 8, anon=anon), {1: "actor", 2: "critic"}, None)
    assert {role: [size >> 20 for size in line] for role, line in found.roles.values.items()} == {
        "actor": [10] * 5 + [0] * 3,
        "critic": [0] * 3 + [20] * 5,
    }


def test_columns_of_an_older_version_are_unknown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the trace does not have is NULL, and the rest is read."""
    from rlhfdoctor.trace import schema, store

    older = {name: tuple(c for c in columns if c != "kernel_stack_bytes") for name, columns in schema.TABLES.items()}
    monkeypatch.setattr(store, "TABLES", older)
    monkeypatch.setattr("tests.record.build.TABLES", older)
    run = write_run(tmp_path / "run", 4, anon={"actor": lambda t: 10.0}, host={"anon_bytes": lambda t: 90.0})
    monkeypatch.undo()
    owner = read_history(run, {1: "actor"}, None).owner.values
    assert [size >> 20 for size in owner["anon_bytes"]] == [90] * 4
    assert list(owner["kernel_stack_bytes"]) == [NULL] * 4


def test_damage_takes_nothing_else_along(tmp_path: Path) -> None:
    """A segment that cannot be opened, one with a hole, one that is cut: the rest is there."""
    run = write_run(tmp_path / "run", 200, anon={"actor": lambda t: 10.0}, events=[event("mark", 5, step=1)])
    whole = (run / "000001.trace").read_bytes()
    (run / "000001.trace").write_bytes(whole[: len(whole) // 2] + b"\0" * 40 + whole[len(whole) // 2 + 40 : -30])
    (run / "000002.trace").mkdir()
    (run / "000003.trace").write_bytes(b"")
    found = read_history(run, {1: "actor"}, None)
    assert 100 < len(found.times_ns) < 200 and set(found.roles.values["actor"]) == {10 << 20}
    shutil.rmtree(run)
    assert len(read_history(run, {1: "actor"}, None).times_ns) == 0
