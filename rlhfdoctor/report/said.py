"""Messages in JSON reports: the English sentence beside what no language changes, its id with the arguments."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rlhfdoctor.i18n.message import Message
from rlhfdoctor.report.sanitize import clean

_MOST_LETTERS = 2000


def said(**messages: Message | Sequence[Message]) -> dict[str, Any]:
    """Each message in English under its name, and all of them under `messages` for programs that compare."""
    shown: dict[str, Any] = {}
    parts: dict[str, Any] = {}
    for name, message in messages.items():
        if isinstance(message, Message):
            shown[name] = clean(str(message), _MOST_LETTERS)
            parts |= {name: _cleaned(message)} if message else {}
        else:
            shown[name] = [clean(str(one), _MOST_LETTERS) for one in message]
            parts |= {name: [_cleaned(one) for one in message]} if message else {}
    return shown | {"messages": parts}


def _cleaned(message: Message) -> dict[str, Any]:
    """The message for programs, its quoted text without control characters."""
    return message.with_text(lambda text: clean(text, _MOST_LETTERS)).to_dict()
