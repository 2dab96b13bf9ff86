"""Builds Pulumi programs that use the platform."""

from dataclasses import replace
from typing import Any

from policy.rule import an_object
from tenancy.host_memory.pool import HostMemoryPools
from tenancy.ledger import AdmissionTerms, LocalQueue
from tests.support.graphs import LEDGER, Manifest
from tests.support.memory_pools import NODE_4

# The ledger has the features of prod.
FULL = replace(
    LEDGER,
    local_queues=(LocalQueue(name="team-a-gpu", tenant="team-a", queue="gpu-cq"),),
    admission=AdmissionTerms(
        gpu_priority="gpu-workload",
        gpu_priority_value=1_200_000,
        priorities={"gpu-workload": (), "tier-2-gpu": ("tts",)},
        exempt_priorities=("longhorn-critical",),
        own=("gpu-tenancy-system",),
        device_classes=("nic.example.com",),
        devices=1,
    ),
)
CONFIG = {"ledger": FULL.to_data()}
WITH_MEMORY_POOLS = CONFIG | {"memory_pools": HostMemoryPools(pools=(NODE_4,)).to_data()}


def workload(namespace: str = "llama-swap", kind: str = "Deployment", **spec: Any) -> Manifest:
    main = {"name": "main", "image": "ghcr.io/a/b:1.2.3", **spec.pop("main", {})}
    template = {"metadata": {"annotations": spec.pop("annotations", {})}, "spec": {"containers": [main], **spec}}
    api_version = "batch/v1" if kind == "Job" else "apps/v1"
    name = "tts" if namespace == "tts" else "x"  # The demand gate starts the Deployment tts.
    return an_object(api_version, kind, name, namespace, spec={"template": template})


def gpu(resource: str = "nvidia.com/gpu", amount: object = "1") -> dict[str, Any]:
    return {"resources": {"limits": {resource: amount}}}


def visible(value: str = "all") -> dict[str, Any]:
    return {"env": [{"name": "NVIDIA_VISIBLE_DEVICES", "value": value}]}
