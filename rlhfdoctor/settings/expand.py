"""Expands a word of a shell script: quotes, variables, defaults, whole-number arithmetic."""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable, Mapping

LONGEST_WORD = 64 * 1024
"""Variables that double each other end here."""
_VARIABLE = re.compile(r"\$\{?([A-Za-z_]\w*|\d)(?::-([^}]*))?\}?")
_ESCAPED = re.compile(r"((?:\\x[0-9a-fA-F]{1,2})+)|\\(.)", re.S)
ANSI_QUOTED = re.compile(r"\$'(?:[^'\\]|\\.)*'", re.S)
"""`$'it\\'s'`, in which a backslash escapes."""
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r"}
_NAME = re.compile(r"\$?\{?\b([A-Za-z_]\w*)\b\}?")
_COMMAND_PART = re.compile(r"'[^']*'|\"(?:[^\"\\]|\\.)*\"|\\.|[()]", re.S)
_DEEPEST = 3
"""Defaults in defaults."""
_LONGEST_SUM = 200
_ARITHMETIC: dict[type[ast.operator], Callable[[int, int], int]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: lambda a, b: abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1),  # towards zero, as the shell divides
    ast.Mod: lambda a, b: abs(a) % abs(b) * (-1 if a < 0 else 1),
}


def _unescape(found: re.Match[str]) -> str:
    """A character that is written by its letter, or characters by their bytes.

    >>> _ESCAPED.sub(_unescape, r"a\\tb\\xc3\\xa9\\q")
    'a\\tbéq'
    """
    if found[1]:
        return bytes(int(number, 16) for number in found[1].split("\\x")[1:]).decode("utf-8", "replace")
    return _ESCAPES.get(found[2], found[2])


def unquote(raw: str, variables: Mapping[str, str], depth: int = 0) -> str:
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
        elif char == "$" and not quote and (ansi := ANSI_QUOTED.match(raw, i)):
            out.append(_ESCAPED.sub(_unescape, ansi[0][2:-1]))
            i = ansi.end() - 1
        elif raw.startswith("$((", i) and (end := closing(whole := raw[i : i + _LONGEST_SUM], 1)) < len(whole):
            result = _compute(whole[3 : end - 1], variables)
            out.append(whole[: end + 1] if result is None else str(result))
            i += end
        elif char == "$" and (match := _VARIABLE.match(raw, i)):
            known = variables.get(match[1])
            last = match.end() - 1
            if match[2] is not None and raw[i + 1] == "{":  # a default, which may hold variables of its own
                last = closing(raw, i + 1, "{}")
                if not known and last < len(raw) and depth < _DEEPEST:
                    known = unquote(raw[match.start(2) : last], variables, depth + 1)
            out.append(raw[i : last + 1] if known is None else known)
            i = last
        else:
            out.append(char)
        i += 1
    return "".join(out)[:LONGEST_WORD]


def _compute(expression: str, variables: Mapping[str, str]) -> int | None:
    """The value of an arithmetic expansion of whole numbers and known variables; None for anything else.

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


def closing(script: str, position: int, pair: str = "()") -> int:
    """The position of the matching closing bracket; the length if there is none."""
    depth = 0
    while position < len(script):
        depth += {pair[0]: 1, pair[1]: -1}.get(script[position], 0)
        if depth == 0:
            return position
        position += 1
    return position


def closing_command(script: str, position: int) -> int:
    """The same for a command in `$(...)`, in which quotes may hold brackets."""
    start, depth = position, 0
    for part in _COMMAND_PART.finditer(script, position):
        depth += {"(": 1, ")": -1}.get(part[0], 0)
        if depth == 0:
            return part.start()
    return closing(script, start)  # quotes that do not pair
