"""Builds a pod as the API server returns it, and decodes pods as the agents on nodes do."""

import io
from typing import Any

from agents.node.pods import NodePods, node_pod
from agents.runtime.items import ItemProblems
from agents.runtime.log import Log
from tenancy.ledger import Ledger, Seat
from tests.support.fake_cluster import DOMAIN, NAMES, T4

CHAT = {
    "metadata": {
        "namespace": "chat",
        "name": "chat-0",
        "uid": "uid-chat",
        "creationTimestamp": "2026-06-02T06:00:00Z",
    },
    "spec": {
        "nodeName": "k8s-node1",
        "containers": [{"name": "model", "resources": {"limits": {NAMES.gpumem: "5k"}}}, {"name": "proxy"}],
    },
    "status": {
        "phase": "Running",
        "containerStatuses": [
            {"name": "model", "containerID": "containerd://aaa"},
            {"name": "proxy", "containerID": "cri-o://bbb"},
        ],
        "initContainerStatuses": [{"name": "fetch", "containerID": "containerd://ccc"}],
        "ephemeralContainerStatuses": [{"name": "debugger", "containerID": "containerd://ddd"}],
    },
}


LEDGER = Ledger(domain=DOMAIN, pools=(T4,), seats=(Seat(name="chat", tenant="chat", pool="t4", gpumem_mib=3000),))


def read(*pods: dict[str, Any], ledger: Ledger | None = LEDGER, log: Log | None = None) -> NodePods:
    problems = ItemProblems(log=log or Log("test", io.StringIO()))
    found = (node_pod(pod, ledger, problems) for pod in pods)
    return NodePods(tuple(pod for pod in found if pod is not None))
