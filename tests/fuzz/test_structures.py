"""Structures that are well formed and wrong: run.json, events, headers, configuration (hypothesis)."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import yaml
from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st

from rlhfdoctor.core.diagnose import analyze
from rlhfdoctor.report.json import render
from rlhfdoctor.settings.read import read_configuration
from rlhfdoctor.trace.read import read_node
from rlhfdoctor.vocabulary import RECORD
from tests.attacks import build
from tests.fuzz.surfaces import folder

EXAMPLES = int(os.environ.get("FUZZ_EXAMPLES", "30"))
SEED = int(os.environ.get("FUZZ_SEED", "20"))
PLAIN = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20)
ANY = st.recursive(PLAIN, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4), max_leaves=12)
FIELDS = ("schema", "name", "node", "argv", "cwd", "started", "host", "boot_id", "clock_offset_s", "utc_offset_s", "environment", "versions", "limits", "configs")
KINDS = sorted({str(word) for scope in vars(RECORD).values() if hasattr(scope, "__dict__") for word in vars(scope).values() if isinstance(word, str) and "." in word})
NAMES = ("uid", "pid", "name", "role", "path", "level", "code", "phase", "step", "text", "why", "what", "messages", "used_bytes", "node", "left_s", "owners")
try_often = settings(max_examples=EXAMPLES, deadline=None, database=None, print_blob=True, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])


def diagnosed(run: Path, work: Path) -> None:
    """The run beside a log whose end is known, which is still reported."""
    (work / "job").mkdir()
    (work / "job" / "job.log").write_bytes(build.OOM)
    assert json.loads(render(analyze([str(run), str(work / "job")])))["killer"] is not None


@seed(SEED)
@try_often
@given(st.dictionaries(st.sampled_from(FIELDS), ANY, max_size=6))
def test_run_json(changes: dict[str, Any]) -> None:
    """Any value under the names that run.json has."""
    with folder() as work:
        run = build.good_run(work / "run")
        known = json.loads((run / "run.json").read_text())
        (run / "run.json").write_text(json.dumps(known | changes))
        diagnosed(run, work)


@seed(SEED)
@try_often
@given(st.lists(st.tuples(st.sampled_from(KINDS) | st.text(max_size=10), st.dictionaries(st.sampled_from(NAMES), ANY, max_size=5)), max_size=6))
def test_events(events: list[tuple[str, dict[str, Any]]]) -> None:
    """Events of known and unknown kinds with values of any type."""
    with folder() as work:
        run = build.good_run(work / "run")
        data = build.header() + b"".join(build.record(kind, **fields) for kind, fields in events)
        (run / "000002.trace").write_bytes(data)
        assert all(isinstance(event["kind"], str) for event in read_node(run).events)
        diagnosed(run, work)


@seed(SEED)
@try_often
@given(st.dictionaries(st.sampled_from(("format", "node", "host", "pid", "tables", "boot_id", "ticks_per_s", "run")), ANY, max_size=5))
def test_headers(changes: dict[str, Any]) -> None:
    """Headers with values of any type."""
    with folder() as work:
        run = build.good_run(work / "run")
        fields = {"format": 1, "node": "n1", "host": "n1", "pid": 1, "tables": {"host": ["total_bytes"]}} | changes
        (run / "000002.trace").write_bytes(build.frame(build.HEADER, json.dumps(fields).encode(), packed=False))
        diagnosed(run, work)


@seed(SEED)
@try_often
@given(ANY, st.sampled_from(("config.yaml", "ds_config.json")))
def test_documents(tree: Any, name: str) -> None:
    """Any tree, written as YAML or JSON: settings stand where their text is."""
    text = json.dumps(tree) if name.endswith("json") else yaml.safe_dump(tree, allow_unicode=True)
    found, _ = read_configuration(name, text)
    assert all(setting.span is None or 0 <= setting.span[0] <= setting.span[1] <= len(text) for setting in found)


def test_the_kinds_are_those_of_the_vocabulary() -> None:
    """Otherwise the events above are all unknown ones."""
    assert {"process.seen", "job.exited", "cgroup.seen"} <= set(KINDS)
