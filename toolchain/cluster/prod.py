"""Reads the figures of the prod stack that the local cluster and the demo use."""

from functools import cache
from typing import Any

import yaml

from toolchain.cluster.paths import CHECKOUT

# The steady use of each resident of t4, in MiB: 2.1, 4.35, 1.9, 1.2 and 1.5 GiB (record 0000).
STEADY_MIB = {"immich-ml": 2150, "llama-swap": 4454, "frigate": 1946, "immich-server": 1229, "portal-stt": 1536}
# The use of immich-ml at night is assumed, because its models are unloaded at night.
NIGHT_MIB = 600
TTS_MIB = 2048

# The namespace of the GPU operator (record 0000).
OPERATOR_NAMESPACE = "nvidia"


def cluster_settings() -> dict[str, str]:
    """Returns the settings below `cluster` in prod's stack file, for instance the agents' image."""
    part: dict[str, str] = _config()["gpu-tenancy:cluster"]
    return part


def budgets() -> dict[str, int]:
    """Maps each resident of t4 to its budget in MiB."""
    return {app: _config()["gpu-tenancy:residents"][app]["gpumem_mib"] for app in STEADY_MIB}


def deployment_of(app: str) -> str:
    """Returns the path of the app's Deployment in its tenant's namespace."""
    return f"/apis/apps/v1/namespaces/{tenant_of(app)}/deployments/{app}"


def tenant_of(app: str) -> str:
    """Returns the tenant of a resident or of an on-demand workload."""
    declared = _config()["gpu-tenancy:residents"].get(app) or _config()["gpu-tenancy:on_demand"][app]
    return str(declared["tenant"])


@cache
def _config() -> dict[str, Any]:
    config: dict[str, Any] = yaml.safe_load((CHECKOUT / "Pulumi.prod.yaml").read_text())["config"]
    return config
