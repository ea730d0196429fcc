"""One pass over the bytes: the hits of all patterns at once; only what is around them is parsed.

Two engines give the same hits. hyperscan runs all expressions together; where its wheel is
missing, the literals that a match must contain are looked for with `bytes.find`, or the
expression itself where it has none. Both only propose places: the result comes from Python's `re` on
the line around the place, so the events are the same with both engines.

A line ends at `\\n`; a carriage return (progress bars) ends a segment, so that the text
after the last redraw is seen. Colour codes are taken out before anything is matched.
"""

from __future__ import annotations

import codecs
import hashlib
import os
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import Any

from rlhfdoctor.logs.pattern import Pattern, compiled
from rlhfdoctor.logs.restore import looks_changed, restored
from rlhfdoctor.vocabulary.names import Kind

BLOCK_BYTES = 512 * 1024
"""Size of a block; blocks end at a line's end if possible."""
_LONGEST_LINE = 4 * 1024 * 1024
_WINDOW = 64 * 1024
_AFTER_BYTES = 64 * 1024
_LINE_BYTES = 256
"""Of a line behind a hit, where many are asked for."""
_LONG = 100
_MOST_LONG = 32
"""How many hits of one pattern get more than `_LONG` lines behind them, in one stream."""
_OVERLAP = 8 * 1024
_ANSI = re.compile(rb"\x1b(?:\[[0-9;?]*[ -/]*[@-~]|\][^\x07\n]*\x07|[@-Z\\-_])")
_NAMED = re.compile(r"\?P<\w+>")
_REST = re.compile(r"(?<!\\)\.\*(\)*)$")
"""The rest of a line at the end of an expression: hyperscan would report each of its characters."""


@dataclass(frozen=True, slots=True)
class Hit:
    """A pattern and the text on which it matched."""

    pattern: Pattern
    match: re.Match[str]
    text: str
    line: int
    """Line number from 1."""
    after: tuple[str, ...]


class Scanner:
    """All patterns, ready to run over any number of streams."""

    def __init__(self, patterns: Sequence[Pattern], engine: str = "auto") -> None:
        """`engine` is `hyperscan`, `re`, or `auto` (hyperscan if it can be imported)."""
        self.patterns = tuple(patterns)
        self.longest_line_cut = False
        """Whether the last stream had a line too long to be seen in one piece."""
        self._long: Counter[int] = Counter()
        self._find = _find_with_hyperscan(self.patterns) if engine != "re" else None
        if self._find is None and engine == "hyperscan":
            raise RuntimeError("hyperscan is not installed")
        self.engine = "re" if self._find is None else "hyperscan"
        if self._find is None:
            self._find = _find_with_re(self.patterns)

    def scan(self, stream: Iterable[bytes], *, restore: bool = False) -> Iterator[Hit]:
        """Hits in the order of the text. Memory is bounded, regardless of the length of a line.

        With `restore`, lines are also read as they were before somebody quoted, wrapped or escaped them.
        """
        line = 1
        self.longest_line_cut = False
        self._long.clear()
        blocks = _blocks(stream)
        current = next(blocks, None)
        alone = True
        while current is not None:
            upcoming = next(blocks, None)
            block, overlap = current
            self.longest_line_cut |= overlap > 0
            hits = self._hits(block, line, upcoming[0] if upcoming else b"", overlap)
            alone = alone and upcoming is None
            if restore and not overlap and (alone or looks_changed(block)):
                hits = self._restored(block, line, list(hits))
            yield from hits
            line += block.count(b"\n", overlap)
            current, alone = upcoming, False

    def _restored(self, block: bytes, line: int, raw: list[Hit]) -> Iterator[Hit]:
        """The hits of a block, or what a version of it gives in their place or in addition.

        Configuration is taken as it is where it is seen at all: its readers undo decoration themselves, line by line.
        """
        seen = {hit.pattern.kind for hit in raw if hit.pattern.kind.scope == "config"}
        begins: dict[int, int] = {}
        read = [raw]
        for version in restored(block.decode("utf-8", "replace")):
            for part in version:
                begins.update((line + place, line + part.first) for place in range(part.first + 1, part.last + 1))
            text = "\n".join(part.text for part in version).encode("utf-8", "replace")
            hits = (hit for hit in self._hits(text, 0, b"", 0) if hit.pattern.kind not in seen)
            read.append([replace(hit, line=line + version[hit.line].first) for hit in hits])
        return iter(raw if len(read) == 1 else _richest(read, begins))

    def _hits(self, block: bytes, line: int, upcoming: bytes, overlap: int) -> Iterator[Hit]:
        assert self._find is not None
        places = self._find(block)
        if not places:
            return
        found: dict[tuple[int, int], int] = {}
        for position, index in places:
            start, end = _segment(block, position)
            if end > overlap:
                found[start, index] = end
        lines_until = 0
        for (start, index), end in sorted(found.items()):
            text = block[start:end].decode("utf-8", "replace")
            pattern = self.patterns[index]
            match = compiled(pattern.regex).search(text)
            if match is None:
                continue
            if overlap and start + len(text[: match.end()].encode("utf-8", "replace")) <= overlap:
                continue  # seen at the end of the block before
            line += block.count(b"\n", max(lines_until, overlap), start)
            lines_until = max(start, lines_until)
            follow = pattern.follow
            if follow > _LONG:
                self._long[index] += 1
                follow = follow if self._long[index] <= _MOST_LONG else 0
            after = _following(block, end, upcoming, follow) if follow else ()
            yield Hit(pattern, match, text, line, after)


def _richest(read: Sequence[list[Hit]], begins: dict[int, int]) -> list[Hit]:
    """For each message, which is a kind with the line where it begins, the hits of the version that says most.

    That is the one with most fields, then with most hits, then with the longest fields.
    """
    best: dict[tuple[Kind, int], tuple[tuple[int, int, int], list[Hit]]] = {}
    for hits in read:
        groups: dict[tuple[Kind, int], list[Hit]] = {}
        for hit in hits:
            groups.setdefault((hit.pattern.kind, begins.get(hit.line, hit.line)), []).append(hit)
        for key, group in groups.items():
            texts = [[text for text in hit.match.groups() if text is not None] for hit in group]
            rank = max(map(len, texts)), len(group), sum(len(text) for found in texts for text in found)
            if key not in best or rank > best[key][0]:
                best[key] = rank, group
    return sorted((hit for _, group in best.values() for hit in group), key=lambda hit: hit.line)


def _blocks(stream: Iterable[bytes]) -> Iterator[tuple[bytes, int]]:
    """(block, bytes of it that are repeated from the block before).

    A block ends at a newline. A line longer than `_LONGEST_LINE` is cut, with an overlap, so that
    a message on the cut is still seen whole.
    """
    rest, overlap = b"", 0
    start = True
    for piece in stream:
        rest += piece.removeprefix(codecs.BOM_UTF8) if start else piece
        start = False
        if len(rest) < BLOCK_BYTES:
            continue
        if b"\x1b" in rest:
            kept = _ANSI.sub(b"", rest[overlap:])
            rest = rest[:overlap] + kept
        cut = rest.rfind(b"\n") + 1
        if cut > overlap:
            yield rest[:cut], overlap
            rest, overlap = rest[cut:], 0
        elif len(rest) >= _LONGEST_LINE:
            yield rest, overlap
            rest, overlap = rest[-_OVERLAP:], _OVERLAP
    if b"\x1b" in rest:
        rest = rest[:overlap] + _ANSI.sub(b"", rest[overlap:])
    if len(rest) > overlap:
        yield rest, overlap


def _segment(block: bytes, position: int) -> tuple[int, int]:
    """Bounds of the text around a place: between newlines or carriage returns, at most a window."""
    low = max(0, position - _WINDOW)
    start = max(block.rfind(b"\n", low, position), block.rfind(b"\r", low, position)) + 1
    if start == 0 and low > 0:
        start = (position // _WINDOW) * _WINDOW - _OVERLAP
        start = max(start, low)
    ends = [found for mark in (b"\n", b"\r") if (found := block.find(mark, position, position + _WINDOW)) >= 0]
    return start, min(ends) if ends else min(len(block), position + _WINDOW)


def _following(block: bytes, end: int, upcoming: bytes, count: int) -> tuple[str, ...]:
    size = max(_AFTER_BYTES, count * _LINE_BYTES)
    text = block[end : end + size]
    if len(block) - end < size:
        text += upcoming[:size]
    lines = _ANSI.sub(b"", text).replace(b"\r", b"\n").split(b"\n")
    kept = [part for part in lines[1 : count * 3] if part.strip()]
    return tuple(part[:2000].decode("utf-8", "replace") for part in kept[:count])


# --- engines -----------------------------------------------------------------------------------

Finder = Callable[[bytes], list[tuple[int, int]]]
"""block -> (position inside the line of a possible hit, index of the pattern)."""


def _find_with_hyperscan(patterns: Sequence[Pattern]) -> Finder | None:
    try:
        import hyperscan
    except ImportError:
        return None
    database = _load_database(hyperscan, [_REST.sub(r"\1", _NAMED.sub("?:", p.regex)).encode() for p in patterns])
    places: list[tuple[int, int]] = []

    def on_match(index: int, _start: int, end: int, _flags: int, _context: object) -> None:
        places.append((max(end - 1, 0), index))

    def find(block: bytes) -> list[tuple[int, int]]:
        places.clear()
        database.scan(block.replace(b"\r", b"\n"), match_event_handler=on_match)
        return list(places)

    return find


def _cache_folder() -> Path:
    """Where compiled patterns are kept; a path that cannot exist if the user has no home."""
    home = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")  # noqa: PTH111  (does not raise)
    return Path(os.devnull if home.startswith("~") else home, "rlhfdoctor")


def _load_database(hyperscan: Any, expressions: list[bytes]) -> Any:
    """The compiled database, from the user's cache if it matches this set and this version."""
    version = f"{hyperscan.__version__}:{os.uname().machine}".encode()
    key = hashlib.sha256(b"\0".join([version, *expressions])).hexdigest()[:24]
    path = _cache_folder() / f"patterns-{key}.hs"
    try:
        database = hyperscan.loadb(path.read_bytes(), hyperscan.HS_MODE_BLOCK)
        database.scratch = hyperscan.Scratch(database)
        return database
    except (OSError, hyperscan.error):
        pass
    database = hyperscan.Database(mode=hyperscan.HS_MODE_BLOCK)
    flags = [hyperscan.HS_FLAG_MULTILINE | hyperscan.HS_FLAG_ALLOWEMPTY] * len(expressions)
    database.compile(
        expressions=expressions,
        ids=list(range(len(expressions))),
        elements=len(expressions),
        flags=flags,
    )
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        fresh = path.with_suffix(f".{os.getpid()}")
        fresh.write_bytes(hyperscan.dumpb(database))
        fresh.replace(path)
    except OSError:
        pass  # a read-only home only costs the next start a compilation
    return database


def _find_with_re(patterns: Sequence[Pattern]) -> Finder:
    literals: dict[bytes, list[int]] = {}
    without: list[tuple[int, re.Pattern[bytes]]] = []
    for index, pattern in enumerate(patterns):
        needed = required_literals(pattern.regex)
        for literal in needed:
            literals.setdefault(literal, []).append(index)
        if not needed:
            plain = _NAMED.sub("?:", pattern.regex).encode()
            without.append((index, re.compile(plain, re.MULTILINE)))

    def find(block: bytes) -> list[tuple[int, int]]:
        places: list[tuple[int, int]] = []
        for literal, indexes in literals.items():
            position = block.find(literal)
            while position >= 0:
                places.extend((position, index) for index in indexes)
                position = block.find(literal, position + 1)
        lines = block.replace(b"\r", b"\n") if b"\r" in block else block
        for index, regex in without:
            places.extend((max(m.end() - 1, m.start()), index) for m in regex.finditer(lines))
        return places

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
