"""Hostile inputs, and what is good beside them; all of it is made when a test runs."""

from __future__ import annotations

import bz2
import gzip
import io
import json
import struct
import tarfile
import zlib
from array import array
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import zstandard

from tests.record.build import START_S, kernel_lines, write_run

MIB = 1 << 20
KILL = (
    b"Out of memory: Killed process 4711 (python3) total-vm:9008816kB, anon-rss:1169716kB, file-rss:256kB, "
    b"shmem-rss:0kB, UID:0\n"
)
KILLER = "kernel-oom-node"
"""What a report says of `KILL`."""
OOM = (
    b"torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 256.00 MiB. GPU 0 has a total capacity of 79.10 GiB "
    b"of which 100.00 MiB is free.\n"
)
OOM_KILLER = "cuda-oom"
"""What a report says of `OOM`, beside recorded runs, too: those decide whose a kill of the kernel is."""
RUN_KILLER = "kernel-oom-cgroup"
"""What a report says of `good_run`."""
HEADER, KEY, SAMPLE, EVENT = b"HKSE"
"""Kinds of a trace's frames (rlhfdoctor/trace/frames.py)."""


def good_log(folder: Path) -> Path:
    """A log whose verdict must not be lost."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "good.log"
    path.write_bytes(KILL)
    return path


def good_run(folder: Path, **run: Any) -> Path:
    """A recorded run with its kill in the kernel's log; `run` is more of run.json."""
    write_run(folder, 5, use=lambda t: 16000, anon={"actor": lambda t: 15000}, run=run)
    (folder / "logs" / "kernel.log").write_text(kernel_lines(4.5, 1001))
    return folder


def frame(kind: int, payload: bytes, *, packed: bool = True) -> bytes:
    """One frame of a trace, its checksum right."""
    data = zstandard.ZstdCompressor(level=3).compress(payload) if packed else payload
    crc = zlib.crc32(data, zlib.crc32(struct.pack("<BBI", kind, int(packed), len(data))))
    return struct.pack("<4sBBII", b"\xd7RD\n", kind, int(packed), len(data), crc) + data


def header(**more: Any) -> bytes:
    """The first frame of a segment."""
    tables = {"host": ["total_bytes"], "process": ["rss_anon_bytes"]}
    fields = {"format": 1, "node": "n1", "host": "n1", "pid": 1, "tables": tables, **more}
    return frame(HEADER, json.dumps(fields).encode(), packed=False)


def record(kind: str, **fields: Any) -> bytes:
    """The frame of an event."""
    return frame(EVENT, json.dumps(stored(kind, **fields)).encode(), packed=False)


def stored(kind: str, **fields: Any) -> dict[str, Any]:
    """An event as a trace holds it."""
    return {"kind": kind, "wall_ns": (START_S + 3) * 10**9, "mono_ns": 3 * 10**9, **fields}


def many_frames(path: Path, count: int, size: int) -> None:
    """A segment of frames that are small as stored, and of `size` bytes each."""
    one = frame(KEY, bytes(size))
    with path.open("wb") as out:
        out.write(header())
        for _ in range(count):
            out.write(one)


def wide_frame(path: Path, rows: int, columns: int) -> None:
    """A segment whose one key frame has rows of columns that hold nothing: they take no byte in the file."""
    names = [f"c{number}" for number in range(columns)]
    head = struct.pack("<QQqqB", 1, 1, START_S * 10**9, 0, 1) + struct.pack("<BBI", 0, 0, rows)
    head += bytes((columns + 7) // 8)
    path.write_bytes(
        header(tables={"process": names}) + frame(KEY, struct.pack("<I", len(head)) + head + bytes(8 * rows))
    )


def large_nodes(run: Path, nodes: int, samples: int, rows: int) -> None:
    """Folders of further nodes, each with key frames of one column; small as stored."""
    keys = array("q", range(rows)).tobytes()
    planes = b"".join(keys[place::8] for place in range(8))
    frames = []
    for number in range(1, samples + 1):
        head = struct.pack("<QQqqB", number, number, START_S * 10**9 + number, number, 1)
        head += struct.pack("<BBI", 0, 0, rows) + b"\0"
        frames.append(frame(KEY, struct.pack("<I", len(head)) + head + planes))
    for node in range(nodes):
        folder = run / "nodes" / f"n{node + 2}"
        folder.mkdir(parents=True)
        (folder / "000001.trace").write_bytes(header(tables={"process": ["c"]}) + b"".join(frames))


def run_length_zstd(path: Path, size: int) -> None:
    """A zstd file of blocks that repeat one byte 131,072 times each."""
    block = struct.pack("<I", (131072 << 3) | 2)[:3] + b"x"
    last = struct.pack("<I", (131072 << 3) | 3)[:3] + b"x"
    path.write_bytes(b"\x28\xb5\x2f\xfd\x00\x38" + block * (size // 131072 - 1) + last)


def extension_tar(path: Path, kind: bytes, size: int) -> None:
    """A tar whose first header says that the next member's name, or its attributes, take so many bytes."""
    with gzip.open(path, "wb", compresslevel=1) as out:
        out.write(tar_header("././@LongLink", size, kind))
        lead = f"{size} path=".encode() if kind == b"x" else b""
        out.write(lead.ljust(MIB, b"a"))
        for _ in range(size // MIB - 1):
            out.write(b"a" * MIB)
        out.write(tar_header("x.log", len(KILL)) + KILL.ljust(512, b"\0") + bytes(1024))


def tar_header(name: str, size: int, kind: bytes = tarfile.REGTYPE) -> bytes:
    """The block in front of a member."""
    info = tarfile.TarInfo(name)
    info.size, info.type = size, kind
    return info.tobuf(tarfile.GNU_FORMAT)


def endless_tar(path: Path, gibibytes: int) -> None:
    """A tar.bz2 of some hundred kB with one member of so many GiB."""
    zeros = bz2.compress(bytes(256 * MIB))
    path.write_bytes(bz2.compress(tar_header("x.log", gibibytes << 30)) + zeros * (gibibytes * 4))


def crowded_tar(path: Path, members: int) -> None:
    """A tar.bz2 of so many empty members."""
    block = bz2.compress(tar_header("d/x.log", 0) * 100_000)
    path.write_bytes(block * (members // 100_000) + bz2.compress(bytes(1024)))


def tar_of(path: Path, members: Iterable[tuple[str, bytes]]) -> None:
    """A tar.gz of these files."""
    with tarfile.open(path, "w:gz", format=tarfile.GNU_FORMAT) as out:
        for name, data in members:
            info = tarfile.TarInfo(name)
            info.size = len(data)
            out.addfile(info, io.BytesIO(data))


def nested(text: str, depth: int) -> str:
    """JSON objects within each other, around a text."""
    return '{"a":' * depth + text + "}" * depth


def shared_lists(levels: int, width: int) -> bytes:
    """A pickle of a dump in which a list holds one list ten times, and so on: small in memory, endless when written."""
    out = io.BytesIO()
    out.write(b"\x80\x04}\x8c\x07entries](")  # {"entries": [
    out.write(b"}(\x8c\x06frames")  # {"frames":
    out.write(b"](" + b"K\x01" * width + b"eq\x00")
    for level in range(1, levels):
        out.write(b"0](" + (b"h" + bytes([level - 1])) * width + b"eq" + bytes([level]))
    out.write(b"u" + b"es.")
    return out.getvalue()


def colliding_keys(count: int) -> bytes:
    """A pickle of a dump with whole numbers as keys that all have one hash."""
    out = io.BytesIO()
    out.write(b"\x80\x04}(\x8c\x07entries]")
    for number in range(1, count + 1):
        data = (number * (2**61 - 1)).to_bytes(12, "little")
        out.write(b"\x8a" + bytes([len(data)]) + data + b"N")
    out.write(b"u.")
    return out.getvalue()


def doubled_key(levels: int) -> bytes:
    """A pickle of a dump whose one key is a pair of pairs of pairs: its hash takes 2 ** levels steps."""
    out = io.BytesIO()
    out.write(b"\x80\x04}(\x8c\x07entries]K\x01q\x00")
    for level in range(levels):
        out.write(b"0h%ch%c\x86q%c" % (level, level, level + 1))
    out.write(b"Nu.")
    return out.getvalue()
