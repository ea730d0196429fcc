"""Every regular expression of the package, and lines that make a backtracking one slow.

Expressions are those that are compiled while all modules are imported, all patterns of logs are compiled, a folder is
diagnosed and a bundle is made of it, and those that stand as literals in calls of `re`.
"""

from __future__ import annotations

import ast
import importlib
import pkgutil
import random
import re
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from re import _constants as c  # type: ignore[attr-defined]
from re import _parser as parser  # type: ignore[attr-defined]
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
CALLS = frozenset({"compile", "search", "match", "fullmatch", "sub", "subn", "split", "findall", "finditer"})
Expression = tuple[str | bytes, int]
"""Text and flags."""
LEAST_REPEATS = 32
"""A repeat that may go on longer than this is tried."""


def literals() -> set[Expression]:
    """Those that stand in calls of `re`, without their flags but those that are written inside."""
    found: set[Expression] = set()
    for path in sorted((ROOT / "rlhfdoctor").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if (
                isinstance(node, ast.Call)
                and isinstance(node.func, ast.Attribute)
                and node.func.attr in CALLS
                and isinstance(node.func.value, ast.Name)
                and node.func.value.id == "re"
                and node.args
                and isinstance(node.args[0], ast.Constant)
                and isinstance(node.args[0].value, (str, bytes))
            ):
                found.add((node.args[0].value, 0))
    return found


def compiled(work: Path) -> set[Expression]:
    """Those that are compiled by this process; call it in a fresh one.

    Args:
        work: an empty folder.
    """
    found: set[Expression] = set()
    plain = parser.parse

    def watched(text: Any, flags: int = 0, state: Any = None) -> Any:
        frame = sys._getframe(1)
        while frame is not None:
            name = str(frame.f_globals.get("__name__", ""))
            if name.startswith("rlhfdoctor"):
                found.add((text, int(flags)))
            if not name.startswith("re"):
                break
            frame = frame.f_back  # type: ignore[assignment]
        return plain(text, flags, state)

    parser.parse = watched
    try:
        _use(work)
    finally:
        parser.parse = plain
    return found


def _use(work: Path) -> None:
    import rlhfdoctor

    for module in pkgutil.walk_packages(rlhfdoctor.__path__, "rlhfdoctor."):
        if not module.name.endswith("__main__"):
            try:
                importlib.import_module(module.name)
            except ImportError:
                continue
    from rlhfdoctor.core.bundle import make_bundle
    from rlhfdoctor.logs import pattern
    from rlhfdoctor.logs.events import PATTERNS

    for one in PATTERNS:
        pattern.compiled(one.regex)
    cases = sorted(ROOT.glob("rules/*/fires/*"))
    for case in (*cases[::9], ROOT / "samples" / "openrlhf-save-kill" / "run"):
        rlhfdoctor.analyze([str(case)])
    make_bundle([str(cases[0])], work / "bundle.tar.gz")


class Lines:
    """Adversarial texts of one expression: what leads to a repeat, its body over and over, and an end that fails."""

    def __init__(self, text: str | bytes, flags: int) -> None:
        """Raises re.error if it is none."""
        self._random = random.Random(7)
        self.tree = parser.parse(text, flags)
        self._bytes = isinstance(text, bytes)

    def __iter__(self) -> Iterator[tuple[str, str]]:
        """Lead and body."""
        seen: set[tuple[str, str]] = set()
        for lead, body in self._repeats(list(self.tree), ""):
            for pair in ((lead, body), ("", lead[-40:] + body), ("", body)):
                if pair[1] and pair not in seen:
                    seen.add(pair)
                    yield pair

    def _repeats(self, items: list[Any], lead: str) -> Iterator[tuple[str, str]]:
        for place, (kind, value) in enumerate(items):
            before = lead + self._sample(items[:place])
            if kind in (c.MAX_REPEAT, c.MIN_REPEAT, c.POSSESSIVE_REPEAT):
                _, most, body = value
                if most > LEAST_REPEATS:
                    one = self._sample(list(body))
                    yield before, one
                    yield before, one + self._sample(items[place + 1 : place + 2])
                yield from self._repeats(list(body), before)
            else:
                for inner in self._parts(kind, value):
                    yield from self._repeats(inner, before)

    @staticmethod
    def _parts(kind: Any, value: Any) -> list[list[Any]]:
        if kind is c.SUBPATTERN:
            return [list(value[3])]
        if kind is c.BRANCH:
            return [list(branch) for branch in value[1]]
        if kind in (c.ASSERT, c.ASSERT_NOT):
            return [list(value[1])]
        if kind is c.ATOMIC_GROUP:
            return [list(value)]
        if kind is c.GROUPREF_EXISTS:
            return [list(part) for part in value[1:] if part]
        return []

    def _sample(self, items: list[Any]) -> str:
        """A text that these parts match, if nothing looks around."""
        found = ""
        for kind, value in items:
            if kind is c.LITERAL:
                found += chr(value)
            elif kind is c.NOT_LITERAL:
                found += "a" if value != ord("a") else "b"
            elif kind is c.ANY:
                found += "a"
            elif kind is c.IN:
                found += self._one_of(value)
            elif kind in (c.MAX_REPEAT, c.MIN_REPEAT, c.POSSESSIVE_REPEAT):
                found += self._sample(list(value[2])) * max(value[0], 1 if value[1] <= LEAST_REPEATS else 0)
            elif kind is c.BRANCH:
                found += self._sample(list(self._random.choice(value[1])))
            elif kind in (c.SUBPATTERN, c.ATOMIC_GROUP):
                found += self._sample(self._parts(kind, value)[0])
        return found

    def _one_of(self, choices: list[Any]) -> str:
        negated = choices and choices[0][0] is c.NEGATE
        for letter in "a0 A_-./:=\"'(),\t\n[]{}<>+%@#é中" if not self._bytes else "a0 A_-./:=\"'(),\t\n[]{}<>+%@#\xe4":
            if any(self._holds(kind, value, letter) for kind, value in choices if kind is not c.NEGATE) != bool(negated):
                return letter
        literal = next((value for kind, value in choices if kind is c.LITERAL), None)
        ranged = next((value for kind, value in choices if kind is c.RANGE), None)
        return chr(literal) if literal is not None else chr(ranged[0]) if ranged is not None else "a"

    @staticmethod
    def _holds(kind: Any, value: Any, letter: str) -> bool:
        if kind is c.LITERAL:
            return ord(letter) == value
        if kind is c.RANGE:
            return value[0] <= ord(letter) <= value[1]
        if kind is c.CATEGORY:
            named = {
                c.CATEGORY_DIGIT: letter.isdigit(),
                c.CATEGORY_NOT_DIGIT: not letter.isdigit(),
                c.CATEGORY_SPACE: letter.isspace(),
                c.CATEGORY_NOT_SPACE: not letter.isspace(),
                c.CATEGORY_WORD: letter.isalnum() or letter == "_",
                c.CATEGORY_NOT_WORD: not (letter.isalnum() or letter == "_"),
            }
            return named.get(value, False)
        return False


LENGTH = 1 << 15
ENDS = ("\0", "")
CALM_S = 0.05
"""Of processor time: faster than this on a text of `LENGTH` is not looked at, so that noise decides nothing."""
GROWTH = 8.0
"""Twice as long a text, twice over, may take so much longer: 4 where it grows linearly, 16 where quadratically."""
HANGS_S = 3.0


class Hangs(Exception):
    """A search took too long."""


def seconds(expression: re.Pattern[Any], text: Any, times: int = 3) -> float:
    """Of processor time for one search, the least of so many; at most `HANGS_S`."""

    def stop(*_: object) -> None:
        raise Hangs

    best = HANGS_S
    before = signal.signal(signal.SIGVTALRM, stop)
    try:
        for _ in range(times):
            signal.setitimer(signal.ITIMER_VIRTUAL, HANGS_S)
            start = time.process_time()
            expression.search(text)
            best = min(best, time.process_time() - start)
            signal.setitimer(signal.ITIMER_VIRTUAL, 0)
    except Hangs:
        return HANGS_S
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)
    return best


def slow(expression: Expression) -> str | None:
    """What makes it slow, or None."""
    text, flags = expression
    ready = re.compile(text, flags)
    for lead, body in Lines(text, flags):
        for end in ENDS:

            def of(length: int, lead: str = lead, body: str = body, end: str = end) -> Any:
                made = lead + body * (length // len(body)) + end
                return made.encode("latin-1", "replace") if isinstance(text, bytes) else made

            if seconds(ready, of(LENGTH // 8), 1) < CALM_S / 64:
                continue  # if it grows quadratically, all of it is still calm
            part = seconds(ready, of(LENGTH // 4), 1)
            if part < HANGS_S:
                if seconds(ready, of(LENGTH), 1) < max(CALM_S, GROWTH * part):
                    continue
                part = seconds(ready, of(LENGTH // 4))
            whole = seconds(ready, of(LENGTH)) if part < HANGS_S else part
            if whole >= HANGS_S or whole > max(CALM_S, GROWTH * part):
                return f"{whole:.2f} s on {lead!r} + {body!r} x {LENGTH // len(body)} + {end!r}"
    return None


def main() -> int:
    """Prints how many there are, then each that is slow."""
    with tempfile.TemporaryDirectory() as work:
        found = sorted(compiled(Path(work)) | literals(), key=repr)
    print(f"{len(found)} expressions", flush=True)
    faults = 0
    for expression in found:
        why = slow(expression)
        if why is not None:
            faults += 1
            print(f"{expression[0]!r}\n    {why}", flush=True)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
