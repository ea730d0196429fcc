"""Fresh interpreters beside this one that answer orders, a core each.

A worker is a process of its own with a socket: it has neither this one's threads nor its memory, and runs nothing of
the script that calls the doctor, nor of the folder in which it is called. What a worker does not answer is left to the
caller.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlhfdoctor.files import bounds

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

Answerer = Callable[[Any, Callable[[int], None]], Any]
"""What a worker does: takes an order and a function that reports progress, and gives the answer, which is no int."""
_MOST_WORKERS = 8
_SERVE = "from rlhfdoctor.interpreters import serve; serve(*sys.argv[1:])"
_SAY_BYTES = 4 * 1024**2
_serving = False


class Portions:
    """Bytes of progress, reported by the portion: each report is a message to another process."""

    def __init__(self, say: Callable[[int], None]) -> None:
        """`say` is given the bytes since it was last called."""
        self._say, self._unsaid = say, 0

    def add(self, count: int) -> None:
        """So many more."""
        self._unsaid += count
        if self._unsaid >= _SAY_BYTES:
            self.end()

    def end(self) -> None:
        """Reports what is left."""
        self._say(self._unsaid)
        self._unsaid = 0


def fresh(code: str, *arguments: str) -> list[str]:
    """The command of an interpreter that runs this code, and nothing of the folder that it is started in.

    It imports from where this one does, its own folder and variables of the environment left out (`-I`); `sys` is
    imported, and `arguments` follow in `sys.argv`.
    """
    here, own = os.path.realpath("."), str(Path(__file__).resolve().parent.parent)
    places = [place for place in sys.path if Path(place).is_absolute() and os.path.realpath(place) not in (here, own)]
    start = f"import sys; sys.path[:] = {[*places, own]!r}; {code}"
    return [sys.executable, "-I", "-c", start, *arguments]


def count_workers(orders_count: int) -> int:
    """How many workers so many orders are worth; none on one core, for one order, or within a worker."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    count = min(cores, orders_count, _MOST_WORKERS)
    return count if count > 1 and not _serving else 0


def answers(
    make: str,
    setup: Sequence[Any],
    orders: Sequence[Any],
    count: int,
    progress: Callable[[int, int], None] = lambda _number, _size: None,
    sizes: Sequence[int] = (),
) -> Iterator[Any | None]:
    """The answers of `count` workers in the order of the orders; None where a worker ended without one.

    Args:
        make: "module:function"; called with `setup` (plain JSON) in each worker, it gives the `Answerer`.
        orders: can be pickled, as their answers can.
        progress: called with the number of an order and what its worker reported.
        sizes: of the orders; larger ones are given out first.
    """
    from multiprocessing.connection import Connection, wait  # most folders are read without workers

    found: dict[int, Any | None] = {}
    waiting = sorted(range(len(orders)), key=lambda number: (sizes[number] if sizes else 0, -number))
    busy: dict[Connection, int] = {}
    proven: set[Connection] = set()
    """Workers that have answered: where one ends, another one takes its place."""
    given = 0
    with contextlib.ExitStack() as stack:

        def start() -> None:
            _give(stack.enter_context(_worker(make, setup)), busy, waiting, orders)

        for _ in range(count):
            start()
        while given < len(orders):
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
                    if connection in proven and waiting:
                        start()
                    continue
                if isinstance(answer, int):
                    progress(number, answer)
                    continue
                found[number] = answer
                del busy[connection]
                proven.add(connection)
                if waiting:
                    _give(connection, busy, waiting, orders)


def _give(connection: Connection, busy: dict[Connection, int], waiting: list[int], orders: Sequence[Any]) -> None:
    busy[connection] = waiting.pop()
    with contextlib.suppress(OSError):  # then receiving says so, too
        connection.send(orders[busy[connection]])


@contextlib.contextmanager
def _worker(make: str, setup: Sequence[Any]) -> Iterator[Connection]:
    from multiprocessing.connection import Connection

    here, there = socket.socketpair()
    command = fresh(_SERVE, str(there.fileno()), make, json.dumps(setup), json.dumps(bounds.confined()))
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


def serve(descriptor: str, make: str, setup: str, folders: str) -> None:
    """Answers the orders that come through a socket, until it is closed.

    Args:
        descriptor: number of the socket's.
        make: as `answers` takes it.
        setup: the same as JSON.
        folders: `bounds.confined` of the process that asks, as JSON.
    """
    from multiprocessing.connection import Connection

    global _serving
    _serving = True
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the one who asked is interrupted, and ends this one
    if (confined := json.loads(folders)) is not None:
        bounds.confine(confined)
    connection = Connection(int(descriptor))
    module, _, name = make.partition(":")
    answer: Answerer = getattr(importlib.import_module(module), name)(*json.loads(setup))
    with contextlib.suppress(EOFError, OSError):
        while True:
            connection.send(answer(connection.recv(), connection.send))
