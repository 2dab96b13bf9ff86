"""What the cluster must know of the prod stack, which it is there to try out."""

from functools import cache
from typing import Any

import yaml

from toolchain.cluster.paths import CHECKOUT

# What the residents of t4 hold all day, MiB by app: about 11 GiB with the rest (record 0000). At night immich-ml has
# unloaded its models.
STEADY_MIB = {"immich-ml": 2100, "llama-swap": 4350, "frigate": 1900, "immich-server": 1200, "portal-stt": 1400}
NIGHT_MIB = 600
TTS_MIB = 2048


def cluster() -> dict[str, str]:
    """Its part `cluster`: the agents' image, the resource domain."""
    part: dict[str, str] = _config()["gpu-tenancy:cluster"]
    return part


def budgets() -> dict[str, int]:
    """Of the residents of t4, MiB by app."""
    return {app: _config()["gpu-tenancy:residents"][app]["gpumem_mib"] for app in STEADY_MIB}


def deployment_of(app: str) -> str:
    """The path of its Deployment, in its tenant's namespace."""
    return f"/apis/apps/v1/namespaces/{tenant_of(app)}/deployments/{app}"


def tenant_of(app: str) -> str:
    """Of a resident, or of a workload on demand."""
    declared = _config()["gpu-tenancy:residents"].get(app) or _config()["gpu-tenancy:on_demand"][app]
    return str(declared["tenant"])


@cache
def _config() -> dict[str, Any]:
    config: dict[str, Any] = yaml.safe_load((CHECKOUT / "Pulumi.prod.yaml").read_text())["config"]
    return config
