"""Tests that counters and histograms have Prometheus' format."""

import threading
from collections.abc import Callable

from agents.runtime import exposition
from agents.runtime.metrics import BUCKETS, Counter, Histogram


def shown(*measures: Counter | Histogram) -> dict[str, float]:
    text = exposition.render_families(measure.family() for measure in measures)
    return {",".join((s.name, *s.labels.values())): s.value for s in exposition.parse(text)}


def by_threads(work: Callable[[], None]) -> None:
    threads = [threading.Thread(target=lambda: [work() for _ in range(1000)]) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def test_a_bucket_has_all_that_took_no_longer_than_its_bound() -> None:
    seconds = Histogram("seconds", "Time.", "verb")
    for each in (0.0005, 0.0006, 5.0, 6.0):
        seconds.observe("bind", each)
    found = shown(seconds)
    counts = [found[f"seconds_bucket,bind,{bound}"] for bound in (*BUCKETS, "+Inf")]
    assert counts == [1, *[2] * (len(BUCKETS) - 2), 3, 4]
    assert found["seconds_count,bind"] == 4
    assert found["seconds_sum,bind"] == 0.0005 + 0.0006 + 5.0 + 6.0


def test_nothing_is_lost_between_threads() -> None:
    counter, seconds = Counter("c", "C.", "l"), Histogram("h", "H.", "l")
    by_threads(lambda: (counter.add("x"), seconds.observe("x", 0.002))[0])
    assert shown(counter)["c,x"] == 8000
    assert shown(seconds)["h_bucket,x,+Inf"] == shown(seconds)["h_count,x"] == 8000
