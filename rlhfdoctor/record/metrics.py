"""The Prometheus page of a recording, by prometheus_client: imported only with --metrics-port."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from rlhfdoctor.curves import Figure
from rlhfdoctor.report.openmetrics import Families


def make_registry(read: Callable[[], Sequence[Figure]], run: str, node: str) -> CollectorRegistry:
    """What is read again for each request, labelled with the name of the run and of the node."""
    registry = CollectorRegistry()
    registry.register(_Recording(read, run, node))
    return registry


def serve(port: int, read: Callable[[], Sequence[Figure]], run: str, node: str) -> int:
    """Serves the page on 127.0.0.1 from a thread; the port that was taken (0 selects a free one).

    Raises:
        OSError: the port is taken.
    """
    server, _ = start_http_server(port, addr="127.0.0.1", registry=make_registry(read, run, node))
    return int(server.server_port)


class _Recording(Collector):
    def __init__(self, read: Callable[[], Sequence[Figure]], run: str, node: str) -> None:
        self._read, self._run, self._node = read, run, node

    def describe(self) -> Iterable[Metric]:
        """Nothing: registering needs no figures."""
        return ()

    def collect(self) -> Iterable[Metric]:
        """One family a measure."""
        families = Families()
        for figure in self._read():
            families.add(figure, self._run, self._node)
        return families.all()
