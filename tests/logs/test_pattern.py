"""Every pattern against its own sample, and the conversion of its groups."""

from __future__ import annotations

import re

import pytest

from rlhfdoctor.logs.anchor import probe
from rlhfdoctor.logs.events import PATTERNS
from rlhfdoctor.logs.finders import required_literals
from rlhfdoctor.logs.pattern import Pattern, compiled, convert
from tests.build import make_scanner

IDS = [f"{index}-{pattern.kind}" for index, pattern in enumerate(PATTERNS)]
each_pattern = pytest.mark.parametrize("pattern", PATTERNS, ids=IDS)


@each_pattern
def test_sample_matches(pattern: Pattern) -> None:
    """A pattern matches the line that it gives as its sample."""
    assert compiled(pattern.regex).search(pattern.sample) is not None


@pytest.mark.parametrize("engine", ["hyperscan", "re"])
@each_pattern
def test_sample_is_found(pattern: Pattern, engine: str) -> None:
    """The scanner finds the pattern's sample between two other lines and says its line."""
    hits = list(make_scanner(engine).scan([f"one\n{pattern.sample}\nthree\n".encode()]))
    assert [(pattern.kind, 2)] == [(hit.pattern.kind, hit.line) for hit in hits if hit.pattern is pattern]


def test_kinds_are_named_by_speaker() -> None:
    """Every kind reads `speaker.what_happened`."""
    assert [p.kind for p in PATTERNS if not re.fullmatch(r"[a-z0-9]+\.[a-z0-9_]+", p.kind)] == []


def test_no_look_around() -> None:
    """No pattern uses look-around or back-references, which hyperscan does not know."""
    assert [p.kind for p in PATTERNS if re.search(r"\(\?[=!]|\(\?<[=!]|\(\?P=|\\[1-9]", p.regex)] == []


def test_samples_convert_to_units() -> None:
    """The groups of every sample become values, and no suffix of a foreign unit is left in a name."""
    matches = [(pattern, compiled(pattern.regex).search(pattern.sample)) for pattern in PATTERNS]
    names = [name for pattern, match in matches if match for name in pattern.fields(match)]
    assert [name for name in names if name.endswith(("_kb", "_mib", "_gib", "_size", "_ms", "_pct"))] == []


def test_samples_hold_a_literal() -> None:
    """Every sample holds one of the literals by which the engine `re` looks for its pattern."""
    needed = [(pattern, required_literals(pattern.regex)) for pattern in PATTERNS]
    lost = [p.kind for p, literals in needed if literals and not any(x in p.sample.encode() for x in literals)]
    assert lost == []


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("anon_kb", "4", ("anon_bytes", 4096)),
        ("used_gib", "0.5", ("used_bytes", 536870912)),
        ("request_size", "1.39 GiB", ("request_bytes", 1492501135)),
        ("limit_size", "500g", ("limit_bytes", 536870912000)),
        ("limit_size", "junk", ("limit_bytes", None)),
        ("timeout_ms", "1800000", ("timeout_s", 1800.0)),
        ("share_pct", "12.5", ("share_ratio", 0.125)),
        ("exit_code", "-9", ("exit_code", -9)),
        ("ratio", "0.975", ("ratio", 0.975)),
        ("ratio", "1.", ("ratio", 1.0)),
        ("flag", "true", ("flag", "true")),
        ("comm", "123", ("comm", "123")),
        ("version", "2.10", ("version", "2.10")),
        ("node_id", "0123", ("node_id", "0123")),
        ("step_text", " 12 ", ("step_text", "12")),
        ("count", "1234567890123456789", ("count", "1234567890123456789")),
    ],
)
def test_convert(name: str, text: str, expected: tuple[str, object]) -> None:
    """The suffix of a group decides the unit; names, versions and ids stay text."""
    assert expected == convert(name, text)


def test_groups_that_did_not_match_are_left_out() -> None:
    """An optional group that is not there gives no field, rather than one that is None."""
    pattern = Pattern(kind="a.b", written=r"x(?P<one>\d)?(?P<two>\d)?", sample="x1")
    match = compiled(pattern.regex).search("x1")
    assert match is not None
    assert pattern.fields(match) == {"one": 1}


@pytest.mark.parametrize(
    ("regex", "expected"),
    [
        (r"(?:a|b) out of memory at \d+", [b" out of memory at "]),
        (r"first word|second word", [b"first word", b"second word"]),
        (r"\d+ +\d+", []),
        (r"abc|defghi", []),
        (r"(?:optional text)?", []),
        (r"(?:repeated text)+", [b"repeated text"]),
        (r"short(?:a much longer run)?tail", [b"short"]),
        (r"naïve", []),
    ],
)
def test_required_literals(regex: str, expected: list[bytes]) -> None:
    """Every match holds one of the literals; what may be left out or is too short is none."""
    assert expected == required_literals(regex)


@pytest.mark.parametrize("pattern", PATTERNS, ids=IDS)
def test_probe_is_in_the_sample(pattern: Pattern) -> None:
    """What the scanner looks for stands in every line on which the pattern matches, its sample for one."""
    match = compiled(pattern.regex).search(pattern.sample)
    assert match is not None
    assert compiled(pattern.probe).search(pattern.sample)


@pytest.mark.parametrize(
    ("regex", "expected"),
    [
        ("one (?:two|three) four", "one (?:two|three) four"),
        ("a+b{2,5}", "a+b{2}"),
        ("ab{3}", "ab{3}"),
        (r"loss (?P<value>\d+)(?: of \d+)?", r"loss (?:\d)"),
        (r"x(?:\d{1,3}|nan+)", r"x(?:\d|nan)"),
        ("end$", "end$"),
        (r"left .*", "left "),
        (r"one\d*|two\w?", "one|two"),
        (r"(?:a|b)(?:c)*", "(?:a|b)"),
    ],
)
def test_probe(regex: str, expected: str) -> None:
    """Nothing optional stands at the end of what is looked for."""
    assert probe(regex) == expected
