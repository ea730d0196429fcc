"""Pages that are made from data: `python tests/docs.py --write`; tests/test_docs.py checks that they are fresh."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import yaml

from rlhfdoctor.core import rule_testing as selftest
from rlhfdoctor.engine.catalogue import load_rules
from rlhfdoctor.engine.explain import explain
from rlhfdoctor.engine.rulefile import OwnRemedies, json_schema
from rlhfdoctor.i18n.language import load_language
from rlhfdoctor.i18n.message import say
from rlhfdoctor.vocabulary import EVENT, FACT
from rlhfdoctor.vocabulary.index import FIELDS, scopes
from rlhfdoctor.vocabulary.names import Fact, Kind, names_of

ROOT = Path(__file__).resolve().parent.parent
_KINDS = {
    "host": "Host memory",
    "shm": "Shared memory and object store",
    "gpu": "GPU memory",
    "comm": "Communication",
    "other": "Other",
}


_PAGE = {
    "zh": {
        "The catalogue of causes": "原因目录",
        "Made by `make docs` from the rules; `doctor rules explain ID` shows a page.": "由 `make docs` 从规则生成；`doctor rules explain ID --lang zh` 显示单页。",
        "Host memory": "主机内存",
        "Shared memory and object store": "共享内存与对象存储",
        "GPU memory": "GPU 显存",
        "Communication": "通信",
        "Other": "其他",
    }
}
"""The words of the catalogue's page itself, which only this script says."""


def rules_page() -> str:
    """rules/README.md: the catalogue by kind."""
    lines = [
        "# The catalogue of causes",
        "",
        "Made by `make docs` from the rules; `doctor rules explain ID` shows a page.",
        "",
        "Priors and weights are set by hand, in log-odds, and stay so: fitted to labelled incidents, they were no better on rounds of incidents that no rule had seen",
        "(`make weigh`, tests/exam/WEIGHTS.md; DESIGN.md, Rejected). What is fitted is how confident a sum of them makes the doctor (`calibration.yaml`, `make calibrate`).",
        "",
    ]
    rules = load_rules()
    for kind, title in _KINDS.items():
        lines += [f"## {title}", "", "| cause | title | fires | silent | treatments |", "|---|---|---:|---:|---:|"]
        for rule in (r for r in rules if r.kind == kind):
            counts = [sum(1 for p in (rule.path.parent / name).iterdir() if p.is_dir()) for name in ("fires", "silent")]
            lines.append(
                f"| [{rule.id}]({rule.id}/rule.yaml) | {rule.title} | {counts[0]} | {counts[1]} | {len(rule.remediation)} |"
            )
        lines.append("")
    return "\n".join(lines)


def samples_page() -> str:
    """samples/README.md: what each sample is, and what is true of it."""
    lines = [
        "# Recorded and written incidents",
        "",
        "`run/` is what a user would hand over; `truth.yaml` is never shown to the doctor. Made by `make docs`.",
        "",
    ]
    lines += ["| sample | verdict | killer | accepted causes | made by |", "|---|---|---|---|---|"]
    for path in sorted((ROOT / "samples").glob("*/truth.yaml")):
        truth = yaml.safe_load(path.read_text())
        causes = ", ".join(truth["accept"]) or "none"
        lines.append(
            f"| {path.parent.name} | {truth['verdict']} | {truth['killer'] or 'none'} | {causes} | {' '.join(truth['made_by'].split())} |"
        )
    return "\n".join([*lines, ""])


_SCREEN = re.compile(r"(?<=\$ )(doctor (?:analyze|estimate) [^\n]+)(\n```\n```text\n).*?(?=```)", re.DOTALL)
"""A command in a block of its own, and the block of what it prints."""


def readme_page() -> str:
    """README.md with what its commands print today."""

    def screen(found: re.Match[str]) -> str:
        command = [sys.executable, "-m", "rlhfdoctor", *shlex.split(found[1])[1:]]
        width = {**os.environ, "COLUMNS": "80"}
        done = subprocess.run(command, cwd=ROOT, env=width, capture_output=True, text=True, check=False)
        return found[1] + found[2] + done.stdout

    return _SCREEN.sub(screen, (ROOT / "README.md").read_text())


def _joined(lines: list[str]) -> str:
    """Wrapped lines as one; Chinese ones are joined without a blank."""
    text = lines[0] if lines else ""
    for line in lines[1:]:
        text += line if ord(text[-1]) > 0x2E7F and ord(line[0]) > 0x2E7F else f" {line}"
    return text


def catalogue_page(language: str) -> str:
    """rules/CATALOGUE*.md: every page of `doctor rules explain`, by kind."""
    t, page_words = load_language(language), _PAGE.get(language, {})
    made = "Made by `make docs` from the rules; `doctor rules explain ID` shows a page."
    head = "The catalogue of causes"
    lines = [
        f"# {page_words.get(head, head)}",
        "",
        page_words.get(made, made),
        "",
    ]
    for kind, title in _KINDS.items():
        lines += [f"## {page_words.get(title, title)}", ""]
        for rule in (r for r in load_rules() if r.kind == kind):
            title, _, page = explain(rule, t).partition("\n\n")
            lines += [f"### {title}", ""]
            for block in page.split("\n\n"):
                heading, *rest = block.split("\n")
                items = [line.strip() for line in rest]
                if heading in (t(say("Treatment")), t(say("References"))):
                    plain = "- " if heading == t(say("References")) else "  "
                    body = [line if line.startswith(("- ", "http")) else f"{plain}{line}" for line in items]
                    lines += [
                        f"**{heading}**",
                        "",
                        *(f"- <{line}>" if line.startswith("http") else line for line in body),
                        "",
                    ]
                else:
                    lines += [f"**{heading}** {_joined(items)}", ""]
    return "\n".join(lines)


def vocabulary_page() -> str:
    """rules/VOCABULARY.md: every fact, event and field that a rule may ask for."""
    lines = [
        "# The vocabulary of rules",
        "",
        "Made by `make docs` from `rlhfdoctor/vocabulary/`. A rule that names anything else does not load.",
        "",
    ]
    lines += [
        "## Facts: `{evidence: NAME, ...}`",
        "",
        "A threshold is written with the unit: `16 GiB` (bytes), `35 %` (share), `2 x` (factor), `10 min` (s).",
        "",
    ]
    for scope in scopes(FACT):
        lines += [f"**{scope.__name__}** {scope.__doc__}", "", "| fact | unit | meaning |", "|---|---|---|"]
        lines += [f"| {name} | {name.unit} | {name.meaning} |" for name in names_of(scope, Fact)] + [""]
    lines += ["## Events: `{event: NAME, with: {FIELD: ...}}`", ""]
    for scope in scopes(EVENT):
        lines += [f"**{scope.__name__}** {scope.__doc__}", "", "| event | meaning | fields |", "|---|---|---|"]
        lines += [f"| {name} | {name.meaning} | {', '.join(name.fields)} |" for name in names_of(scope, Kind)] + [""]
    lines += ["## Fields of events", "", "| field | unit | meaning |", "|---|---|---|"]
    lines += [f"| {name} | {name.unit} | {name.meaning} |" for name in FIELDS.values()]
    return "\n".join([*lines, ""])


def schema_page() -> str:
    """rules/schema.json: the form of rule.yaml, for editors."""
    return json.dumps(json_schema(), indent=1) + "\n"


def treatments_schema_page() -> str:
    """rules/treatments.schema.json: the form of a framework's treatments.yaml, for editors."""
    return json.dumps(json_schema(OwnRemedies), indent=1) + "\n"


PAGES = {
    "rules/VOCABULARY.md": vocabulary_page,
    "rules/schema.json": schema_page,
    "rules/treatments.schema.json": treatments_schema_page,
    "README.md": readme_page,
    "rules/README.md": rules_page,
    "rules/CATALOGUE.md": lambda: catalogue_page("en"),
    "rules/CATALOGUE.zh.md": lambda: catalogue_page("zh"),
    "samples/README.md": samples_page,
}


def write_expected_diffs() -> None:
    """expected.diff of every fires/ sample whose patches change a file; to be reviewed as a diff."""
    rules = load_rules()
    for rule in rules:
        for sample in (path for path in selftest.samples(rule) if path.parent.name == "fires"):
            text = selftest.sample_diff(sample, rules)
            if text:
                (sample / selftest.EXPECTED).write_text(text)
            else:
                (sample / selftest.EXPECTED).unlink(missing_ok=True)


if __name__ == "__main__" and "--write" in sys.argv:
    for name, page in PAGES.items():
        (ROOT / name).write_text(page())
    write_expected_diffs()
