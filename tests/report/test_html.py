"""The HTML report as text: whole, closed off, and with hostile logs shown as what they are."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import zlib
from array import array
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from rlhfdoctor import analyze
from rlhfdoctor.charts import Bound, Chart, Level, Mark, Panel, Span
from rlhfdoctor.core.timeline import make_charts
from rlhfdoctor.i18n.message import quoted, say, term
from rlhfdoctor.report.drawing import ticks, top_of
from rlhfdoctor.report.html import pack, render
from rlhfdoctor.report.shown import is_of_host_memory
from rlhfdoctor.types import Event, Incident, Origin, Quote
from rlhfdoctor.vocabulary import EVENT
from rlhfdoctor.vocabulary.names import Kind

ROOT = Path(__file__).resolve().parents[2]
SAMPLES = ("lab-pinned-start", "lab-object-store", "easyr1-long-prompts", "verl-healthy")
HOSTILE = (
    "<script>alert(1)</script>",
    "</svg><img src=x onerror=alert(1)>",
    "]]></script><script>alert(2)</script>",
    "\x1b[31mred\x1b[0m \u202egnp.exe",
    "&lt;b&gt; {{ 7*7 }} {% raw %}",
    "A" * 1_000_000,
)


class Tags(HTMLParser):
    """The tags with their attributes, and the text outside of scripts and styles."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self._inside = ""
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        self._inside = tag

    def handle_endtag(self, tag: str) -> None:
        self._inside = ""

    def handle_data(self, data: str) -> None:
        if self._inside not in ("script", "style"):
            self.text += data


def page_of(name: str) -> tuple[Incident, str]:
    paths = [str(ROOT / "samples" / name / "run")]
    incident = analyze(paths)
    return incident, render(incident, make_charts(paths, incident), made_s=1.7e9, version="1.2.3")


def chart(**more: Any) -> Chart:
    """A chart of two roles over ten seconds."""
    level = Level(times_s=[0.0, 5.0, 10.0], values=([1 << 30, 2 << 30, 3 << 30], [1 << 29, 1 << 29, -1]))
    panel = Panel(
        kind="role",
        title=say("by role"),
        stacked=True,
        names=(term("actor"), term("critic")),
        bounds=(Bound(name=say("limit"), bytes=4 << 30),),
        levels=(level,),
    )
    return Chart(**{"node": "n1", "begin_s": 1.7e9, "length_s": 10.0, "panels": (panel,), **more})


@pytest.mark.parametrize("name", SAMPLES)
def test_the_page_tells_what_the_incident_holds(name: str) -> None:
    """Verdict, findings, patches, ledger, ruled-out causes and gaps are all there."""
    incident, page = page_of(name)
    text = " ".join(Tags(page).text.split())
    for finding in incident.findings:
        assert finding.cause in text
    for patch in (p for f in incident.findings if f.confidence >= 0.2 for p in f.patches):
        assert str(patch.named) in text
    for item in incident.ruled_out:
        assert item.cause in text
    for part in incident.ledger if is_of_host_memory(incident) else ():
        assert str(part.part) in text
    if incident.death is not None and incident.death.event is not None:
        assert incident.death.event.origin.file in text


@pytest.mark.parametrize("name", SAMPLES)
def test_nothing_is_loaded_and_only_our_own_script_runs(name: str) -> None:
    """No address of another place, no inline handler or style, and hashes in the policy for the one style and script."""
    _, page = page_of(name)
    tags = Tags(page).tags
    for tag, attributes in tags:
        assert not {key for key in attributes if key.startswith("on") or key == "style"}, tag
        for key in ("src", "href", "action", "data", "xlink:href"):
            assert attributes.get(key) is None or str(attributes[key]).startswith("#"), (tag, attributes)
    policy = next(a["content"] for t, a in tags if t == "meta" and a.get("http-equiv") == "Content-Security-Policy")
    assert policy is not None and policy.startswith("default-src 'none'") and "unsafe" not in policy
    for tag in ("style", "script"):
        (inside,) = re.findall(rf"<{tag}>(.*?)</{tag}>", page, re.S)
        digest = base64.b64encode(hashlib.sha256(inside.encode()).digest()).decode()
        assert f"{tag}-src 'sha256-{digest}'" in policy


def mark_of(line: int, time: float | None = None, kind: Kind = EVENT.phase.rollout) -> Event:
    """A line of a log that marks a phase, or something else."""
    return Event(kind=kind, fields={}, origin=Origin(file="a.log", line=line), text=f"line {line}", time=time)


def test_progress_is_folded() -> None:
    """Lines of progress between two failures are one row; what a finding quotes and the last one before it stay."""
    incident = analyze([str(ROOT / "samples/openrlhf-save-kill/run")])
    quote = Quote(kind="log", says=say("x"), file="a.log", line=5)
    finding = replace(incident.findings[0], evidence=(quote,))
    failure = mark_of(20, 1.7e9, EVENT.python.error)
    events = (*(mark_of(line, 1.7e9) for line in range(1, 20)), failure, failure)
    page = render(replace(incident, timeline=events, findings=(finding,)))
    assert re.findall(r"<code>line (\d+)</code>", page) == ["5", "19", "20"]
    assert "4 more lines of progress" in page and "13 more lines of progress" in page
    assert 'href="#e4"' in page and 'id="e4"' in page


@pytest.mark.parametrize(("time", "columns"), [(1.7e9, 3), (None, 2)])
def test_an_unknown_order_is_said(time: float | None, columns: int) -> None:
    """Without any time there is no column for it, and the page says what the order is worth."""
    incident = replace(analyze([str(ROOT / "samples/openrlhf-save-kill/run")]), timeline=(mark_of(1, time),))
    page = render(incident)
    table = page[page.index('<table class="events">') :]
    assert table[: table.index("</thead>")].count("<th ") == columns
    assert ("their order relative to other files is unknown" in page) is (time is None)


def test_the_command_stands_beside_the_diff() -> None:
    """As the terminal prints it: at the verdict, and with each patch that it would write."""
    page = render(analyze([str(ROOT / "samples/openrlhf-save-kill/run")]))
    words = ("doctor", "patch", ROOT / "samples/openrlhf-save-kill/run", "--write", "--consent", "host-container-limit")
    shown = " ".join(f"<span>{word}</span>" for word in words)
    assert page.count(f"<pre>{shown}</pre>") == 2


@pytest.mark.parametrize("hostile", HOSTILE, ids=["script", "svg", "cdata", "control", "template", "long"])
def test_hostile_text_is_text(hostile: str) -> None:
    """In every field that a log, a file name or a configuration can fill."""
    incident = analyze([str(ROOT / "samples/openrlhf-save-kill/run")])
    finding = incident.findings[0]
    quote = finding.evidence[0]
    assert incident.death is not None and incident.death.event is not None
    event = replace(incident.death.event, text=hostile, origin=replace(incident.death.event.origin, file=hostile))
    patch = replace(
        finding.patches[0],
        spelled=hostile,
        before=hostile,
        after=hostile,
        effect=quoted(hostile),
        diff=f"--- a\n+++ b\n+{hostile}\n",
        note=quoted(hostile),
    )
    finding = replace(
        finding,
        summary=quoted(hostile),
        evidence=(replace(quote, says=quoted(hostile), text=hostile, file=hostile),),
        patches=(patch,),
    )
    broken = replace(
        incident,
        sources=(hostile,),
        findings=(finding, *incident.findings[1:]),
        death=replace(incident.death, event=event),
        timeline=(event,),
    )
    page = render(
        broken,
        [chart(node=hostile, marks=(Mark(at_s=1.0, kind="kill", says=quoted(hostile)),), notes=(quoted(hostile),))],
    )
    harmless = render(incident, [chart()])
    tags, expected = Tags(page), Tags(harmless)
    assert {tag for tag, _ in tags.tags} == {tag for tag, _ in expected.tags}
    assert sum(tag == "script" for tag, _ in tags.tags) == sum(tag == "script" for tag, _ in expected.tags)
    assert len(page) < 300_000
    assert "\x1b" not in page and "\u202e" not in page
    if len(hostile) < 100 and "\x1b" not in hostile:
        assert hostile in tags.text


def test_levels_come_back() -> None:
    """What is packed is what report.js unpacks: differences of times in ms, then of values in units, -1 for unknown."""
    level = Level(times_s=[0.0, 0.5, 60.25], values=([1024, 4096, -1], [0, 2048, 1 << 40]))
    numbers = array("i")
    numbers.frombytes(zlib.decompress(base64.b64decode(pack(level, 1024))))
    rows = [numbers[start : start + 3] for start in range(0, 9, 3)]
    found = [[sum(row[: place + 1]) for place in range(3)] for row in rows]
    assert found == [[0, 500, 60250], [1, 4, -1], [0, 2, 1 << 30]]


def test_the_data_of_the_page_is_json() -> None:
    """Every figure's data can be parsed, and names its panels as the page does."""
    _, page = page_of("lab-pinned-start")
    (data,) = [
        json.loads(text)
        for text in re.findall(r'<script type="application/json" class="data">(.*?)</script>', page, re.S)
    ]
    assert [panel["names"][0] for panel in data["panels"]] == ["actor", "anonymous"]
    assert all(panel["levels"] for panel in data["panels"]) and data["length"] > 20
    assert {"death", "kill", "alarm"} <= {mark[0] for mark in data["marks"]}


def test_without_javascript_the_picture_is_there() -> None:
    """The page holds the drawing itself: an area for each role, the limit, the phases, and the death."""
    page = render(
        analyze([str(ROOT / "samples/openrlhf-save-kill/run")]),
        [
            chart(
                spans=(Span(phase="update", begin_s=1.0, end_s=9.0),),
                marks=(Mark(at_s=9.5, kind="death", says=say("killed")),),
            )
        ],
    )
    drawing = page[page.index("<svg viewBox") :]
    drawing = drawing[: drawing.index("</svg>")]
    assert [drawing.count(f'class="{name}') for name in ("area c", 'bound"', "p-update", "mark death")] == [2, 1, 1, 1]
    assert "limit 4.00 GiB" in drawing


@pytest.mark.parametrize("top", [1, 1000, 5 << 20, 79 << 30, 900 << 30, 3 << 40])
def test_ticks_are_few_and_round(top: int) -> None:
    """Between two and seven, from zero to the axis's end."""
    found = ticks(top)
    assert 2 <= len(found) <= 7 and found[0] == 0 and found[-1] <= top


def test_the_axis_holds_the_limits() -> None:
    """A limit above what was used is still within the picture."""
    assert top_of(chart().panels[0]) > 4 << 30
