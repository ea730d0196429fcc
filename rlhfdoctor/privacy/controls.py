"""Characters that a screen obeys or no file takes: those of control, of direction, without width, halves of a pair."""

from __future__ import annotations

import re

CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b-\u200f\u202a-\u202e\u2060-\u2069\ufeff\ud800-\udfff]")
"""Not tabs or line ends."""
_HALF = re.compile("[\ud800-\udfff]")


def numbered(text: str) -> str:
    """The text with each of them shown by its number.

    >>> numbered("a\\tb\\u202ec\\r\\udcff")
    'a\\tb\\\\u202ec\\\\u000d\\\\udcff'
    """
    return CONTROL.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def encodable(text: str) -> str:
    """The text as UTF-8 can hold it: half of a pair becomes U+FFFD.

    >>> encodable("a\\udcff") == "a\\ufffd"
    True
    """
    return _HALF.sub("\ufffd", text)
