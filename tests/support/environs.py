"""The environment variables of each agent, from the agent's manifest."""

import json

RECONCILE = {
    "LEDGER_NAMESPACE": "gpu-tenancy-system",
    "POD_NAME": "gpumem-reconcile-1",
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
    "EVICTIONS_PER_HOUR": "6",
    "LEAST_FREE_MIB": "0",
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
