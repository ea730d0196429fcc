"""What a client writes, line by line: none without a bound, none with half a character."""

from __future__ import annotations

import io
import re

MOST_LETTERS = 4 << 20
"""Of one message: ours need some hundred."""
_ESCAPES = re.compile(r"\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|u[dD][89a-fA-F][0-9a-fA-F]{2}|.)")
_HALF = len(r"\ud800")


class Lines(io.TextIOWrapper):
    """A stream of messages in JSON.

    The protocol's package reads lines of any length, and does not answer what has half of a surrogate pair.
    """

    def readline(self, size: int = -1, /) -> str:  # type: ignore[override]
        """The next line; an empty one for what is too long, which is no message to anybody."""
        line = super().readline(MOST_LETTERS if size < 0 else size)
        if size >= 0 or len(line) < MOST_LETTERS or line.endswith("\n"):
            return whole(line)
        while (rest := super().readline(MOST_LETTERS)) and not rest.endswith("\n"):
            pass
        return "\n"


def whole(text: str) -> str:
    r"""JSON in which half a surrogate pair is the sign for what cannot be shown.

    >>> whole(r'"\ud83d\ude00 \ud83d \\ud83d"')
    '"\\ud83d\\ude00 \\ufffd \\\\ud83d"'
    """
    return _ESCAPES.sub(lambda found: r"\ufffd" if len(found[0]) == _HALF else found[0], text)
