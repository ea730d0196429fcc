"""`doctor analyze --ray` on real raylets: each node's own folder, one clock, one verdict; a node that is gone; shared files."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from rlhfdoctor.core.diagnose import analyze
from tests.live.test_watch import PLENTY_S, environment, wait_for

pytestmark = pytest.mark.usefixtures("kernel_alone")  # a stranger's kill is in our kernel log
SAMPLE = Path(__file__).resolve().parents[2] / "samples" / "ray-memory-monitor" / "run"
CLUSTER = """
import json, os, sys
from ray._private import ray_constants
from ray.cluster_utils import Cluster
wish = {"num_cpus": 1, "object_store_memory": 80 << 20}
os.makedirs("/tmp/ray", exist_ok=True)  # the address is written there, wherever the nodes' folders are
cluster = Cluster(initialize_head=True, head_node_args={**wish, "include_dashboard": False, "temp_dir": sys.argv[1] + "/0"})
nodes = [cluster.head_node, *(cluster.add_node(**wish, temp_dir=f"{sys.argv[1]}/{n}") for n in (1, 2))]
raylets = [node.all_processes[ray_constants.PROCESS_TYPE_RAYLET][0].process.pid for node in nodes]
print(json.dumps([cluster.address, raylets, [node.get_logs_dir_path() for node in nodes], [node.node_id for node in nodes]]), flush=True)
sys.stdin.readline()
cluster.shutdown()
"""


class Cluster(NamedTuple):
    """Three raylets with a folder each."""

    address: str
    raylets: list[int]
    folders: list[Path]
    names: list[str]
    """As the doctor names the nodes."""


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """The first and the third node have each a part of what a run left that Ray's memory monitor ended."""
    pytest.importorskip("ray", reason="needs Ray (make test installs it)")
    home = Path(tempfile.mkdtemp(prefix="r", dir="/tmp"))
    pipe = subprocess.PIPE
    process = subprocess.Popen(
        [sys.executable, "-c", CLUSTER, str(home)], env=environment(RAY_worker_niceness="0"), stdin=pipe, stdout=pipe, text=True, start_new_session=True
    )
    assert process.stdout is not None
    address, raylets, folders, ids = next(json.loads(line) for line in process.stdout if line.startswith("["))
    for number, path in enumerate(sorted((SAMPLE / "logs").glob("*worker-*"))):
        shutil.copy(path, folders[2 * (number % 2)])
    shutil.copy(SAMPLE / "logs" / "raylet.out", Path(folders[2]) / "raylet.1.out")
    host = address.partition(":")[0]
    yield Cluster(address, raylets, list(map(Path, folders)), [f"{host}-{node_id[:6]}" for node_id in ids])
    process.communicate("\n", timeout=PLENTY_S)
    with contextlib.suppress(OSError):
        os.killpg(process.pid, signal.SIGKILL)
    shutil.rmtree(home, ignore_errors=True)


def doctor(*words: str | Path) -> tuple[dict[str, Any], str, int]:
    """The JSON of a command, what it stderr besides, its exit code."""
    done = subprocess.run(
        [sys.executable, "-m", "rlhfdoctor", *map(str, words), "--format", "json"], capture_output=True, text=True, env=environment(), timeout=PLENTY_S * 3
    )
    assert done.stdout, done.stderr
    return json.loads(done.stdout), done.stderr, done.returncode


def quoted_files(incident: dict[str, Any]) -> set[str]:
    """The files that the evidence quotes."""
    return {found["file"] for finding in incident["findings"] for found in finding["evidence"] if found.get("file")}


def test_three_nodes_one_verdict(cluster: Cluster) -> None:
    """What the nodes read where it lies gives the verdict that one reading of all of it gives, with the nodes' names."""
    report, stderr, code = doctor("analyze", SAMPLE / "launch.sh", "--ray", cluster.address)
    here = analyze([str(SAMPLE / "launch.sh"), *map(str, cluster.folders)])
    assert (report["verdict"], report["findings"][0]["cause"], code) == (here.verdict, here.findings[0].cause, 1)
    assert here.verdict == "cause"
    assert {file.partition("/")[0] for file in quoted_files(report)} & set(cluster.names)
    assert [f"{name}: " in stderr for name in cluster.names] == [True] * 3, stderr
    assert f"--ray={cluster.address}" in report["sources"]


def test_shared_files_are_read_once(cluster: Cluster, tmp_path: Path) -> None:
    """Each file on a storage that all nodes reach is read by one of them."""
    for path in (SAMPLE / "logs").glob("*.*"):
        shutil.copy(path, tmp_path)
    report, _, _ = doctor("analyze", f"file://{tmp_path}", "--ray", cluster.address)
    quoted = {file for file in quoted_files(report) if "://" in file}
    assert report["verdict"] == "cause"
    assert quoted and all(file.startswith(f"file://{tmp_path}/") for file in quoted)


def test_no_cluster_is_said() -> None:
    """An address without a cluster ends with a sentence and the code of wrong use, and not after Ray's minutes."""
    pytest.importorskip("ray", reason="needs Ray (make test installs it)")
    done = subprocess.run(
        [sys.executable, "-m", "rlhfdoctor", "analyze", "--ray", "127.0.0.1:1"], capture_output=True, text=True, env=environment(), timeout=PLENTY_S * 2
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert "--ray 127.0.0.1:1: no Ray cluster there" in done.stderr


def test_a_node_that_is_gone_is_a_gap(cluster: Cluster) -> None:
    """It is named with Ray's reason and what the other nodes' logs say of it, and the verdict rests on the others."""
    os.kill(cluster.raylets[1], signal.SIGKILL)
    name = cluster.names[1]

    def gap() -> str | None:
        report, _, code = doctor("analyze", "--ray", cluster.address)
        found = [gap["why"] for gap in report["gaps"] if gap["what"] == f"node {name}"]
        assert code in (0, 1, 3)
        return next((why for why in found if why.startswith("gone")), None)

    why = wait_for(gap, 90)
    assert why is not None
    assert "lines of other nodes name it" in why or "line of other nodes names it" in why, why
