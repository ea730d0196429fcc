"""The command as a user meets it: exit codes, messages, streams."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import polib
import pytest
from click.testing import Result

from rlhfdoctor.cli import main
from rlhfdoctor.engine.draft import sentences, write_skeleton

Doctor = Callable[..., Result]
ROOT = Path(__file__).resolve().parent.parent
KILL = "Out of memory: Killed process 4711 (python3) total-vm:9008816kB, anon-rss:1169716kB, file-rss:256kB, shmem-rss:0kB, UID:0"


def test_exit_1_for_an_incident(doctor: Doctor, tmp_path: Path) -> None:
    """An incident ends with exit code 1."""
    (tmp_path / "dmesg.txt").write_text(KILL + "\n")
    assert doctor("analyze", tmp_path).exit_code == 1


def test_exit_0_for_a_healthy_run(doctor: Doctor, tmp_path: Path) -> None:
    """A log that says that the run ended well is healthy: exit code 0."""
    (tmp_path / "driver.log").write_text("step:1 - actor/lr:0.0\nTraining finished\n")
    assert doctor("analyze", tmp_path).exit_code == 0


def test_exit_3_where_nothing_shows_the_end(doctor: Doctor, tmp_path: Path) -> None:
    """Neither a death nor a good end: exit code 3, and what to hand over."""
    (tmp_path / "driver.log").write_text("step:1 - actor/lr:0.0\n")
    result = doctor("analyze", tmp_path)
    assert result.exit_code == 3 and result.stdout.startswith("inconclusive: ")
    assert "how the run ended" in result.stdout and "dmesg" in result.stdout
    report = json.loads(doctor("analyze", tmp_path, "--format", "json").stdout)
    assert (report["verdict"], report["killer"], report["died"]) == ("inconclusive", None, None)
    assert "nothing shows how either run ended" in doctor("compare", tmp_path, tmp_path).stdout


@pytest.mark.parametrize("name", ["nowhere", "empty-folder", "empty.log"])
def test_exit_2_with_a_next_step(doctor: Doctor, tmp_path: Path, name: str) -> None:
    """What cannot be read ends with exit code 2, a message that says what to give, and nothing on standard output."""
    (tmp_path / "empty-folder").mkdir()
    (tmp_path / "empty.log").touch()
    result = doctor("analyze", tmp_path / name)
    assert (result.exit_code, result.stdout, "Give the folder" in result.stderr) == (2, "", True)


def test_binary_file_alone(doctor: Doctor, tmp_path: Path) -> None:
    """A binary file by itself is unreadable input, and the message says that it is binary."""
    (tmp_path / "x.log").write_bytes(bytes(range(256)) * 400)
    result = doctor("analyze", tmp_path / "x.log")
    assert (result.exit_code, "binary" in result.stderr) == (2, True)


def test_standard_input(doctor: Doctor) -> None:
    """`-` reads standard input."""
    result = doctor("analyze", "-", "--format", "json", stdin=KILL.encode())
    assert json.loads(result.stdout)["killer"] == "kernel-oom-node"


def test_json_on_standard_output_only(doctor: Doctor, tmp_path: Path) -> None:
    """The JSON report is all that standard output holds."""
    (tmp_path / "dmesg.txt").write_text(KILL)
    assert json.loads(doctor("analyze", tmp_path, "--format", "json").stdout)["schema"] == "rlhfdoctor.report/1"


def test_out_writes_the_file(doctor: Doctor, tmp_path: Path) -> None:
    """--out writes the report to a file and says so on standard error."""
    (tmp_path / "dmesg.txt").write_text(KILL)
    result = doctor("analyze", tmp_path / "dmesg.txt", "--format", "md", "--out", tmp_path / "r.md")
    assert ((tmp_path / "r.md").read_text()[:3], result.stdout) == ("## ", "")


@pytest.mark.parametrize("command", ["analyze", "report"])
def test_out_that_is_an_input(doctor: Doctor, tmp_path: Path, command: str) -> None:
    """The only log of a dead run is not replaced by a report on it."""
    log = tmp_path / "train.html"
    log.write_text(KILL + "\n")
    done = doctor(command, log, "--format", "html", "--out", log)
    assert (done.exit_code, log.read_text()) == (2, KILL + "\n")
    assert "is read for the report; name another file" in done.stderr


def test_out_that_is_a_part_of_a_recording(doctor: Doctor, tmp_path: Path) -> None:
    """`run.json` of a run is no place for a report in JSON."""
    (tmp_path / "run.json").write_text("{}")
    (tmp_path / "dmesg.txt").write_text(KILL + "\n")
    done = doctor("analyze", tmp_path, "--format", "json", "--out", tmp_path / "run.json")
    assert (done.exit_code, (tmp_path / "run.json").read_text()) == (2, "{}")


def test_out_that_cannot_be_written(doctor: Doctor, tmp_path: Path) -> None:
    """--out into a folder that is not there is wrong use."""
    (tmp_path / "dmesg.txt").write_text(KILL)
    assert doctor("analyze", tmp_path / "dmesg.txt", "--out", tmp_path / "no" / "r.txt").exit_code == 2


def test_min_confidence(doctor: Doctor, tmp_path: Path) -> None:
    """--min-confidence leaves out findings below."""
    (tmp_path / "dmesg.txt").write_text(KILL)
    report = json.loads(doctor("analyze", tmp_path, "--format", "json", "--min-confidence", "0.99").stdout)
    assert report["findings"] == []


@pytest.mark.parametrize("text", ["tomorrow", "2025-13-45"])
def test_bad_time(doctor: Doctor, tmp_path: Path, text: str) -> None:
    """A time that is none is wrong use, with the form that is expected."""
    (tmp_path / "dmesg.txt").write_text(KILL)
    result = doctor("analyze", tmp_path, "--since", text)
    assert (result.exit_code, "2026-01-31 12:00" in result.stderr) == (2, True)


def test_since_cuts_what_came_before(doctor: Doctor, tmp_path: Path) -> None:
    """Events before --since are ignored."""
    (tmp_path / "dmesg.txt").write_text("[Fri Nov 21 16:40:12 2025] " + KILL)
    report = json.loads(doctor("analyze", tmp_path, "--format", "json", "--since", "2025-11-22").stdout)
    assert report["verdict"] == "inconclusive"


def test_framework_given(doctor: Doctor, tmp_path: Path) -> None:
    """--framework wins and is stated as the basis."""
    (tmp_path / "dmesg.txt").write_text(KILL)
    report = json.loads(doctor("analyze", tmp_path, "--format", "json", "--framework", "openrlhf==0.5.3").stdout)
    assert (report["framework"]["name"], report["framework"]["version"], report["framework"]["basis"]) == (
        "openrlhf",
        "0.5.3",
        "--framework",
    )


def test_hostile_text_reaches_the_terminal_clean(doctor: Doctor, tmp_path: Path) -> None:
    """Control characters and colour codes from logs are taken out, markup is shown as text."""
    (tmp_path / "driver.log").write_text("KeyError: \x1b[31m[bold]evil[/bold]\x1b]8;;http://x\x07 \u202egnp.exe\x00\n")
    out = doctor("analyze", tmp_path).stdout
    assert ([c for c in out if ord(c) < 32 and c != "\n"], "\u202e" in out, "[bold]evil" in out) == ([], False, True)


def test_rules_list(doctor: Doctor) -> None:
    """The list names every rule."""
    assert "host-container-limit" in doctor("rules", "list").stdout


def test_rules_explain(doctor: Doctor) -> None:
    """A page has its four headings."""
    page = doctor("rules", "explain", "host-pinned-offload").stdout
    headings = ["What it means", "What it does to a run", "How to check by hand", "What looks alike"]
    assert [h for h in headings if h in page] == headings


def test_rules_explain_unknown(doctor: Doctor) -> None:
    """An unknown id is wrong use, and a near one is offered."""
    result = doctor("rules", "explain", "host-pinned")
    assert (result.exit_code, "host-pinned-offload" in result.stderr) == (2, True)


def test_rules_new_and_test(doctor: Doctor, tmp_path: Path) -> None:
    """A new rule's skeleton loads and passes its samples at once; what is left to be filled in is named, until nothing is."""
    made = doctor("rules", "new", "gpu-my-cause", "--folder", tmp_path)
    rule = tmp_path / "gpu-my-cause" / "rule.yaml"
    assert (made.exit_code, "doctor rules test" in made.stdout) == (0, True)
    raw = doctor("rules", "test", rule.parent)
    lines = raw.stderr.splitlines()
    assert (raw.exit_code, "2 of 2 samples pass, " in raw.stdout, len(lines)) == (1, True, 9)
    assert f"{rule}: still the skeleton's: 'State the fault, not the cure'" in lines
    for number, text in enumerate(sentences(rule)):
        rule.write_text(rule.read_text().replace(text, f"sentence {number}"))
    done = doctor("rules", "test", rule.parent)
    assert (done.exit_code, done.stderr, done.stdout) == (0, "", "2 of 2 samples pass\n")


def test_a_new_rule_of_the_package_has_translations_to_fill_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One catalogue a language; a rule of one's own has none."""
    monkeypatch.setenv("RLHFDOCTOR_RULES", str(tmp_path / "rules"))
    shipped, own = (write_skeleton(tmp_path / folder / "gpu-my-cause") for folder in ("rules", "mine"))
    chinese = polib.pofile(str(shipped.with_name("zh.po")))
    assert ([row.msgid for row in chinese], own.with_name("zh.po").exists()) == (sentences(shipped), False)


def test_rules_test_names_what_is_wrong(doctor: Doctor, tmp_path: Path) -> None:
    """Causes that no rule has, translations with other figures or of sentences that are gone; a catalogue of one's own needs no translation."""
    doctor("rules", "new", "gpu-my-cause", "--folder", tmp_path)
    rule, chinese = (tmp_path / "gpu-my-cause" / name for name in ("rule.yaml", "zh.po"))
    rule.write_text(rule.read_text() + "suppresses: [host-leek, host-leak]\n")
    chinese.write_text(
        'msgid "One sentence for the user, with figures such as {cuda.request_bytes}."\nmsgstr "一句话"\n\n'
        'msgid "gone"\nmsgstr "没了"\n'
    )
    lines = doctor("rules", "test", rule.parent).stderr.splitlines()
    assert f"{rule}: 'suppresses' names host-leek, and no rule has that id" in lines
    assert [line.removeprefix(f"{chinese}: ") for line in lines if "braces" in line or "any more" in line] == [
        "other places in braces than 'One sentence for the user, with figures such as {cuda.request_bytes}.' has",
        "nothing says 'gone' any more",
    ]
    chinese.write_text("- 3\n")
    broken = f"{chinese}: no valid PO file (Syntax error in po file (line 1))"
    assert broken in doctor("rules", "test", rule.parent).stderr.splitlines()
    chinese.unlink()
    assert [line for line in doctor("rules", "test", rule.parent).stderr.splitlines() if "zh" in line] == []


def test_rules_new_bad_name(doctor: Doctor, tmp_path: Path) -> None:
    """A name that is no id is refused."""
    assert doctor("rules", "new", "My Cause", "--folder", tmp_path).exit_code == 2


def test_broken_catalogue(tmp_path: Path) -> None:
    """A broken rule is reported with file and line, exit code 2, no traceback."""
    rule = tmp_path / "host-x" / "rule.yaml"
    rule.parent.mkdir()
    rule.write_text("id: host-x\nid: host-y\n")
    done = subprocess.run(
        [sys.executable, "-m", "rlhfdoctor", "rules", "list"],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env={**os.environ, "RLHFDOCTOR_RULES": str(tmp_path)},
        check=False,
    )
    assert (done.returncode, f"{rule}:2:" in done.stderr, "Traceback" in done.stderr) == (2, True, False)


def test_closed_pipe_is_no_error() -> None:
    """`doctor ... | head -1` ends quietly."""
    done = subprocess.run(
        f"{sys.executable} -m rlhfdoctor rules list | head -1",
        shell=True,
        capture_output=True,
        text=True,
        cwd=ROOT,
        check=False,
    )
    assert done.stderr == ""


@pytest.mark.parametrize(
    "words",
    [("analyze", ""), ("patch", "x", ""), ("estimate", ""), ("report", ""), ("bundle", ""), ("compare", "", "x"), ("mcp", ""), ("analyze", "--config", "", "x"), ("report", "x", "--out", "")],
    ids=lambda words: " ".join(words),
)
def test_an_empty_word_is_no_path(words: tuple[str, ...], doctor: Doctor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A variable that is not set was the current folder: `doctor patch "$RUN" --write` would have changed what is there."""
    monkeypatch.chdir(tmp_path)
    done = doctor(*words)
    assert (done.exit_code, "is a variable of the shell not set?" in done.stderr) == (2, True), done.output


def test_words_of_a_command_may_be_empty(tmp_path: Path) -> None:
    """They are the command's."""
    words = [sys.executable, "-c", "import sys; sys.exit(sys.argv[1:] != ['', 'x'])", "", "x"]
    start = [sys.executable, "-m", "rlhfdoctor", "watch", "--out", str(tmp_path / "run"), "--"]
    assert subprocess.run([*start, *words], capture_output=True, check=False).returncode == 0


@pytest.mark.parametrize("words", [("analyze", "."), ("analyze", "-"), ("patch", "."), ("estimate", "x.sh"), ("bundle", "x")], ids=" ".join)
def test_current_folder_that_was_removed(words: tuple[str, ...], doctor: Doctor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Is said; it was an internal error."""
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    done = doctor(*words)
    assert (done.exit_code, "the current folder was removed" in done.stderr) == (2, True), done.output


def test_not_enough_memory(doctor: Doctor, monkeypatch: pytest.MonkeyPatch) -> None:
    """Is said with what limits it; it was an internal error."""

    def full(**_: object) -> None:
        raise MemoryError

    monkeypatch.setattr(main.commands["config"], "callback", full)
    done = doctor("config")
    assert (done.exit_code, "not enough memory" in done.stderr, "internal error" in done.stderr) == (2, True, False)


@pytest.mark.parametrize(
    ("words", "file"),
    [
        (("analyze",), "config/train.yaml"),
        (("analyze", "--format", "json"), "run.json"),
        (("analyze",), "logs/job.log"),
        (("report", "--format", "html"), "config/launch.sh"),
        (("estimate",), "config/ds.json"),
        (("compare", str(ROOT / "samples/lab-shm-full/run")), "run.json"),
    ],
    ids=str,
)
def test_a_report_does_not_take_the_place_of_an_input(doctor: Doctor, tmp_path: Path, words: tuple[str, ...], file: str) -> None:
    """Configuration and logs in a folder that is read stay; a report there is written anew."""
    run = tmp_path / "run"
    shutil.copytree(ROOT / "samples/lab-shm-full/run", run)
    before = (run / file).read_bytes()
    done = doctor(*words, run, "--out", run / file)
    assert (done.exit_code, "is read for the report" in done.stderr) == (2, True), done.output
    assert (run / file).read_bytes() == before
    for _ in range(2):
        assert doctor("analyze", run, "--format", "json", "--out", run / "report.json").exit_code == 1


def test_standard_output_by_name(doctor: Doctor) -> None:
    """`--out -` made a file of that name."""
    run = ROOT / "samples/lab-shm-full/run"
    assert doctor("analyze", run, "--out", "-").stdout == doctor("analyze", run).stdout != ""


def test_a_name_that_is_too_long(doctor: Doctor) -> None:
    """Is said; it was an internal error."""
    done = doctor("analyze", ROOT / "samples/lab-shm-full/run", "--out", "y" * 300)
    assert (done.exit_code, "File name too long" in done.stderr, "internal" in done.stderr) == (2, True, False)
