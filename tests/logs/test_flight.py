"""Flight-recorder dumps: what torch writes is read, what an attacker or a cut file holds is a gap."""

from __future__ import annotations

import gzip
import json
import os
import pickle
import tarfile
from pathlib import Path
from typing import Any

import pytest

from rlhfdoctor.core.diagnose import analyze
from rlhfdoctor.logs.flight import rank_of_dump, read_dump
from rlhfdoctor.types import Event, Gap

SAMPLES = Path(__file__).parents[2] / "samples"


def entry(sequence: int, name: str = "nccl:all_reduce", size: int = 64, **more: Any) -> dict[str, Any]:
    """One entry as FlightRecorder.cpp 2.10 writes it."""
    frames = [
        {
            "name": "all_reduce",
            "filename": "/venv/lib/python3.11/site-packages/torch/distributed/distributed_c10d.py",
            "line": 2810,
        },
        {"name": "sync_losses", "filename": "/opt/train/loop.py", "line": 41},
    ]
    return {
        "collective_seq_id": sequence,
        "process_group": ("0", "default_pg"),
        "profiling_name": name,
        "input_sizes": [[size]],
        "state": "completed",
        "retired": True,
        "is_p2p": False,
        "time_created_ns": 1_790_000_000_000_000_000 + sequence,
        "frames": frames,
        **more,
    }


def write(folder: Path, rank: int, entries: list[dict[str, Any]]) -> Path:
    """A dump of one rank."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"nccl_trace_rank_{rank}"
    path.write_bytes(pickle.dumps({"version": "2.10", "entries": entries}))
    return path


def read(data: bytes, file: str = "nccl_trace_rank_3") -> tuple[list[Event], list[Gap]]:
    gaps: list[Gap] = []
    return list(read_dump(data, file, gaps)), gaps


@pytest.mark.parametrize(
    ("name", "rank"),
    [
        ("/tmp/nccl_trace_rank_0", 0),
        ("a/comm_lib_trace_rank_17", 17),
        ("x.tar!nccl_trace_rank_2.json", 2),
        ("nccl_trace_rank_5.gz", 5),
        ("nccl_trace_rank_", None),
        ("rank_3.log", None),
        ("nccl_trace_rank_1.log", None),
    ],
)
def test_name(name: str, rank: int | None) -> None:
    """Only torch's own file names are taken for dumps."""
    assert rank_of_dump(name) == rank


def test_entries() -> None:
    """Rank, group, number, operation, size, state and the innermost frame that is not torch's."""
    events, gaps = read(pickle.dumps({"entries": [entry(7, state="started", retired=False)]}))
    (call, dump) = events
    wanted = {
        "rank": 3,
        "group_text": "0 default_pg",
        "seq": 7,
        "op": "all_reduce",
        "size_text": "[[64]]",
        "where_text": "sync_losses() loop.py:41",
    }
    assert wanted.items() <= call.fields.items()
    assert (dump.kind, dump.fields["unfinished_count"], gaps) == ("flight.dump", 1, [])
    assert call.time is None, "when it was issued is not when it failed"


def test_json_form() -> None:
    """The JSON that some setups write holds the same."""
    events, gaps = read(json.dumps({"entries": [entry(2)]}).encode())
    assert (events[0].fields["seq"], gaps) == (2, [])


def test_point_to_point_is_left_out() -> None:
    """Sends and receives have numbers of their own."""
    events, _ = read(pickle.dumps({"entries": [entry(1, is_p2p=True), entry(1)]}))
    assert [e.kind for e in events] == ["flight.collective", "flight.dump"]


class Command:
    """What unpickles by running a command."""

    def __init__(self, command: str) -> None:
        self.command = command

    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, (self.command,)


def test_no_code_runs(tmp_path: Path) -> None:
    """A pickle that asks for a function is refused before it is called."""
    mark = tmp_path / "ran"
    events, gaps = read(pickle.dumps({"entries": [Command(f"touch {mark}")]}))
    assert (events, mark.exists(), "system" in str(gaps[0].why)) == ([], False, True)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\x80",
        b"\x80\x04garbage",
        pickle.dumps([1, 2]),
        pickle.dumps({"entries": 5}),
        pickle.dumps({}),
        b"{",
        b'{"entries": null}',
        b"\x80\x04N\x72\xff\xff\xff\x7f.",
        pickle.dumps({"entries": [entry(1)]})[:-20],
        b"\x80\x04" + b"(" * 100_000,
    ],
    ids=range(11),
)
def test_damage_is_a_gap(data: bytes) -> None:
    """Cut, empty or strange: one gap, no exception."""
    events, gaps = read(data)
    assert (events, len(gaps)) == ([], 1)


@pytest.mark.parametrize(
    "strange",
    [
        {"collective_seq_id": "x"},
        {"profiling_name": None},
        {"frames": 3},
        {"input_sizes": object},
        {"process_group": None},
        {"collective_seq_id": 10**6000},
        {"time_created_ns": 10**400},
        {"input_sizes": b"x"},
    ],
)
def test_strange_entries(strange: dict[str, Any]) -> None:
    """A field of another type costs its entry at most."""
    odd = {**entry(1), **{key: value for key, value in strange.items() if value is not object}}
    events, _ = read(pickle.dumps({"entries": [odd, entry(2)]}))
    assert events[-2].fields["seq"] == 2


def test_ranks_that_part(tmp_path: Path) -> None:
    """The first number at which operations differ, with the rank that is alone."""
    for rank in range(4):
        name = "nccl:all_gather" if rank == 2 else "nccl:all_reduce"
        write(tmp_path / "run", rank, [entry(1), entry(2, name), entry(3)])
    best = analyze([str(tmp_path / "run")]).best
    assert best is not None
    assert (best.cause, "rank 2 runs all_gather" in str(best.evidence[0].says)) == ("comm-shape-mismatch", True)


def test_sizes_that_differ(tmp_path: Path) -> None:
    """One operation with two sizes; all_to_all may differ by design."""
    for rank in range(2):
        write(tmp_path / "run", rank, [entry(1, "nccl:all_to_all", 8 + rank), entry(2, size=100 + rank)])
    incident = analyze([str(tmp_path / "run")])
    assert incident.best is not None
    assert "at collective 2" in str(incident.best.evidence[0].says)


def test_rank_that_never_came(tmp_path: Path) -> None:
    """Who stopped at a lower number is named with where it was last; that alone is no verdict."""
    for rank in range(3):
        write(
            tmp_path / "run",
            rank,
            [entry(n, state="started", retired=False) if n == 5 else entry(n) for n in range(1, 5 if rank == 1 else 6)],
        )
    incident = analyze([str(tmp_path / "run")])
    says = [str(quote.says) for finding in incident.findings for quote in finding.evidence]
    assert (incident.verdict, any("rank 1 never entered collective 5" in text for text in says)) == ("undecided", True)


def test_groups_of_equal_names_are_not_mixed(tmp_path: Path) -> None:
    """Tensor-parallel groups: ranks 0 and 1 in one, 2 and 3 in another of the same name."""
    for rank in range(4):
        name = "nccl:all_gather" if rank > 1 else "nccl:all_reduce"
        write(tmp_path / "run", rank, [entry(1, name, process_group=("1", "mesh_tp"))])
    assert analyze([str(tmp_path / "run")]).verdict == "inconclusive"


def test_dumps_of_two_jobs(tmp_path: Path) -> None:
    """A reward job has a rank 0 of its own."""
    for rank in range(2):
        write(tmp_path / "run" / "actor", rank, [entry(1)])
    write(tmp_path / "run" / "reward", 0, [entry(1, "nccl:broadcast")])
    assert analyze([str(tmp_path / "run")]).verdict == "inconclusive"


def test_hosts_have_folders_of_their_own(tmp_path: Path) -> None:
    """Ranks 0 to 3 of one host, 4 to 7 of another, and a stray copy of one dump: one job, and the rank that parts is found."""
    for rank in range(8):
        name = "nccl:all_gather" if rank == 6 else "nccl:all_reduce"
        write(tmp_path / "run" / f"node{rank // 4}", rank, [entry(1), entry(2, name)])
    write(tmp_path / "run" / "backup", 0, [entry(1)])
    incident = analyze([str(tmp_path / "run")])
    assert incident.best is not None and incident.death is not None and incident.death.event is not None
    assert "rank 6 runs all_gather" in str(incident.best.evidence[0].says)
    assert (incident.best.cause, incident.death.event.origin.rank) == ("comm-shape-mismatch", 6)


def test_launched_ahead(tmp_path: Path) -> None:
    """CUDA launches run ahead: the first open collective of each rank counts, not the last one that was queued."""
    for rank in range(3):
        ahead = [entry(5, state="started", retired=False), entry(6, state="scheduled", retired=False)]
        write(tmp_path / "run", rank, [*(entry(n) for n in range(1, 5)), *([] if rank == 2 else ahead)])
    incident = analyze([str(tmp_path / "run")])
    assert incident.verdict == "undecided"
    assert any("rank 2 never entered collective 5" in str(quote.says) for quote in incident.findings[0].evidence)


def test_skew_of_a_running_job(tmp_path: Path) -> None:
    """One rank is a collective further than the others: that is no death."""
    for rank in range(3):
        write(
            tmp_path / "run",
            rank,
            [entry(1), entry(2), *([entry(3, state="scheduled", retired=False)] if rank == 0 else [])],
        )
    assert analyze([str(tmp_path / "run")]).verdict == "inconclusive"


def test_ranks_far_apart(tmp_path: Path) -> None:
    """More than 400 collectives between two dumps taken by hand."""
    for rank, start in ((0, 1), (1, 1000)):
        write(tmp_path / "run", rank, [entry(n) for n in range(start, start + 400)])
    incident = analyze([str(tmp_path / "run")])
    assert (incident.verdict, incident.gaps) == ("inconclusive", ())


def test_dumps_of_a_running_job(tmp_path: Path) -> None:
    """One collective in flight on every rank is no death."""
    for rank in range(3):
        write(tmp_path / "run", rank, [entry(1), entry(2, state="started", retired=False)])
    assert analyze([str(tmp_path / "run")]).verdict == "inconclusive"


def test_equal_dumps_are_all_read(tmp_path: Path) -> None:
    """Ranks may write the same bytes; they are no copies."""
    for rank in range(2):
        write(tmp_path / "run", rank, [entry(n) for n in range(60)])
    assert analyze([str(tmp_path / "run")]).gaps == ()


def test_one_dump_compares_with_nothing(tmp_path: Path) -> None:
    """A finished dump of one rank is no incident."""
    write(tmp_path / "run", 0, [entry(1), entry(2)])
    assert analyze([str(tmp_path / "run")]).verdict == "inconclusive"


def test_compressed_and_archived(tmp_path: Path) -> None:
    """Dumps are read inside archives and through gzip."""
    folder = tmp_path / "run"
    for rank in range(2):
        path = write(folder, rank, [entry(1, size=5 + rank)])
        (folder / f"{path.name}.gz").write_bytes(gzip.compress(path.read_bytes()))
        path.unlink()
    with tarfile.open(tmp_path / "run.tar", "w") as archive:
        archive.add(folder, "run")
    for place in (folder, tmp_path / "run.tar"):
        best = analyze([str(place)]).best
        assert best is not None
        assert best.cause == "comm-shape-mismatch"


def test_dumps_alone_of_a_real_run() -> None:
    """torch's own dumps, without the logs."""
    incident = analyze([str(path) for path in sorted((SAMPLES / "flight-parted" / "run").glob("nccl_trace_rank_*"))])
    assert incident.death is not None
    assert (incident.verdict, incident.death.killer) == ("cause", "collective-timeout")


def test_marks_in_each_other() -> None:
    """Each open mark is a list of the reader's: after a thousand of them it stops."""
    found, gaps = read(b"\x80\x02" + b"(" * 5000 + b".")
    assert not found
    assert ["more marks in each other" in str(gap.why) for gap in gaps] == [True]
