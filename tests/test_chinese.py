"""Reports in Chinese: no sentence of the doctor is left out, and what logs say stays as it is."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from rlhfdoctor import analyze
from rlhfdoctor.engine.catalogue import load_rules
from rlhfdoctor.errors import DoctorError
from rlhfdoctor.i18n.language import load_words, preferred, read_table, translate
from rlhfdoctor.i18n.words import Words
from rlhfdoctor.report import markdown
from rlhfdoctor.types import Incident

ROOT = Path(__file__).resolve().parents[1]
CASES = sorted(
    [*(ROOT / "samples").glob("*/run"), *(ROOT / "rules").glob("*/fires/*"), *(ROOT / "rules").glob("*/silent/*")]
)
_PLACE = re.compile(r"\{[^{}]*\}")


@pytest.mark.parametrize("name", ["evidence", "patches", "reading", "report"])
def test_places_are_the_same(name: str) -> None:
    """In the tables of the doctor's own sentences, too."""
    for english, chinese in read_table((ROOT / f"rlhfdoctor/i18n/zh/{name}.yaml").read_text(encoding="utf-8")).items():
        assert sorted(_PLACE.findall(english)) == sorted(_PLACE.findall(chinese.replace("!}", "}"))), english


def words_of_page() -> set[str]:
    """What the reports look up: in the modules by name of the function, in the template by `t("...")`."""
    found = set(re.findall(r'\bt\("([^"]*)"', (ROOT / "rlhfdoctor/report/templates/report.html").read_text()))
    for path in [ROOT / f"rlhfdoctor/report/{name}.py" for name in ("phrasing", "terminal", "markdown", "html")] + [
        ROOT / "rlhfdoctor/engine/explain.py"
    ]:
        for node in ast.walk(ast.parse(path.read_text())):
            if (
                isinstance(node, ast.Call)
                and node.args
                and (getattr(node.func, "id", "") in ("t", "words") or getattr(node.func, "attr", "") == "words")
            ):
                found |= {
                    part.value
                    for part in ast.walk(node.args[0])
                    if isinstance(part, ast.Constant)
                    and isinstance(part.value, str)
                    and re.search("[a-z]{2}", part.value)
                }
    return found


def test_every_word_of_the_page() -> None:
    """Is in the table, and nothing stands there that nobody asks for any more."""
    table = read_table((ROOT / "rlhfdoctor/i18n/zh/report.yaml").read_text(encoding="utf-8"))
    found = words_of_page()
    assert len(found) > 80
    assert sorted(text for text in found if text not in table) == []


def sentences(incident: Incident) -> Iterator[str]:
    """What the doctor says of a case; commands, file names and quoted lines left out."""
    for finding in incident.findings:
        yield from (finding.title, finding.summary)
        yield from (quote.says for quote in (*finding.evidence, *finding.against))
        for item in finding.missing:
            yield from (item.what, item.settle)
        for patch in finding.patches:
            yield from (patch.effect, patch.cost, patch.note, *patch.side_effects)
    yield from (item.because for item in incident.ruled_out)
    for part in incident.ledger:
        yield from (part.part, part.basis)
    for gap in incident.gaps:
        yield from (gap.what, gap.why)


def quoted(incident: Incident) -> str:
    """Lines of logs that sentences may hold."""
    lines = [quote.text or "" for finding in incident.findings for quote in (*finding.evidence, *finding.against)]
    return "\n".join([*lines, *(event.text for event in incident.timeline)])


@pytest.mark.parametrize("group", range(8))
def test_no_sentence_is_left_out(group: int) -> None:
    """Over all samples, recorded runs and look-alikes, with every figure and every combination that they lead to."""
    words = load_words("zh")
    for path in CASES[group::8]:
        try:
            incident = analyze([str(path)])
        except DoctorError:
            continue
        lines = quoted(incident)
        lacking = [part for sentence in sentences(incident) for part in words.lacks(sentence)]
        assert [part for part in lacking if part.strip(" .;:") not in lines] == [], path


def test_logs_stay_as_they_are() -> None:
    """Quoted lines, files, commands, causes and spellings are the same in both languages."""
    incident = analyze([str(ROOT / "samples/openrlhf-save-kill/run")])
    chinese = translate(incident, load_words("zh"))
    assert chinese.death == incident.death and chinese.timeline == incident.timeline
    for one, two in zip(incident.findings, chinese.findings, strict=True):
        assert (one.cause, one.confidence, one.score) == (two.cause, two.confidence, two.score)
        assert [(q.file, q.line, q.text) for q in one.evidence] == [(q.file, q.line, q.text) for q in two.evidence]
        assert [(p.setting, p.before, p.after, p.diff) for p in one.patches] == [
            (p.setting, p.before, p.after, p.diff) for p in two.patches
        ]
        assert one.title != two.title


def test_figures_stay() -> None:
    """A translated sentence holds the numbers of the English one."""
    words = load_words("zh")
    for path in CASES[::9]:
        try:
            incident = analyze([str(path)])
        except DoctorError:
            continue
        for sentence in sentences(incident):
            numbers = re.findall(r"\d+(?:\.\d+)? [GMKT]iB", sentence)
            assert sorted(numbers) == sorted(re.findall(r"\d+(?:\.\d+)? [GMKT]iB", words.of(sentence))), sentence


@pytest.mark.parametrize("form", ["text", "md", "html", "json"])
def test_every_form(doctor: Callable[..., Any], form: str) -> None:
    """--lang zh reaches all of them, and the exit code is the same."""
    result = doctor("analyze", ROOT / "samples/lab-pinned-start/run", "--lang", "zh", "--format", form)
    assert result.exit_code == 1 and "锁页（pinned）" in result.stdout
    for english in ("would have been", "What speaks for it", "the recorder saw", "killed by the kernel"):
        assert english not in result.stdout


def test_the_environment_tells(doctor: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """LC_ALL goes before LANG; --lang before both."""
    monkeypatch.delenv("LC_ALL", raising=False)
    monkeypatch.delenv("LC_MESSAGES", raising=False)
    for value, expected in (("zh_CN.UTF-8", "zh"), ("C.UTF-8", "en"), ("de_DE", "en"), ("", "en")):
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


def test_parts_put_together() -> None:
    """Sentences with remarks, several in a row, and what is unknown between them."""
    words = Words(
        "zh",
        {
            "the limit was full": "上限已用满",
            "the limit is {0} of the node": "上限为节点的 {0}",
            "{0} were in use": "已用 {0}",
        },
    )
    assert words.of("the limit was full (the limit is 3 GiB of the node)") == "上限已用满（上限为节点的 3 GiB）"
    assert words.of("the limit was full; 3 GiB were in use") == "上限已用满；已用 3 GiB"
    assert (
        words.of("the limit was full; nobody knows this; 3 GiB were in use")
        == "上限已用满；nobody knows this; 已用 3 GiB"
    )
    assert words.lacks("the limit was full; nobody knows this; 3 GiB were in use") == ["nobody knows this; "]
    assert words.of("The limit was full.") == "上限已用满"


def test_markdown_ends_with_chinese_stops() -> None:
    """Sentences that the page puts together end as Chinese ones do."""
    incident = translate(analyze([str(ROOT / "samples/openrlhf-save-kill/run")]), load_words("zh"))
    assert "第 256 步之后，而且它正是占用最多的进程。" in markdown.render(incident, load_words("zh"))
