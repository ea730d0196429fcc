"""SARIF 2.1.0: results at lines that exist, fixes that make the patch, what readers require.

The part of the specification that is used here is restated below; all samples were also validated once against the
OASIS schema (sarif-schema-2.1.0.json), which no package that the tests install has.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import jsonschema
import pytest

from rlhfdoctor.core.diagnose import analyze
from rlhfdoctor.patch.spans import splice
from rlhfdoctor.report import sarif
from rlhfdoctor.report.sarif import _placed

ROOT = Path(__file__).resolve().parents[2]
SAMPLES = [ROOT / "samples" / name / "run" for name in ("openrlhf-save-kill", "easyr1-long-prompts", "openrlhf-zero3-generate", "recorded-leak", "ray-healthy")]
TEXT = {"type": "object", "required": ["text"], "properties": {"text": {"type": "string", "minLength": 1}}, "additionalProperties": False}
FILE = {"type": "object", "required": ["uri"], "properties": {"uri": {"type": "string", "pattern": r"^[^ \\\\]+$"}, "uriBaseId": {"const": "SRCROOT"}}, "additionalProperties": False}
AT = {"type": "integer", "minimum": 1}
REGION = {"type": "object", "required": ["startLine"], "properties": dict.fromkeys(("startLine", "startColumn", "endLine", "endColumn"), AT), "additionalProperties": False}
LEVEL = {"enum": ["error", "warning", "note", "none"]}
LOG = {
    "type": "object",
    "required": ["$schema", "version", "runs"],
    "properties": {
        "version": {"const": "2.1.0"},
        "runs": {
            "type": "array",
            "minItems": 1,
            "items": {
                "required": ["tool", "results", "columnKind"],
                "properties": {
                    "columnKind": {"enum": ["utf16CodeUnits", "unicodeCodePoints"]},
                    "tool": {"required": ["driver"], "properties": {"driver": {"required": ["name", "rules"], "properties": {"rules": {"items": {"required": ["id"], "properties": {"shortDescription": TEXT, "help": TEXT}}}}}}},
                    "invocations": {"items": {"required": ["executionSuccessful"], "properties": {"toolExecutionNotifications": {"items": {"required": ["message"], "properties": {"message": TEXT, "level": LEVEL}}}}}},
                    "results": {
                        "items": {
                            "required": ["message", "locations", "ruleId", "ruleIndex", "partialFingerprints"],
                            "properties": {
                                "message": TEXT,
                                "level": LEVEL,
                                "rank": {"type": "number", "minimum": 0, "maximum": 100},
                                "locations": {"minItems": 1, "items": {"required": ["physicalLocation"], "properties": {"physicalLocation": {"required": ["artifactLocation"], "properties": {"artifactLocation": FILE, "region": REGION}}}}},
                                "fixes": {
                                    "items": {
                                        "required": ["artifactChanges"],
                                        "properties": {
                                            "description": TEXT,
                                            "artifactChanges": {"minItems": 1, "items": {"required": ["artifactLocation", "replacements"], "properties": {"artifactLocation": FILE, "replacements": {"minItems": 1, "items": {"required": ["deletedRegion"], "properties": {"deletedRegion": REGION, "insertedContent": {"required": ["text"]}}}}}}},
                                        },
                                    }
                                },
                            },
                        }
                    },
                },
            },
        },
    },
}


@pytest.mark.parametrize("run", SAMPLES, ids=lambda path: path.parent.name)
def test_form(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every log has the form, every result its rule and a line that is there, every fix the patch's own text."""
    monkeypatch.chdir(ROOT)
    incident = analyze([str(run.relative_to(ROOT))])
    log = json.loads(sarif.render(incident))
    jsonschema.validate(log, LOG)
    found = log["runs"][0]
    rules = found["tool"]["driver"]["rules"]
    for result in found["results"]:
        assert rules[result["ruleIndex"]]["id"] == result["ruleId"]
        place = result["locations"][0]["physicalLocation"]
        lines = (ROOT / unquote(place["artifactLocation"]["uri"])).read_text().split("\n")
        assert place["region"]["startLine"] <= len(lines)
        for fix in result.get("fixes", []):
            (change,) = fix["artifactChanges"]
            file = ROOT / unquote(change["artifactLocation"]["uri"])
            patched = applied(file.read_text(), change["replacements"])
            patches = [p for f in incident.findings for p in _placed(f) if Path(str(p.file)).resolve() == file]
            assert patched in [splice(patch.base, patch.replacements) for patch in patches]


def applied(text: str, replacements: list[dict[str, Any]]) -> str:
    """As an editor applies a fix: by lines and columns, from the last to the first."""

    def offset(line: int, column: int) -> int:
        return sum(len(each) + 1 for each in text.split("\n")[: line - 1]) + column - 1

    spans = []
    for new in replacements:
        region = new["deletedRegion"]
        spans.append((offset(region["startLine"], region["startColumn"]), offset(region["endLine"], region["endColumn"]), new["insertedContent"]["text"]))
    for start, end, inserted in sorted(spans, reverse=True):
        text = text[:start] + inserted + text[end:]
    return text


def test_there_are_results() -> None:
    """The samples above hold fixes, notifications, and a run without either."""
    logs = [sarif.to_dict(analyze([str(run)]))["runs"][0] for run in SAMPLES]
    assert any(result.get("fixes") for log in logs for result in log["results"])
    assert any(log["invocations"][0]["toolExecutionNotifications"] for log in logs)
    assert (logs[-1]["results"], logs[-1]["tool"]["driver"]["rules"]) == ([], [])


def test_a_fingerprint_stays_when_lines_move(tmp_path: Path) -> None:
    """So that a code host knows a result again; a file outside of the working folder has a full URI, blanks quoted."""
    prints = []
    for head in ("", "# one\n# two\n"):
        folder = tmp_path / f"a run{len(head)}"
        folder.mkdir()
        for path in SAMPLES[0].iterdir():
            text = path.read_text()
            (folder / path.name).write_text(text.replace("\n", f"\n{head}", 1) if path.name == "launch.sh" else text)
        (result, *_) = sarif.to_dict(analyze([str(folder)]))["runs"][0]["results"]
        place = result["locations"][0]["physicalLocation"]
        prints.append((result["partialFingerprints"], place["region"]["startLine"]))
        assert place["artifactLocation"]["uri"].startswith("file:///") and "a%20run" in place["artifactLocation"]["uri"]
    assert prints[0][0] == prints[1][0] and prints[1][1] == prints[0][1] + 2


def test_command() -> None:
    """`--format sarif` prints the log alone; several runs have no log."""
    command = [sys.executable, "-m", "rlhfdoctor", "analyze", "--format", "sarif", "samples/openrlhf-save-kill/run"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False, env={**os.environ, "LANG": "C"})
    assert (done.returncode, json.loads(done.stdout)["version"]) == (1, "2.1.0")
    each = subprocess.run([*command, "--each"], capture_output=True, text=True, cwd=ROOT, check=False)
    assert (each.returncode, "one run" in each.stderr) == (2, True)
