"""Metrics of one scrape, gathered sample by sample in any order, in Prometheus' terms."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.utils import floatToGoString

from sidedraft.wire.figures import BOUNDS_US

MICROSECONDS = 1e6
"""In a second."""


class Families:
    """A metric's samples stay together, as the format wants it; all of them have the same label names."""

    def __init__(self) -> None:
        self._counters: dict[str, CounterMetricFamily] = {}
        self._gauges: dict[str, GaugeMetricFamily] = {}
        self._histograms: dict[str, HistogramMetricFamily] = {}

    def __iter__(self) -> Iterator[Metric]:
        yield from self._gauges.values()
        yield from self._counters.values()
        yield from self._histograms.values()

    def counter(self, name: str, text: str, value: float, **labels: str) -> None:
        """A number that only grows; `name` without `_total`."""
        family = self._counters.get(name)
        if family is None:
            family = self._counters[name] = CounterMetricFamily(name, text, labels=tuple(labels))
        family.add_metric(tuple(labels.values()), value)

    def gauge(self, name: str, text: str, value: float, **labels: str) -> None:
        """A number that goes up and down."""
        family = self._gauges.get(name)
        if family is None:
            family = self._gauges[name] = GaugeMetricFamily(name, text, labels=tuple(labels))
        family.add_metric(tuple(labels.values()), value)

    def histogram(
        self,
        name: str,
        text: str,
        bounds: Sequence[float],
        counts: Sequence[int],
        total: float,
        **labels: str,
    ) -> None:
        """`counts`: one value a bucket, not cumulative; one more than there are bounds."""
        family = self._histograms.get(name)
        if family is None:
            family = self._histograms[name] = HistogramMetricFamily(name, text, labels=tuple(labels))
        ends = [*map(floatToGoString, bounds), "+Inf"]
        buckets = list(zip(ends, accumulate(counts), strict=True))
        family.add_metric(tuple(labels.values()), buckets=buckets, sum_value=total)

    def stage(self, name: str, text: str, counts: Sequence[int], total_us: int, **labels: str) -> None:
        """A stage's times, in the buckets that all stages share; exported in seconds."""
        seconds = [bound / MICROSECONDS for bound in BOUNDS_US]
        self.histogram(name, text, seconds, counts, total_us / MICROSECONDS, **labels)
