"""The Prometheus page of a recording, by prometheus_client: imported only with --metrics-port."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from rlhfdoctor.record.limits import Limit

Figures = tuple[Sequence[Limit], Mapping[str, int], int]
"""Limits, resident bytes by role, number of active alerts."""


def make_registry(read: Callable[[], Figures]) -> CollectorRegistry:
    """Gauges that are read again for each request: bytes by limit and role, seconds left, active alerts."""
    registry = CollectorRegistry()
    registry.register(_Recording(read))
    return registry


def serve(port: int, read: Callable[[], Figures]) -> int:
    """Serves the page on 127.0.0.1 from a thread; the port that was taken (0 selects a free one).

    Raises:
        OSError: the port is taken.
    """
    server, _ = start_http_server(port, addr="127.0.0.1", registry=make_registry(read))
    return int(server.server_port)


class _Recording(Collector):
    def __init__(self, read: Callable[[], Figures]) -> None:
        self._read = read

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """One family of gauges a figure."""
        found, roles, alarm_count = self._read()
        limits = [((limit.name, _text(limit.level)), limit) for limit in found]
        yield _family(
            "limit_used_bytes",
            "Memory in use below a limit that cannot be reclaimed.",
            ("limit", "level"),
            [(labels, limit.used_bytes) for labels, limit in limits],
        )
        yield _family(
            "limit_bytes", "The limit.", ("limit", "level"), [(labels, limit.limit_bytes) for labels, limit in limits]
        )
        yield _family(
            "limit_left_seconds",
            "Forecast time until the limit is reached.",
            ("limit", "level"),
            [(labels, round(limit.left_s, 1)) for labels, limit in limits if limit.left_s is not None],
        )
        yield _family(
            "role_rss_bytes",
            "RSS by role; shared pages count in each.",
            ("role",),
            [((_text(role),), size) for role, size in sorted(roles.items())],
        )
        yield _family("alarms", "Standing alarms.", (), [((), alarm_count)])


def _family(
    name: str, help_text: str, labels: tuple[str, ...], rows: Iterable[tuple[tuple[str, ...], float]]
) -> GaugeMetricFamily:
    family = GaugeMetricFamily(f"rlhfdoctor_{name}", help_text, labels=labels)
    for values, figure in rows:
        family.add_metric(values, figure)
    return family


def _text(name: str) -> str:
    """A label that UTF-8 can hold: a cgroup's path may have any bytes."""
    return name.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
