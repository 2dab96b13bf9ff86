"""GET /inspect: which pod holds what of which device, in gpushare's format, so that its `kubectl inspect` reads it.

Source: NodeInfo in pkg/scheduler/inspect.go of gpushare-scheduler-extender: "GPU" there means memory, here in MiB.
"""

from collections.abc import Iterable
from typing import Any

from agents.extender.cache.snapshot import DeviceUsage, NodeUsage, Share


def nodes(usage: Iterable[NodeUsage]) -> dict[str, Any]:
    """Every node that has devices, or pods that hold memory of one."""
    return {"nodes": [_node(each) for each in usage if each.devices or each.adrift]}


def _node(usage: NodeUsage) -> dict[str, Any]:
    return {
        "name": usage.node,
        "pool": usage.pool,
        "unusable": usage.unusable,
        "totalGPU": sum(device.mib for device in usage.devices),
        "usedGPU": sum(device.held_mib for device in usage.devices),
        "devs": [_device(device) for device in usage.devices],
        "adrift": [_pod(share) for share in usage.adrift],
    }


def _device(device: DeviceUsage) -> dict[str, Any]:
    return {
        "id": device.index,
        "uuid": device.uuid,
        "totalGPU": device.mib,
        "usedGPU": device.held_mib,
        "freeGPU": device.free_mib,
        "measuredFreeGPU": device.measured_free_mib,
        "healthy": device.healthy,
        "excluded": device.excluded,
        "pods": [_pod(share) for share in device.shares],
    }


def _pod(share: Share) -> dict[str, Any]:
    return {
        "uid": share.uid,
        "namespace": share.namespace,
        "name": share.name,
        "usedGPU": share.mib,
        "standing": str(share.standing),
    }
