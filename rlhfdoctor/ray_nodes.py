"""The nodes of a Ray cluster: connecting, an actor of ours on a node, its clock."""

from __future__ import annotations

import contextlib
import logging
import socket
import sys
import threading
import time
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from rlhfdoctor.errors import UsageError
from rlhfdoctor.i18n.message import say
from rlhfdoctor.privacy.secrets import shortened

_PINGS = 5
_CONNECT_S = 10.0


def connect(address: str) -> Any:
    """The ray module, connected; this package goes along with every actor.

    Raises:
        ImportError: Ray is not installed beside the doctor.
        UsageError: no cluster there.
    """
    import ray

    _check_port(address)
    package = str(Path(__file__).resolve().parent)
    try:
        ray.init(
            address=address,
            log_to_driver=False,
            logging_level=logging.ERROR,
            namespace="rlhfdoctor",
            runtime_env={"py_modules": [package]},
        )
    except (ConnectionError, ValueError, RuntimeError) as error:
        raise _no_cluster(address, first_line(error)) from None
    return ray


@contextlib.contextmanager
def connected(address: str) -> Iterator[Any]:
    """The ray module while it is connected. Meanwhile only this thread prints to standard output.

    Raises:
        UsageError: no cluster there, or Ray is not installed.
    """
    if find_spec("ray") is None:
        raise UsageError(say("--ray: the ray package is not installed beside the doctor"))
    with contextlib.redirect_stdout(_OwnOutput(sys.stdout)):
        ray = connect(address)
        try:
            yield ray
        finally:
            ray.shutdown()


class _OwnOutput:
    """Standard output for one thread; what others print goes to the error stream.

    A thread of Ray prints there what its daemons report (`listen_error_messages` in ray/_private/worker.py at 2.60).
    """

    def __init__(self, output: Any) -> None:
        self._output, self._thread = output, threading.get_ident()

    def write(self, text: str) -> int:
        """As a stream does."""
        output = self._output if threading.get_ident() == self._thread else sys.stderr
        return 0 if output is None else int(output.write(text))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._output, name)


def _check_port(address: str) -> None:
    """Checks that the port is open (Ray retries for minutes), and that the address is no path behind a bare --ray."""
    if Path(address).exists():
        raise UsageError(
            say(
                "--ray {address}: is no address of a cluster, but a file; write --ray behind the paths", address=address
            )
        )
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if not host or not port.isdecimal():
        return  # a name, such as `auto`
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=_CONNECT_S).close()
    except (OSError, OverflowError) as error:
        raise _no_cluster(address, first_line(error)) from None


def _no_cluster(address: str, error: str) -> UsageError:
    return UsageError(
        say(
            "--ray {address}: no Ray cluster there ({error}). Start Ray first, or give its address",
            address=address,
            error=error,
        )
    )


def failures(ray: Any) -> tuple[type[BaseException], ...]:
    """What a call to a node that is going down may raise."""
    return (ray.exceptions.RayError, OSError, RuntimeError, ValueError)


def name_of(row: dict[str, Any]) -> str:
    """A node by its address; raylets on one machine differ by the beginning of their number."""
    return f"{row.get('NodeManagerAddress') or '?'}-{row['NodeID'][:6]}"


def start_actor(ray: Any, form: type, node_id: str) -> Any:
    """An actor on one node and no other, which takes no CPU from the job."""
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    place = NodeAffinitySchedulingStrategy(node_id, soft=False)
    return ray.remote(form).options(num_cpus=0, max_restarts=0, scheduling_strategy=place).remote()


def measure_offset(ray: Any, actor: Any) -> float:
    """The node's clock less ours in seconds, by the quickest of some calls of the actor's `clock`."""
    best = (1e9, 0.0)
    for _ in range(_PINGS):
        begin = time.time()
        there = ray.get(actor.clock.remote(), timeout=60)
        end = time.time()
        best = min(best, (end - begin, there - (begin + end) / 2))
    return best[1] if abs(best[1]) > best[0] else 0.0


def first_line(error: BaseException) -> str:
    """What an error says, at most a line; of an error that Ray carries here from an actor, what was raised there."""
    cause = getattr(error, "cause", None)
    said = str(cause if isinstance(cause, BaseException) else error)
    return shortened((said.strip().splitlines() or [type(error).__name__])[0], 200)
