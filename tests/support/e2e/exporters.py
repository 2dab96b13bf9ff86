"""Writes the metrics of an exporter whose readings a test chooses."""

from collections.abc import Iterable

from agents.exporter.attribution import DeviceUse
from agents.exporter.registry import Registry
from agents.kube.nodes import Node
from agents.node.cgroup import Container
from agents.node.pods import NodePod, NodePods
from agents.telemetry.device import Device
from tenancy.ledger import Ledger
from tenancy.units import MIB
from tests.support.e2e.rollout import GPUMEM, Object
from tests.support.exporters import device_reader

MEMORY_MIB = 15360


def pod_of(found: Object) -> NodePod:
    metadata, uid = found["metadata"], found["metadata"]["uid"]
    declared = int(found["spec"]["containers"][0]["resources"]["limits"][GPUMEM].replace("k", "000"))
    return NodePod(
        namespace=metadata["namespace"],
        name=metadata["name"],
        uid=uid,
        group_uid=uid,
        containers={uid: "main"},
        declared_mib=declared,
    )


def shown(ledger: Ledger, uses: Iterable[tuple[NodePod, int]], free_mib: int) -> str:
    used = tuple(uses)
    card = Device(
        gpu=0,
        uuid="GPU-0",
        total_bytes=MEMORY_MIB * MIB,
        used_bytes=(MEMORY_MIB - free_mib) * MIB,
        free_bytes=free_mib * MIB,
    )
    by_container = {Container(pod.uid, pod.uid): mib * MIB for pod, mib in used}
    here = Node(name="n", uid="node", labels=ledger.shared_pools[0].node_selector)
    registry = Registry(NodePods(tuple(pod for pod, _ in used)), ledger, (), here)
    return device_reader(DeviceUse(device=card, used_bytes=by_container), age_seconds=1, registry=registry).metrics()[1]
