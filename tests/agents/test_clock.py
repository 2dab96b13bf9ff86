"""The passes of a run, however long each takes."""

from dataclasses import replace

from tests.agents.cluster import FakeTime


def test_a_pass_longer_than_its_interval_is_followed_at_once() -> None:
    """Time goes on between any two looks at the clock."""
    time = FakeTime()

    def monotonic() -> float:
        time.seconds += 0.001
        return time.seconds

    clock = replace(time.clock(), monotonic=monotonic)
    for _ in clock.passes(run_seconds=10, interval_seconds=2):
        time.seconds += 3
    assert time.slept == [0.0, 0.0, 0.0]
