"""Tests when the passes of a run begin, and how long a run lasts."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from agents.runtime.clock import seconds_left
from tests.support.fake_cluster import FakeTime

MINUTE = datetime(2026, 11, 21, 4, 30, tzinfo=UTC)
SCHEDULED = f"gpu-vram-watchdog-{int(MINUTE.timestamp()) // 60}-x7k2p"


def test_a_pass_longer_than_its_interval_is_followed_at_once() -> None:
    time = FakeTime()

    def monotonic() -> float:
        time.seconds += 0.001
        return time.seconds

    clock = replace(time.clock(), monotonic=monotonic)
    for _ in clock.passes(run_seconds=10, interval_seconds=2):
        time.seconds += 3
    assert time.slept == [0.0, 0.0, 0.0]


@pytest.mark.parametrize(
    ("run_seconds", "left_by_lateness"),
    [
        (45, {0: 45, 2: 45, 3: 45, 12: 36, 47: 1, 48: 0, 59: 0, 60: 45, -1: 45}),
        (67, {2: 67, 12: 58, 59: 11, 60: 67}),
        (0, {0: 0}),
    ],
)
def test_a_run_that_starts_late_ends_before_its_jobs_deadline_all_the_same(
    run_seconds: int, left_by_lateness: dict[int, int]
) -> None:
    """A run's pod has the scheduled minute in its name."""
    for late, left in left_by_lateness.items():
        assert seconds_left(run_seconds, SCHEDULED, MINUTE + timedelta(seconds=late)) == left
