"""One pass over the bytes: the two engines, chunks, blocks, long lines, colours, line numbers."""

from __future__ import annotations

import re
import tracemalloc
from collections.abc import Iterable

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rlhfdoctor.logs import blocks
from rlhfdoctor.logs.blocks import without_redraws
from rlhfdoctor.logs.events import PATTERNS
from rlhfdoctor.logs.pattern import compiled, line
from rlhfdoctor.logs.scan import Scanner
from tests.build import make_scanner, split_at

ENGINES = ["hyperscan", "re"]
MESSAGE = "To avoid data inconsistency, we are taking the entire process down."
KIND = "nccl.down"
Seen = tuple[str, int, str, tuple[str, ...]]

CORPUS = (
    "".join(
        (
            f"[2025-04-02 15:02:{index % 60:02d},117 I 1 1] (raylet) some_file.cc:{index}: nothing of note in line {index}\n"
            f"{pattern.sample}\n"
            "91085\t24.99\tray::allocate_memory\r\n"
            f"\rTraining Progress: {index}%|#| {index}/302 [02:10<2:41:01]\rTraining Progress: {index}%|##| {index + 1}/302\n"
            f"\x1b[36m(WorkerDict pid={index})\x1b[0m \x1b[1mline\x1b[0m {pattern.sample[:60]}\x1b[31m{pattern.sample[60:]}\x1b[0m\n"
            "\n"
        )
        for index, pattern in enumerate(PATTERNS)
    ).encode()
    + b"\xff\xfe no utf-8 \x80\nlast line without an end: "
    + MESSAGE.encode()
)


def seen(pieces: Iterable[bytes], engine: str = "auto") -> list[Seen]:
    """What the scanner says of a stream."""
    return [(hit.pattern.kind, hit.line, hit.text, hit.after) for hit in make_scanner(engine).scan(pieces)]


def places(pieces: Iterable[bytes], kind: str = KIND, engine: str = "auto") -> list[int]:
    """The lines with a message of a kind."""
    return [hit.line for hit in make_scanner(engine).scan(pieces) if hit.pattern.kind == kind]


def expected_of(data: bytes) -> list[tuple[str, int, str]]:
    """What a scan line by line, pattern by pattern gives."""
    ansi = re.compile(r"\x1b\[[0-9;]*m")
    return [
        (pattern.kind, number, segment)
        for number, line in enumerate(data.decode("utf-8", "replace").split("\n"), 1)
        for segment in ansi.sub("", line).split("\r")
        for pattern in PATTERNS
        if compiled(pattern.regex).search(segment)
    ]


SMALL = CORPUS[:12_000]
FILLER = (b"x" * 119 + b"\n") * 2000
BIG = FILLER + SMALL + b"\n" + FILLER + SMALL + b"\n" + FILLER + SMALL + b"\n" + FILLER
WHOLE = seen([SMALL])


@pytest.mark.parametrize("engine", ENGINES)
def test_same_as_line_by_line(engine: str) -> None:
    """Either engine finds what a plain search of every line with every pattern finds, in the same order."""
    assert expected_of(CORPUS) == [(kind, line, text) for kind, line, text, _ in seen([CORPUS], engine)]


def test_engines_agree() -> None:
    """The two engines give the same hits with the same text, line and following lines."""
    assert seen([CORPUS], "hyperscan") == seen([CORPUS], "re")


def test_engines_agree_over_several_blocks() -> None:
    """The two engines agree where the text fills several blocks."""
    assert seen([BIG], "hyperscan") == seen([BIG], "re")


cuts = st.lists(st.integers(0, len(SMALL)), max_size=12)


@pytest.mark.parametrize("engine", ENGINES)
@settings(max_examples=12, deadline=None, database=None, derandomize=True)
@given(cuts=cuts)
def test_chunks(engine: str, cuts: list[int]) -> None:
    """However the bytes are cut into pieces, the hits are the same."""
    assert seen(split_at(SMALL, cuts), engine) == WHOLE


@settings(max_examples=25, deadline=None, database=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
@given(cuts=cuts, block_bytes=st.integers(64, 40_000))
def test_chunks_over_small_blocks(cuts: list[int], block_bytes: int) -> None:
    """Wherever a block ends, kind, line and text of the hits are the same."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(blocks, "BLOCK_BYTES", block_bytes)
        found = seen(split_at(SMALL, cuts))
    assert [hit[:3] for hit in WHOLE] == [hit[:3] for hit in found]


REAL = seen([BIG])


@pytest.mark.parametrize("size", [4096, 65536, 300_000, 512 * 1024, 700_000])
def test_pieces_of_one_size_over_real_blocks(size: int) -> None:
    """Over blocks of the real size the hits and the lines behind them are the same for every size of pieces."""
    assert seen(split_at(BIG, range(size, len(BIG), size))) == REAL


@pytest.mark.parametrize("engine", ENGINES)
def test_crlf(engine: str) -> None:
    """Lines that end in CRLF give the hits of lines that end in LF."""
    anchored = [p.sample for p in PATTERNS if "^" in p.regex or "$" in p.regex]
    data = "".join(f"{line}\r\n" for line in (*anchored, "Killed", "Terminated", "Bus error")).encode()
    assert [hit[:3] for hit in seen([data], engine)] == expected_of(data)


def test_single_bytes() -> None:
    """A stream of single bytes gives the same hits."""
    data = CORPUS[:2000]
    assert seen([data]) == seen(split_at(data, range(1, len(data))))


@pytest.mark.parametrize("pieces", [[], [b""], [b"", b""], [b"\n"], [b"\n\n\r\n"], [b"\r"], [b"\x1b[0m"]])
@pytest.mark.parametrize("engine", ENGINES)
def test_nothing(pieces: list[bytes], engine: str) -> None:
    """Empty streams and empty lines give nothing."""
    assert seen(pieces, engine) == []


# --- lines -------------------------------------------------------------------------------------


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (f"{MESSAGE}", [1]),
        (f"{MESSAGE}\n", [1]),
        (f"\n\n{MESSAGE}\n{MESSAGE}\n\n{MESSAGE}", [3, 4, 6]),
        (f"a\r\n{MESSAGE}\r\nb\r\n{MESSAGE}\r\n", [2, 4]),
        (f"1%\r2%\r{MESSAGE}\r3%\n{MESSAGE}\n", [1, 2]),
        (f"1%\r{MESSAGE}\r{MESSAGE}\n", [1, 1]),
        (f"\x1b[31m{MESSAGE}\x1b[0m\n\x1b[2K\x1b[1G{MESSAGE}", [1, 2]),
        ("To avoid data inconsistency, we are \x1b[1mtaking\x1b[0m the entire \x1b[38;5;9mprocess\x1b[m down.", [1]),
        (f"\x1b]0;title\x07{MESSAGE}", [1]),
        (f"a\x00b\n{MESSAGE}", [2]),
        ("we are taking\nthe entire process down", []),
        ("we are taking\rthe entire process down", []),
    ],
)
def test_line_numbers(text: str, expected: list[int], engine: str) -> None:
    """Lines count newlines; carriage returns part segments of one line; colours are not there."""
    assert expected == places([text.encode()], engine=engine)


@pytest.mark.parametrize("engine", ENGINES)
def test_text_of_a_hit_ends_at_carriage_returns(engine: str) -> None:
    """The text of a hit is the segment between two redraws."""
    data = f"1%\r{MESSAGE}\r3%\n".encode()
    assert [text for kind, _, text, _ in seen([data], engine) if kind == KIND] == [MESSAGE]


@pytest.mark.parametrize("engine", ENGINES)
def test_two_messages_of_a_kind_in_a_line(engine: str) -> None:
    """Two messages of one pattern in one segment are one hit."""
    assert places([f"{MESSAGE} {MESSAGE}".encode()], engine=engine) == [1]


@pytest.mark.sweep
@pytest.mark.parametrize("before", [0, 1, 2, 67, 68, 1000])
@pytest.mark.parametrize("engine", ENGINES)
def test_hit_at_the_end_of_a_block(engine: str, before: int) -> None:
    """A message just before, on and behind the end of a block is found once, with its line."""
    filler = (b"x" * 99 + b"\n") * (blocks.BLOCK_BYTES // 100)
    data = filler + b"x" * (blocks.BLOCK_BYTES - len(filler) - before) + b"\n" + MESSAGE.encode() + b"\n" + filler
    expected = [filler.count(b"\n") + 2]
    assert expected == places(split_at(data, range(4096, len(data), 4096)), engine=engine)


@pytest.mark.parametrize("engine", ENGINES)
def test_table_across_blocks(engine: str) -> None:
    """The rows of a table are followed into the next block."""
    head = b"x" * 99 + b"\n"
    table = b"Top 10 memory users:\nPID\tMEM(GB)\tCOMMAND\n" + b"".join(b"%d\t1.00\t\n" % pid for pid in range(10, 20))
    data = head * (blocks.BLOCK_BYTES // 100 - 1) + table + head * 100
    cut = data.index(b"12\t1.00")
    found = [hit.after for hit in make_scanner(engine).scan([data[:cut] + b"", data[cut:]]) if hit.pattern.follow]
    assert [("PID\tMEM(GB)\tCOMMAND", *(f"{pid}\t1.00\t" for pid in range(10, 20)))] == [after[:11] for after in found]


@pytest.mark.parametrize("cut", [20, 60, 90, 130])
def test_table_across_two_blocks_exactly(cut: int) -> None:
    """Wherever in a table a block ends, its rows are the same."""
    table = b"Top 10 memory users:\nPID\tMEM(GB)\tCOMMAND\n" + b"".join(b"%d\t1.00\tf\n" % pid for pid in range(10, 30))
    head = b"x" * (blocks.BLOCK_BYTES - cut - 1) + b"\n"
    found = [hit.after for hit in make_scanner().scan([head + table[:cut], table[cut:]]) if hit.pattern.follow]
    assert [tuple(table.decode().split("\n")[1:15])] == found


def test_following_lines_skip_empty_ones() -> None:
    """Empty lines and redraws between the rows are left out of them."""
    data = b"Top 10 memory users:\r\n\r\nPID\tMEM(GB)\tCOMMAND\r\n\r\n\x1b[1m91\t1.50\x1b[0m\tray::f\r\n"
    (hit,) = [hit for hit in make_scanner().scan([data]) if hit.pattern.kind == "ray.memory_top"]
    assert hit.after == ("PID\tMEM(GB)\tCOMMAND", "91\t1.50\tray::f")


# --- very long lines ---------------------------------------------------------------------------

LONG = blocks.LONGEST_LINE
PIECE = 512 * 1024


def long_line(offset: int) -> list[bytes]:
    """A line longer than may be kept, with the message so many bytes from its start, as pieces."""
    data = bytearray(b"x" * (LONG + PIECE))
    data[offset - 1 : offset + len(MESSAGE)] = b" " + MESSAGE.encode()
    whole = bytes(data) + b"\n" + MESSAGE.encode() + b"\n"
    return list(split_at(whole, range(PIECE, len(whole), PIECE)))


@pytest.mark.parametrize(
    "offset",
    [
        pytest.param(100, id="start"),
        pytest.param(LONG - 300_000, id="far before"),
        pytest.param(LONG - 4000, id="before"),
        pytest.param(LONG - len(MESSAGE), id="ends at the cut"),
        pytest.param(LONG - 30, id="on the cut"),
        pytest.param(LONG, id="begins at the cut"),
        pytest.param(LONG + 5000, id="after"),
        pytest.param(LONG + 300_000, id="far after"),
    ],
)
def test_message_in_a_very_long_line(offset: int) -> None:
    """A message anywhere in a line longer than 4 MiB is found once, and the lines behind count on."""
    assert places(long_line(offset)) == [1, 2]


def test_colours_before_the_cut_of_a_long_line() -> None:
    """A message behind the cut is found also where the bytes before the cut are mostly colour codes."""
    start = b"x" * (LONG - 8192) + b"\x1b[38;5;196m" * 745
    data = start[:LONG].ljust(LONG, b"x") + b" " + MESSAGE.encode() + b"\nlast\n"
    assert places(split_at(data, range(PIECE, len(data), PIECE))) == [1]


@pytest.mark.sweep
def test_line_of_a_long_line_in_either_engine() -> None:
    """The engines agree on a line longer than 4 MiB."""
    pieces = long_line(LONG + 5000)
    assert places(pieces, engine="hyperscan") == places(pieces, engine="re")


# --- scanners ----------------------------------------------------------------------------------


def test_engine_is_named() -> None:
    """A scanner says which engine it uses."""
    assert [make_scanner("hyperscan").engine, make_scanner("re").engine] == ENGINES


def test_pattern_without_a_literal() -> None:
    """A pattern without any fixed text is found by the engine `re` too."""
    pattern = line("test.numbers", r"^(?P<one>\d+) +(?P<two>\d+)$", "1 2")
    hits = list(Scanner([pattern], "re").scan([b"a\n12 34\nb 1 2\n"]))
    assert [(hit.line, hit.text) for hit in hits] == [(2, "12 34")]


def test_anchor_is_the_segment() -> None:
    """`^` in a pattern is the start of a segment, behind a carriage return too."""
    pattern = line("test.start", r"^Killed here$", "Killed here")
    hits = [
        [hit.line for hit in Scanner([pattern], engine).scan([b"1%\rKilled here\nx Killed here\n"])]
        for engine in ENGINES
    ]
    assert hits == [[1], [1]]


def test_no_patterns() -> None:
    """A scanner without patterns finds nothing."""
    assert list(Scanner([], "re").scan([b"text\n"])) == []


def test_cache_of_the_database(tmp_path, monkeypatch) -> None:  # type: ignore[no-untyped-def]
    """The compiled patterns are kept in the user's cache, and a damaged cache is compiled anew."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    pattern = line("test.word", r"needle", "needle")
    Scanner([pattern], "hyperscan")
    (kept,) = (tmp_path / "rlhfdoctor").iterdir()
    kept.write_bytes(b"damaged")
    hits = list(Scanner([pattern], "hyperscan").scan([b"a needle\n"]))
    assert ([hit.line for hit in hits], kept.stat().st_size > 100) == ([1], True)


def test_read_only_home(tmp_path, monkeypatch) -> None:  # type: ignore[no-untyped-def]
    """Where the cache cannot be written, scanning works all the same."""
    (tmp_path / "file").write_text("no folder")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    pattern = line("test.word", r"haystack", "haystack")
    assert [hit.line for hit in Scanner([pattern], "hyperscan").scan([b"haystack\n"])] == [1]


# --- bars that are drawn again and again -------------------------------------------------------


@pytest.mark.parametrize("engine", ENGINES)
def test_drawings_of_a_bar(engine: str) -> None:
    """Of a line with many drawings the first two and the last two are seen; what is no bar among them always is."""
    drawn = [f"Training Progress: {done}%|#| {done}/302 [02:10<2:41:01]" for done in range(30)]
    text = "\r".join([*drawn[:9], MESSAGE, *drawn[9:]])
    found = [(line, hit) for kind, line, hit, _ in seen([f"\n{text}\n".encode()], engine) if kind == KIND]
    bars = [hit for kind, _, hit, _ in seen([f"\n{text}\n".encode()], engine) if kind == "phase.step"]
    assert found == [(2, MESSAGE)]
    assert list(dict.fromkeys(bars)) == [*drawn[:2], *drawn[-2:]]


def test_few_drawings_are_all_seen() -> None:
    """A bar that was drawn four times on a line is seen four times."""
    drawn = [f"Training Progress: {done}%|#| {done}/302 [02:10<2:41:01]" for done in range(4)]
    bars = [hit for kind, _, hit, _ in seen(["\r".join(drawn).encode()]) if kind == "phase.step"]
    assert list(dict.fromkeys(bars)) == drawn


def test_line_of_only_carriage_returns() -> None:
    """No list of its drawings is made: it stays as it is, and takes no more than a few times its size."""
    line = b"s\n" + b"\r" * 1_000_000 + b"\n"
    tracemalloc.start()
    assert without_redraws(line, 2) == line
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert most < 6 * len(line)


def test_near_places_in_a_long_line_cost_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of places of one pattern that are close in a long line, only some are looked at."""
    looked = 0
    segment = blocks._segment

    def counted(lines: bytes, position: int) -> tuple[int, int]:
        nonlocal looked
        looked += 1
        return segment(lines, position)

    monkeypatch.setattr(blocks, "_segment", counted)
    lines = b"step:1 - " * 100_000
    assert list(blocks._segments(lines, {0: list(range(0, len(lines), 9))}))
    assert looked < 2 * len(lines) // 1024
