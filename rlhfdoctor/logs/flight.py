"""Dumps of torch's flight recorder: which collectives each rank had issued when the run hung.

torch writes one file a rank at a collective timeout (TORCH_FR_DUMP_TEMP_FILE, before 2.6 TORCH_NCCL_DEBUG_INFO_TEMP_FILE; by
default /tmp/nccl_trace_rank_N or ~/.cache/torch/comm_lib_trace_rank_N) if TORCH_FR_BUFFER_SIZE (TORCH_NCCL_TRACE_BUFFER_SIZE) is
not 0: a pickle of plain dictionaries (torch/csrc/distributed/c10d/FlightRecorder.cpp, version 2.10 at torch 2.13), in some setups
JSON. A pickle from a stranger's archive can run code, so it is read with an unpickler that knows no classes at all.
"""

from __future__ import annotations

import io
import json
import pickle
import re
from collections.abc import Iterator, Mapping
from typing import Any

from rlhfdoctor.types import Event, Gap, Origin

MOST_BYTES = 256 * 1024**2
_NAME = re.compile(r"(?:nccl|comm_lib)_trace\w*?_rank_?(?P<rank>\d+)(?:\.json)?(?:\.gz|\.zst)?$")
_LAST_COUNT = 400
"""Collectives of a rank that are kept, from the end; ranks are seldom further apart."""
_LIBRARY = re.compile(r"/(?:site|dist)-packages/(?:torch|deepspeed)/|^<")


def rank_of_dump(name: str) -> int | None:
    """The rank by a dump's file name; None for other files.

    >>> rank_of_dump("/tmp/nccl_trace_rank_12"), rank_of_dump("a.tar!run/comm_lib_trace_rank_3"), rank_of_dump("rank_3.log")
    (12, 3, None)
    """
    match = _NAME.search(name)
    return int(match["rank"]) if match else None


class _Plain(pickle.Unpickler):
    """Dictionaries, lists, tuples, text and numbers; nothing else."""

    def find_class(self, module: str, name: str) -> Any:
        raise pickle.UnpicklingError(f"it asks for {module}.{name}, which no flight-recorder dump holds")


def read_dump(data: bytes, file: str, gaps: list[Gap]) -> Iterator[Event]:
    """The last collectives of one rank as events `flight.collective`, oldest first, and one `flight.dump` for the rank.

    Point-to-point entries are left out. What cannot be read becomes a Gap.
    """
    rank = rank_of_dump(file)
    try:
        found = json.loads(data) if data[:1] == b"{" else _Plain(io.BytesIO(data)).load()
        entries = [entry for entry in found["entries"] if isinstance(entry, dict) and not entry.get("is_p2p")]
    except (pickle.UnpicklingError, ValueError, EOFError, LookupError, TypeError, AttributeError, MemoryError, RecursionError) as error:  # fmt: skip
        gaps.append(Gap(what=file, why=f"no readable flight-recorder dump ({error})"[:300]))
        return
    origin = Origin(file=file, rank=rank)
    events = [event for entry in entries[-_LAST_COUNT:] if (event := _collective(entry, origin)) is not None]
    yield from events
    waiting = sum(1 for event in events if event.fields["unfinished"])
    last = events[-1].text if events else "no collective"
    yield Event(
        kind="flight.dump", fields={"rank": rank, "unfinished_count": waiting}, origin=origin,
        time=events[-1].time if events else None, text=f"flight recorder of rank {rank}: last {last}",
    )  # fmt: skip


def _collective(entry: Mapping[str, Any], origin: Origin) -> Event | None:
    sequence, group = entry.get("collective_seq_id"), entry.get("process_group")
    name = str(entry.get("profiling_name") or "")
    if not isinstance(sequence, int) or not name:
        return None
    pair = [str(part) for part in group] if isinstance(group, list | tuple) else [str(entry.get("pg_id"))]
    operation = name.partition(":")[2] or name
    size = json.dumps(entry.get("input_sizes")).replace(" ", "")
    state = str(entry.get("state") or "unknown")
    created = entry.get("time_created_ns")
    where = _own_frame(entry.get("frames"))
    text = (
        f"#{sequence} {operation} of {size[:60]} in {pair[-1] or pair[0]}, {state}{', from ' + where if where else ''}"
    )
    return Event(
        kind="flight.collective",
        fields={
            "rank": origin.rank, "group_text": " ".join(pair), "seq": sequence, "op": operation, "size_text": size,
            "state_text": state, "where_text": where, "unfinished": state != "completed" and not entry.get("retired"),
        },
        origin=origin, time=created / 1e9 if isinstance(created, int) else None, text=text,
    )  # fmt: skip


def _own_frame(frames: Any) -> str:
    """The innermost frame that is not torch's or DeepSpeed's own."""
    rows = [frame for frame in frames if isinstance(frame, dict)] if isinstance(frames, list) else []
    own = [row for row in rows if not _LIBRARY.search(str(row.get("filename")))] or rows
    if not own:
        return ""
    row = own[0]
    return f"{row.get('name')}() {str(row.get('filename')).rsplit('/', 1)[-1]}:{row.get('line')}"
