"""The dashboard of samples/recipes/grafana asked of a real Prometheus: of a run that it scrapes, of one filled in."""

from __future__ import annotations

import json
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from rlhfdoctor.core.curves import read_curves
from rlhfdoctor.curves import Curves
from rlhfdoctor.report.openmetrics import render
from rlhfdoctor.trace.events import Recorded
from rlhfdoctor.trace.read import read_node
from tests.record.build import write_run

pytestmark = pytest.mark.skipif(shutil.which("prometheus") is None or shutil.which("promtool") is None, reason="prometheus is not installed (Debian has it)")
ROOT = Path(__file__).resolve().parents[2]
RECIPES = ROOT / "samples/recipes/grafana"
DASHBOARD = json.loads((RECIPES / "rlhfdoctor.json").read_text())
LEAK = ROOT / "samples/recorded-leak/run"
TRAINER = """
import sys
from rlhfdoctor import marks
marks.role("actor", rank=0)
for number, phase in enumerate(("rollout", "update")):
    marks.mark(phase, step=number)
print("up", flush=True)
sys.stdin.read()
"""
_LONGEST_S = 60.0


def queries() -> dict[str, str]:
    """Of each panel, annotation and variable, with the variables' own values filled in."""
    found = {f"{panel['title']} {target['refId']}": target["expr"] for panel in DASHBOARD["panels"] for target in panel["targets"]}
    found |= {"Alarms (annotation)": DASHBOARD["annotations"]["list"][0]["expr"]}
    return {name: text.replace("$run", ".*").replace("$node", ".*").replace("$__rate_interval", "10s") for name, text in found.items()}


def free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])


def page_of(port: int) -> bytes:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
        return bytes(answer.read())


def ask(port: int, path: str, **words: str) -> Any:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/api/v1/{path}?{urllib.parse.urlencode(words)}", timeout=30) as answer:
        return json.load(answer)["data"]


def await_that(is_so: Callable[[], bool]) -> None:
    """Until it is, also of a server that does not answer yet."""
    until = time.monotonic() + _LONGEST_S
    while time.monotonic() < until:
        with suppress(OSError):
            if is_so():
                return
        time.sleep(0.1)
    raise TimeoutError


@contextmanager
def prometheus(folder: Path, scraped: int) -> Iterator[int]:
    """Its port; it serves what is in the folder, and has scraped that other port."""
    port = free_port()
    config = {"global": {"scrape_interval": "1s"}, "scrape_configs": [{"job_name": "doctor", "static_configs": [{"targets": [f"127.0.0.1:{scraped}"]}]}]}
    (folder / "prometheus.yml").write_text(json.dumps(config))  # JSON is YAML
    words = ["prometheus", "--config.file=prometheus.yml", "--storage.tsdb.path=data", "--storage.tsdb.retention.time=100y", f"--web.listen-address=127.0.0.1:{port}", "--log.level=error"]
    with subprocess.Popen(words, cwd=folder) as server:
        try:
            await_that(lambda: any(target["health"] == "up" for target in ask(port, "targets")["activeTargets"]))
            yield port
        finally:
            server.send_signal(signal.SIGTERM)


@contextmanager
def watched(folder: Path) -> Iterator[int]:
    """The port of the page of a run that stays in its second step, and whose page says so."""
    port = free_port()
    words = [sys.executable, "-m", "rlhfdoctor", "watch", "--no-view", "--interval", "0.2s", "--metrics-port", str(port), "--out", str(folder), "--", sys.executable, "-c", TRAINER]
    with subprocess.Popen(words, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as run:
        assert run.stdout is not None and run.stdout.readline() == "up\n"
        await_that(lambda: b"\nrlhfdoctor_step{" in page_of(port))
        yield port
        run.communicate("")


def answered(port: int, recorded: Curves) -> Mapping[str, bool]:
    """Whether each query of the dashboard has data somewhere in the time of a recording."""
    begin_s, end_s = recorded.points[0].at_s, recorded.points[-1].at_s
    times = {"start": str(begin_s), "end": str(end_s), "step": "1"}
    return {name: bool(ask(port, "query_range", query=text, **times)["result"]) for name, text in queries().items()}


def test_dashboard(tmp_path: Path) -> None:
    """Every query has data: of a run that goes on, or of a recording with a limit in sight, or of one with GPUs.

    How busy a GPU was is in none of them: that query is only understood.
    """
    gpus = write_run(tmp_path / "gpus", 30, use=lambda t: 100.0 + t, anon={"actor": lambda t: 100.0}, gpus=[lambda t: 10.0])
    recorded = read_curves([Recorded(read_node(LEAK)), Recorded(read_node(gpus))])
    (tmp_path / "x.prom").write_text(render(recorded))
    subprocess.run(["promtool", "tsdb", "create-blocks-from", "openmetrics", "x.prom", "data"], cwd=tmp_path, check=True, capture_output=True)
    subprocess.run(["promtool", "check", "config", str(RECIPES / "prometheus.yml")], check=True, capture_output=True)
    with ExitStack() as stack:
        page = stack.enter_context(watched(tmp_path / "run"))
        checked = subprocess.run(["promtool", "check", "metrics"], input=page_of(page), capture_output=True, check=False)
        assert (checked.returncode, checked.stdout + checked.stderr) == (0, b"")
        port = stack.enter_context(prometheus(tmp_path, page))
        live = {name for name, text in queries().items() if ask(port, "query", query=text)["result"]}
        assert [one["metric"]["phase"] for one in ask(port, "query", query="rlhfdoctor_phase == 1")["result"]] == ["update"]
        found = [answered(port, one) for one in recorded]
    assert {name for name in queries() if name not in live and not any(one[name] for one in found)} == {"GPU busy A"}
    assert {"Use of each limit A", "Step A", "Phase A", "Anonymous memory by role A", "Phases A", "Alarms A"} <= live
