"""The Prometheus page, judged by prometheus_client's own parser and over HTTP."""

from __future__ import annotations

import subprocess
import sys
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from prometheus_client import generate_latest
from prometheus_client.parser import text_string_to_metric_families

from rlhfdoctor.errors import UsageError
from rlhfdoctor.record.command import WatchOptions, prepare
from rlhfdoctor.record.limits import Limit
from rlhfdoctor.record.metrics import make_registry, serve
from rlhfdoctor.units import GIB
from tests.record.build import make_limit

Samples = dict[tuple[str, str], float]


def page_of(limits: Sequence[Limit] = (), roles: Mapping[str, int] | None = None, alarms: int = 0) -> str:
    """The page with these figures."""
    return generate_latest(make_registry(lambda: (limits, roles or {}, alarms))).decode()


def samples_of(page: str) -> Samples:
    """(name, its labels' values) -> figure."""
    return {
        (sample.name, " ".join(sample.labels[key] for key in sorted(sample.labels, reverse=True))): sample.value
        for family in text_string_to_metric_families(page)
        for sample in family.samples
    }


def test_page() -> None:
    """The page has use, size and time left by limit, memory by role, and the number of standing alarms."""
    limits = [make_limit(0.5, 12.34, level="/a", uid=1), make_limit(0.25, name="node", uid=2)]
    assert samples_of(page_of(limits, {"actor": 7, "other": 3}, 1)) == {
        ("rlhfdoctor_limit_used_bytes", "cgroup /a"): 5 * GIB,
        ("rlhfdoctor_limit_used_bytes", "node "): 2.5 * GIB,
        ("rlhfdoctor_limit_bytes", "cgroup /a"): 10 * GIB,
        ("rlhfdoctor_limit_bytes", "node "): 10 * GIB,
        ("rlhfdoctor_limit_left_seconds", "cgroup /a"): 12.3,
        ("rlhfdoctor_role_rss_bytes", "actor"): 7,
        ("rlhfdoctor_role_rss_bytes", "other"): 3,
        ("rlhfdoctor_alarms", ""): 1,
    }


def test_every_number_is_described() -> None:
    """Each name on the page has its help, and is a gauge."""
    families = list(text_string_to_metric_families(page_of([make_limit(0.5, 1.0)], {"actor": 7})))
    assert [(f.name, f.type) for f in families if not f.documentation or f.type != "gauge"] == []
    assert len(families) == 5


@pytest.mark.parametrize(
    ("level", "read"),
    [('/a"b\\c\nd', '/a"b\\c\nd'), ("/gr\udcf6\udcdfe", "/gr\ufffd\ufffde"), ("/\u8bad\u7ec3", "/\u8bad\u7ec3")],
    ids=["quotes", "latin-1", "chinese"],
)
def test_any_name_is_a_label(level: str, read: str) -> None:
    """Whatever a cgroup's path or a trainer's role holds, the page stays readable."""
    samples = samples_of(page_of([make_limit(0.5, level=level)], {level: 7}))
    assert samples["rlhfdoctor_limit_bytes", f"cgroup {read}"] == 10 * GIB
    assert samples["rlhfdoctor_role_rss_bytes", read] == 7


def get(port: int) -> tuple[int, str, Samples]:
    """Status, content type and figures of a page."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
        return answer.status, answer.headers["Content-Type"].partition(";")[0], samples_of(answer.read().decode())


def test_serving() -> None:
    """Any free port can be had, and each request gets the figures as they are then."""
    counts = iter([1, 2])
    port = serve(0, lambda: ((), {}, next(counts)))
    assert [get(port), get(port)] == [(200, "text/plain", {("rlhfdoctor_alarms", ""): float(n)}) for n in (1, 2)]


def test_port_that_is_taken() -> None:
    """A port that somebody else has is an error."""
    port = serve(0, lambda: ((), {}, 0))
    with pytest.raises(OSError, match="in use"):
        serve(port, lambda: ((), {}, 0))


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
