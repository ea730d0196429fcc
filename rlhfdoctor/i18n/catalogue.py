"""Catalogue files of a language: gettext's PO, read or brought up to date with the messages that there are."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path

import polib

from rlhfdoctor.i18n.po_text import read_po

PLACES = re.compile(r"\{([A-Za-z_][\w.]*)(?::[^{}]*)?\}")


def update(file: Path, messages: Mapping[str, str], known: Mapping[str, polib.POEntry], language: str) -> str:
    """The text of a catalogue that holds just these messages, with the translations that are known.

    Args:
        messages: English sentence -> its plural, or empty.
        known: translations from all catalogues of the language.
    """
    catalogue = polib.POFile(wrapwidth=100)
    catalogue.metadata = polib.pofile(str(file)).metadata if file.exists() else _header(language)
    for text, many in messages.items():
        old = known.get(text)
        entry = polib.POEntry(msgid=text, msgid_plural=many)
        if many:
            entry.msgstr_plural = dict(old.msgstr_plural) if old is not None and old.msgstr_plural else {0: ""}
        else:
            entry.msgstr = old.msgstr if old is not None else ""
        entry.tcomment = old.tcomment if old is not None else ""
        catalogue.append(entry)
    return f"{catalogue}"


def _header(language: str) -> dict[str, str]:
    return {"Language": language, "Content-Type": "text/plain; charset=UTF-8"}


def faults(file: Path, messages: Mapping[str, str]) -> Iterator[str]:
    """What is wrong with a catalogue, one sentence each.

    Messages are missing, stale or incomplete, or have other places than the English.
    """
    if not file.exists():
        yield f"{file}: missing; it holds a msgid and a msgstr for each sentence"
        return
    try:
        catalogue = polib.pofile(read_po(file))
    except (OSError, ValueError) as error:
        yield f"{file}: no valid PO file ({' '.join(str(error).split())})"
        return
    entries = {entry.msgid: entry for entry in catalogue if not entry.obsolete}
    for text in messages:
        entry = entries.get(text)
        if entry is None or not entry.translated():
            yield f"{file}: no msgstr for '{text}'"
            continue
        for other in (*entry.msgstr_plural.values(), *([entry.msgstr] if entry.msgstr else [])):
            if set(_places(other)) != set(_places(text)):
                yield f"{file}: other places in braces than '{text}' has"
    for text in entries:
        if text not in messages:
            yield f"{file}: nothing says '{text}' any more"


def _places(text: str) -> list[str]:
    return [match[0] for match in PLACES.finditer(text)]
