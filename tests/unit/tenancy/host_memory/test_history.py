from dataclasses import replace

import pytest

from tenancy.host_memory.history import PoolUse, UsageSample, pool_use
from tests.support.memory_pools import CLICKHOUSE, INFERENCE, NODE_4

DAY_MINUTES = 1440
POOL = replace(NODE_4, workloads=(INFERENCE, replace(CLICKHOUSE, peak_mib=6000)))


def history(inference: dict[int, float], clickhouse: dict[int, float]) -> list[UsageSample]:
    return [
        UsageSample(minute * 60, name, peaks.get(minute, 5000))
        for name, peaks in (("inference", inference), ("clickhouse", clickhouse))
        for minute in range(DAY_MINUTES)
    ]


def joint(inference: dict[int, float] | None = None, clickhouse: dict[int, float] | None = None) -> PoolUse:
    return pool_use(POOL, history(inference or {}, clickhouse or {}))


def contradictions(found: PoolUse) -> dict[str, str]:
    return {f"{use.workload}.{key}": seen for use in found.workloads for key, seen in use.contradictions.items()}


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


def test_peaks_that_come_together_are_counted() -> None:
    both = dict.fromkeys(range(144), 20_000.0), dict.fromkeys(range(144), 6000.0)
    assert joint(*both).together == pytest.approx(0.1)


def test_who_is_declared_not_to_peak_and_does_is_counted() -> None:
    both = dict.fromkeys(range(144), 20_000.0), dict.fromkeys(range(144), 6000.0)
    assert pool_use(NODE_4, history(*both)).together == pytest.approx(0.1)
    at_its_steady_state = dict.fromkeys(range(144), float(CLICKHOUSE.request_mib))
    assert pool_use(NODE_4, history(both[0], at_its_steady_state)).together == 0


def test_a_shortfall_is_counted_by_the_hour() -> None:
    small = replace(POOL, allocatable_mib=20_000, memory_mib=20_100)
    samples = history(dict.fromkeys(range(30, 90), 18_000.0), {})
    found = pool_use(small, samples).short
    assert (found.hits, found.hours) == (2, 24)


def test_minutes_that_one_workload_misses_are_left_out() -> None:
    samples = [s for s in history({}, {}) if s.workload == "inference" or s.time < 6000]
    assert pool_use(POOL, samples).minutes == 100


def test_a_history_without_a_workload_is_refused_with_its_name() -> None:
    with pytest.raises(ValueError, match="no minute has a sample of every workload; none at all: clickhouse"):
        pool_use(POOL, [s for s in history({}, {}) if s.workload == "inference"])
