"""Rolls out stacks with queues, Kueue and whole GPUs on a cluster with simulated nodes."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from tenancy.names import GPU
from tests.support.e2e.rollout import Object, Rollout, pods
from tests.support.prod import raw
from tests.support.workspace import workspace
from toolchain.cluster import simulated
from toolchain.cluster.cluster import HeldCluster

POOL, NODE = "whole", "queued-gpus"
GPUS = 2
HOSTNAME = "kubernetes.io/hostname"
WORKLOADS = "/apis/kueue.x-k8s.io/v1beta2"


def whole(node: str = NODE, gpus: int = GPUS) -> dict[str, Any]:
    """Returns the settings of a pool that consists of this node."""
    return {"node_selector": {HOSTNAME: node}, "nodes": 1, "device_count": gpus, "sharing": "whole"}


def rolled_out(cluster: HeldCluster, folder: Path, **settings: Mapping[str, Any]) -> Rollout:
    cluster.add_node(NODE, labels=simulated.gpu_labels(sharing="none", replicas=1), resources={GPU: str(GPUS)})
    prod, space = raw(), workspace(folder)
    config = {
        "cluster": prod["cluster"],
        "priorities": {"gpu-workload": prod["priorities"]["gpu-workload"]},
        "admission": {"gpu_priority": "gpu-workload"},
        "kueue": prod["kueue"],
        **settings,
    }
    written = {"config": {f"gpu-tenancy:{name}": part for name, part in config.items()}}
    space.stack_file.write_text(yaml.safe_dump(written))
    stack = Rollout(cluster, space)
    stack.init()
    stack.up()
    return stack


def workloads(stack: Rollout, namespace: str) -> list[Object]:
    return stack.items(f"{WORKLOADS}/namespaces/{namespace}/workloads")


def gpus_of(template: Mapping[str, Any]) -> int:
    return sum(int(each.get("resources", {}).get("limits", {}).get(GPU, 0)) for each in template["spec"]["containers"])


def gpu_pods(stack: Rollout, namespace: str) -> list[Object]:
    return [pod for pod in stack.items(pods(namespace)) if gpus_of(pod) and pod["spec"].get("nodeName")]
