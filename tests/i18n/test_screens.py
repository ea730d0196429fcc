"""What commands print beside reports: errors of use and screens, in the chosen language, by messages alone."""

from __future__ import annotations

import ast
import pickle
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from rlhfdoctor.errors import DoctorError, PluginError, RuleError, SourceError, UsageError
from rlhfdoctor.i18n.message import say
from rlhfdoctor.record.command import WatchOptions, _finish
from rlhfdoctor.record.lines import teller
from rlhfdoctor.record.state import Held, State
from rlhfdoctor.record.watch import Outcome
from tests import messages

ROOT = Path(__file__).resolve().parents[2]
HAN = re.compile("[\u4e00-\u9fff]")
SAMPLE = str(ROOT / "samples/openrlhf-save-kill/run")
_ERRORS = {"DoctorError", "UsageError", "SourceError"}

WRONG_USE = [
    (("analyze", "/nowhere/训练run"), "/nowhere/训练run: no such file or folder."),
    (("analyze", SAMPLE, "--framework", "=="), "--framework '==': write NAME or NAME==VERSION"),
    (("analyze", SAMPLE, "--since", "soon"), "--since soon: write a time such as"),
    (("analyze", SAMPLE, "--out", "/nowhere/x"), "--out /nowhere/x: No such file or directory"),
    (("estimate", SAMPLE, "--host-memory", "much"), "--host-memory much: write a size such as"),
    (("estimate", SAMPLE, "--gpu", "abacus"), "--gpu abacus: not known; add its size, such as abacus-80g"),
    (("estimate", "LICENSE"), "the framework cannot be detected"),
    (("report", SAMPLE, "--out", "x.txt"), "--out x.txt: end it in .html, .md, .png, .svg or .prom"),
    (("patch", SAMPLE, "--consent", "host-leak"), "--consent host-leak: no such finding here. Findings: "),
    (("patch", "LICENSE", "--revert"), "nothing to take back: no patched file below LICENSE"),
    (("bundle", SAMPLE, "--out", "x.zip"), "x.zip: the archive is a .tar.gz; name it so"),
    (("rules", "explain", "host-leek"), "no rule 'host-leek'. Did you mean host-leak"),
    (("rules", "explain", "zzz"), "no rule 'zzz'. See doctor rules list."),
    (("rules", "new", "Nothing"), "'Nothing' is no rule id"),
    (("watch",), "nothing to watch: give a command behind --"),
    (("watch", "--interval", "soon", "--", "true"), "--interval soon: write a time such as"),
    (("watch", "--", "/no/such/command"), "/no/such/command: no such command"),
    (("watch", "--pid", "999999999"), "--pid 999999999: no such process"),
    (("watch", "--attach", "/nowhere"), "--attach /nowhere: no trace in it"),
    (("watch", "--attach", "/nowhere", "--pid", "1"), "--attach stands alone"),
    (("watch", "--ray", "--pid", "1"), "--ray stands alone"),
    (("watch", "--cgroup", "/"), "--cgroup: "),
]


@pytest.mark.parametrize(("command", "english"), WRONG_USE, ids=lambda value: " ".join(value)[-40:])
def test_errors_of_use(
    doctor: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, command: tuple[str, ...], english: str
) -> None:
    """Each is said in the language of the environment, with the same names and options in it; the exit code is 2."""
    monkeypatch.chdir(ROOT)
    monkeypatch.setenv("LC_ALL", "C.UTF-8")
    first = doctor(*command)
    monkeypatch.setenv("LC_ALL", "zh_CN.UTF-8")
    second = doctor(*command)
    assert (first.exit_code, second.exit_code) == (2, 2)
    assert first.stderr.startswith(f"doctor: {english}"), first.stderr
    chinese = second.stderr.removeprefix("doctor: ")
    bare = re.sub(r"/nowhere/训练run", "", chinese)
    assert HAN.search(bare) or "No such file" in english, chinese
    assert not re.search(r"\b(?:the|which|give|write a|no such) ", bare), chinese
    quoted = set(re.findall(r"(?:/\S*[^\s:.]|--[a-z-]+)", english))
    assert all(name in chinese for name in quoted), chinese


def test_lang_goes_before_the_environment(doctor: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """--lang reaches errors, too."""
    monkeypatch.setenv("LC_ALL", "zh_CN.UTF-8")
    assert "no such file or folder" in doctor("analyze", "/nowhere", "--lang", "en").stderr
    monkeypatch.setenv("LC_ALL", "C")
    assert HAN.search(doctor("analyze", "/nowhere", "--lang", "zh").stderr)


def test_a_damaged_catalogue(doctor: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the language itself cannot be read, that is said in English."""
    from rlhfdoctor.i18n.language import load_language

    (tmp_path / "host-mine").mkdir()
    (tmp_path / "host-mine" / "zh.po").write_text('msgid "a\nfoo\n')
    monkeypatch.setenv("RLHFDOCTOR_RULES", str(tmp_path))
    load_language.cache_clear()
    try:
        result = doctor("rules", "list", "--lang", "zh")
    finally:
        load_language.cache_clear()
    assert result.exit_code == 2 and "no valid PO file" in result.stderr


def test_help_is_english(doctor: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """--help and what click says of options stay English (decision 36)."""
    monkeypatch.setenv("LC_ALL", "zh_CN.UTF-8")
    assert not HAN.search(doctor("analyze", "--help").stdout + doctor("analyze", "--form").stderr)


def test_an_error_is_english_text_with_a_message() -> None:
    """Programs see English, also behind a pickle; faults of maintainers' files are quoted."""
    error = UsageError(say("{file}: is no folder", file="/x"))
    again = pickle.loads(pickle.dumps(error))
    assert (str(error), str(again), again.says) == ("/x: is no folder", "/x: is no folder", error.says)
    for kind in (RuleError, PluginError):
        fault = kind("rule.yaml:3: unknown fact 'x' {y}")
        assert (str(fault), fault.says.id) == ("rule.yaml:3: unknown fact 'x' {y}", "{text}")
    assert issubclass(SourceError, DoctorError)


def test_folders_of_commands_are_quoted(doctor: Callable[..., Result], tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """The commands that come back to a recording, or read it again, can be copied."""
    folder = tmp_path / "a b $(id)"
    shutil.copytree(ROOT / "samples" / "lab-save-kill" / "run", folder)
    assert _finish(Outcome(True, None, State()), folder, True, lambda *_: 1, WatchOptions()) == 0
    assert f"doctor watch --attach '{folder}'" in capfd.readouterr().err
    assert f"doctor analyze '{folder}'\n" in doctor("watch", "--attach", folder, "--no-view").stderr


@pytest.mark.parametrize(("language", "first"), [("en", "doctor: left the view"), ("zh", "doctor: 已离开视图")])
def test_end_of_watch(tmp_path: Path, capfd: pytest.CaptureFixture[str], language: str, first: str) -> None:
    """What is printed when the user leaves, or the run ends; commands to copy are the same in every language."""
    run = WatchOptions(language=language)
    state = State(job_pid=4711)
    assert _finish(Outcome(True, None, state, recorder_pid=4712, job_pid=4711), tmp_path, True, lambda *_: 1, run) == 0
    left = capfd.readouterr().err
    assert left.startswith(first)
    assert all(part in left for part in (f"doctor watch --attach {tmp_path}", "kill -TERM -4711", "kill 4712"))
    assert _finish(Outcome(False, None, state, running=True), tmp_path, True, lambda *_: 1, run) == 1
    assert "doctor watch --pid 4711" in capfd.readouterr().err
    assert _finish(Outcome(False, 0, state, survivors=(Held(1, 4713, "python x.py", 3 << 30),)), tmp_path, True, lambda *_: 1, run) == 0
    assert _finish(Outcome(False, None, state), tmp_path, True, lambda *_: 1, run) == 1
    ended = capfd.readouterr().err
    assert str(tmp_path) in ended and "pid 4713" in ended and "3.00 GiB" in ended and "python x.py" in ended
    assert bool(HAN.search(left + ended)) == (language == "zh")
    assert not (language == "zh" and re.search(r"\b(?:the|command|run|run and|is) ", left + ended))


def test_what_watch_quotes_is_clean(capfd: pytest.CaptureFixture[str]) -> None:
    """No control character of a name or a log line reaches the terminal."""
    teller("zh")(say("recording to {folder}", folder="a\x1b[31m\nb\u202e"))
    assert capfd.readouterr().err == "doctor: 正在记录到 a b\n"


def test_no_english_is_printed() -> None:
    """Nothing that commands and the recorder print is a sentence in the source: it is a message, or has no words."""
    found = []
    for path in sorted([*(messages.PACKAGE / "cli").glob("*.py"), *(messages.PACKAGE / "record").glob("*.py")]):
        for call in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not isinstance(call, ast.Call):
                continue
            name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
            if name not in {"echo", "Text"} | _ERRORS:
                continue
            for text in literals(call):
                if re.search("[A-Za-z]{3}", text.replace("doctor: ", "").replace("rlhfdoctor", "")):
                    found.append(f"{path}:{call.lineno}: {text}")
    assert found == []


def literals(call: ast.Call) -> list[str]:
    """Text in the first argument of a call, but not in calls within it."""
    found, rest = [], list(call.args[:1])
    while rest:
        node = rest.pop()
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            found.append(node.value)
        elif not isinstance(node, ast.Call):
            rest.extend(ast.iter_child_nodes(node))
    return found
