"""Tests with promtool that each alert fires soon enough after its fault."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from components.monitoring.component import prometheus_rule
from tests.support.alerting import AFTER_SECONDS, FAULT, Series, TimeLine, beats
from tests.support.healthy import (
    ARGS,
    CRON_JOBS,
    HEALTHY,
    MIB,
    changed,
    last_success,
    running,
    selected,
)

Values = Callable[[int], float | None]
AGE = 'gpu_memory_sample_age_seconds{node="a"}'
POD = 'node="a",namespace="chat",pod="chat-0",pod_uid="u",container="c",gpu="0",uuid="GPU-a"'
HELD = f"gpu_container_memory_capped{{{POD}}}"
ABLE = 'gpu_device_memory_cap_able{node="a",gpu="0",uuid="GPU-a"}'


def steady(series: dict[str, str]) -> dict[str, Values]:
    line: dict[str, Values] = {}
    for name, values in series.items():
        value = float(re.split("[x+]", values)[0])
        line[name] = lambda second, value=value: value  # type: ignore[misc]
    line[AGE] = lambda second: 1 + second % 89 / 1000
    return line | {last_success(name): beats() for name in CRON_JOBS}


RUNNING = running("voice", "voice-0")
USER = 'gpu_pod_memory_used_bytes{node="a",gpu="0",uuid="GPU-a",namespace="voice",pod="voice-0"}'
NORMAL = steady(changed(HEALTHY, {USER: f"{100 * MIB}x30", RUNNING: "1x30", HELD: "1x30", ABLE: "1x30"}))
(API_AGE,), (FREE,), (POD_USED,), (GUARD_AGE,), (WATCHED,) = (
    selected(NORMAL, key)
    for key in (
        "gpu_memory_exporter_api_age_seconds",
        "gpu_device_memory_free_bytes",
        'gpu_pod_memory_used_bytes{namespace="chat"}',
        'memory_guard_api_age_seconds{node="x"}',
        f'kube_cronjob_status_last_successful_time{{cronjob="{CRON_JOBS[1]}"}}',
    )
)


def before(value: float | None, after: float | None, *, seconds: int = 10**6) -> Values:
    return lambda second: after if FAULT < second <= FAULT + seconds else value


def ends(series: str) -> Values:
    return lambda second: NORMAL[series](second) if second <= FAULT else None


def because(series: str, reason: str) -> str:
    return series.replace("}", f',reason="{reason}"}}')


FAULTS: dict[str, tuple[dict[str, Values], str, int]] = {
    "a watchdog that stops completing runs": ({WATCHED: beats(until=FAULT + 3)}, "GpuAgentSilent", 175),
    "an exporter that is gone": (
        {name: ends(name) for name in NORMAL if name.startswith("gpu_")},
        "GpuTelemetryMissing",
        175,
    ),
    "a guard that is gone": ({GUARD_AGE: ends(GUARD_AGE)}, "MemoryGuardMissing", 175),
    "an exporter that answers the same for ever": (
        {AGE: lambda second: 1 + min(second, FAULT + 1) % 89 / 1000},
        "GpuTelemetryFrozen",
        175,
    ),
    "an exporter that shows pods that are gone": ({RUNNING: ends(RUNNING)}, "GpuTelemetryFrozen", 175),
    "an exporter without rights": ({API_AGE: lambda second: 14 + max(0, second - FAULT)}, "GpuBudgetsStale", 175),
    "an exporter that contradicts itself": ({FREE: before(4000 * MIB, 400 * MIB)}, "GpuTelemetryImplausible", 175),
    "a device under its floor": (
        {FREE: before(4000 * MIB, 1000 * MIB), POD_USED: before(11360 * MIB, 14360 * MIB)},
        "GpuMemoryBelowFloor",
        175,
    ),
    # The exporter reads every 5 s, and Prometheus scrapes every 15 s.
    "a container that is no longer held": (
        {HELD: before(1, None), because(HELD, "no-limit"): before(None, 0)},
        "GpuCapMissing",
        40,
    ),
    "a node that cannot hold containers": (
        {ABLE: before(1, None), because(ABLE, "cgroup-v1"): before(None, 0)},
        "GpuCapUnable",
        AFTER_SECONDS,
    ),
}


def line(series: Series, folder: Path) -> TimeLine:
    return TimeLine(prometheus_rule(ARGS)["spec"], series, folder)


@pytest.mark.parametrize("fault", FAULTS)
def test_the_alert_is_there_in_time_after(tmp_path: Path, fault: str) -> None:
    different, alert, seconds = FAULTS[fault]
    line(NORMAL | different, tmp_path).assert_only_then_fires(alert, seconds)


def test_a_restart_that_one_scrape_sees_is_no_missing_cap(tmp_path: Path) -> None:
    lost = {because(HELD, "no-cgroup"): before(None, 0, seconds=15)}
    line(NORMAL | lost, tmp_path).assert_never_fires("GpuCapMissing")
