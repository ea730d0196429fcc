"""The Prometheus page, judged by prometheus_client's own parser and over HTTP."""

from __future__ import annotations

import subprocess
import sys
import urllib.request
from collections.abc import Sequence
from pathlib import Path

import pytest
from prometheus_client import generate_latest
from prometheus_client.parser import text_string_to_metric_families

from rlhfdoctor.curves import Figure
from rlhfdoctor.errors import UsageError
from rlhfdoctor.record.command import WatchOptions, prepare
from rlhfdoctor.record.figures import FIRED, Latest
from rlhfdoctor.record.metrics import make_registry, serve
from rlhfdoctor.trace.frames import Rows
from rlhfdoctor.units import GIB, MIB
from tests.record.build import event, phase, rows, step

Samples = dict[tuple[str, str], float]


def tables(role_count: int = 1, left_s: int | None = None) -> dict[str, Rows]:
    """A tick: a cgroup that is half full, a GPU, processes of 3 MiB each."""
    return {
        "limit": rows("limit", {4: {"used_bytes": 5 * GIB, "limit_bytes": 10 * GIB, "left_s": left_s, "left_low_s": left_s, "slope_bytes_per_s": 7}}),
        "process": rows("process", {uid: {"rss_anon_bytes": MIB, "rss_file_bytes": MIB, "rss_shmem_bytes": MIB, "pinned_bytes": 5} for uid in range(1, 1 + role_count)}),
        "gpu": rows("gpu", {0: {"total_bytes": 80 * GIB, "used_bytes": 8 * GIB, "busy_ratio": 250_000}}),
        "host": rows("host", {0: {"some_us": 1_500_000, "shm_orphaned_bytes": 9}}),
        "recorder": rows("recorder", {0: {"cpu_us": 2_500_000, "rss_bytes": 30 * MIB}}),
    }


def latest(level: str = "/a", role: str = "actor", left_s: int | None = None, alarms: Sequence[int] = ()) -> Latest:
    """A recording of two processes of a role, one of none, in the third step's rollout."""
    found = Latest()
    found.take_event(event("limit.seen", uid=4, name="cgroup", level=level, limit_bytes=10 * GIB))
    for uid in (1, 2):
        found.take_event(event("process.seen", uid=uid, pid=100 + uid, role=role))
    found.take_event(step(1, 3))
    found.take_event(phase(1, "rollout"))
    found.take_sample(tables(3, left_s), alarms)
    return found


def page_of(found: Latest) -> str:
    """The page as it is then."""
    return generate_latest(make_registry(found.read, "train", "n1")).decode()


def samples_of(page: str) -> Samples:
    """(name, its labels' values but for the run's and the node's) -> figure."""
    return {
        (sample.name, " ".join(sample.labels[key] for key in sorted(set(sample.labels) - {"run", "node"}, reverse=True))): sample.value
        for family in text_string_to_metric_families(page)
        for sample in family.samples
    }


def test_page() -> None:
    """Use, size, forecast and alarm by limit; memory by role; GPUs; step, phase, kills; the recorder itself."""
    found = samples_of(page_of(latest(left_s=12_340, alarms=[4])))
    assert found.pop(("rlhfdoctor_sample_timestamp_seconds", "")) > 1.7e9
    phases = {labels: value for (name, labels), value in found.items() if name == "rlhfdoctor_phase"}
    assert ([name for name, value in phases.items() if value], len(phases)) == (["rollout"], 7)
    assert {key: value for key, value in found.items() if key[0] != "rlhfdoctor_phase"} == {
        ("rlhfdoctor_limit_used_bytes", "cgroup /a"): 5 * GIB,
        ("rlhfdoctor_limit_bytes", "cgroup /a"): 10 * GIB,
        ("rlhfdoctor_limit_left_seconds", "cgroup /a"): 12.3,
        ("rlhfdoctor_limit_left_low_seconds", "cgroup /a"): 12.3,
        ("rlhfdoctor_limit_growth_bytes_per_second", "cgroup /a"): 7,
        ("rlhfdoctor_limit_hang_seconds", "cgroup /a"): 0,
        ("rlhfdoctor_limit_alarm", "cgroup /a"): 1,
        ("rlhfdoctor_alarms", ""): 1,
        ("rlhfdoctor_alarms_fired_total", ""): 0,
        ("rlhfdoctor_oom_kills_total", ""): 0,
        **{(f"rlhfdoctor_role_{name}", "actor"): value for name, value in {"rss_bytes": 6 * MIB, "anon_bytes": 2 * MIB, "shmem_bytes": MIB, "pinned_bytes": 10, "processes": 2}.items()},
        **{(f"rlhfdoctor_role_{name}", "other"): value for name, value in {"rss_bytes": 3 * MIB, "anon_bytes": MIB, "shmem_bytes": MIB, "pinned_bytes": 5, "processes": 1}.items()},
        ("rlhfdoctor_gpu_used_bytes", "0"): 8 * GIB,
        ("rlhfdoctor_gpu_bytes", "0"): 80 * GIB,
        ("rlhfdoctor_gpu_busy_ratio", "0"): 0.25,
        ("rlhfdoctor_shm_orphaned_bytes", ""): 9,
        ("rlhfdoctor_memory_stall_seconds_total", ""): 1.5,
        ("rlhfdoctor_step", ""): 3,
        ("rlhfdoctor_recorder_cpu_seconds_total", ""): 2.5,
        ("rlhfdoctor_recorder_rss_bytes", ""): 30 * MIB,
    }


def test_every_number_is_described() -> None:
    """Each name on the page has its help and its type; each series the names of the run and of the node."""
    families = list(text_string_to_metric_families(page_of(latest(left_s=1000))))
    assert [f.name for f in families if not f.documentation or f.type not in ("gauge", "counter")] == []
    assert all(sample.labels["run"] == "train" and sample.labels["node"] == "n1" for f in families for sample in f.samples)


def test_before_the_first_sample() -> None:
    """The page is there, and promises nothing."""
    assert samples_of(page_of(Latest())) == {("rlhfdoctor_alarms", ""): 0}


def test_what_is_gone_is_not_shown() -> None:
    """A limit that is in no sample any more, and the role whose processes ended."""
    found = latest()
    for uid in (1, 2, 3):
        found.take_event(event("process.gone", uid=uid, pid=100 + uid))
    found.take_sample({name: table for name, table in tables().items() if name not in ("limit", "process")}, ())
    assert {name.split("_")[1] for name, _ in samples_of(page_of(found))} & {"limit", "role"} == set()


@pytest.mark.parametrize(
    ("level", "read"),
    [('/a"b\\c\nd', '/a"b\\c\nd'), ("/gr\udcf6\udcdfe", "/gr\ufffd\ufffde"), ("/a\ud800", "/a\ufffd"), ("/\u8bad\u7ec3", "/\u8bad\u7ec3")],
    ids=["quotes", "latin-1", "half", "chinese"],
)
def test_any_name_is_a_label(level: str, read: str) -> None:
    """Whatever a cgroup's path or a trainer's role holds, the page stays readable."""
    samples = samples_of(page_of(latest(level, level)))
    assert samples["rlhfdoctor_limit_bytes", f"cgroup {read}"] == 10 * GIB
    assert samples["rlhfdoctor_role_rss_bytes", read] == 6 * MIB


def get(port: int) -> tuple[int, str, Samples]:
    """Status, content type and figures of a page."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
        return answer.status, answer.headers["Content-Type"].partition(";")[0], samples_of(answer.read().decode())


def test_serving() -> None:
    """Any free port can be had, and each request gets the figures as they are then."""
    counts = iter([1, 2])
    port = serve(0, lambda: [Figure(FIRED, (), next(counts))], "train", "n1")
    assert [get(port), get(port)] == [(200, "text/plain", {("rlhfdoctor_alarms_fired_total", ""): float(n)}) for n in (1, 2)]


def test_port_that_is_taken() -> None:
    """A port that somebody else has is an error."""
    port = serve(0, list, "train", "n1")
    with pytest.raises(OSError, match="in use"):
        serve(port, list, "train", "n1")


def test_missing_package_is_a_message(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Without prometheus_client the option is refused before anything is started, and says what to install."""
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    with pytest.raises(UsageError, match=r"prometheus_client is missing: pip install 'rlhfdoctor\[metrics\]'"):
        prepare(WatchOptions(command=(sys.executable, "-V"), port=0, out=str(tmp_path / "run")))
    assert not (tmp_path / "run").exists()


def test_recorder_is_not_heavier_without_the_option() -> None:
    """The recorder's process imports neither prometheus_client nor an HTTP server until it serves."""
    code = "import sys, rlhfdoctor.record.recorder; print(sorted({m.split('.')[0] for m in sys.modules} & {'prometheus_client', 'wsgiref', 'http', 'ssl', 'polars', 'rich'}))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
