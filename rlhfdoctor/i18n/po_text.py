"""The text of a catalogue file, within bounds: a rule's folder may be a stranger's."""

from __future__ import annotations

from pathlib import Path

from rlhfdoctor.files.read import read_bytes

_MOST_BYTES = 1 << 20


def read_po(file: Path) -> str:
    """A catalogue as polib takes it, so that it never opens a file itself.

    Raises:
        OSError: it cannot be read, or is no regular file.
        ValueError: it is not UTF-8, or too large.
    """
    data = read_bytes(file, _MOST_BYTES + 1)
    if len(data) > _MOST_BYTES:
        raise ValueError("a catalogue of sentences has at most 1 MiB")
    return data.decode() + "\n"  # polib takes what is the name of a file for that
