"""Logs read by processes of their own, a core each.

A worker is a fresh interpreter with a socket, so it has neither this one's threads nor its memory, and runs nothing of
the script that calls the doctor, nor of the folder in which it is called. What a worker does not answer is read here.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import tzinfo
from multiprocessing.connection import Connection, wait
from typing import NamedTuple

from rlhfdoctor.logs.events import PATTERNS
from rlhfdoctor.logs.open import Source, find_sources
from rlhfdoctor.logs.read import Reading, read_log
from rlhfdoctor.logs.scan import Scanner

WORTH_BYTES = 64 * 1024**2
"""Fewer bytes are read before a worker has started."""
_MOST_WORKERS = 8
_SAY_BYTES = 4 * 1024**2
"""A worker tells of its progress after so many."""
_START = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); "
    "from rlhfdoctor.logs.workers import serve; serve(int(sys.argv[2]), sys.argv[3])"
)


class Order(NamedTuple):
    """A file to read."""

    path: str
    host: str | None
    zone: tzinfo


def count_workers(sources: Sequence[Source]) -> int:
    """How many workers these files are worth; none on one core."""
    if sum(source.size_bytes or 0 for source in sources) < WORTH_BYTES:
        return 0
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    count = min(cores, len(sources), _MOST_WORKERS)
    return count if count > 1 else 0


def read_beside(
    sources: Sequence[Source], count: int, engine: str, progress: Callable[[str, int], None]
) -> Iterator[Reading | None]:
    """Reads files by `count` workers; in the order of the files, None for what a worker did not answer.

    Args:
        sources: files that can be opened by their name.
        count: how many workers.
        engine: of the scanner.
        progress: called with a file's name and bytes read since the last call.
    """
    found: dict[int, Reading | None] = {}
    waiting = sorted(range(len(sources)), key=lambda number: sources[number].size_bytes or 0)
    busy: dict[Connection, int] = {}
    given = 0
    with contextlib.ExitStack() as stack:
        for _ in range(count):
            connection = stack.enter_context(_worker(engine))
            busy[connection] = waiting.pop()
            _give(connection, sources[busy[connection]])
        while given < len(sources):
            if given in found:
                yield found.pop(given)
                given += 1
                continue
            if not busy:
                found |= dict.fromkeys(waiting, None)
                waiting.clear()
                continue
            for connection in [one for one in wait(list(busy)) if isinstance(one, Connection)]:
                number = busy[connection]
                try:
                    answer = connection.recv()
                except (EOFError, OSError):
                    found[number] = None
                    del busy[connection]
                    continue
                if isinstance(answer, int):
                    progress(sources[number].name, answer)
                    continue
                found[number] = answer
                if waiting:
                    busy[connection] = waiting.pop()
                    _give(connection, sources[busy[connection]])
                else:
                    del busy[connection]


def _give(connection: Connection, source: Source) -> None:
    with contextlib.suppress(OSError):  # then receiving says so, too
        connection.send(Order(source.name, source.host, source.zone))


@contextlib.contextmanager
def _worker(engine: str) -> Iterator[Connection]:
    here, there = socket.socketpair()
    command = [sys.executable, "-I", "-c", _START, json.dumps(sys.path), str(there.fileno()), engine]
    with here, there:
        process = subprocess.Popen(
            command, pass_fds=[there.fileno()], stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        there.close()
        connection = Connection(os.dup(here.fileno()))
        try:
            yield connection
        finally:
            connection.close()
            process.kill()
            process.wait()


def serve(descriptor: int, engine: str) -> None:
    """Reads files that the other end of a socket names, until it is closed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the one who asked is interrupted, and ends this one
    connection = Connection(descriptor)
    scanner = Scanner(PATTERNS, engine)
    with contextlib.suppress(EOFError, OSError):
        while True:
            connection.send(_read(connection.recv(), scanner, connection))


def _read(order: Order, scanner: Scanner, connection: Connection) -> Reading:
    reading = Reading()
    unsaid = 0

    def progress(count: int) -> None:
        nonlocal unsaid
        unsaid += count
        if unsaid >= _SAY_BYTES:
            connection.send(unsaid)
            unsaid = 0

    for source in find_sources([order.path], reading.gaps):
        read_log(replace(source, host=order.host, zone=order.zone), scanner, reading, progress)
    connection.send(unsaid)
    return reading
