"""Tests that counters and histograms have Prometheus' format."""

from agents.runtime import exposition
from agents.runtime.metrics import BUCKETS, Counter, Histogram


def shown(*measures: Counter | Histogram) -> dict[str, float]:
    text = exposition.render_families(measure.family() for measure in measures)
    return {",".join((s.name, *s.labels.values())): s.value for s in exposition.parse(text)}


def test_a_bucket_has_all_that_took_no_longer_than_its_bound() -> None:
    seconds = Histogram("seconds", "Time.", "verb")
    for each in (0.0005, 0.0006, 5.0, 6.0):
        seconds.observe("bind", each)
    found = shown(seconds)
    counts = [found[f"seconds_bucket,bind,{bound}"] for bound in (*BUCKETS, "+Inf")]
    assert counts == [1, *[2] * (len(BUCKETS) - 2), 3, 4]
    assert found["seconds_count,bind"] == 4
    assert found["seconds_sum,bind"] == 0.0005 + 0.0006 + 5.0 + 6.0
