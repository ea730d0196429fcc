"""A pattern: one message of one program, as data, with its own sample line.

The suffix of a named group defines how its text becomes a value, so that units are converted
once, at the border:

    _kb    kernel kB (1024 bytes)      -> _bytes     _gib   float GiB           -> _bytes
    _size  "1.39 GiB", "500g"          -> _bytes     _ms    milliseconds        -> _s
    _mib   whole MiB                   -> _bytes
    _pct   "12.3"                      -> _ratio     _text  kept as text

Other groups become int or float when they look like one, except names (`comm`, `name`,
`version`, `ip`, `..._id`).
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import cast

from rlhfdoctor.logs.anchor import probe, tolerant
from rlhfdoctor.types import Value
from rlhfdoctor.units import KIB, MIB, parse_bytes
from rlhfdoctor.vocabulary.names import Field, Kind

_INT = re.compile(r"-?\d{1,18}")
_FLOAT = re.compile(r"-?\d+\.\d*(?:[eE][+-]?\d+)?")
_FLOAT_OR_INT = re.compile(r"-?(?:\d{1,18}(?:\.\d{0,18})?|\.\d{1,18})")
_MOST = 1e24
"""Of a number that a line can mean."""
_TEXT_GROUPS = ("comm", "name", "version", "ip", "text")


@dataclass(frozen=True, slots=True, kw_only=True)
class Pattern:
    """One message: its event kind, its regular expression and a line on which it must match."""

    kind: Kind
    written: str
    """Python `re` syntax without look-around and back-references (unsupported by hyperscan), for the whole message."""
    sample: str
    """A line as the program writes it; the tests match the pattern on it."""
    follow: int = 0
    """How many of the lines after the hit belong to the event."""
    when: str = ""
    """Versions or date for which this wording was seen."""
    look_for: str = ""
    """What every match contains, where the scanner finds that faster than its beginning."""

    @property
    def regex(self) -> str:
        """The expression of the message, which may be cut behind its anchor."""
        return tolerant(self.written)

    @property
    def probe(self) -> str:
        """What every match contains, for the scanner to look for."""
        return self.look_for or probe(self.written)

    def fields(self, match: re.Match[str]) -> dict[Field, Value]:
        """The named groups of a match, converted by their suffix; groups that did not match are left out."""
        found = (convert(name, text) for name, text in match.groupdict().items() if text is not None)
        return dict(cast(Iterable[tuple[Field, Value]], found))  # the tests hold them against the kind's fields


def line(kind: Kind, written: str, sample: str, *, follow: int = 0, when: str = "", look_for: str = "") -> Pattern:
    """A line that a program writes, as the tables of patterns declare it."""
    return Pattern(kind=kind, written=written, sample=sample, follow=follow, when=when, look_for=look_for)


@functools.lru_cache(maxsize=1024)
def compiled(regex: str) -> re.Pattern[str]:
    """The compiled expression; compiled on first use, since most patterns never hit."""
    return re.compile(regex, re.ASCII)


def convert(name: str, text: str) -> tuple[str, Value]:
    """Name and value of a group.

    >>> convert("anon_kb", "4"), convert("request_size", "1.5 GiB"), convert("limit_ms", "1800000")
    (('anon_bytes', 4096), ('request_bytes', 1610612736), ('limit_s', 1800.0))
    """
    if name.endswith("_kb"):
        return name[:-3] + "_bytes", _whole(text, KIB)
    if name.endswith("_mib"):
        return name[:-4] + "_bytes", _whole(text, MIB)
    if name.endswith("_gib"):
        return name[:-4] + "_bytes", parse_bytes(f"{text} GiB")
    if name.endswith("_size"):
        return name[:-5] + "_bytes", parse_bytes(text)
    if name.endswith("_ms"):
        milliseconds = _whole(text)
        return name[:-3] + "_s", None if milliseconds is None else milliseconds / 1000
    if name.endswith("_pct"):
        percent = _FLOAT_OR_INT.fullmatch(text)
        return name[:-4] + "_ratio", float(text) / 100 if percent is not None else None
    if name in _TEXT_GROUPS or name.endswith(("_id", "_text", "_name")):
        return name, text.strip()
    if _INT.fullmatch(text):
        return name, int(text)
    if _FLOAT.fullmatch(text) and len(text) < 40 and abs(float(text)) < _MOST:
        return name, float(text)
    return name, text.strip()


def _whole(text: str, factor: int = 1) -> int | None:
    """A number of at most 18 digits; longer ones are a fault of the text."""
    return int(text) * factor if _INT.fullmatch(text) else None
