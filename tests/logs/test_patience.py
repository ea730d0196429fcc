"""Texts that take long share the time that one analysis gives to them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from rlhfdoctor.logs.events import make_scanner, read_events
from rlhfdoctor.logs.patience import Patience
from rlhfdoctor.types import Gap
from tests.build import make_source, read_log

KILL = "：Out of memory：Killed process 7（python） total-vm:1kB, anon-rss:5kB"
"""With the punctuation of a translation."""


def test_long_lines_of_all_logs_share_their_time() -> None:
    """When the first logs took the time for all, the others still get a little."""
    patience = Patience()
    assert patience.has_for_long(1.0)
    assert not patience.has_for_long(3.0)
    patience.long_s = 60.0
    assert not patience.has_for_long(1.0)
    assert patience.has_for_long(0.1)


def test_time_for_restoring_grows_with_what_was_read() -> None:
    """A large log that was quoted as a whole is read to its end."""
    patience = Patience(restored_s=50.0)
    assert not patience.has_for_restoring()
    patience.restored_bytes = 1024**3
    assert patience.has_for_restoring()


def test_each_analysis_has_its_own() -> None:
    """The tables are shared, what was spent is not."""
    make_scanner().patience.long_s = 60.0
    assert make_scanner().patience.long_s == 0.0


@pytest.mark.parametrize("is_spent", [False, True])
def test_flood_of_a_translation(is_spent: bool) -> None:
    """Both ends are kept, and the gaps count the rest; without time left, the end of the log is read all the same."""
    pieces = [f"{KILL}\n".encode() * 5000] * 4
    source = replace(make_source(""), stream=lambda: iter(pieces))
    scanner, gaps = make_scanner(), list[Gap]()
    scanner.patience.restored_s = 1e6 * is_spent
    lines = [event.origin.line for event in read_events(source, scanner, gaps) if event.kind == "kernel.killed"]
    why = [str(gap.why) for gap in gaps if "kernel.killed" in str(gap.what)]
    assert lines[-400:] == [*range(19_601, 20_001)]
    if is_spent:
        assert any("1 block of it looks quoted" in str(gap.why) for gap in gaps)
    else:
        assert lines[:400] == [*range(1, 401)]
        assert why == ["19200 more lines of this kind left out"]


def test_flood_in_one_block_is_counted_once() -> None:
    """What the joined lines of another version show is no more than what the lines themselves show."""
    gaps: list[Gap] = []
    assert len(read_log(f"{KILL}\n" * 3000, gaps=gaps)) == 800
    assert [str(gap.why) for gap in gaps] == ["2200 more lines of this kind left out"]
