"""Characters that a screen obeys or no file takes: those of control, of direction, without width, halves of a pair."""

from __future__ import annotations

import re

CONTROL = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u2069\ud800-\udfff\ufeff\ufff9-\ufffb"
    r"\U0001d173-\U0001d17a\U000e0000-\U000e007f\U000e0100-\U000e01ef]"
)
"""Not tabs or line ends; with the line ends of Unicode, and letters for tags, which hide words from people."""
_HALF = re.compile("[\ud800-\udfff]")


def numbered(text: str) -> str:
    """The text with each of them shown by its number.

    >>> numbered("a\\tb\\u202ec\\r\\udcff\\U000e0041")
    'a\\tb\\\\u202ec\\\\u000d\\\\udcff\\\\U000e0041'
    """
    return CONTROL.sub(
        lambda match: f"\\u{ord(match[0]):04x}" if match[0] < "\U00010000" else f"\\U{ord(match[0]):08x}", text
    )


def encodable(text: str) -> str:
    """The text as UTF-8 can hold it: half of a pair becomes U+FFFD.

    >>> encodable("a\\udcff") == "a\\ufffd"
    True
    """
    return _HALF.sub("\ufffd", text)
