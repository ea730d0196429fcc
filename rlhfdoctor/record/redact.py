"""Secrets on command lines are not recorded: tokens, passwords, API keys, the key of `--use_wandb`.

Settings that only sound alike (`--input_key`, `max_token_len`, `tokenizer`) stay.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

HIDDEN = "REDACTED"
_NAME = r"(?:hf|hub|auth|access|api|github|bearer|refresh)[_-]?token\b|\btoken\b|secret|passw|api[_-]?key|access[_-]?key|private[_-]?key|credential|use_wandb\b|wandb[_.-]?(?:api[_.-]?)?key"  # fmt: skip
_WORD = re.compile(_NAME, re.IGNORECASE)
_ON_LINE = re.compile(rf"((?:^|\s)[-+]*[\w.-]*(?:{_NAME})[\w.-]*(?:=|\s+(?!-)))(\S+)", re.IGNORECASE)


def redact_words(argv: Sequence[str]) -> list[str]:
    """The argument list without the values of secrets.

    >>> redact_words(["x", "--hf_token=abc", "--use_wandb", "k1", "--input_key", "text", "data.max_token_len=9"])
    ['x', '--hf_token=REDACTED', '--use_wandb', 'REDACTED', '--input_key', 'text', 'data.max_token_len=9']
    """
    found: list[str] = []
    hide_next = False
    for word in argv:
        name, mark, _ = word.partition("=")
        secret = _WORD.search(name) is not None
        if hide_next and not word.startswith("-"):
            found.append(HIDDEN)
        else:
            found.append(f"{name}={HIDDEN}" if secret and mark else word)
        hide_next = secret and not mark and word.startswith("-")
    return found


def redact_line(text: str) -> str:
    """The same for a command line as one text.

    >>> redact_line("python t.py --use_wandb k1 --x 2 api_key=abc")
    'python t.py --use_wandb REDACTED --x 2 api_key=REDACTED'
    """
    return _ON_LINE.sub(rf"\g<1>{HIDDEN}", text)
