"""Tokens of a shell script with their places, so that a value can be changed where it is.

A reader of words, not an interpreter: comments, line continuations, redirections, here-documents, variables, the words
of a quoted command (`bash -c "..."`) and of a variable that is used as words (`ARGS="..."; run $ARGS`) are understood;
branches, loops and functions are read as words.
"""

from __future__ import annotations

import copy
import re
from bisect import bisect_left
from collections import ChainMap
from collections.abc import Iterator, MutableMapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice

from rlhfdoctor.settings.expand import ANSI_QUOTED, closing_command, unquote

_SPECIAL = frozenset(";|&()<>\n")
_REDIRECTION = re.compile(r"(?:\d*|&)[<>]{1,3}(?:&\d+|&-|(&?[ \t]*)(?=[^\s;|&()<>]))")
"""`2>&1`, `> log`, `&> log`, `< input`, `<<EOF`; with group 1 a target follows that is no argument."""
_HEREDOC = re.compile(r"\d*<<(-?)[ \t]*(?=[^\s;|&()<>])")
"""`<<EOF`, `<<-EOF`; the word that ends the document follows."""
_SHOWN = re.compile(r"\s*cat\b[^|>\n]*")
"""A document printed to the terminal: a help text, not a script."""
_CONTINUED = re.compile(r"\\\r?\n")
_ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)(\+?)=")
_BARE = re.compile(r"\$(?:([A-Za-z_]\w*)|\{([A-Za-z_]\w*)\})")
_QUOTED = re.compile(r"'[^']*'|\"(?:[^\"\\]|\\.)*\"", re.S)
"""One pair of quotes, and nothing else."""
_ESCAPE = re.compile(r"\\(?=[\"\\$`])(?s:.)")
_SHELL = re.compile(r"(?:\S*/)?(?:ba|z|da|a|k)?sh")
_DEEPEST = 3
"""Commands in quotes in commands in quotes."""
_MOST_LISTED = 20_000
"""Words of variables, over a script; lists of lists that double each other end here."""
_MOST_EXPANDED = 4 << 20
"""Letters that variables may add to a script, each of which may hold the one before."""
_MOST_UNCLOSED, _MOST_DOCUMENTS = 5, 1000
"""At most this many unclosed `$(` in quotes, and here-documents, are searched for in a script: each may be a search to
its end."""


@dataclass(frozen=True, slots=True)
class Token:
    """One word of a command."""

    text: str
    """The word without quotes, variables replaced if the script sets them."""
    raw: str
    """As written."""
    start: int
    """Character offset in the script."""
    end: int
    line: int
    first: bool
    """Whether it is the first word of its command."""
    group: int = 0
    """Words of one pair of quotes have one number; 0: unquoted; below 0: after a quoted command, so its arguments."""

    @property
    def nested(self) -> bool:
        """Whether it is in quotes that hold several words: `bash -c "..."`, `ARGS="..."`."""
        return self.group > 0


def read_tokens(script: str) -> Iterator[Token]:
    """The words of a script, as its commands get them; comments and operators are left out.

    The words of a variable come where it is used, with the places at which they are written.

    >>> [t.text for t in read_tokens("run --a 1 \\\\\\n  --b 'x y' # no\\n")]
    ['run', '--a', '1', '--b', 'x y']
    >>> [(t.text, t.start) for t in read_tokens("srun bash -c 'run --a 1'") if t.nested]
    [('run', 14), ('--a', 18), ('1', 22)]
    """
    yield from _Reader(script).read(_Scope(script))


class _Scope:
    """A text that is read as words, and the positions of its characters in the script."""

    def __init__(
        self,
        text: str,
        outer: _Scope | None = None,
        starts: Sequence[int] = (),
        ends: Sequence[int] = (),
        words: bool = False,
    ) -> None:
        self.text, self.starts, self.ends = text, starts, ends
        self.words = words
        """It is a list of words: lines and operators do not start commands."""
        self.group = starts[0] if starts else 0
        self.depth: int = outer.depth + 1 if outer is not None else 0
        self.variables: MutableMapping[str, str] = ChainMap({}, outer.variables) if outer is not None else {}
        self.lists: MutableMapping[str, tuple[Token, ...]] = ChainMap({}, outer.lists) if outer is not None else {}

    def inside(self, position: int, raw: str, words: bool = False) -> _Scope:
        """The content of a pair of quotes that begins here; in double quotes some backslashes are not part of it."""
        escapes = {m.start() for m in _ESCAPE.finditer(raw, 1, len(raw) - 1)} if raw[0] == '"' else set()
        places = [i for i in range(1, len(raw) - 1) if i not in escapes]
        starts = [self.span(position + i - (i - 1 in escapes), position + i + 1)[0] for i in places]
        ends = [self.span(position + i, position + i + 1)[1] for i in places]
        return _Scope("".join(raw[i] for i in places), self, starts, ends, words)

    def span(self, start: int, end: int) -> tuple[int, int]:
        """From characters of the text to those of the script."""
        return (self.starts[start], self.ends[end - 1]) if self.depth else (start, end)

    def until(self, end: int) -> _Scope:
        """The same up to a place."""
        part = copy.copy(self)
        part.text = self.text[:end]
        return part


class _Reader:
    """One script."""

    def __init__(self, script: str) -> None:
        self.script = script
        self.newlines = [match.start() for match in re.finditer("\n", script)]
        self.listed = self.expanded = 0
        self.unclosed = self.documents = 0

    def read(self, scope: _Scope, position: int = 0) -> Iterator[Token]:
        """The words of a scope in order."""
        text, first = scope.text, not scope.words
        before = ("", "")  # the last word that is no option, and the last word
        group = scope.group
        documents: list[tuple[str, str]] = []
        while position < len(text):
            char = text[position]
            if char == "\\" and (line_end := _CONTINUED.match(text, position)):
                position = line_end.end()
            elif char in " \t\r":
                position += 1
            elif char == "#" and (position == 0 or text[position - 1] in " \t\n;|&("):
                end = text.find("\n", position)
                position = len(text) if end < 0 else end
            elif document := _HEREDOC.match(text, position):
                position = self._word_end(text, document.end())
                documents.append((document[1], unquote(text[document.end() : position], {})))
            elif redirection := _REDIRECTION.match(text, position):
                position = redirection.end() if redirection[1] is None else self._word_end(text, redirection.end())
            elif char == "\n" and documents:
                shown = _SHOWN.fullmatch(text, text.rfind("\n", 0, position) + 1, position) is not None
                position += 1
                for ending in documents:
                    if (last := self._document_end(text, position, ending)) is not None:
                        yield from () if shown else self.read(scope.until(last.start()), position)
                        position = last.end()
                documents, first, group = [], not scope.words, scope.group
            elif char in _SPECIAL:
                if char in ";|&(\n" and not scope.words:
                    first, group = True, scope.group
                elif not scope.words:
                    first = False
                position += 1
            else:
                end = self._word_end(text, position)
                raw = text[position:end]
                word = unquote(raw, scope.variables if self.expanded < _MOST_EXPANDED else {})
                self.expanded += max(len(word) - len(raw), 0)
                if scope.depth < _DEEPEST and _is_command(before, raw):
                    yield from self.read(scope.inside(position, raw))
                    group = -1
                else:
                    yield from self._word(scope, position, raw, word, first, group)
                first = first and self._assign(scope, position, raw, word)
                before = (before[0] if raw.startswith("-") else raw, raw)
                position = end

    def _word(self, scope: _Scope, position: int, raw: str, word: str, first: bool, group: int) -> Iterator[Token]:
        """The word, or those of the variable that it is."""
        bare = _BARE.fullmatch(raw)
        name = bare[1] or bare[2] if bare else ""
        listed = scope.lists.get(name, ())
        if listed and self.listed + len(listed) <= _MOST_LISTED:
            self.listed += len(listed)
            yield replace(listed[0], first=first)
            yield from listed[1:]
            return
        if bare and re.search(r"\s", word):
            word = raw  # several words with unknown positions
        start, end = scope.span(position, position + len(raw))
        line = bisect_left(self.newlines, start) + 1
        yield Token(word, self.script[start:end], start, end, line, first, group)

    def _assign(self, scope: _Scope, position: int, raw: str, word: str) -> bool:
        """Keeps what the first word of a command sets; whether the next one may also be its first."""
        found = _ASSIGNMENT.match(word)
        if found is None:
            return word in ("export", "env", "sudo")
        name = found[1]
        before = scope.variables.get(name, "") if found[2] else ""
        kept = scope.lists.get(name, ()) if found[2] else ()
        own = _ASSIGNMENT.match(raw)
        value = raw[own.end() :] if own else ""
        words: tuple[Token, ...] = ()
        if (
            scope.depth < _DEEPEST
            and _QUOTED.fullmatch(value)
            and re.search(r"\s", value)
            and (kept or not before.strip())
        ):
            inside = scope.inside(position + len(raw) - len(value), value, words=True)
            words = (*kept, *islice(self.read(inside), _MOST_LISTED))
        scope.variables[name] = before + word[found.end() :]
        scope.lists[name] = words if len(words) < _MOST_LISTED else ()
        return True

    def _document_end(self, text: str, position: int, ending: tuple[str, str]) -> re.Match[str] | None:
        """The line that ends a here-document; None if it has no end, so that reading continues."""
        if self.documents > _MOST_DOCUMENTS:
            return None
        tabs = r"\t*" if ending[0] else ""
        found = re.compile(rf"^{tabs}{re.escape(ending[1])}\r?(?:\n|\Z)", re.M).search(text, position)
        self.documents += 1 if found else _MOST_DOCUMENTS // 20  # a search to the end of the text
        return found

    def _word_end(self, text: str, position: int) -> int:
        quote = ""
        while position < len(text):
            char = text[position]
            if char == "$" and quote != "'" and text[position + 1 : position + 2] == "(":
                position = self._substitution_end(text, position, quote)
            elif quote:
                if char == "\\" and quote == '"':
                    position += 1
                elif char == quote:
                    quote = ""
            elif char == "$" and (ansi := ANSI_QUOTED.match(text, position)):
                position = ansi.end() - 1
            elif char in "'\"":
                quote = char
            elif char == "\\":
                if text.startswith(("\\\n", "\\\r\n"), position):
                    return position
                position += 1
            elif char in " \t\r" or char in _SPECIAL:
                return position
            position += 1
        return len(text)

    def _substitution_end(self, text: str, position: int, quote: str) -> int:
        """The last character of `$(...)`; of one in quotes that does not close, the dollar alone."""
        if quote and self.unclosed >= _MOST_UNCLOSED:
            return position
        end = closing_command(text, position + 1)
        if quote and end >= len(text):
            self.unclosed += 1
            return position
        return end


def _is_command(before: tuple[str, str], raw: str) -> bool:
    """Whether a word in quotes is the command of a shell: `bash -c "..."`."""
    shell, option = before
    right = re.fullmatch(r"-[a-z]*c", option) is not None and _SHELL.fullmatch(shell) is not None
    return right and len(raw) > 2 and _QUOTED.fullmatch(raw) is not None
