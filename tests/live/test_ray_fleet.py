"""`doctor analyze --each --ray` on a real cluster: the rows are those of this machine, also where a node ends."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from rlhfdoctor import analyze_each
from tests.live.test_cluster_logs import Cluster, cluster  # noqa: F401  (a fixture)
from tests.live.test_watch import PLENTY_S, environment

SAMPLES = Path(__file__).resolve().parents[2] / "samples"
RUNS = [str(SAMPLES / name / "run") for name in ("ray-memory-monitor", "openrlhf-save-kill", "ray-healthy", "ray-disk-warning")]
pytestmark = pytest.mark.usefixtures("kernel_alone")


def doctor(*words: str) -> tuple[list[dict[str, object]], str, int]:
    """The rows of a command, what it stderr besides, its exit code."""
    done = subprocess.run([sys.executable, "-m", "rlhfdoctor", "analyze", "--each", *words], capture_output=True, text=True, env=environment(), timeout=PLENTY_S * 3)
    return [row for line in done.stdout.splitlines() if "path" in (row := json.loads(line))], done.stderr, done.returncode


def test_rows_are_those_of_this_machine(cluster: Cluster) -> None:  # noqa: F811
    """In the order of the paths, with the names that were given; one that is not there is a row."""
    words = [*RUNS, "/none/such", RUNS[0]]
    rows, stderr, code = doctor(*words, "--ray", cluster.address, "--format", "json")
    here = json.loads(json.dumps([json.loads(line) for line in analyze_each(words).to_bytes("jsonl").decode().splitlines()]))
    expected = [row for row in here if "path" in row]
    assert rows == expected, stderr
    assert [row["path"] for row in rows] == words
    assert (code, "of the cluster judge" in stderr) == (1, True)


def test_a_run_that_ends_its_reader_is_a_row(cluster: Cluster) -> None:  # noqa: F811
    """A reader that is killed costs the runs behind it nothing: another actor takes them."""
    from rlhfdoctor.core import ray_fleet
    from tests.live import judges

    rows = list(ray_fleet.judge_on_nodes(["fine", "fatal", "fine too", "fine three"], f"{judges.__name__}:make_judge", {}, cluster.address, lambda _: None))
    assert [(row.path, row.verdict) for row in rows] == [("fine", "healthy"), ("fatal", "unreadable"), ("fine too", "healthy"), ("fine three", "healthy")]
    assert rows[1].why
