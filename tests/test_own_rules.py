"""Rules of one's own beside the bundled ones: in every command, with their faults, as drafts, by the Python interface."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result

import rlhfdoctor
from rlhfdoctor.engine.catalogue import load_catalogue, load_rules
from rlhfdoctor.engine.draft import sentences, write_skeleton
from rlhfdoctor.errors import RuleError
from rlhfdoctor.i18n.language import load_language

Doctor = Callable[..., Result]
TITLE = "the card of our third node is broken"
SAMPLE = Path(__file__).parent.parent / "samples" / "openrlhf-save-kill" / "run"
LOG = "RuntimeError: CUDA error: out of memory\n"


def filled(folder: Path) -> Path:
    """The folder of a rule that is no draft any more."""
    path = write_skeleton(folder)
    texts = sentences(path)
    text = path.read_text().replace(texts[0], TITLE)
    for number, sentence in enumerate(texts[1:]):
        text = text.replace(sentence, f"our sentence {number}")
    path.write_text(text)
    return folder


@pytest.fixture
def own(tmp_path: Path) -> Path:
    """A catalogue of one rule."""
    return filled(tmp_path / "rules" / "gpu-our-card").parent


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """What a run left behind."""
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "driver.log").write_text(LOG)
    return tmp_path / "run"


def test_a_rule_is_added(doctor: Doctor, own: Path, run: Path) -> None:
    """It comes first where it speaks, and the bundled ones are asked as before."""
    found = [json.loads(doctor("analyze", path, "--format", "json", "--rules", own).stdout) for path in (run, SAMPLE)]
    assert [report["findings"][0]["cause"] for report in found] == ["gpu-our-card", "host-container-limit"]


def test_a_rules_own_folder_is_a_catalogue_of_one(doctor: Doctor, own: Path, run: Path) -> None:
    """As `rules test` takes it."""
    assert TITLE in doctor("analyze", run, "--rules", own / "gpu-our-card").stdout


@pytest.mark.parametrize(
    "words",
    [
        ("analyze", "RUN"),
        ("analyze", "--each", "RUN", "RUN", "--format", "json"),
        ("report", "RUN", "--out", "page.md"),
        ("report", "RUN", "--out", "page.html"),
        ("rules", "list"),
        ("rules", "explain", "gpu-our-card"),
    ],
)
def test_commands_say_it(doctor: Doctor, own: Path, run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]) -> None:
    """On the screen or in the file, also in a second language if the rule has a catalogue of it."""
    (own / "gpu-our-card" / "zh.po").write_text(f'msgid "{TITLE}"\nmsgstr "三号节点的显卡坏了"\n')
    monkeypatch.chdir(tmp_path)
    given = [str(run) if word == "RUN" else word for word in words]
    for language, title in (("en", TITLE), ("zh", "三号节点的显卡坏了")):
        result = doctor(*given, "--rules", own, "--lang", language)
        shown = result.stdout + "".join(path.read_text() for path in tmp_path.glob("page.*"))
        assert title in shown, result.stderr


def test_patch_and_compare_and_bundle_take_it(doctor: Doctor, own: Path, run: Path, tmp_path: Path) -> None:
    """Each judges with it."""
    compared = json.loads(doctor("compare", run, run, "--rules", own, "--format", "json").stdout)
    packed = doctor("bundle", run, "--rules", own, "--out", tmp_path / "x.tar.gz")
    assert "gpu-our-card" in json.dumps(compared)
    assert "(gpu-our-card)" in packed.stdout
    assert doctor("patch", run, "--rules", own).exit_code == 1


@pytest.mark.parametrize(
    ("command", "broken"),
    [
        (("analyze", "RUN"), "prior: -1.0 -> prior: much"),
        (("patch", "RUN"), "torch.cuda_error} -> torch.cuda_eror}"),
        (("rules", "list"), "kind: gpu -> kind: gpv"),
        (("watch", "--", "true"), "weight: 2.0 -> waight: 2.0"),
    ],
)
def test_faults_have_file_and_line(doctor: Doctor, own: Path, run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: tuple[str, ...], broken: str) -> None:
    """Exit code 2, before anything is read or started."""
    monkeypatch.chdir(tmp_path)
    path = own / "gpu-our-card" / "rule.yaml"
    before, after = broken.split(" -> ")
    path.write_text(path.read_text().replace(before, after, 1))
    words = [str(run) if word == "RUN" else word for word in command]
    at = words.index("--") if "--" in words else len(words)
    result = doctor(*words[:at], "--rules", own, *words[at:])
    assert (result.exit_code, f"{path}:" in result.stderr, (tmp_path / "doctor-runs").exists()) == (2, True, False)


def test_an_id_that_is_taken(doctor: Doctor, tmp_path: Path) -> None:
    """A bundled rule is not replaced in silence, nor one of a second folder."""
    rule = filled(tmp_path / "a" / "host-leak")
    with pytest.raises(RuleError, match=rf"{rule}/rule.yaml:2: 'host-leak' is the id of .*/host-leak/rule.yaml already"):
        load_catalogue(rule)
    one, two = (filled(tmp_path / folder / "gpu-our-card") for folder in "bc")
    with pytest.raises(RuleError, match=rf"{two}/rule.yaml:2: 'gpu-our-card' is the id of {one}/rule.yaml already"):
        load_catalogue(one, two)


def test_rules_name_causes_of_each_other(own: Path, tmp_path: Path) -> None:
    """Also of a second folder; an unknown one is a fault."""
    other = filled(tmp_path / "more" / "gpu-our-other-card") / "rule.yaml"
    other.write_text(other.read_text() + "suppresses: [gpu-our-card]\n")
    assert len(load_catalogue(own, other.parent)) == len(load_rules()) + 2
    with pytest.raises(RuleError, match="unknown cause 'gpu-our-card'"):
        load_catalogue(other.parent)


def test_a_folder_without_rules(doctor: Doctor, run: Path) -> None:
    """Is wrong use."""
    result = doctor("analyze", run, "--rules", run)
    assert (result.exit_code, "holds no rule" in result.stderr) == (2, True)


def test_a_draft_is_not_used_and_says_so(doctor: Doctor, run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`rules new` writes below the current folder; the rule is silent until no sentence of the example is left."""
    monkeypatch.chdir(tmp_path)
    made = doctor("rules", "new", "gpu-our-card")
    folder = Path("rules/gpu-our-card")
    assert (made.exit_code, (folder / "rule.yaml").exists(), "--rules rules" in made.stdout) == (0, True, True)
    report = json.loads(doctor("analyze", run, "--rules", "rules", "--format", "json").stdout)
    gaps = {gap["what"]: gap["why"] for gap in report["gaps"]}
    assert "doctor rules test rules/gpu-our-card" in gaps["rule gpu-our-card"]
    assert "gpu-our-card" not in {finding["cause"] for finding in report["findings"]}
    assert "gpu-our-card                     (a draft, not used)" in doctor("rules", "list", "--rules", "rules").stdout
    tested = doctor("rules", "test", "--rules", "rules")
    assert (tested.exit_code, "2 of 2 samples pass" in tested.stdout, "still the skeleton's" in tested.stderr) == (1, True, True)


def test_a_folder_that_cannot_be_written(doctor: Doctor, tmp_path: Path) -> None:
    """Is said without a traceback."""
    (tmp_path / "rules").write_text("a file")
    result = doctor("rules", "new", "gpu-our-card", "--folder", tmp_path / "rules")
    assert (result.exit_code, str(tmp_path / "rules") in result.stderr) == (2, True)


def test_python(own: Path, run: Path) -> None:
    """`rules` are folders, read anew each time."""
    assert rlhfdoctor.analyze(run, rules=own).best.cause == "gpu-our-card"  # type: ignore[union-attr]
    (row,) = rlhfdoctor.analyze_each(run, rules=[own], workers=0).rows
    assert (row.cause, row.title) == ("gpu-our-card", TITLE)
    assert rlhfdoctor.compare(run, run, rules=str(own)).after.best.cause == "gpu-our-card"  # type: ignore[union-attr]
    path = own / "gpu-our-card" / "rule.yaml"
    path.write_text(path.read_text().replace(TITLE, "renamed"))
    assert str(rlhfdoctor.analyze(run, rules=own).best.title) == "renamed"  # type: ignore[union-attr]


@pytest.mark.parametrize("value", ["500g; touch /tmp/x #", "a\n touch x", "$(reboot)", "`reboot`", "a b", "--x=\"1\"", ""])
def test_a_value_is_one_word(own: Path, value: str) -> None:
    """It is written into a script as it stands, and a shell would run the rest."""
    path = own / "gpu-our-card" / "rule.yaml"
    text = path.read_text()
    start = text.index("remediation:")
    path.write_text(text[:start] + REMEDY.format(value=json.dumps(value)) + rest_of(text[start:]))
    with pytest.raises(RuleError, match="cannot be written into a script"):
        load_catalogue(own)


def test_what_it_calls_safe_takes_consent(own: Path) -> None:
    """Only a rule of the doctor's own is tested on incidents."""
    path = own / "gpu-our-card" / "rule.yaml"
    text = path.read_text()
    start = text.index("remediation:")
    path.write_text(text[:start] + REMEDY.format(value="16g") + rest_of(text[start:]))
    (mine,) = (rule for rule in load_catalogue(own) if rule.id == "gpu-our-card")
    assert [treatment.safety for treatment in mine.remediation] == ["consent"]
    assert any(treatment.safety == "safe" for rule in load_catalogue(own) for treatment in rule.remediation if rule is not mine)


def test_a_catalogue_of_sentences_has_a_size(doctor: Doctor, own: Path, run: Path) -> None:
    """A sparse file of 4 GiB is packed into a hundred bytes; its holes are passed over."""
    path = own / "gpu-our-card" / "zh.po"
    with path.open("wb") as file:
        file.truncate(4 << 30)
    assert doctor("analyze", run, "--rules", own, "--lang", "zh").exit_code == 1
    load_language.cache_clear()
    path.write_text("#\n" * (1 << 20))
    result = doctor("analyze", run, "--rules", own, "--lang", "zh")
    assert (result.exit_code, "at most 1 MiB" in result.stderr) == (2, True)


def test_what_a_sample_expects_is_a_file(doctor: Doctor, own: Path) -> None:
    """A pipe without a writer is not waited for."""
    sample = next((own / "gpu-our-card" / "fires").iterdir())
    os.mkfifo(sample / "expected.diff")
    result = doctor("rules", "test", own / "gpu-our-card")
    assert (result.exit_code, "no regular file" in result.stderr) == (2, True)


REMEDY = """\
remediation:
- setting: container.shm_size
  to: {value}
  safety: safe
  effect: more room
"""


def rest_of(text: str) -> str:
    """What stands behind the first section."""
    lines = text.split("\n")
    end = next((n for n, line in enumerate(lines[1:], 1) if line and not line.startswith((" ", "-", "#"))), len(lines))
    return "\n".join(lines[end:])


def test_folders_of_commands_are_quoted(doctor: Doctor, tmp_path: Path, run: Path) -> None:
    """A command that is shown can be copied, and runs nothing that a folder is called."""
    folder = tmp_path / "our rules $(id)"
    made = doctor("rules", "new", "gpu-our-card", "--folder", folder).stdout
    assert f"--rules '{folder}'" in made and f"doctor rules test '{folder}/gpu-our-card'" in made
    assert f"doctor rules test '{folder}/gpu-our-card'" in doctor("rules", "explain", "gpu-our-card", "--rules", folder).stderr
    assert f"doctor rules test '{folder}/gpu-our-card'" in doctor("analyze", run, "--rules", folder, "--format", "json").stdout
