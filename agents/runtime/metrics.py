"""Counters and histograms that any thread may write and read."""

import threading
from bisect import bisect_left
from collections.abc import Iterator

from agents.runtime.exposition import Family, MetricType, Sample

# The upper bounds of the buckets in seconds. The bounds fit answers from the cache (below 1 ms), and requests to the
# API server (up to 5 s).
BUCKETS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)


class Counter:
    def __init__(self, name: str, text: str, label: str) -> None:
        self._name, self._text, self._label = name, text, label
        self._lock = threading.Lock()
        self._counts: dict[str, int] = {}

    def add(self, value: str, times: int = 1) -> None:
        with self._lock:
            self._counts[value] = self._counts.get(value, 0) + times

    def family(self) -> Family:
        with self._lock:
            counts = dict(self._counts)
        samples = (Sample(name=self._name, labels={self._label: each}, value=count) for each, count in counts.items())
        return Family(name=self._name, kind=MetricType.COUNTER, text=self._text, samples=tuple(samples))


class Histogram:
    """A histogram of durations. Each value of one label has its own buckets."""

    def __init__(self, name: str, text: str, label: str) -> None:
        self._name, self._text, self._label = name, text, label
        self._lock = threading.Lock()
        self._counts: dict[str, list[int]] = {}
        self._sums: dict[str, float] = {}

    def observe(self, value: str, seconds: float) -> None:
        bucket = bisect_left(BUCKETS, seconds)
        with self._lock:
            self._counts.setdefault(value, [0] * (len(BUCKETS) + 1))[bucket] += 1
            self._sums[value] = self._sums.get(value, 0.0) + seconds

    def family(self) -> Family:
        with self._lock:
            counts = {value: tuple(each) for value, each in self._counts.items()}
            sums = dict(self._sums)
        samples = (sample for value in counts for sample in self._samples(value, counts[value], sums[value]))
        return Family(name=self._name, kind=MetricType.HISTOGRAM, text=self._text, samples=tuple(samples))

    def _samples(self, value: str, counts: tuple[int, ...], seconds: float) -> Iterator[Sample]:
        total = 0
        for bound, count in zip((*map(str, BUCKETS), "+Inf"), counts, strict=True):
            total += count
            yield Sample(name=f"{self._name}_bucket", labels={self._label: value, "le": bound}, value=total)
        yield Sample(name=f"{self._name}_sum", labels={self._label: value}, value=seconds)
        yield Sample(name=f"{self._name}_count", labels={self._label: value}, value=total)
