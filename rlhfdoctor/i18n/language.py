"""The languages of reports: a folder of gettext catalogues each, with one catalogue beside each rule or framework."""

from __future__ import annotations

import functools
import gettext
import os
from pathlib import Path

from rlhfdoctor.errors import RuleError
from rlhfdoctor.i18n.message import ENGLISH, Language
from rlhfdoctor.i18n.po_text import read_po
from rlhfdoctor.places import rules_folder, rules_in

_FOLDER = Path(__file__).parent


@functools.cache
def languages() -> tuple[str, ...]:
    """English, and every folder of this package that holds catalogues."""
    return ("en", *sorted({file.parent.name for file in _FOLDER.glob("*/*.po")}))


def preferred() -> str:
    """The language of the environment, by LC_ALL, LC_MESSAGES or LANG; English if it is not supported."""
    found = next((value for name in ("LC_ALL", "LC_MESSAGES", "LANG") if (value := os.environ.get(name))), "")
    return next((name for name in languages() if found.lower().startswith(name)), "en")


@functools.cache
def load_language(name: str, *rules: Path) -> Language:
    """A language with the sentences of the doctor and of the rules in use; `rules` are folders of further ones.

    What it needs beside sentences is in the header of its catalogues: `Plural-Forms` (gettext's), `X-Full-Stop`, and
    `X-Spaced-Han` where a blank stands between Han characters and Latin words.
    """
    if name == "en":
        return ENGLISH
    import polib

    table: dict[str, str | tuple[str, ...]] = {}
    header: dict[str, str] = {}
    places = (
        *((folder, f"{name}.po") for added in rules for folder in rules_in(added)),
        (rules_folder(), f"*/{name}.po"),
        (_FOLDER.parent / "frameworks", f"*/{name}.po"),
        (_FOLDER / name, "*.po"),
    )
    for file in (file for folder, pattern in places for file in sorted(folder.glob(pattern))):
        try:
            catalogue = polib.pofile(read_po(file))
        except (OSError, ValueError) as error:
            raise RuleError(f"{file}: no valid PO file ({' '.join(str(error).split())})") from None
        header |= catalogue.metadata
        for entry in catalogue.translated_entries():
            forms = tuple(entry.msgstr_plural[number] for number in sorted(entry.msgstr_plural))
            table[entry.msgid] = forms or entry.msgstr
    _, _, rule = header.get("Plural-Forms", "").partition("plural=")
    return Language(
        name,
        table,
        choose=gettext.c2py(rule.rstrip("; ") or "n != 1"),
        stop=header.get("X-Full-Stop", "."),
        spaced=header.get("X-Spaced-Han") == "yes",
    )
