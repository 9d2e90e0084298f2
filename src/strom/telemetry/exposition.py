"""From cells to the text that Prometheus reads, by its own client library: the classic format, or OpenMetrics if asked for.

Counters and histograms are summed over all processes that ever counted, gauges over those that live.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from strom._version import __version__
from strom.telemetry.cells import GAUGES, Cells, Key
from strom.telemetry.families import BUILD, FAMILIES, WORKERS, Family


class Exposition(Collector):
    """`render` may run in a thread."""

    def __init__(self, cells: Cells) -> None:
        self._cells = cells
        self._registry = CollectorRegistry()
        self._registry.register(self)

    def render(self, accept: str) -> tuple[bytes, str]:
        """Body and content type, for an Accept header ("": none)."""
        encode, content_type = choose_encoder(accept)
        return encode(self._registry), content_type

    def describe(self) -> Iterable[Metric]:
        return [_metric(family) for family in FAMILIES]

    def collect(self) -> Iterator[Metric]:
        slots = self._cells.read()
        sums = merge(slots)
        sums[BUILD.name, (__version__,)] = [1.0]
        sums[WORKERS.name, ()] = [float(sum(alive for alive, _ in slots))]
        metrics = {family.name: (family, _metric(family)) for family in FAMILIES}
        for (name, labels), cells in sums.items():
            if name in metrics:
                family, metric = metrics[name]
                _add(family, metric, labels, cells)
        yield from (metric for _, metric in metrics.values())


def merge(slots: list[tuple[bool, dict[Key, list[float]]]]) -> dict[Key, list[float]]:
    sums: dict[Key, list[float]] = {}
    for alive, series in slots:
        for key, cells in series.items():
            if not alive and key[0] in GAUGES:
                continue
            known = sums.get(key)
            sums[key] = cells if known is None else [a + b for a, b in zip(known, cells, strict=True)]
    return sums


def _metric(family: Family) -> Metric:
    match family.kind:
        case "counter":
            return CounterMetricFamily(family.name, family.help, labels=family.labels)
        case "gauge":
            return GaugeMetricFamily(family.name, family.help, labels=family.labels)
        case "histogram":
            return HistogramMetricFamily(family.name, family.help, labels=family.labels)


def _add(family: Family, metric: Metric, labels: tuple[str, ...], cells: list[float]) -> None:
    if isinstance(metric, HistogramMetricFamily):
        metric.add_metric(labels, _buckets(family, cells), cells[-1])
    elif isinstance(metric, CounterMetricFamily | GaugeMetricFamily):
        metric.add_metric(labels, cells[0])


def _buckets(family: Family, cells: list[float]) -> list[tuple[str, float]]:
    """Cumulative, as the format has them."""
    found: list[tuple[str, float]] = []
    total = 0.0
    for bound, count in zip((*map(repr, family.buckets), "+Inf"), cells, strict=False):
        total += count
        found.append((bound, total))
    return found
