"""Counts and times for Prometheus, kept as plain numbers, since some are counted several times a request.

All of it is written on the event loop's thread, and put into Prometheus's form when it is asked for.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence

from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString  # pyright: ignore[reportUnknownVariableType]

__all__ = ["Meter", "Meters", "Times"]


class Meter:
    """A number that only grows, or a gauge that goes up and down."""

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value = 0.0


class Times:
    """How many times were at most as long as each of some bounds, in seconds, and their sum."""

    __slots__ = ("_bounds", "counts", "sum")

    def __init__(self, bounds: Sequence[float]) -> None:
        self._bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.sum = 0.0

    def observe(self, seconds: float) -> None:
        """One more."""
        self.counts[bisect_left(self._bounds, seconds)] += 1
        self.sum += seconds

    def buckets(self) -> Iterator[tuple[str, float]]:
        """Each bound with how many were at most as long."""
        total = 0
        for bound, count in zip((*self._bounds, float("inf")), self.counts, strict=True):
            total += count
            yield floatToGoString(bound), float(total)


class Meters(Collector):
    """Families of meters and of times, each of them by its labels."""

    def __init__(self, bounds: Sequence[float]) -> None:
        self._bounds = bounds
        self._meters: dict[str, dict[tuple[str, ...], Meter]] = {}
        self._times: dict[str, dict[tuple[str, ...], Times]] = {}
        self._families: list[tuple[type[Metric], str, str, Sequence[str]]] = []

    def counter(self, name: str, text: str, labels: Sequence[str]) -> None:
        """Begin a family of numbers that only grow."""
        self._families.append((CounterMetricFamily, name, text, labels))
        self._meters[name] = {}

    def gauge(self, name: str, text: str, labels: Sequence[str]) -> None:
        """Begin a family of numbers that go up and down."""
        self._families.append((GaugeMetricFamily, name, text, labels))
        self._meters[name] = {}

    def histogram(self, name: str, text: str, labels: Sequence[str]) -> None:
        """Begin a family of times."""
        self._families.append((HistogramMetricFamily, name, text, labels))
        self._times[name] = {}

    def meter(self, name: str, *values: str) -> Meter:
        """The meter of a family with these values of its labels."""
        family = self._meters[name]
        found = family.get(values)
        if found is None:
            found = family[values] = Meter()
        return found

    def times(self, name: str, *values: str) -> Times:
        """The times of a family with these values of its labels."""
        family = self._times[name]
        found = family.get(values)
        if found is None:
            found = family[values] = Times(self._bounds)
        return found

    def collect(self) -> Iterable[Metric]:
        """All families, as Prometheus has them."""
        for kind, name, text, labels in self._families:
            family = kind(name, text, labels=labels)  # pyright: ignore[reportCallIssue]
            for values, meter in self._meters.get(name, {}).items():
                family.add_metric(values, meter.value)  # pyright: ignore[reportUnknownMemberType, reportAttributeAccessIssue]
            for values, times in self._times.get(name, {}).items():
                family.add_metric(values, [*times.buckets()], times.sum)  # pyright: ignore[reportUnknownMemberType, reportAttributeAccessIssue]
            yield family
