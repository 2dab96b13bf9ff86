"""Tests that one error lists all wrong environment variables."""

import pytest

from agents.exporter import main as exporter
from agents.gate import main as gate
from agents.reconcile import main as reconcile
from agents.runtime.settings import SettingsError, read
from agents.watchdog import main as watchdog
from tests.support.environs import EXPORTER, RECONCILE, TTS, WATCHDOG, gates


def problems(kind: type, environ: dict[str, str]) -> list[str]:
    with pytest.raises(SettingsError) as caught:
        read(kind, environ)
    return caught.value.problems


def test_settings_are_read_with_their_types() -> None:
    assert read(reconcile.Settings, RECONCILE) == reconcile.Settings(
        ledger_namespace="gpu-tenancy-system", pod_name="gpumem-reconcile-1", interval_seconds=10, run_seconds=50
    )
    assert read(exporter.Settings, EXPORTER).port == 9401
    assert read(watchdog.Settings, WATCHDOG).tenants == ("immich", "frigate")
    assert read(watchdog.Settings, {**WATCHDOG, "TENANTS": ""}).tenants == ()


def test_every_missing_variable_is_named_at_once() -> None:
    assert problems(reconcile.Settings, {}) == [
        f"{name}: is not set; set it in the agent's manifest" for name in RECONCILE
    ]


def test_every_wrong_value_is_named_at_once_with_what_to_change() -> None:
    wrong = {"LEDGER_NAMESPACE": " ", "INTERVAL_SECONDS": "5s", "RUN_SECONDS": "-1"}
    assert problems(reconcile.Settings, {**RECONCILE, **wrong}) == [
        "LEDGER_NAMESPACE: must not be empty (got ' ')",
        "INTERVAL_SECONDS: must be a whole number from 1 to 86400 (got '5s')",
        "RUN_SECONDS: must be a whole number from 0 to 3600 (got '-1')",
    ]
    assert problems(exporter.Settings, {**EXPORTER, "PUBLISH_DEVICES": "False"}) == [
        "PUBLISH_DEVICES: must be true or false (got 'False')"
    ]


@pytest.mark.parametrize(
    ("shape", "problem"),
    [
        ({**TTS, "need_mib": "2048"}, "GATES.0.need_mib: must be a whole number (got '2048')"),
        ({**TTS, "demand": {"kind": "cron"}}, "GATES.0.demand.kind: must be one of http_json, prometheus, window"),
    ],
)
def test_a_wrong_gate_is_named_with_its_path(shape: object, problem: str) -> None:
    (found,) = problems(gate.Settings, gates(shape))
    assert found.startswith(problem)
