"""The forms of the report: Markdown that cannot be broken by log text, sentences for each death, a clean terminal."""

from __future__ import annotations

import io
import re
from dataclasses import replace

import pytest
from rich.console import Console

from rlhfdoctor.i18n.message import quoted, say
from rlhfdoctor.report import html, markdown, terminal
from rlhfdoctor.report import phrasing as story
from rlhfdoctor.report.json import to_dict
from rlhfdoctor.report.sanitize import clean
from rlhfdoctor.types import Death, Event, Finding, Gap, Incident, Origin, Patch, Process, Quote
from rlhfdoctor.vocabulary import EVENT
from rlhfdoctor.vocabulary.run import KILLERS

EVIL = "<script>alert(1)</script> `x` *b* [bold]m[/bold] \x1b[31mred\x1b[0m \u202e"


def incident(text: str = EVIL, killer: str = "exception") -> Incident:
    event = Event(kind=EVENT.python.error, fields={}, origin=Origin(file="a.log", line=3), text=text)
    patch = Patch(
        setting="a",
        spelled="--a",
        file="l.sh",
        line=1,
        before="1",
        after="2",
        safety="safe",
        diff="--- a/l.sh\n+++ b/l.sh\n@@ -1 +1 @@\n-1 ```\n+2\n",
    )
    finding = Finding(
        cause="other-software-error",
        title=say("A bug"),
        confidence=0.8,
        summary=quoted(text),
        patches=(patch,),
        evidence=(Quote(kind="log", says=quoted(text), file="a.log", line=3, text=text),),
    )
    death = Death(killer=killer, victim=Process(name=text, role="actor", pid=7), event=event, time=1743606120.117)
    return Incident(
        sources=("a",),
        verdict="cause",
        death=death,
        framework=None,
        findings=(finding,),
        gaps=(Gap(what=quoted(text), why=quoted(text)),),
    )


def shown(width: int = 100, **changes: str) -> str:
    console = Console(file=io.StringIO(), width=width, markup=False, emoji=False, highlight=False)
    terminal.render(incident(**changes), console)
    return console.file.getvalue()  # type: ignore[attr-defined,no-any-return]


@pytest.mark.parametrize("killer", KILLERS)
def test_every_killer_has_its_sentence(killer: str) -> None:
    """Each killer of the contract is reported in words."""
    assert str(story.KILLER_SAYS[killer]) in str(story.killed(incident(killer=killer)))


def test_markdown_escapes_log_text() -> None:
    """HTML and markup of a log line are text in Markdown."""
    text = markdown.render(incident())
    prose = "\n".join(line for line in text.splitlines() if not line.startswith(("<", "```")))
    assert ("\\<script\\>" in prose, "\x1b" in text) == (True, False)


def test_markdown_fence_is_longer_than_what_it_holds() -> None:
    """A diff that holds a fence cannot end its own block."""
    assert "````diff" in markdown.render(incident())


@pytest.mark.parametrize("width", [40, 80, 200])
def test_terminal_lines_fit(width: int) -> None:
    """Sentences and quoted lines of the report fit the screen; only headings and diffs may be longer."""
    long = [
        line for line in shown(width, text="word " * 200).splitlines() if len(line) > width and line.startswith("   |")
    ]
    assert long == []


def test_terminal_is_clean() -> None:
    """No control character of a log reaches the terminal."""
    assert [c for c in shown() if ord(c) < 32 and c != "\n"] == []


def test_vanished_process_is_explained() -> None:
    """Where only the disappearance is known, the report says what that may be; of Ray's line, that its causes are guesses."""
    assert "a kill by a person or a scheduler" in " ".join(shown(killer="sigkill-unknown").split())
    line = Event(kind=EVENT.ray.worker_died, fields={}, origin=Origin(file="a"), text="A worker died")
    assert "guesses, not findings" in str(story.vanished(Death(killer="sigkill-unknown", event=line)))
    assert not story.vanished(Death(killer="cuda-oom", event=line))


def test_times_are_iso_in_utc() -> None:
    """Times in the JSON report are ISO 8601 with milliseconds."""
    assert to_dict(incident())["died"]["time"] == "2025-04-02T15:02:00.117Z"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a\tb\nc", "a b c"),
        ("\x1b]8;;http://x\x07link\x1b]8;;\x07", "link"),
        ("\x00\x07", ""),
        ("ab\u200bc\ufeff", "abc"),
        ("x" * 400, "x" * 299 + "…"),
    ],
)
def test_clean(text: str, expected: str) -> None:
    """Text from logs becomes one printable line."""
    assert clean(text) == expected


def test_confidence_is_shown_as_exact_as_it_is() -> None:
    """People read steps of 0.05, in the terminal, in Markdown and on the page; programs read the number."""
    unsure = replace(incident(), findings=(replace(incident().findings[0], confidence=0.87),))
    console = Console(file=io.StringIO(), width=100, markup=False, emoji=False, highlight=False)
    terminal.render(unsure, console)
    pages = (console.file.getvalue(), markdown.render(unsure), html.render(unsure))  # type: ignore[attr-defined]
    assert [re.findall(r"(?:\] |\(|confidence )(0\.\d+\+?)", page)[:1] for page in pages] == [["0.85"]] * 3
    assert to_dict(unsure)["findings"][0]["confidence"] == 0.87


def test_a_timeout_asks_for_the_late_rank() -> None:
    """Where nothing says why a rank did not come, its stack would; the kernel's log and a limit would not."""
    waited = replace(incident("step 3", "collective-timeout"), verdict="undecided", findings=())
    console = Console(file=io.StringIO(), width=200, markup=False, emoji=False, highlight=False)
    terminal.render(waited, console)
    text = console.file.getvalue()  # type: ignore[attr-defined]
    assert (text.count("py-spy dump --pid"), "dmesg" in text, "memory.max" in text) == (1, False, False)
