"""What collectors put before a line: Docker, Kubernetes, Slurm, MPI, torchrun, journald, JSON logs, times, Ray."""

from __future__ import annotations

import re
from typing import NamedTuple

_KINDS = {
    "time": (
        r"\[?20\d\d-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d{1,9})?(?:Z|[+-]\d\d:?\d\d)?\]?(?: std(?:out|err) [FP])?[ \t]"
        r"|[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d |\d\d\.\d{1,9}Z (?:std(?:out|err) [FP] )?"
    ),
    "json": r'\[?\{[^\n]{0,300}?"(?:log|message|msg|text|textPayload|body|line|content)": ?"',
    "ray": r"\([^)\n]{1,80}\)",
    "other": (
        r"\[pod/[^\]\s]{1,120}\]|\[(?:rank ?|default)\d{1,6}\]:?|\[\d{1,4},\d{1,6}\](?:<std(?:out|err)>)?:"
        r"|[\w.-]{1,60} {0,20}\| |\d{1,6}: |[a-z][\w.-]{0,60}\d: |[\w.-]{1,60} [\w./-]{1,60}\[\d{1,8}\]: "
    ),
}
_PIECES = 3
PREFIXES = rf"(?:(?:{'|'.join(_KINDS.values())})[ \t]{{0,4}}){{0,{_PIECES}}}"
"""Before a line's words, as part of a pattern."""
_PIECE = re.compile("(?:{})[ \t]{{0,4}}".format("|".join(f"(?P<{kind}>{regex})" for kind, regex in _KINDS.items())))
_STRING = re.compile(r'(?:[^"\\]|\\.){0,8000}')
_ESCAPE = re.compile(r'\\(["\\/nt])')
_PLAIN = {"n": "\n", "t": "\t"}


class Said(NamedTuple):
    """A line without its prefixes."""

    kinds: tuple[str, ...]
    who: str
    """The prefixes that say of which process it is; times are none."""
    words: tuple[str, ...]
    """One text; of a JSON log there may be several lines of them."""


def splits(text: str) -> list[Said]:
    """A line with no prefix taken off, with one, and so on.

    >>> [(said.who, said.words) for said in splits("[rank0]: (T pid=7) a")][1:]
    [('[rank0]:', ('(T pid=7) a',)), ('[rank0]:(T pid=7)', ('a',))]
    """
    found = [Said((), "", (text.strip(),))]
    rest = text.lstrip()
    while len(found) <= _PIECES:
        piece = _PIECE.match(rest)
        if piece is None or piece.lastgroup is None:
            break
        last, kind, rest = found[-1], piece.lastgroup, rest[piece.end() :]
        is_named = kind in ("ray", "other")
        if kind == "json":
            string = _STRING.match(rest)
            rest = _ESCAPE.sub(lambda escape: _PLAIN.get(escape[1], escape[1]), string[0] if string else rest)
        words = tuple(line.strip() for line in rest.split("\n") if line.strip())
        found.append(Said((*last.kinds, kind), last.who + (piece[0].strip() if is_named else ""), words))
        if kind == "json":
            break
    return found


def split_as(text: str, count: int) -> Said:
    """A line with so many prefixes taken off, if it has them."""
    found = splits(text) if count else [Said((), "", (text.strip(),))]
    return found[min(count, len(found) - 1)]
