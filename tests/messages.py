"""All messages of the doctor, and the catalogues that must hold them: `python -m tests.messages --write` brings the files up to date.

Sentences in Python are the literals in calls of `say`, `plural` and `term`; those in templates are found by Jinja's own extractor, those of
rules and of frameworks' folders in their files.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

import polib
import yaml
from jinja2.ext import babel_extract

from rlhfdoctor.engine.draft import sentences
from rlhfdoctor.i18n.catalogue import PLACES, faults, update
from rlhfdoctor.i18n.language import languages
from rlhfdoctor.i18n.message import SEPARATORS
from rlhfdoctor.vocabulary.limits import ProcessLimit
from rlhfdoctor.vocabulary.run import SPOKEN

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "rlhfdoctor"
_CALLS = ("say", "term", "plural")
_AREAS = {
    "report": ("report", "cli", "agents", "core", "jupyter.py", "i18n"),
    "evidence": ("evidence", "engine"),
    "budget": ("budget", "patch"),
    "record": ("record",),
    "vocabulary": ("vocabulary",),
}
"""Catalogue -> folders of the package; the rest goes to `reading`."""


def messages() -> dict[str, dict[str, str]]:
    """Place of a catalogue, with `LANG` for the language -> English sentence -> its plural, or empty."""
    found: dict[str, dict[str, str]] = {}
    seen: set[str] = set()
    for place, text, many in (*_of_code(), *_of_folders()):
        if text not in seen and PLACES.sub("", text).strip():
            seen.add(text)
            found.setdefault(place, {})[text] = many
    for path in sorted((ROOT / "rules").glob("*/rule.yaml")):
        found[f"rules/{path.parent.name}/LANG.po"] = dict.fromkeys(sentences(path), "")
    return found


def _of_code() -> Iterator[tuple[str, str, str]]:
    for word in (*sorted(SPOKEN), *get_args(ProcessLimit), *SEPARATORS):
        yield "rlhfdoctor/i18n/LANG/vocabulary.po", word, ""
    for path in sorted(PACKAGE.rglob("*.py")):
        for call in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id in _CALLS:
                texts = [
                    part.value for part in call.args if isinstance(part, ast.Constant) and isinstance(part.value, str)
                ]
                if texts:
                    yield _place(path), texts[0], texts[1] if call.func.id == "plural" else ""
    for path in sorted(PACKAGE.glob("report/*/*.html")):
        with path.open("rb") as file:
            for _line, _name, text, _comments in babel_extract(file, ("_", "say"), (), {}):
                yield _place(path), text[0] if isinstance(text, tuple) else text, ""


def _place(path: Path) -> str:
    """The catalogue of a file of the package."""
    folder, _, rest = str(path.relative_to(PACKAGE)).partition("/")
    if folder == "frameworks":
        return f"rlhfdoctor/frameworks/{rest.partition('/')[0]}/LANG.po"
    area = next((name for name, folders in _AREAS.items() if folder in folders), "reading")
    return f"rlhfdoctor/i18n/LANG/{area}.po"


def _of_folders() -> Iterator[tuple[str, str, str]]:
    for name in ("framework", "hazards", "treatments"):
        for path in sorted((PACKAGE / "frameworks").glob(f"*/{name}.yaml")):
            for text in sentences(path) if name == "treatments" else sentences(path, {"says"}):
                yield f"rlhfdoctor/frameworks/{path.parent.name}/LANG.po", text, ""
    for row in yaml.safe_load((PACKAGE / "evidence" / "regressions.yaml").read_text()):
        for key in ("says", "cure"):
            yield "rlhfdoctor/i18n/LANG/evidence.po", " ".join(row[key].split()), ""


def catalogues(language: str) -> dict[Path, dict[str, str]]:
    """Every catalogue of a language, and the messages that it must hold."""
    return {ROOT / place.replace("LANG", language): found for place, found in messages().items()}


def check(language: str) -> list[str]:
    """What the catalogues of a language lack, and what is in them for nothing; a sentence with two translations."""
    wanted = catalogues(language)
    found = [fault for file, texts in wanted.items() for fault in faults(file, texts)]
    found += [f"{file}: no message is written for it" for file in existing(language) if file not in wanted]
    seen: dict[str, tuple[Path, str]] = {}
    for file in existing(language):
        for entry in polib.pofile(str(file)):
            first, text = seen.setdefault(entry.msgid, (file, entry.msgstr))
            if text != entry.msgstr:
                found.append(f"{file}: '{entry.msgid}' has another translation in {first}")
    return found


def existing(language: str) -> list[Path]:
    """The catalogue files of a language."""
    places = (f"rlhfdoctor/i18n/{language}/*.po", f"rlhfdoctor/frameworks/*/{language}.po", f"rules/*/{language}.po")
    return sorted(file for place in places for file in ROOT.glob(place))


def write(language: str) -> None:
    """Adds what is missing with an empty translation, and removes what nothing says any more."""
    known = {entry.msgid: entry for file in existing(language) for entry in polib.pofile(str(file))}
    for file, texts in catalogues(language).items():
        file.parent.mkdir(exist_ok=True)
        file.write_text(update(file, texts, known, language), encoding="utf-8")


if __name__ == "__main__":
    for name in languages()[1:]:
        if "--write" in sys.argv:
            write(name)
        print("\n".join(check(name)) or f"{name}: complete")
