"""Tokens of a shell script with their places, so that a value can be found and changed.

A reader of words, not an interpreter: quotes, escapes, comments, line continuations, simple variables
(`BS=4 ... --bs ${BS}`), defaults (`${1:-8}`) and whole-number arithmetic (`$((BS * 2))`) are understood; loops and
functions are read as words.
"""

from __future__ import annotations

import ast
import functools
import operator
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

_SPECIAL = frozenset(";|&()<>\n")
_REDIRECTION = re.compile(r"(?:\d*|&)[<>]{1,3}(?:&\d+|&-|(&?[ \t]*)(?=[^\s;|&()<>]))")
"""`2>&1`, `> log`, `&> log`, `< input`, `<<EOF`; with group 1 a target follows that is no argument."""
_LONGEST_WORD = 64 * 1024
"""Variables that double each other end here."""
_ASSIGNMENT = re.compile(r"^(?:export\s+)?([A-Za-z_]\w*)=")
_VARIABLE = re.compile(r"\$\{?([A-Za-z_]\w*|\d)(?::-([^}]*))?\}?")
_NAME = re.compile(r"\$?\{?\b([A-Za-z_]\w*)\b\}?")
_SHELL = re.compile(r"(?:\S*/)?(?:ba|z|da|a|k)?sh")
_DEEPEST = 3
"""Commands in quotes in commands in quotes, and defaults in defaults."""
_ESCAPE = re.compile(r"\\(?=[\"\\$`])(?s:.)")
_SETTING = re.compile(r"\s(?:-{1,2}[A-Za-z]|[+~]{0,2}[A-Za-z_][\w.]*=)")
_USE = re.compile(r"(?<![\"'\w$])\$(?:([A-Za-z_]\w*)|\{([A-Za-z_]\w*)\})(?![\w\"'])")
_LONGEST_SUM = 200
_ARITHMETIC: dict[type[ast.operator], Callable[[int, int], int]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: lambda a, b: abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1),  # towards zero, as the shell divides
    ast.Mod: lambda a, b: abs(a) % abs(b) * (-1 if a < 0 else 1),
}


@dataclass(frozen=True, slots=True)
class Token:
    """One word of a command."""

    text: str
    """The word without quotes, variables replaced where the script sets them."""
    raw: str
    """As written."""
    start: int
    """Character offset in the script."""
    end: int
    line: int
    first: bool
    """Whether it is the first word of its command."""
    nested: bool = False
    """Whether it stands in quotes that hold several words: `bash -c "..."`, `ARGS="..."`."""


def read_tokens(script: str) -> Iterator[Token]:
    """The words of a script in order; comments and operators are left out.

    What a shell is given in quotes (`bash -c "..."`) is read as words of its own, and so is a variable that is used as words.

    >>> [t.text for t in read_tokens("run --a 1 \\\\\\n  --b 'x y' # no\\n")]
    ['run', '--a', '1', '--b', 'x y']
    >>> [(t.text, t.start) for t in read_tokens("srun bash -c 'run --a 1'") if t.nested]
    [('run', 14), ('--a', 18), ('1', 22)]
    """
    yield from _tokens(script, {}, 0)


def _tokens(script: str, variables: dict[str, str], depth: int) -> Iterator[Token]:
    position, line, first = 0, 1, True
    length = len(script)
    before = ("", "")  # the last word that is no option, and the last word
    lists: set[str] = set()
    while position < length:
        char = script[position]
        if char == "\n":
            first, line = True, line + 1
            position += 1
        elif char == "\\" and script[position : position + 2] == "\\\n":
            line += 1
            position += 2
        elif char == "\\" and script[position : position + 3] == "\\\r\n":
            line += 1
            position += 3
        elif char in " \t\r":
            position += 1
        elif char == "#" and (position == 0 or script[position - 1] in " \t\n;|&("):
            end = script.find("\n", position)
            position = length if end < 0 else end
        elif redirection := _REDIRECTION.match(script, position):
            position = _word_end(script, redirection.end()) if redirection[1] else redirection.end()
        elif char in _SPECIAL:
            first = char in ";|&("
            position += 1
        else:
            end = _word_end(script, position)
            raw = script[position:end]
            word = _unquote(raw, variables)
            assigned = _ASSIGNMENT.match(word) if first else None
            if assigned:
                variables[assigned[1]] = word[assigned.end() :]
            listed = assigned is not None and _is_list(script, assigned[1], raw)
            if depth < _DEEPEST and listed:
                yield from _inner(script, position, raw, line, variables, depth, skip=raw.index("=") + 1)
                lists.add(assigned[1])  # type: ignore[index]
            elif depth < _DEEPEST and _is_command(before, raw):
                yield from _inner(script, position, raw, line, variables, depth)
            elif not (raw.startswith("$") and raw.strip("${}") in lists):  # its words were read where they are set
                yield Token(word, raw, position, end, line, first, depth > 0)
            first = first and (assigned is not None or word in ("export", "env", "sudo"))
            before = (before[0] if raw.startswith("-") else raw, raw)
            line += raw.count("\n")
            position = end


def _is_list(script: str, name: str, raw: str) -> bool:
    """Whether a variable is set to words in quotes, and used as words: `ARGS="--a 1 --b 2"; run $ARGS`."""
    value = raw[raw.index("=") + 1 :]
    if not (len(value) > 2 and value[0] in "'\"" and value[-1] == value[0] and _word_end(value, 0) == len(value)):
        return False
    return _SETTING.search(value) is not None and name in _used(script)


@functools.lru_cache(maxsize=4)
def _used(script: str) -> frozenset[str]:
    """Variables that stand in a script without quotes."""
    return frozenset(match[1] or match[2] for match in _USE.finditer(script))


def _is_command(before: tuple[str, str], raw: str) -> bool:
    """Whether a word in quotes is the command of a shell: `bash -c "..."`."""
    shell, option = before
    quoted = len(raw) > 2 and raw[0] in "'\"" and raw[-1] == raw[0] and _word_end(raw, 0) == len(raw)
    return quoted and _SHELL.fullmatch(shell) is not None and re.fullmatch(r"-[a-z]*c", option) is not None


def _inner(
    script: str, position: int, raw: str, line: int, variables: dict[str, str], depth: int, skip: int = 0
) -> Iterator[Token]:
    """Words in quotes, at their places in the script: of a command, or behind `skip` characters of an assignment, of a list."""
    position, raw = position + skip, raw[skip:]
    places = list(range(1, len(raw) - 1))
    if raw[0] == '"':  # a backslash before these is gone
        escapes = {match.start() for match in _ESCAPE.finditer(raw, 1, len(raw) - 1)}
        places = [place for place in places if place not in escapes]
    inner, seen = "".join(raw[place] for place in places), position
    for token in _tokens(inner, dict(variables), depth + 1):
        start, end = position + places[token.start], position + places[token.end - 1] + 1
        line, seen = line + script.count("\n", seen, start), start
        yield Token(token.text, script[start:end], start, end, line, token.first and not skip, True)


def _word_end(script: str, position: int) -> int:
    quote = ""
    while position < len(script):
        char = script[position]
        if quote:
            if char == "\\" and quote == '"':
                position += 1
            elif char == quote:
                quote = ""
        elif char in "'\"":
            quote = char
        elif char == "\\":
            if script.startswith(("\\\n", "\\\r\n"), position):
                return position
            position += 1
        elif char == "$" and script[position : position + 2] == "$(":
            position = _closing(script, position + 1)
        elif char in " \t\r" or char in _SPECIAL:
            return position
        position += 1
    return len(script)


def _closing(script: str, position: int, pair: str = "()") -> int:
    depth = 0
    while position < len(script):
        depth += {pair[0]: 1, pair[1]: -1}.get(script[position], 0)
        if depth == 0:
            return position
        position += 1
    return position


def _unquote(raw: str, variables: dict[str, str], depth: int = 0) -> str:
    """The word as the shell would pass it; unknown variables stay as they are."""
    out, quote, i = [], "", 0
    while i < len(raw):
        char = raw[i]
        if quote == "'":
            out.append("" if char == "'" else char)
            quote = "" if char == "'" else quote
        elif char == "\\" and i + 1 < len(raw):
            i += 1
            out.append("" if raw[i] == "\n" else raw[i])
        elif char in "'\"":
            quote = "" if quote == char else quote or char
            if quote and quote != char:
                out.append(char)
        elif raw.startswith("$((", i) and (end := _closing(whole := raw[i : i + _LONGEST_SUM], 1)) < len(whole):
            result = _compute(whole[3 : end - 1], variables)
            out.append(whole[: end + 1] if result is None else str(result))
            i += end
        elif char == "$" and (match := _VARIABLE.match(raw, i)):
            known = variables.get(match[1])
            last = match.end() - 1
            if match[2] is not None and raw[i + 1] == "{":  # a default, which may hold variables of its own
                last = _closing(raw, i + 1, "{}")
                if known is None and last < len(raw) and depth < _DEEPEST:
                    known = _unquote(raw[match.start(2) : last], variables, depth + 1)
            out.append(raw[i : last + 1] if known is None else known)
            i = last
        else:
            out.append(char)
        i += 1
    return "".join(out)[:_LONGEST_WORD]


def _compute(expression: str, variables: dict[str, str]) -> int | None:
    """The value of an arithmetic expansion of whole numbers and known variables; None for any other.

    >>> _compute("GPUS * 2 - ${LESS}", {"GPUS": "8", "LESS": "1"}), _compute("GPUS", {})
    (15, None)
    """
    words = _NAME.sub(lambda match: variables.get(match[1], match[0])[:_LONGEST_SUM], expression[: _LONGEST_SUM + 1])
    if len(words) > _LONGEST_SUM:
        return None
    try:
        return _value(ast.parse(words.strip(), mode="eval").body)
    except (SyntaxError, ValueError, ZeroDivisionError, RecursionError):
        return None


def _value(node: ast.AST) -> int:
    if isinstance(node, ast.Constant) and type(node.value) is int:
        return node.value
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return -_value(node.operand)
    if isinstance(node, ast.BinOp) and type(node.op) in _ARITHMETIC:
        return _ARITHMETIC[type(node.op)](_value(node.left), _value(node.right))
    raise ValueError("not whole-number arithmetic")
