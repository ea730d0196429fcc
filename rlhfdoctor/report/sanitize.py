"""Text from logs made harmless: no control characters, no colour codes, no overlong lines, no secrets."""

from __future__ import annotations

import re
import shlex
from functools import lru_cache

from rlhfdoctor.privacy.controls import CONTROL, numbered
from rlhfdoctor.privacy.secrets import cut_secrets

_ESCAPES = re.compile(r"\x1b(?:\[[0-9;?]*[ -/]*[@-~]|\][^\x07\x1b\n]{0,2000}(?:\x07|$)|[@-Z\\-_])")
_COLOURS = re.compile(r"(\x1b\[[0-9;]{0,40}m)")


def clean(text: str, width: int = 300) -> str:
    """One printable line of at most `width` characters, without secrets.

    >>> clean("a\\x1b[31mred\\x1b[0m\\tb\\u202e"), clean("export WANDB_API_KEY=0123456789abcdef", 22)
    ('ared b', 'export WANDB_API_KEY=…')
    """
    plain = CONTROL.sub("", _ESCAPES.sub("", without_secrets(text).replace("\t", " ").replace("\n", " ")))
    return plain if len(plain) <= width else plain[: width - 1] + "…"


@lru_cache(maxsize=4096)
def without_secrets(text: str) -> str:
    """What a report may hold of a text; a report is handed on, and quotes what programs printed.

    >>> without_secrets("+export WANDB_API_KEY=0123456789abcdef\\n")
    '+export WANDB_API_KEY=[secret]\\n'
    """
    return cut_secrets(text)


def shell_word(text: str) -> str:
    """A word of a command that is shown: quoted for a shell, harmless on a screen.

    >>> shell_word("runs/a"), shell_word("a b$(id)\\x07")
    ('runs/a', "'a b$(id)'")
    """
    return shlex.quote(clean(text, 4000))


def shell_path(path: str) -> str:
    """The same of a path, which is never an option.

    >>> shell_path("runs/a"), shell_path("-rf"), shell_path("-")
    ('runs/a', './-rf', '-')
    """
    return shell_word(f"./{path}" if path.startswith("-") and path != "-" else path)


def visible(text: str, width: int = 2000) -> str:
    """A line of a file with tabs as they are and every control character shown by its number, as a diff must be read.

    >>> visible("a\\tb\\u202ec\\r")
    'a\\tb\\\\u202ec\\\\u000d'
    """
    plain = numbered(text)
    return plain if len(plain) <= width else plain[: width - 1] + "…"


def shown(text: str, colours: bool = False) -> str:
    """A whole text as a screen may have it: every control character by its number, but line ends or tabs.

    Args:
        colours: whether those of a console of ours stay.

    >>> shown("a\\tb\\x1b]0;title\\x07\\n"), shown("\\x1b[1mfat\\x1b[0m\\x1b[2J", colours=True)
    ('a\\tb\\\\u001b]0;title\\\\u0007\\n', '\\x1b[1mfat\\x1b[0m\\\\u001b[2J')
    """
    parts = _COLOURS.split(text) if colours else [text]
    return "".join(part if place % 2 else numbered(part) for place, part in enumerate(parts))
