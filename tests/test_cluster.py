"""What a node of a cluster does by itself: what it keeps, since when, with which packages. tests/live runs real raylets."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from rlhfdoctor import ray_nodes
from rlhfdoctor.core.cluster import deal
from rlhfdoctor.core.node_logs import NodeLogs, NodeOrder, began_s
from rlhfdoctor.errors import UsageError
from rlhfdoctor.logs.remote import RemoteFile
from rlhfdoctor.logs.window import Window


def make_order(folder: Path, **given: object) -> NodeOrder:
    """What a node reads: its folder, and nothing else."""
    words = {"node": "n1", "host": "10.0.0.1", "folder": str(folder), "kernel_since_s": None, "shared": (), "window": Window(), "utc_offset_s": 0, "cores": 1, "most_events": 1000}
    return NodeOrder(**{**words, **given})  # type: ignore[arg-type]


def make_file(name: str, size: int | None) -> RemoteFile:
    """A file of a storage that must not be opened."""
    return RemoteFile(name, size, None, lambda: pytest.fail("opened"))


def test_files_have_the_nodes_name_and_zone(tmp_path: Path) -> None:
    """What comes from a node says so, and stamps without a zone are of its clock."""
    (tmp_path / "worker-a.err").write_text("2026-03-02 10:00:00 ERROR x\ntorch.OutOfMemoryError: CUDA out of memory.\n")
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "job.yaml").write_text("zero_stage: 3\n")
    files = {file.name: file for file in NodeLogs().read(make_order(tmp_path, utc_offset_s=8 * 3600))}
    event = next(event for event in files["n1/worker-a.err"].reading.events)
    assert set(files) == {"n1/worker-a.err", "n1/deep/job.yaml", ""}
    assert files["n1/deep/job.yaml"].data == b"zero_stage: 3\n"
    assert (event.origin.file, event.origin.host) == ("n1/worker-a.err", "10.0.0.1")


def test_a_folder_that_is_gone_is_an_error_of_that_node(tmp_path: Path) -> None:
    """The asking side makes a gap of it."""
    with pytest.raises(Exception, match="no such file"):
        NodeLogs().read(make_order(tmp_path / "none"))


def test_only_our_own_thread_prints(capsys: pytest.CaptureFixture[str]) -> None:
    """What a thread of Ray prints is no part of the report, and ours is not lost."""
    with contextlib.redirect_stdout(ray_nodes._OwnOutput(sys.stdout)):  # type: ignore[type-var]
        thread = threading.Thread(target=print, args=("(raylet) a node is dead",))
        thread.start()
        thread.join()
        print("the report", flush=True)
    assert capsys.readouterr() == ("the report\n", "(raylet) a node is dead\n")


def test_a_path_behind_ray_is_said(tmp_path: Path) -> None:
    """In `--ray launch.sh` the script is parsed as an address; the error comes at once."""
    (tmp_path / "launch.sh").write_text("")
    with pytest.raises(UsageError, match="write --ray behind the paths"):
        ray_nodes._check_port(str(tmp_path / "launch.sh"))


def test_what_is_left_out_is_a_gap(tmp_path: Path) -> None:
    """A node that may say little says how much it did not say, and keeps one event at each end."""
    (tmp_path / "driver.log").write_text("".join(f"Episode [{n}/90]: step {n}\nstep {n}/90 loss 0.1\n" for n in range(90)))
    everything = sum(len(file.reading.events) for file in NodeLogs().read(make_order(tmp_path)))
    files = NodeLogs().read(make_order(tmp_path, most_events=1))
    gaps = [str(gap.why) for file in files for gap in file.reading.gaps]
    kept = sum(len(file.reading.events) for file in files)
    assert 0 < kept < everything and any(f"{everything - kept} events" in gap for gap in gaps), gaps


@pytest.mark.parametrize(
    ("folder", "raylet_s", "expected"),
    [
        ("/tmp/ray/session_2026-03-02_10-00-00_123456_77/logs", 2e9, "2026-03-02 10:00:00"),
        ("/tmp/ray/session_2026-03-02_10-00-00_123456_77/logs", 1e9, None),
        ("/tmp/ray/session_2026-99-02_10-00-00_123456_77/logs", 1e9, None),
        ("/data/logs", 1e9, None),
    ],
)
def test_a_session_begins_with_its_name_or_its_raylet(folder: str, raylet_s: float, expected: str | None) -> None:
    """A raylet that was started again reads the kernel log from the session's start on."""
    wanted = raylet_s if expected is None else time.mktime(time.strptime(expected, "%Y-%m-%d %H:%M:%S"))
    assert began_s(folder, raylet_s) == wanted


def test_shares_are_of_one_size() -> None:
    """Every file is in one share, the largest alone, and one without a known size somewhere."""
    files = [make_file(f"s3://b/{name}", size) for name, size in (("a", 90), ("b", 50), ("c", 40), ("d", 1), ("e", None))]
    shares = deal(files, 2)
    assert [set(share) for share in shares] == [{"s3://b/a", "s3://b/d"} | (set(shares[0]) & {"s3://b/e"}), {"s3://b/b", "s3://b/c"} | (set(shares[1]) & {"s3://b/e"})]
    assert sorted(name for share in shares for name in share) == [file.name for file in files]
    assert deal([], 3) == [(), (), ()]


def test_a_node_needs_only_what_ray_brings(tmp_path: Path) -> None:
    """Ray requires PyYAML, packaging and click; a node may have nothing else of what the doctor is installed with."""
    (tmp_path / "raylet.err").write_text("torch.OutOfMemoryError: CUDA out of memory.\n")
    program = f"""
import sys
for name in ("rich", "msgspec", "zstandard", "jinja2", "polib", "pynvml", "hyperscan", "polars", "fsspec"):
    sys.modules[name] = None
from rlhfdoctor.core.node_logs import NodeLogs, NodeOrder
from rlhfdoctor.logs.window import Window
order = NodeOrder(node="n", host="h", folder={str(tmp_path)!r}, kernel_since_s=None, shared=(), window=Window(), utc_offset_s=0, cores=1, most_events=9)
print([str(event.kind) for file in NodeLogs().read(order) for event in file.reading.events])
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert "gpu.oom" in done.stdout or "cuda" in done.stdout, done.stderr
