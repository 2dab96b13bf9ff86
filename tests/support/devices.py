"""Builds devices, Nodes, ResourceSlices and Pods, and an extender's cache with them."""

from collections.abc import Collection
from typing import Any

from agents.extender.cache.cache import Cache
from agents.extender.cache.inventory import NodeDevice, NodeDevices
from agents.extender.cache.pod_info import NO_SEAT, Entitlement, PodInfo, PodState
from agents.telemetry.device import Device, Fault
from tenancy.devices.allocate import MemoryRequest
from tenancy.units import MIB
from tests.support.fake_cluster import NAMES


def inventory(node: str, *sizes: int, floor_mib: int = 0) -> NodeDevices:
    devices = tuple(NodeDevice(index, f"GPU-{node}-{index}", mib) for index, mib in enumerate(sizes))
    return NodeDevices(node=node, pool="t4", devices=devices, floor_mib=floor_mib)


def bound(uid: str, node: str, mib: int, *indices: int, **fields: Any) -> PodInfo:
    return PodInfo(
        uid=uid,
        namespace="tenant",
        name=uid,
        node=node,
        request=MemoryRequest(mib, max(len(indices), 1)),
        indices=indices or None,
        uuids=tuple(f"GPU-{node}-{index}" for index in indices) or None,
        **fields,
    )


def nominee(uid: str, node: str, request: MemoryRequest, priority: int) -> PodInfo:
    return PodInfo(uid=uid, node=node, request=request, state=PodState.NOMINATED, priority=priority)


def cache_of(*nodes: NodeDevices) -> Cache:
    cache = Cache()
    for node in nodes:
        cache.update_node(node)
    return cache


def take(cache: Cache, uid: str, request: MemoryRequest, node: str, now: float = 0.0) -> PodInfo:
    answer = cache.assume(uid, request, node, now)
    assert answer.pod is not None, answer
    return answer.pod


def feasible(
    cache: Cache, request: MemoryRequest, now: float, uid: str = "", entitlement: Entitlement = NO_SEAT, *,
    by_ledger: bool = False,
) -> frozenset[str]:  # fmt: skip
    with cache.search(uid, request, None, now, entitlement) as found:
        return found.feasible(by_ledger=by_ledger)


def victims(
    cache: Cache,
    request: MemoryRequest,
    node: str,
    candidates: Collection[str],
    entitlement: Entitlement = NO_SEAT,
) -> tuple[str, ...] | None:
    with cache.search("", request, (node,), 0.0, entitlement) as found:
        return found.victims(node, candidates, None)


def node_object(name: str = "k8s-node1", labels: Any = None, annotations: Any = None) -> dict[str, Any]:
    return {"metadata": {"name": name, "labels": labels or {"gpu": "t4"}, "annotations": annotations or {}}}


def device_object(index: int, mib: int = 15360, *taints: str, uuid: str | None = None) -> dict[str, Any]:
    return {
        "name": f"gpu-{index}",
        "attributes": {"uuid": {"string": uuid or f"GPU-{index}"}, "index": {"int": index}},
        "capacity": {"memory": {"value": f"{mib}Mi"}},
        "taints": [{"key": NAMES.unhealthy_taint, "effect": effect} for effect in taints],
    }


def slice_object(*devices: Any, node: str = "k8s-node1", generation: int = 1, count: int = 1) -> dict[str, Any]:
    pool = {"name": node, "generation": generation, "resourceSliceCount": count}
    return {"spec": {"driver": NAMES.device_driver, "nodeName": node, "pool": pool, "devices": list(devices)}}


def pod_object(
    gpumem: Any = "8138", count: Any = None, node: str | None = "k8s-node1", annotations: Any = None, **status: Any
) -> dict[str, Any]:
    limits = {NAMES.gpumem: gpumem} | ({NAMES.gpu_count: count} if count else {})
    spec = {"containers": [{"name": "main", "resources": {"limits": limits}}]}
    return {
        "metadata": {"uid": "uid-1", "namespace": "tenant", "name": "model", "annotations": annotations or {}},
        "spec": spec | ({"nodeName": node} if node else {}),
        "status": status,
    }


def card(gpu: int = 0, mib: int = 15360, fault: Fault | None = None) -> Device:
    total = mib * MIB + 17
    return Device(gpu=gpu, uuid=f"GPU-{gpu}", total_bytes=total, used_bytes=0, free_bytes=total, fault=fault)
