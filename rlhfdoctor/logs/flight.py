"""Dumps of torch's flight recorder: which collectives each rank had issued when the run hung.

torch writes one file a rank at a collective timeout (TORCH_NCCL_DEBUG_INFO_TEMP_FILE, later TORCH_FR_DUMP_TEMP_FILE;
names end in nccl_trace_rank_N or comm_lib_trace_rank_N) if TORCH_NCCL_TRACE_BUFFER_SIZE, later TORCH_FR_BUFFER_SIZE
(2000 by default in torch 2.13: FlightRecorder.hpp), is not 0: a pickle of plain dictionaries
(torch/csrc/distributed/c10d/FlightRecorder.cpp, version 2.10 at torch 2.13), in some setups JSON. A pickle from an
untrusted archive can run code, so it is read with an unpickler that refuses all classes.
"""

from __future__ import annotations

import io
import json
import pickle
import re
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, ClassVar

from rlhfdoctor.i18n.message import quoted, say
from rlhfdoctor.types import Event, Gap, Origin
from rlhfdoctor.vocabulary import EVENT, FIELD

MOST_BYTES = 64 * 1024**2
_MOST_JSON_BYTES = 4 * 1024**2
"""Three bytes of JSON can be a list of 64."""
_MOST_PARTS, _CONTAINER_COST = 10_000_000, 10
"""20,000 collectives with their frames have some two million parts."""
_MOST_PLAIN, _DEEPEST = 2_000_000, 50
_MOST_MARKS = 1000
"""Open at once; each is a list of the reader's own."""
_NAME = re.compile(r"(?:nccl|comm_lib)_trace\w*?_rank_?(?P<rank>\d{1,9})(?:\.json)?(?:\.gz|\.zst)?$")
_LAST_COUNT = 400
"""Collectives of a rank that are kept, from the end; ranks are seldom further apart."""
_TEXT_COUNT, _SIZES_COUNT, _FRAMES_COUNT, _MOST_NUMBER = 400, 16, 64, 2**63
_DAMAGE = (
    pickle.UnpicklingError,
    ValueError,
    EOFError,
    LookupError,
    TypeError,
    AttributeError,
    MemoryError,
    RecursionError,
    ArithmeticError,
    AssertionError,
    struct.error,
)
"""What reading a damaged or hostile dump may raise."""
_LIBRARY = re.compile(r"/(?:site|dist)-packages/(?:torch|deepspeed)/|^<")


def rank_of_dump(name: str) -> int | None:
    """The rank by a dump's file name; None for other files.

    >>> rank_of_dump("/tmp/nccl_trace_rank_12"), rank_of_dump("a.tar!run/comm_lib_trace_rank_3")
    (12, 3)
    >>> rank_of_dump("rank_3.log") is None
    True
    """
    match = _NAME.search(name)
    return int(match["rank"]) if match else None


_OPCODES = (
    *(pickle.PROTO, pickle.FRAME, pickle.MARK, pickle.STOP, pickle.POP, pickle.POP_MARK),
    *(pickle.NONE, pickle.NEWTRUE, pickle.NEWFALSE, pickle.INT, pickle.BININT, pickle.BININT1, pickle.BININT2),
    *(pickle.LONG, pickle.LONG1, pickle.LONG4, pickle.FLOAT, pickle.BINFLOAT),
    *(pickle.SHORT_BINBYTES, pickle.BINBYTES, pickle.GLOBAL, pickle.STACK_GLOBAL),
    *(pickle.UNICODE, pickle.BINUNICODE, pickle.SHORT_BINUNICODE, pickle.STRING, pickle.BINSTRING),
    *(pickle.SHORT_BINSTRING, pickle.APPEND, pickle.APPENDS, pickle.SETITEM, pickle.SETITEMS),
    *(pickle.PUT, pickle.BINPUT, pickle.LONG_BINPUT, pickle.MEMOIZE, pickle.GET, pickle.BINGET, pickle.LONG_BINGET),
)
_CONTAINERS = (
    *(pickle.EMPTY_TUPLE, pickle.TUPLE, pickle.TUPLE1, pickle.TUPLE2, pickle.TUPLE3),
    *(pickle.EMPTY_LIST, pickle.LIST, pickle.EMPTY_DICT),
)


def _counted(load: Callable[[Any], None], cost: int) -> Callable[[Any], None]:
    def counted(self: _Plain) -> None:
        self.left -= cost
        if self.left < 0:
            raise pickle.UnpicklingError("it has more parts than any flight recorder writes")
        load(self)

    return counted


class _Plain(pickle._Unpickler):
    """Dictionaries, lists, tuples, text and numbers; nothing else, and not too many of them.

    The Python one: the memo of the C unpickler is an array whose size the file names, so nine bytes can allocate
    gigabytes. Opcodes that name a size beyond what follows, or make anything but such values, are left out.
    """

    left = _MOST_PARTS
    dispatch: ClassVar[dict[int, Callable[[Any], None]]]

    def load_mark(self) -> None:
        if len(self.metastack) >= _MOST_MARKS:  # type: ignore[attr-defined]
            raise pickle.UnpicklingError("more marks in each other than any flight recorder writes")
        super().load_mark()  # type: ignore[misc]

    def load_setitem(self) -> None:
        self._check_keys(self.stack[-2:])  # type: ignore[attr-defined]
        super().load_setitem()  # type: ignore[misc]

    def load_setitems(self) -> None:
        self._check_keys(self.stack)  # type: ignore[attr-defined]
        super().load_setitems()  # type: ignore[misc]

    def _check_keys(self, items: Sequence[Any]) -> None:
        """Text only: Python's numbers can be chosen so that all of them hash to the same place."""
        if not all(isinstance(key, str) for key in items[::2]):
            raise pickle.UnpicklingError("a key that is no text")

    def find_class(self, module: str, name: str) -> Any:
        raise pickle.UnpicklingError(f"it asks for {module}.{name}, which no flight-recorder dump holds")


class _Loaders(dict[int, Callable[[Any], None]]):
    def __missing__(self, code: int) -> Callable[[Any], None]:
        raise pickle.UnpicklingError(f"opcode {code}, which no flight recorder writes")


_Plain.dispatch = _Loaders(
    (code[0], _counted(getattr(_Plain, pickle._Unpickler.dispatch[code[0]].__name__), cost))
    for codes, cost in ((_OPCODES, 1), (_CONTAINERS, _CONTAINER_COST))
    for code in codes
)


def read_dump(data: bytes, file: str, gaps: list[Gap]) -> Iterator[Event]:
    """The last collectives of one rank as events `flight.collective`, oldest first, and one `flight.dump` for the rank.

    Point-to-point entries are left out. What cannot be read becomes a Gap.
    """
    rank = rank_of_dump(file)
    origin = Origin(file=file, rank=rank)
    try:
        found = _load(data)
        entries = [entry for entry in found["entries"] if isinstance(entry, dict) and not entry.get("is_p2p")]
        members = _members(found.get("pg_config"))
    except _DAMAGE as error:
        gaps.append(
            Gap(what=quoted(file), why=say("no readable flight-recorder dump ({error})", error=str(error)[:260]))
        )
        return
    events, strange = [], 0
    for entry in entries[-_LAST_COUNT:]:
        try:
            event = _collective(entry, members, origin)
        except _DAMAGE:
            event = None
        strange += event is None
        events += [] if event is None else [event]
    if strange:
        gaps.append(
            Gap(
                what=quoted(file),
                why=say("{strange} entries of the flight recorder are not understood", strange=strange),
            )
        )
    yield from events
    waiting = sum(1 for event in events if event.fields[FIELD.unfinished])
    last = events[-1].text if events else "no collective"
    text = f"flight recorder of rank {rank}: last {last}"
    yield Event(
        kind=EVENT.flight.dump, fields={FIELD.rank: rank, FIELD.unfinished_count: waiting}, origin=origin, text=text
    )


def plain_dump(data: bytes) -> dict[str, Any] | None:
    """A dump as plain values that JSON can hold; None if it cannot be read."""
    try:
        found = _load(data)
        _check_size(found)
        found = json.loads(json.dumps(found))
    except _DAMAGE:
        return None
    return found if isinstance(found, dict) else None


def _load(data: bytes) -> Any:
    if data[:1] != b"{":
        return _Plain(io.BytesIO(data)).load()
    if len(data) > _MOST_JSON_BYTES:
        raise ValueError(f"more than {_MOST_JSON_BYTES >> 20} MiB of JSON")
    return json.loads(data)


def _check_size(value: Any) -> None:
    """How many values it has when each is written out: lists may share what is in them."""
    count, waiting = 0, [(value, 0)]
    while waiting:
        one, depth = waiting.pop()
        count += 1
        if count > _MOST_PLAIN or depth > _DEEPEST:
            raise ValueError("it has more values, or more in each other, than any flight recorder writes")
        if isinstance(one, dict):
            waiting += [(inner, depth + 1) for inner in one.values()]
        elif isinstance(one, list | tuple):
            waiting += [(inner, depth + 1) for inner in one]


def _members(groups: Any) -> dict[str, str]:
    """Name of a process group -> its ranks, if they are in the dump."""
    found = {}
    for name, group in groups.items() if isinstance(groups, dict) else ():
        if isinstance(group, dict) and isinstance(name, str) and isinstance(group.get("ranks"), str):
            found[name] = group["ranks"][:_TEXT_COUNT]
    return found


def _collective(entry: Mapping[str, Any], members: Mapping[str, str], origin: Origin) -> Event | None:
    sequence, group, name = entry.get("collective_seq_id"), entry.get("process_group"), entry.get("profiling_name")
    if not isinstance(sequence, int) or not isinstance(name, str) or not 0 <= sequence < _MOST_NUMBER:
        return None
    pair = [_text(part) for part in group[:2]] if isinstance(group, list | tuple) else [_text(entry.get("pg_id"))]
    operation = _text(name.partition(":")[2] or name)
    size, state, where = (
        _sizes(entry.get("input_sizes")),
        _text(entry.get("state") or "unknown"),
        _own_frame(entry.get("frames")),
    )
    text = (
        f"#{sequence} {operation} of {size[:60]} in {pair[-1] or pair[0]}, {state}{', from ' + where if where else ''}"
    )
    return Event(
        kind=EVENT.flight.collective,
        fields={
            FIELD.rank: origin.rank,
            FIELD.group_text: " ".join(pair),
            FIELD.members_text: members.get(pair[0], ""),
            FIELD.seq: sequence,
            FIELD.op: operation,
            FIELD.size_text: size,
            FIELD.state_text: state,
            FIELD.where_text: where,
            FIELD.unfinished: state != "completed" and not entry.get("retired"),
        },
        origin=origin,
        text=text,
    )


def _text(value: Any) -> str:
    """Plain text of a name or number; nothing that is nested is walked."""
    return (
        value[:_TEXT_COUNT]
        if isinstance(value, str)
        else str(value)
        if isinstance(value, int) and abs(value) < _MOST_NUMBER
        else ""
    )


def _sizes(value: Any) -> str:
    """Sizes of the tensors, such as [[64],[2,3]]; the first sixteen of each."""
    rows = value[:_SIZES_COUNT] if isinstance(value, list) else []
    shown = [
        [n for n in row[:_SIZES_COUNT] if isinstance(n, int) and abs(n) < _MOST_NUMBER]
        for row in rows
        if isinstance(row, list)
    ]
    return str(shown).replace(" ", "")


def _own_frame(frames: Any) -> str:
    """The innermost frame that is not torch's or DeepSpeed's own."""
    rows = [frame for frame in frames[:_FRAMES_COUNT] if isinstance(frame, dict)] if isinstance(frames, list) else []
    own = [row for row in rows if not _LIBRARY.search(_text(row.get("filename")))] or rows
    if not own:
        return ""
    row = own[0]
    return f"{_text(row.get('name'))}() {_text(row.get('filename')).rsplit('/', 1)[-1]}:{_text(row.get('line'))}"
