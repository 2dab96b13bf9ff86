import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenancy.host_memory.history import JointUse, UsageSample, interval, joint_use
from tenancy.host_memory.report import host_memory_report
from tests.support.memory_pools import CLICKHOUSE, INFERENCE, NODE_4

DAY_MINUTES = 1440
POOL = replace(NODE_4, workloads=(INFERENCE, replace(CLICKHOUSE, peak_mib=6000)))


def history(inference: dict[int, float], clickhouse: dict[int, float]) -> list[UsageSample]:
    return [
        UsageSample(minute * 60, name, peaks.get(minute, 5000))
        for name, peaks in (("inference", inference), ("clickhouse", clickhouse))
        for minute in range(DAY_MINUTES)
    ]


def joint(inference: dict[int, float] | None = None, clickhouse: dict[int, float] | None = None) -> JointUse:
    return joint_use(POOL, history(inference or {}, clickhouse or {}))


def contradictions(found: JointUse) -> dict[str, str]:
    return {f"{use.workload.name}.{key}": seen for use in found.uses for key, seen in use.contradictions.items()}


def test_a_history_within_the_declarations_contradicts_nothing() -> None:
    found = joint({700: 20_000}, {900: 5900})
    assert contradictions(found) == {}
    assert found.highest == (700, (20_000, 5000))


CONTRADICTIONS = {
    "a steady state that rose": (dict.fromkeys(range(800), 5500.0), "steady_mib", "usually holds 5500 MiB, declared 5"),
    "a request that is passed often": (dict.fromkeys(range(100), 9000.0), "request_mib", "above its request of 8192 "),
    "a higher peak": ({5: 21_000.0}, "peak_mib", "held 21000 MiB, declared 20480"),
}


@pytest.mark.parametrize("case", CONTRADICTIONS)
def test_what_no_longer_holds_is_named_by_its_key(case: str) -> None:
    inference, key, seen = CONTRADICTIONS[case]
    found = contradictions(joint(inference))
    assert found.keys() == {f"inference.{key}"}
    assert found[f"inference.{key}"].startswith(seen)


def test_peaks_that_come_together_are_told_from_chance() -> None:
    both = dict.fromkeys(range(144), 20_000.0), dict.fromkeys(range(144), 6000.0)
    found = joint(*both)
    assert found.together == pytest.approx(0.1)
    assert found.by_chance == pytest.approx(0.01)


def test_who_is_declared_not_to_peak_and_does_is_counted() -> None:
    both = dict.fromkeys(range(144), 20_000.0), dict.fromkeys(range(144), 6000.0)
    assert joint_use(NODE_4, history(*both)).together == pytest.approx(0.1)
    at_its_steady_state = dict.fromkeys(range(144), float(CLICKHOUSE.request_mib))
    assert joint_use(NODE_4, history(both[0], at_its_steady_state)).together == 0


def test_a_shortfall_is_counted_by_the_hour() -> None:
    small = replace(POOL, allocatable_mib=20_000, memory_mib=20_100)
    samples = history(dict.fromkeys(range(30, 90), 18_000.0), {})
    found = joint_use(small, samples).short
    assert (found.hits, found.hours) == (2, 24)


def test_minutes_that_one_workload_misses_are_left_out() -> None:
    samples = [s for s in history({}, {}) if s.workload == "inference" or s.time < 6000]
    assert len(joint_use(POOL, samples).minutes) == 100


def test_a_history_without_a_workload_is_refused_with_its_name() -> None:
    with pytest.raises(ValueError, match="no minute has a sample of every workload; none at all: clickhouse"):
        joint_use(POOL, [s for s in history({}, {}) if s.workload == "inference"])


# The expected bounds come from published tables of confidence intervals.
@pytest.mark.parametrize(
    ("hits", "trials", "low", "high"),
    [
        (0, 10, 0, 0.3085),
        (1, 10, 0.0025, 0.4450),
        (5, 10, 0.1871, 0.8129),
        (10, 10, 0.6915, 1),
        (2, 100, 0.0024, 0.0704),
    ],
)
def test_the_interval_is_the_exact_one(hits: int, trials: int, low: float, high: float) -> None:
    assert interval(hits, trials) == pytest.approx((low, high), abs=6e-5)


@given(st.integers(min_value=1, max_value=10_000), st.data())
def test_the_interval_holds_what_was_seen(trials: int, data: st.DataObject) -> None:
    hits = data.draw(st.integers(min_value=0, max_value=min(trials, 50)))
    low, high = interval(hits, trials)
    assert 0 <= low <= hits / trials <= high <= 1
    assert math.isfinite(low + high)


def test_the_report_draws_the_peak_under_what_the_pods_have() -> None:
    text = host_memory_report(POOL, joint({700: 20_000}, {700: 6500}))
    lines = text.splitlines()
    assert lines[0] == "node-4: 1440 minutes of all workloads, 1970-01-01 00:00 to 1970-01-01 23:59"
    assert all(len(line) <= 100 for line in lines[:21])
    assert "─" in lines[2]
    assert sum("█" in line for line in lines[2:14]) == 4
    assert "! memory_pools.node-4.workloads.clickhouse.peak_mib: held 6500 MiB, declared 6000" in lines
    assert "together at most 26500 of 62464 MiB, 1970-01-01 11:40" in lines
    assert any("short with every victim gone: 0 of 24 hours" in line for line in lines)
