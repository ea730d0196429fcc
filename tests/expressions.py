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
from collections.abc import Callable, Iterator
from pathlib import Path
from re import _constants as c  # type: ignore[attr-defined]
from re import _parser as parser  # type: ignore[attr-defined]
from typing import Any, NamedTuple

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


class Text(NamedTuple):
    """A text that an expression is slow on."""

    lead: str
    body: str
    end: str

    def of(self, length: int) -> str:
        """With the body so often that it has about this length."""
        return self.lead + self.body * (length // len(self.body)) + self.end


class Lines:
    """Adversarial texts of one expression: what leads to a repeat, its body over and over, and an end that fails."""

    def __init__(self, text: str | bytes, flags: int) -> None:
        """Raises re.error if it is none."""
        self._random = random.Random(7)
        self.tree = parser.parse(text, flags)
        self._bytes = isinstance(text, bytes)

    def __iter__(self) -> Iterator[Text]:
        """Each once."""
        seen: set[tuple[str, str]] = set()
        for lead, body, rest in self._repeats(list(self.tree), "", ""):
            for begin, again in ((lead, body), ("", lead[-40:] + body), ("", body)):
                if again and (begin, again) not in seen:
                    seen.add((begin, again))
                    yield Text(begin, again, "\0" + rest)
                    yield Text(begin, again, "")

    def _repeats(self, items: list[Any], lead: str, rest: str) -> Iterator[tuple[str, str, str]]:
        """What leads to each repeat, its body, what would follow: an end that fails with it is looked at, at least."""
        for place, (kind, value) in enumerate(items):
            before, behind = lead + self._sample(items[:place]), self._sample(items[place + 1 :]) + rest
            if kind in (c.MAX_REPEAT, c.MIN_REPEAT, c.POSSESSIVE_REPEAT):
                _, most, body = value
                if most > LEAST_REPEATS:
                    one = self._sample(list(body))
                    yield before, one, behind
                    if self.tree.state.flags & re.MULTILINE:
                        yield before, before + one + "\n", behind
                    yield before, one + self._sample(items[place + 1 : place + 2]), behind
                yield from self._repeats(list(body), before, behind)
            else:
                for inner in self._parts(kind, value):
                    yield from self._repeats(inner, before, behind)

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


LENGTH = 1 << 12
CALM_S = 0.01
"""Of processor time: faster than this on a text of `LENGTH` is not looked at."""
GROWTH = 8.0
"""Four times as long a text may take so much longer: 4 times where it grows linearly, 16 where quadratically."""
LEAST_ROUNDS, ROUNDS = 3, 24
"""Other work on the machine only ever adds time, so the least of many is what a search takes; near the border it is measured again."""
HANGS_S = 1.0
WINDOW = 1 << 15
"""Half of that of a line as the doctor reads it (logs/blocks.py)."""
MOST_S = 1.0
"""Of processor time that the longer three quarters of a window may take."""


class Hangs(Exception):
    """A search took too long."""


def seconds(expression: re.Pattern[Any], text: Any) -> float:
    """Of processor time for one search; at most `HANGS_S`."""

    def stop(*_: object) -> None:
        raise Hangs

    before = signal.signal(signal.SIGVTALRM, stop)
    try:
        signal.setitimer(signal.ITIMER_VIRTUAL, HANGS_S)
        start = time.process_time()
        expression.search(text)
        return time.process_time() - start
    except Hangs:
        return HANGS_S
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)


def slow(expression: Expression, length: int = LENGTH, calm_s: float = CALM_S) -> Text | None:
    """A text of this length on which a search grows faster than linearly, if one is found."""
    text, flags = expression
    ready = re.compile(text, flags)
    for made in Lines(text, flags):

        def of(length: int, made: Text = made) -> Any:
            return made.of(length).encode("latin-1", "replace") if isinstance(text, bytes) else made.of(length)

        quarter, whole = of(length // 4), of(length)
        if grows(lambda: seconds(ready, quarter), lambda: seconds(ready, whole), calm_s):  # noqa: B023
            return made
    return None


def grows(part: Callable[[], float], whole: Callable[[], float], calm_s: float) -> bool:
    """Whether four times as much takes far more than four times as long, beyond what is calm.

    Args:
        part: takes a quarter and gives the seconds; `HANGS_S` where it was stopped.
        whole: takes all of it, likewise.
    """
    least_part = least_whole = float("inf")
    for round_ in range(1, ROUNDS + 1):
        least_part = min(least_part, part())
        if least_part >= HANGS_S:
            return True
        least_whole = min(least_whole, whole())
        if least_whole >= HANGS_S:
            return True
        if least_whole < calm_s:
            return False
        far = not 0.75 * GROWTH * least_part < least_whole < 1.5 * GROWTH * least_part
        if far and round_ >= LEAST_ROUNDS:
            break
    return least_whole > GROWTH * least_part


def reached(text: Text, work: Path) -> list[str]:
    """Where a text makes the doctor slow: the texts that an expression is given are mostly short, or looked at before."""
    from rlhfdoctor import analyze
    from rlhfdoctor.privacy.redact import Redactor
    from rlhfdoctor.privacy.secrets import cut_words
    from rlhfdoctor.sources.vllm import parse_metrics

    def folder(length: int) -> None:
        for name in ("job.log", "dmesg.txt", "launch.sh", "config.yaml", "ds_config.json"):
            (work / name).write_text(f"{text.of(length)}\n", errors="replace")
        analyze([str(work)])

    def redactor(length: int) -> None:
        made = Redactor()
        made.learn(text.of(length))
        made.text(text.of(length))

    ways: dict[str, Callable[[int], object]] = {
        "folder": folder,
        "bundle": redactor,
        "recorder": lambda n: cut_words([text.of(n)]),
        "engine": lambda n: parse_metrics(text.of(n)),
    }
    return [name for name, way in ways.items() if _is_slow(way)]


def _is_slow(way: Callable[[int], object]) -> bool:
    """Whether the longer three quarters of a window take long, the least of a few times."""
    way(0)  # what is compiled and loaded once
    return all(_cpu_s(way, WINDOW) - _cpu_s(way, WINDOW // 4) > MOST_S for _ in range(LEAST_ROUNDS))


def _cpu_s(way: Callable[[int], object], length: int) -> float:
    start = time.process_time()
    way(length)
    return time.process_time() - start


def slow_patterns() -> Iterator[tuple[str, Text]]:
    """Patterns of logs that are slow on a long line, which reaches them as it is."""
    from rlhfdoctor.logs.events import PATTERNS

    for text in sorted({one.regex for one in PATTERNS}):
        made = slow((text, re.ASCII), WINDOW, CALM_S * WINDOW / LENGTH)
        if made is not None:
            yield text, made


def main() -> int:
    """Prints how many there are, then each that is slow."""
    with tempfile.TemporaryDirectory() as work:
        found = sorted(compiled(Path(work)) | literals(), key=repr)
    print(f"{len(found)} expressions", flush=True)
    faults = 0
    for pattern, text in slow_patterns():
        faults += 1
        print(f"pattern of logs: {pattern!r}\n    {text}", flush=True)
    alone = 0
    for expression in found:
        made = slow(expression)
        if made is None:
            continue
        alone += 1
        with tempfile.TemporaryDirectory() as work:
            ways = reached(made, Path(work))
        if ways or "--all" in sys.argv:
            faults += bool(ways)
            print(f"{expression[0]!r}\n    {made} {ways}", flush=True)
    print(f"{alone} are slow on a text of {LENGTH} characters that is given to them alone; {faults} faults")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
