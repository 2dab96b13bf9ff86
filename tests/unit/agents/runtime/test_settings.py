"""Settings from the environment: every refusal at once, in the operator's words."""

import json

import pytest

from agents.exporter import main as exporter
from agents.gate import main as gate
from agents.gate.probes import HttpJson, PrometheusQuery, Window
from agents.reconcile import main as reconcile
from agents.runtime.settings import SettingsError, read
from agents.watchdog import main as watchdog

RECONCILE = {
    "LEDGER_NAMESPACE": "gpu-tenancy-system",
    "POD_NAME": "gpumem-reconcile-1",
    "DRY_RUN": "false",
    "INTERVAL_SECONDS": "10",
    "RUN_SECONDS": "50",
}
EXPORTER = {
    "PORT": "9401",
    "INTERVAL_SECONDS": "5",
    "NODE_NAME": "k8s-node1",
    "LEDGER_NAMESPACE": "system",
    "PUBLISH_DEVICES": "false",
}
WATCHDOG = {
    **RECONCILE,
    "DRY_RUN": "true",
    "EXPORTER_NAMESPACE": "gpu-tenancy-system-nodes",
    "EXPORTER_PORT": "9401",
    "MINIMUM_AGE_SECONDS": "120",
    "COOL_DOWN_SECONDS": "600",
    "GRACE_SECONDS": "30",
    "WAITING_SECONDS": "30",
    "EVICTIONS_PER_HOUR": "6",
    "NODE_EVICTIONS_PER_HOUR": "8",
    "TOTAL_EVICTIONS_PER_HOUR": "24",
    "DELETE_BLOCKED": "false",
    "RECYCLE_BARE_PODS": "false",
    "TENANTS": "immich,frigate",
}
TTS = {
    "name": "tts",
    "namespace": "tts",
    "deployment": "tts",
    "pool": "t4",
    "need_mib": 2048,
    "margin_mib": 256,
    "samples": 3,
    "idle_seconds": 300,
    "cool_down_seconds": 600,
    "demand": {"kind": "window", "between": "02:00-06:00", "time_zone": "Europe/London"},
}


def gates(*shapes: object) -> dict[str, str]:
    return {**WATCHDOG, "STARTING_SECONDS": "300", "GATES": json.dumps(shapes)}


def problems(kind: type, environ: dict[str, str]) -> list[str]:
    with pytest.raises(SettingsError) as caught:
        read(kind, environ)
    return caught.value.problems


def test_settings_are_read_with_their_types() -> None:
    assert read(reconcile.Settings, RECONCILE) == reconcile.Settings(
        ledger_namespace="gpu-tenancy-system",
        pod_name="gpumem-reconcile-1",
        dry_run=False,
        interval_seconds=10,
        run_seconds=50,
    )
    assert read(exporter.Settings, EXPORTER).port == 9401
    assert read(watchdog.Settings, WATCHDOG).tenants == ("immich", "frigate")
    assert read(watchdog.Settings, {**WATCHDOG, "TENANTS": ""}).tenants == ()


def test_every_missing_variable_is_named_at_once() -> None:
    assert problems(reconcile.Settings, {}) == [
        f"{name}: is not set; set it in the agent's manifest" for name in RECONCILE
    ]


def test_every_wrong_value_is_named_at_once_with_what_to_change() -> None:
    wrong = {
        "LEDGER_NAMESPACE": " ",
        "POD_NAME": "",
        "DRY_RUN": "False",
        "INTERVAL_SECONDS": "5s",
        "RUN_SECONDS": "-1",
    }
    assert problems(reconcile.Settings, wrong) == [
        "LEDGER_NAMESPACE: must not be empty (got ' ')",
        "POD_NAME: must not be empty (got '')",
        "DRY_RUN: must be true or false (got 'False')",
        "INTERVAL_SECONDS: must be a whole number from 1 to 86400 (got '5s')",
        "RUN_SECONDS: must be a whole number from 0 to 3600 (got '-1')",
    ]


@pytest.mark.parametrize("value", ["0", "65536", "80.0", "٨٠", "1_000", ""])
def test_a_port_is_a_port(value: str) -> None:
    (problem,) = problems(exporter.Settings, {**EXPORTER, "PORT": value})
    assert problem == f"PORT: must be a whole number from 1 to 65535 (got {value!r})"


@pytest.mark.parametrize(
    ("demand", "expected"),
    [
        (TTS["demand"], Window(between="02:00-06:00", time_zone="Europe/London")),
        (
            {"kind": "http_json", "url": "http://q.ytdlp.svc/status", "field": "pending", "at_least": 2},
            HttpJson(url="http://q.ytdlp.svc/status", field="pending", at_least=2),
        ),
        (
            {"kind": "prometheus", "address": "http://prometheus:9090", "query": "up", "at_least": 1},
            PrometheusQuery(address="http://prometheus:9090", query="up"),
        ),
    ],
)
def test_a_gate_has_one_of_three_demand_signals(demand: object, expected: object) -> None:
    (found,) = read(gate.Settings, gates({**TTS, "demand": demand})).gates
    assert (found.name, found.need_mib, found.demand) == ("tts", 2048, expected)


@pytest.mark.parametrize(
    ("shape", "problem"),
    [
        ({**TTS, "need_mib": "2048"}, "GATES.0.need_mib: must be a whole number (got '2048')"),
        ({**TTS, "need_mib": 0}, "GATES.0: need_mib and samples must be at least 1; margin_mib, "),
        (
            {**TTS, "extra": 1},
            "GATES.0.extra: unknown key; known here: cool_down_seconds, demand, deployment, ",
        ),
        ({**TTS, "demand": {"kind": "cron"}}, "GATES.0.demand.kind: must be one of http_json, prometheus, window"),
        ({**TTS, "demand": {"kind": "window"}}, "GATES.0.demand.between: is missing"),
        (
            {**TTS, "demand": {"kind": "window", "between": "2-6"}},
            "GATES.0.demand: between: must be two times of the day",
        ),
        ({**TTS, "demand": {"kind": "window", "between": "25:00-06:00"}}, "GATES.0.demand: hour must be in 0..23"),
        (
            {**TTS, "demand": {"kind": "window", "between": "02:00-02:00"}},
            "GATES.0.demand: between: must be two different",
        ),
        (
            {**TTS, "demand": {"kind": "window", "between": "02:00-06:00", "time_zone": "Mars/Base"}},
            "GATES.0.demand: time_zone: 'Mars/Base' is not known to the agent's image",
        ),
        (
            {**TTS, "demand": {"kind": "http_json", "url": "file:///etc/passwd", "field": "x"}},
            "GATES.0.demand: must be an http or https URL (got 'file:///etc/passwd')",
        ),
        (3, "GATES.0: must be a map (got 3)"),
    ],
)
def test_a_wrong_gate_is_named_with_its_path(shape: object, problem: str) -> None:
    (found,) = problems(gate.Settings, gates(shape))
    assert found.startswith(problem)


def test_wrong_gates_are_told_of_together_with_other_variables() -> None:
    found = problems(gate.Settings, {**gates({**TTS, "pool": 1}, {**TTS, "name": 2}), "RUN_SECONDS": "x"})
    assert [line.partition(":")[0] for line in found] == ["RUN_SECONDS", "GATES.0.pool", "GATES.1.name"]


@pytest.mark.parametrize("value", ["", "{}", "3"])
def test_gates_are_a_json_list(value: str) -> None:
    (problem,) = problems(gate.Settings, {**gates(), "GATES": value})
    assert problem.startswith("GATES: must be a JSON list")
