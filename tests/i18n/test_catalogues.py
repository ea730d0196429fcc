"""The catalogues hold just the messages that there are: a comparison of sets, no reading of finished sentences."""

from __future__ import annotations

import ast
from pathlib import Path

import polib
import pytest

from rlhfdoctor.errors import RuleError
from rlhfdoctor.i18n.catalogue import faults, update
from rlhfdoctor.i18n.language import languages, load_language
from rlhfdoctor.i18n.message import say
from rlhfdoctor.places import rules_folder
from tests import messages

SENTENCES = {"one {a}": "", "{n} step": "{n} steps"}


@pytest.mark.parametrize("language", languages()[1:])
def test_complete(language: str) -> None:
    """Nothing is missing, nothing is stale, places are the same, and no sentence has two translations."""
    assert messages.check(language) == []


def test_messages_are_literals() -> None:
    """An id is written where it is said: else no collector could find it."""
    for path in sorted(messages.PACKAGE.rglob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        if not any(isinstance(n, ast.ImportFrom) and n.module == "rlhfdoctor.i18n.message" for n in ast.walk(tree)):
            continue
        for call in ast.walk(tree):
            if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id in ("say", "plural"):
                wanted = call.args[: 2 if call.func.id == "plural" else 1]
                assert all(isinstance(part, ast.Constant) for part in wanted), f"{path}:{call.lineno}"


def test_places_have_values() -> None:
    """Each place of a sentence is an argument of its call, and the other way round."""
    found = 0
    for path in sorted(messages.PACKAGE.rglob("*.py")):
        for call in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not (
                isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id in ("say", "plural")
            ):
                continue
            names = {keyword.arg for keyword in call.keywords}
            if None in names or not (call.args and isinstance(call.args[0], ast.Constant)):
                continue  # by **values
            text = str(call.args[0].value)
            places = {match[1] for match in messages.PLACES.finditer(text)} - {"n" if call.func.id == "plural" else ""}
            assert places == names, f"{path}:{call.lineno}: {text}"
            found += 1
    assert found > 500


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ('msgid "one {a}"\nmsgstr "eins {a}"\n', "no msgstr for '{n} step'"),
        ('msgid "one {a}"\nmsgstr ""\n', "no msgstr for 'one {a}'"),
        ('msgid "one {a}"\nmsgstr "eins {b}"\n', "other places in braces than 'one {a}'"),
        ('msgid "gone"\nmsgstr "weg"\n', "nothing says 'gone' any more"),
        ('msgid "one {a}"\nmsgstr "eins', "other places in braces"),
        ('msgid "one {a}"\nmsg "eins"', "no valid PO file"),
        ("\x00\x01", "no valid PO file"),
        ("", "no msgstr for 'one {a}'"),
    ],
)
def test_faults(tmp_path: Path, text: str, fault: str) -> None:
    """Each is named with the file."""
    file = tmp_path / "de.po"
    file.write_text(text)
    found = list(faults(file, SENTENCES))
    assert any(fault in line and str(file) in line for line in found), found


def test_no_catalogue(tmp_path: Path) -> None:
    """A missing file is a fault, too."""
    assert "missing" in next(faults(tmp_path / "de.po", SENTENCES))


def test_update(tmp_path: Path) -> None:
    """What is known stays, what is new is empty, what nothing says is dropped, and the header is kept."""
    file = tmp_path / "de.po"
    file.write_text(
        'msgid ""\nmsgstr "Plural-Forms: nplurals=2; plural=n != 1;\\n"\n\n'
        'msgid "one {a}"\nmsgstr "eins {a}"\n\nmsgid "gone"\nmsgstr "weg"\n'
    )
    known = {entry.msgid: entry for entry in polib.pofile(str(file))}
    file.write_text(update(file, SENTENCES, known, "de"))
    found = {entry.msgid: entry for entry in polib.pofile(str(file))}
    assert list(found) == list(SENTENCES) and found["one {a}"].msgstr == "eins {a}"
    assert found["{n} step"].msgid_plural == "{n} steps" and not found["{n} step"].translated()
    assert "plural=n != 1" in polib.pofile(str(file)).metadata["Plural-Forms"]


def test_a_third_language_is_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing else names the languages: a folder with a catalogue is one, with its plural rule and its full stop."""
    (tmp_path / "de").mkdir()
    (tmp_path / "de" / "report.po").write_text(
        'msgid ""\nmsgstr ""\n"Plural-Forms: nplurals=2; plural=(n != 1);\\n"\n"X-Full-Stop: !\\n"\n\n'
        'msgid "healthy"\nmsgstr "gesund"\n\nmsgid "{n} step"\nmsgid_plural "{n} steps"\n'
        'msgstr[0] "{n} Schritt"\nmsgstr[1] "{n} Schritte"\n'
    )
    monkeypatch.setattr("rlhfdoctor.i18n.language._FOLDER", tmp_path)
    languages.cache_clear()
    load_language.cache_clear()
    try:
        assert languages() == ("en", "de")
        german = load_language("de")
        assert (german(say("healthy")), german.stop) == ("gesund", "!")
        monkeypatch.setenv("LC_ALL", "de_DE.UTF-8")
        from rlhfdoctor.i18n.language import preferred

        assert preferred() == "de"
    finally:
        languages.cache_clear()
        load_language.cache_clear()


def test_rules_of_ones_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Translations beside the rules of a folder of one's own are read with them."""
    (tmp_path / "host-mine").mkdir()
    (tmp_path / "host-mine" / "zh.po").write_text('msgid "my own cause"\nmsgstr "我的原因"\n')
    monkeypatch.setenv("RLHFDOCTOR_RULES", str(tmp_path))
    load_language.cache_clear()
    try:
        assert rules_folder() == tmp_path
        assert load_language("zh")(say("my own cause")) == "我的原因"
    finally:
        load_language.cache_clear()


def test_a_damaged_catalogue_of_ones_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is an error with the file's name, not one of the doctor."""
    (tmp_path / "host-mine").mkdir()
    (tmp_path / "host-mine" / "zh.po").write_text('msgid "a\nfoo\n')
    monkeypatch.setenv("RLHFDOCTOR_RULES", str(tmp_path))
    load_language.cache_clear()
    try:
        with pytest.raises(RuleError, match=r"host-mine/zh\.po: no valid PO file"):
            load_language("zh")
    finally:
        load_language.cache_clear()
