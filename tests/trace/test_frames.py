"""Frames: round trip, independence of each other, damage."""

from __future__ import annotations

import struct
import zlib

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rlhfdoctor.trace.frames import (
    EVENT,
    HEADER,
    KEY,
    MARKER,
    PLAIN,
    SAMPLE,
    ZSTD,
    Decoder,
    Encoder,
    Frame,
    json_payload,
    pack,
    unpack,
)
from rlhfdoctor.trace.schema import NULL
from tests.trace.build import Plain, decode, plain

COLUMNS = {"one": ("v",), "three": ("x", "y", "z"), "nine": tuple("abcdefghi")}
NUMBERS = st.one_of(st.integers(0, 9), st.just(NULL), st.integers(-(2**61), 2**61))
QUICK = settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def table(width: int) -> st.SearchStrategy[tuple[list[int], list[list[int]]]]:
    """Rows in any order, with a key each; none, or as many as seven."""

    def fill(keys: list[int]) -> st.SearchStrategy[tuple[list[int], list[list[int]]]]:
        column = st.lists(NUMBERS, min_size=len(keys), max_size=len(keys))
        return st.tuples(st.just(keys), st.lists(column, min_size=width, max_size=width))

    key = st.one_of(st.integers(0, 8), st.integers(-(2**61), 2**61))
    return st.lists(key, max_size=7, unique=True).flatmap(fill)


SAMPLES = st.lists(
    st.fixed_dictionaries({}, optional={name: table(len(columns)) for name, columns in COLUMNS.items()}),
    min_size=1,
    max_size=14,
)


def encode(samples: list[Plain], key_every: int) -> list[bytes]:
    """A frame for each sample."""
    encoder = Encoder(COLUMNS, key_every)
    return [encoder.encode(place * 10, place, sample) for place, sample in enumerate(samples)]


def kept_of(count: int, lost: int, key_every: int) -> list[int]:
    """The samples that do not depend on a lost frame: of a lost key frame, its whole group goes."""
    if lost % key_every:
        return [place for place in range(count) if place != lost]
    return [place for place in range(count) if place // key_every != lost // key_every]


@QUICK
@given(SAMPLES, st.integers(1, 5))
def test_round_trip(samples: list[Plain], key_every: int) -> None:
    """Any tables come back as they were, with rows that appear, vanish and change places."""
    read = decode(b"".join(encode(samples, key_every)), COLUMNS)
    assert [plain(sample.tables) for sample in read] == samples


@QUICK
@given(SAMPLES, st.integers(1, 5), st.sets(st.integers(0, 13)))
def test_frames_need_their_key_frame_only(samples: list[Plain], key_every: int, lost: set[int]) -> None:
    """Whichever other frames are lost, every frame is read with its key frame alone."""
    gone = {place for place in lost if place % key_every}
    read = decode(b"".join(encode(samples, key_every)), COLUMNS, skip=gone)
    assert [(sample.mono_ns, plain(sample.tables)) for sample in read] == [
        (place, sample) for place, sample in enumerate(samples) if place not in gone
    ]


@QUICK
@given(SAMPLES, st.integers(1, 5))
def test_a_lost_key_frame_takes_its_group_only(samples: list[Plain], key_every: int) -> None:
    """Without the first key frame the samples behind the next key frame are all read, and no other."""
    read = decode(b"".join(encode(samples, key_every)), COLUMNS, skip=[0])
    assert [sample.mono_ns for sample in read] == kept_of(len(samples), 0, key_every)


def test_clocks_and_sequence_come_back() -> None:
    """Both clocks and the number of the sample are kept, also when the clock starts in 1970."""
    encoder = Encoder(COLUMNS)
    data = encoder.encode(5, 2**62, {}) + encoder.encode(2**62, 7, {})
    assert [(s.sequence, s.wall_ns, s.mono_ns) for s in decode(data, COLUMNS)] == [(1, 5, 2**62), (2, 2**62, 7)]


@pytest.mark.parametrize("wall_ns", [-5, 2**62 + 1])
def test_a_time_that_no_clock_has_shown_is_damage(wall_ns: int) -> None:
    """Before 1970, or behind 2116."""
    assert decode(Encoder(COLUMNS).encode(wall_ns, 7, {}), COLUMNS) == []


def test_key_frames_come_in_time() -> None:
    """Every n-th sample is a key frame, and the first one after a restart."""
    encoder = Encoder(COLUMNS, key_every=3)
    frames = [encoder.encode(0, 0, {}) for _ in range(5)]
    encoder.restart()
    frames.append(encoder.encode(0, 0, {}))
    assert [f.kind for f in unpack(b"".join(frames)) if isinstance(f, Frame)] == [KEY, SAMPLE, SAMPLE, KEY, SAMPLE, KEY]


def test_rows_that_stand_still_cost_little() -> None:
    """A thousand rows that do not change take less than a tenth of a byte each in a sample."""
    rows = {"three": (list(range(1000)), [[place * 4096 for place in range(1000)]] * 3)}
    key, sample = encode([rows, rows], 60)
    assert (len(sample) < 100, len(sample) < len(key)) == (True, True)


GROUP = 3
SEGMENT_SAMPLES: list[Plain] = [
    {"three": ([4, 1, place], [[place, 2, NULL], [7, 7, 7], [2**61, -place, 1]]), "one": ([0], [[place]])}
    for place in range(7, 16)
]


def flipped(bit: int) -> tuple[list[list[int]], list[list[int]]]:
    """Samples expected and read back for a segment in which this bit of each byte, one after another, is wrong."""
    frames = encode(SEGMENT_SAMPLES, GROUP)
    data = b"".join(frames)
    owner = [place for place, frame in enumerate(frames) for _ in frame]
    read = []
    for offset in range(len(data)):
        damaged = bytearray(data)
        damaged[offset] ^= 1 << bit
        read.append([sample.mono_ns for sample in decode(bytes(damaged), COLUMNS)])
    return [kept_of(len(frames), place, GROUP) for place in owner], read


@pytest.mark.parametrize("bit", range(8))
def test_a_wrong_bit_takes_its_frame_only(bit: int) -> None:
    """A wrong bit at any byte loses its frame, a key frame's group with it, and nothing else."""
    expected, read = flipped(bit)
    assert read == expected


@pytest.mark.parametrize(
    "garbage",
    [
        b"\0" * 50,
        b"no frame at all\n",
        MARKER[:3],
        MARKER,
        MARKER + b"\0" * 10,
        MARKER + struct.pack("<BBII", SAMPLE, ZSTD, 8, 0),
        MARKER + struct.pack("<BBII", SAMPLE, ZSTD, 1 << 20, 0) + b"x",
        MARKER + struct.pack("<BBII", SAMPLE, ZSTD, 0xFFFFFFFF, 0),
        pack(EVENT, b"{}" * 20)[:-1],
        pack(EVENT, b"{}" * 20)[1:],
    ],
    ids=["zeros", "text", "part of a marker", "marker", "empty head", "short", "long", "huge", "no end", "no start"],
)
def test_garbage_is_skipped(garbage: bytes) -> None:
    """Bytes that are no frame are reported with their place and length, and the frames around them are read."""
    before, behind = pack(EVENT, b'{"a":1}'), pack(EVENT, b'{"b":2}')
    items = list(unpack(before + garbage + behind))
    told = [item for item in items if not isinstance(item, Frame)]
    assert [item.payload for item in items if isinstance(item, Frame)] == [b'{"a":1}', b'{"b":2}']
    assert (told[0][0], sum(size for _, size in told)) == (len(before), len(garbage))


def test_frames_with_a_right_checksum_that_are_too_long_are_damage() -> None:
    """A length beyond the longest frame is never believed, so that no reader takes it into memory."""
    size = (64 << 20) + 1
    head = MARKER + struct.pack("<BBII", EVENT, PLAIN, size, zlib.crc32(struct.pack("<BBI", EVENT, PLAIN, size)))
    assert list(unpack(head)) == [(0, len(head))]


@pytest.mark.parametrize("codec", [2, 7, 255])
def test_unknown_codec_is_passed_over(codec: int) -> None:
    """A whole frame in a codec of a later version is reported as damage of its own length; its neighbours are read."""
    unknown, known = pack(SAMPLE, b"later", codec), pack(EVENT, b"{}")
    assert list(unpack(unknown + known)) == [(0, len(unknown)), Frame(len(unknown), EVENT, b"{}", len(unknown + known))]


def test_payload_that_is_no_zstd_is_passed_over() -> None:
    """A frame whose checksum is right and whose compressed bytes are not is reported as damage."""
    wrong, known = pack(SAMPLE, b"not zstd", ZSTD), pack(EVENT, b"{}")
    assert list(unpack(wrong + known)) == [(0, len(wrong)), Frame(len(wrong), EVENT, b"{}", len(wrong + known))]


def test_unknown_kind_is_given_as_it_is() -> None:
    """A frame of a kind that is not known stays a frame; who reads it decides."""
    items = unpack(pack(b"Z"[0], b"?") + pack(HEADER, b"{}"))
    assert [item.kind for item in items if isinstance(item, Frame)] == [b"Z"[0], HEADER]


@pytest.mark.parametrize(
    "payload",
    [
        pytest.param(b"", id="empty"),
        pytest.param(b"\x01", id="one byte"),
        pytest.param(b"\0" * 4, id="no head"),
        pytest.param(b"\xff" * 60, id="ones"),
        pytest.param(struct.pack("<IQQqqB", 33, 1, 1, 0, 0, 9), id="too few tables"),
        pytest.param(struct.pack("<IQQqqBBBI", 39, 1, 1, 0, 0, 1, 99, 0, 1), id="no such table"),
    ],
)
def test_a_sample_that_makes_no_sense_is_none(payload: bytes) -> None:
    """A payload that cannot be a sample is None, never an error."""
    assert Decoder(COLUMNS).decode(Frame(0, KEY, payload, 0)) is None


def unfinished() -> tuple[list[object], list[object]]:
    """What `unpack` gives of a frame and each beginning of the next one, and what it should give."""
    whole, next_one = pack(EVENT, b'{"a":1}'), pack(EVENT, b'{"b":2}')
    expected = [Frame(0, EVENT, b'{"a":1}', len(whole))]
    return [[*expected] for _ in next_one], [
        list(unpack(whole + next_one[:cut], final=False)) for cut in range(len(next_one))
    ]


def test_an_unfinished_tail_is_left_alone() -> None:
    """Wherever a frame that is still being written ends, a reader that follows it says nothing of it."""
    expected, given_back = unfinished()
    assert given_back == expected


def test_an_unfinished_tail_is_damage_in_the_end() -> None:
    """In a file that no one writes any more, the beginning of a frame is reported with its place and length."""
    whole, part = pack(EVENT, b"{}"), pack(EVENT, b"{}")[:-1]
    assert list(unpack(whole + part)) == [Frame(0, EVENT, b"{}", len(whole)), (len(whole), len(part))]


def test_damage_before_a_frame_is_told_at_once() -> None:
    """A reader that follows does not wait for a damaged frame behind which another one stands."""
    part, whole = pack(EVENT, b"{}" * 9)[:-3], pack(EVENT, b"{}")
    assert list(unpack(part + whole, final=False)) == [
        (0, len(part)),
        Frame(len(part), EVENT, b"{}", len(part + whole)),
    ]


def test_reading_goes_on_at_an_offset() -> None:
    """Frames before the offset are not read again, and offsets are those of the whole data."""
    first, second = pack(EVENT, b"1"), pack(EVENT, b"22")
    assert list(unpack(first + second, len(first))) == [Frame(len(first), EVENT, b"22", len(first + second))]


def test_json_takes_bytes_that_are_no_text() -> None:
    """What a process is called may be no UTF-8; the event is stored all the same, in ASCII."""
    assert json_payload({"name": "a\udcff", "path": {1}}) == b'{"name":"a\\udcff","path":"{1}"}'


def test_a_sample_that_cannot_be_stored() -> None:
    """A figure beyond 63 bits costs its sample; the next one is whole, and can be read alone."""
    encoder = Encoder({"host": ["a"]})
    with pytest.raises(OverflowError):
        encoder.encode(1, 1, {"host": ([0], [[1 << 70]])})
    (frame,) = [item for item in unpack(encoder.encode(2, 2, {"host": ([0], [[7]])}), final=True) if isinstance(item, Frame)]
    sample = Decoder({"host": ["a"]}).decode(frame)
    assert (frame.kind, sample is not None and [list(column) for column in sample.tables["host"][1]]) == (KEY, [[7]])
