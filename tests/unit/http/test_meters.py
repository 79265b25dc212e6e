"""Counts and times come out of `/metrics` as Prometheus's own would."""

from __future__ import annotations

import pytest
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from antiphon.http.meters import Meters

BOUNDS = (0.1, 1.0, 5.0)
SECONDS = (0.05, 0.1, 0.5, 1.0, 4.0, 60.0)


@pytest.mark.requirement("ops:metrics")
def test_meters_are_told_as_prometheus_would_tell_them() -> None:
    meters = Meters(BOUNDS)
    meters.counter("a_count", "Counted.", ["kind"])
    meters.gauge("a_gauge", "Now.", [])
    meters.histogram("a_time_seconds", "Timed.", ["kind"])
    told, own = CollectorRegistry(), CollectorRegistry()
    own.register(meters)
    counter = Counter("a_count", "Counted.", ["kind"], registry=told)
    gauge = Gauge("a_gauge", "Now.", registry=told)
    histogram = Histogram("a_time_seconds", "Timed.", ["kind"], registry=told, buckets=BOUNDS)
    for number, seconds in enumerate(SECONDS):
        kind = "odd" if number % 2 else "even"
        counter.labels(kind).inc(number)
        meters.meter("a_count", kind).value += number
        histogram.labels(kind).observe(seconds)
        meters.times("a_time_seconds", kind).observe(seconds)
    gauge.inc(3)
    gauge.dec()
    meters.meter("a_gauge").value += 3
    meters.meter("a_gauge").value -= 1

    def lines(registry: CollectorRegistry) -> list[str]:
        text = generate_latest(registry).decode()
        # When a family began is left out.
        return sorted(line for line in text.splitlines() if "_created" not in line)

    assert lines(own) == lines(told)
