"""Where in a block of bytes a pattern may match: all patterns at once, by one of two engines.

hyperscan runs all expressions together; where its wheel is missing, the literals that a match must contain are looked
for with `bytes.find`, or the expression itself where it has none. Both only propose places, so what hyperscan is given
is shorter than the expression (`probe`): it reports every end of a match, and one for each line is enough.
"""

from __future__ import annotations

import contextlib
import os
import re
import sys
from collections import defaultdict
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from rlhfdoctor import cache
from rlhfdoctor.logs import anchor
from rlhfdoctor.logs.pattern import Pattern

_NAMED = re.compile(r"\?P<\w+>")

Places = dict[int, list[int]]
"""Positions inside the lines of possible hits, in order, by the pattern's index: there are millions of them."""
Finder = Callable[[bytes], Places]
"""Lines -> places; a pattern may have several in one line."""


def find_with_hyperscan(patterns: Sequence[Pattern]) -> Finder | None:
    """A finder with all expressions in one automaton; None without hyperscan's wheel."""
    try:
        import hyperscan
    except ImportError:
        return None
    database = _load_database(hyperscan, patterns)
    found: defaultdict[int, list[int]] = defaultdict(list)

    def on_match(index: int, _start: int, end: int, _flags: int, _context: object) -> None:
        found[index].append(end - 1 if end else 0)

    def find(lines: bytes) -> Places:
        found.clear()
        database.scan(lines, match_event_handler=on_match)
        return dict(found)

    return find


def _load_database(hyperscan: Any, patterns: Sequence[Pattern]) -> Any:
    """The compiled database, from the user's cache if it matches these patterns, this code and this version."""
    version = f"{hyperscan.__version__}:{os.uname().machine}"
    made_by = Path(anchor.__file__).read_bytes()
    written = "\0".join([version, *(part for p in patterns for part in (p.written, p.look_for))])
    name = f"patterns-{cache.key(made_by + written.encode())}.hs"
    kept = cache.load(name)
    if kept is not None:
        with contextlib.suppress(hyperscan.error):
            database = hyperscan.loadb(kept, hyperscan.HS_MODE_BLOCK)
            database.scratch = hyperscan.Scratch(database)
            return database
    expressions = [_NAMED.sub("?:", pattern.probe).encode() for pattern in patterns]
    database = hyperscan.Database(mode=hyperscan.HS_MODE_BLOCK)
    flags = [hyperscan.HS_FLAG_MULTILINE | hyperscan.HS_FLAG_ALLOWEMPTY] * len(expressions)
    database.compile(
        expressions=expressions,
        ids=list(range(len(expressions))),
        elements=len(expressions),
        flags=flags,
    )
    cache.save(name, hyperscan.dumpb(database))
    return database


def find_with_re(patterns: Sequence[Pattern]) -> Finder:
    """A finder that looks for literals, one after the other."""
    literals: dict[bytes, list[int]] = {}
    without: list[tuple[int, re.Pattern[bytes]]] = []
    for index, pattern in enumerate(patterns):
        needed = required_literals(pattern.regex)
        for literal in needed:
            literals.setdefault(literal, []).append(index)
        if not needed:
            plain = _NAMED.sub("?:", pattern.regex).encode()
            without.append((index, re.compile(plain, re.MULTILINE)))

    def find(lines: bytes) -> Places:
        places: defaultdict[int, list[int]] = defaultdict(list)
        for literal, indexes in literals.items():
            position = lines.find(literal)
            while position >= 0:
                for index in indexes:
                    places[index].append(position)
                position = lines.find(literal, position + 1)
        begin = 0
        for line in lines.split(b"\n") if without else ():  # a blank of an expression is a line's end, too
            for index, regex in without if line else ():
                for match in regex.finditer(line):
                    places[index].append(begin + max(match.end() - 1, match.start()))
            begin += len(line) + 1
        return {index: sorted(positions) for index, positions in places.items()}

    return find


def required_literals(regex: str) -> list[bytes]:
    """Literals of which every match contains at least one; empty when there are none.

    >>> required_literals(r"(?:a|b) out of memory at \\d+")
    [b' out of memory at ']
    >>> required_literals(r"first word|second word")
    [b'first word', b'second word']
    >>> required_literals(r"\\d+ +\\d+")
    []
    """
    parser = import_module("re._parser" if sys.version_info >= (3, 11) else "sre_parse")  # the tree has no public name
    return [literal.encode() for literal in _literals(parser.parse(regex))]


def _literals(tree: Any) -> list[str]:
    """The best set of literals of one sequence: the longest run, or all branches of one choice."""
    best: list[str] = []
    run = ""

    def offer(candidates: list[str]) -> None:
        nonlocal best
        usable = candidates and min(map(len, candidates)) >= 4
        if usable and (not best or min(map(len, candidates)) > min(map(len, best))):
            best = candidates

    for name, value in tree:
        kind = str(name)
        if kind == "LITERAL" and value < 128 and chr(value) != "\n":
            run += chr(value)
            continue
        offer([run])
        run = ""
        if kind == "SUBPATTERN":
            offer(_literals(value[-1]))
        elif kind == "MAX_REPEAT" and value[0] >= 1:
            offer(_literals(value[2]))
        elif kind == "BRANCH":
            branches = [_literals(branch) for branch in value[1]]
            if all(branches):
                offer([literal for branch in branches for literal in branch])
    offer([run])
    return best
