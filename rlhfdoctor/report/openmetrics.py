"""Curves as OpenMetrics text with timestamps, by prometheus_client: what Prometheus can be filled with afterwards.

    promtool tsdb create-blocks-from openmetrics FILE DATA_FOLDER

https://prometheus.io/docs/specs/om/open_metrics_spec/: samples of one series stand together, in order of time.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rlhfdoctor.curves import Curves, Figure, Measure
from rlhfdoctor.errors import UsageError
from rlhfdoctor.i18n.message import say

if TYPE_CHECKING:
    from prometheus_client.core import Metric
    from prometheus_client.samples import Sample

PREFIX = "rlhfdoctor_"
_UNITS = ("bytes", "seconds", "ratio")


class Families:
    """Families of samples, as prometheus_client writes them."""

    def __init__(self) -> None:
        self._found: dict[Measure, Metric] = {}
        self._labels: dict[tuple[Measure, tuple[str, ...], str, str], dict[str, str]] = {}

    def add(self, figure: Figure, run: str, node: str, at_s: float | None = None) -> None:
        """One sample; without a time it is one of now."""
        from prometheus_client.samples import Sample, Timestamp

        measure = figure.measure
        family = self._found.get(measure)
        if family is None:
            family = self._found[measure] = _make_family(measure)
        key = (measure, figure.labels, run, node)
        labels = self._labels.get(key)
        if labels is None:  # shared by all samples of the series
            labels = self._labels[key] = {**dict(zip(measure.labels, figure.labels)), "run": run, "node": node}
        name = f"{family.name}_total" if measure.counts else family.name
        at = None if at_s is None else Timestamp(int(at_s), round(at_s % 1 * 1e3) * 10**6)
        family.samples.append(Sample(name, labels, float(figure.value), at))

    def all(self) -> Sequence[Metric]:
        """The families; in each the series one behind the other, each in order of time."""
        for family in self._found.values():
            family.samples.sort(key=_series)
        return list(self._found.values())


def _series(sample: Sample) -> tuple[tuple[str, ...], float]:
    return tuple(sample.labels.values()), float(sample.timestamp or 0)


def _make_family(measure: Measure) -> Metric:
    from prometheus_client.core import Metric

    unit = next((unit for unit in _UNITS if measure.name.endswith(f"_{unit}")), "")
    return Metric(f"{PREFIX}{measure.name}", measure.says, "counter" if measure.counts else "gauge", unit)


def render(recorded: Sequence[Curves]) -> str:
    """The text of all nodes.

    Raises:
        UsageError: prometheus_client is not installed.
    """
    try:
        from prometheus_client.openmetrics.exposition import generate_latest
        from prometheus_client.registry import Collector, CollectorRegistry
    except ImportError:
        raise UsageError(
            say("OpenMetrics: the package prometheus_client is missing: pip install 'rlhfdoctor[metrics]'")
        ) from None
    families = Families()
    for curves in recorded:
        for at_s, _, figures in curves.points:
            for figure in figures:
                families.add(figure, curves.run, curves.node, at_s)

    class Recorded(Collector):
        def collect(self) -> Sequence[Metric]:
            return families.all()

    registry = CollectorRegistry()
    registry.register(Recorded())
    return str(generate_latest(registry).decode())  # type: ignore[no-untyped-call]
