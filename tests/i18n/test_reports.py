"""Reports in Chinese: no sentence of the doctor is left out, and what logs say stays as it is."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from rlhfdoctor import analyze
from rlhfdoctor.engine.catalogue import load_rules
from rlhfdoctor.errors import DoctorError
from rlhfdoctor.i18n.language import load_language, preferred
from rlhfdoctor.i18n.message import Message
from rlhfdoctor.report import markdown
from rlhfdoctor.types import Incident
from tests import messages

ROOT = Path(__file__).resolve().parents[2]
CASES = sorted(
    [*(ROOT / "samples").glob("*/run"), *(ROOT / "rules").glob("*/fires/*"), *(ROOT / "rules").glob("*/silent/*")]
)
KNOWN = {text for found in messages.messages().values() for text in found}


def said(incident: Incident) -> Iterator[Message]:
    """Every message of an incident."""
    for finding in incident.findings:
        yield from (finding.title, finding.summary, finding.differs)
        yield from (quote.says for quote in (*finding.evidence, *finding.against))
        for item in finding.missing:
            yield from (item.what, item.settle)
        for patch in finding.patches:
            yield from (patch.effect, patch.cost, patch.note, patch.named, *patch.side_effects)
    yield from (item.because for item in incident.ruled_out)
    for part in incident.ledger:
        yield from (part.part, part.basis)
    for gap in incident.gaps:
        yield from (gap.what, gap.why)


def parts(message: Message) -> Iterator[Message]:
    """A message and all messages in it."""
    yield message
    for part in message._parts():
        yield from parts(part)


@pytest.mark.parametrize("group", range(8))
def test_every_message_is_known(group: int) -> None:
    """Over all samples, recorded runs and look-alikes: what is said is in the catalogue, and no figure is lost."""
    chinese = load_language("zh")
    for path in CASES[group::8]:
        try:
            incident = analyze([str(path)])
        except DoctorError:
            continue
        for message in said(incident):
            for part in parts(message):
                bare = messages.PLACES.sub("", part.id).strip()
                assert not re.search("[A-Za-z]", bare) or part.id in KNOWN, f"{path}: {part.id}"
            sizes = sorted(re.findall(r"\d+(?:\.\d+)? [GMKT]iB", str(message)))
            assert sizes == sorted(re.findall(r"\d+(?:\.\d+)? [GMKT]iB", chinese(message))), str(message)


@pytest.mark.parametrize("form", ["text", "md", "html"])
def test_every_form(doctor: Callable[..., Any], form: str) -> None:
    """--lang zh reaches all of them, and the exit code is the same."""
    result = doctor("analyze", ROOT / "samples/lab-pinned-start/run", "--lang", "zh", "--format", form)
    assert result.exit_code == 1 and "锁页（pinned）" in result.stdout
    for english in ("would have been", "What speaks for it", "the recorder saw", "killed by the kernel"):
        assert english not in result.stdout


def test_json_is_never_translated(doctor: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """It carries English, ids and arguments, whatever the language of the environment or of --lang."""
    path = ROOT / "samples/lab-pinned-start/run"
    monkeypatch.setenv("LC_ALL", "zh_CN.UTF-8")
    found = doctor("analyze", path, "--format", "json").stdout
    assert found == doctor("analyze", path, "--format", "json", "--lang", "en").stdout
    assert not re.search(r"[\u4e00-\u9fff]", found)
    first = json.loads(found)["findings"][0]
    assert first["messages"]["title"]["id"] == first["title"]
    assert all(quote["messages"]["says"]["id"] for quote in first["evidence"])


@pytest.mark.parametrize(
    ("command", "chinese"),
    [
        (("estimate", "samples/openrlhf-72b-start/run", "--host-memory", "1T"), "主机内存"),
        (("compare", "samples/lab-pinned-start/run", "samples/lab-pinned-start-cured/run"), "第二次运行"),
    ],
)
def test_other_commands(doctor: Callable[..., Any], command: tuple[str, ...], chinese: str) -> None:
    """Budget and comparison speak it, too."""
    arguments = [str(ROOT / word) if word.startswith("samples/") else word for word in command]
    assert chinese in doctor(*arguments, "--lang", "zh").stdout
    assert not re.search(r"[\u4e00-\u9fff]", doctor(*arguments, "--lang", "en").stdout)


def test_the_environment_decides(doctor: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """LC_ALL goes before LANG; --lang before both."""
    monkeypatch.delenv("LC_ALL", raising=False)
    monkeypatch.delenv("LC_MESSAGES", raising=False)
    for value, expected in (("zh_CN.UTF-8", "zh"), ("C.UTF-8", "en"), ("xx_XX", "en"), ("", "en")):
        monkeypatch.setenv("LANG", value)
        assert preferred() == expected
    monkeypatch.setenv("LC_ALL", "zh_TW")
    assert "含义" in doctor("rules", "explain", "host-leak").stdout
    assert "What it means" in doctor("rules", "explain", "host-leak", "--lang", "en").stdout


def test_every_page_of_a_rule_reads_as_chinese(doctor: Callable[..., Any]) -> None:
    """More Chinese letters than Latin words of prose on each page."""
    for rule in load_rules():
        page = doctor("rules", "explain", rule.id, "--lang", "zh").stdout.split("参考资料")[0]
        assert len(re.findall(r"[\u4e00-\u9fff]", page)) > 100, rule.id
        assert not re.search(r"\b(?:the|which|where|because) ", page), rule.id


def test_markdown_ends_with_chinese_stops() -> None:
    """Sentences that the page puts together end as Chinese ones do."""
    incident = analyze([str(ROOT / "samples/openrlhf-save-kill/run")])
    assert "第 256 步之后，而且它正是占用最多的进程。" in markdown.render(incident, load_language("zh"))
