"""A node's devices as a ResourceSlice. Pure; the exporter publishes it.

One slice a node, of the driver `Names.device_driver`. Its devices are named gpu-<index> and have

    attributes  uuid, index; pool, the name of the pool that shares its memory; memoryCap, where that pool has the
                driver hold containers to their budgets: able, or why this device is not
    capacity    memory: all of it, in whole MiB, as NVML says. It informs: a claim can take none of it.
                gpumem: what the device offers, min(memory, the pool's memory_mib) less its reserve_mib. Claims take
                shares of it, in whole MiB; one that names no share takes all. Absent where the node is in no pool that
                shares memory, or nothing is left to offer; in a pool that says who places on it, what
                agents/exporter/remains.py says (docs/adr/0031).
    taints      Names.unhealthy_taint, while something is wrong with the device

Source: k8s.io/api resource/v1; KEP-4381 (slices), KEP-5075 (consumable capacity), KEP-5055 (taints).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from agents.kube.client import Object
from agents.telemetry.device import Fault, Survey
from tenancy.ledger import Pool
from tenancy.names import (
    CAN_CAP,
    DEVICE_CAP,
    DEVICE_INDEX,
    DEVICE_MEMORY,
    DEVICE_OFFERED,
    DEVICE_POOL,
    DEVICE_UUID,
    RESOURCE_API,
    Names,
)
from tenancy.quantity import canonical_mib, whole
from tenancy.units import MIB

SLICES = f"/apis/{RESOURCE_API}/resourceslices"
# A range of less than two MiB has no step (validateRequestPolicyRange in pkg/apis/resource/validation).
_LEAST_OFFERED_MIB = 2


@dataclass(frozen=True, kw_only=True)
class PublishingNode:
    """The node whose devices they are; `pool` is the one that shares their memory. `offered`: the most that claims may
    have, MiB by UUID, of a pool that says who places on it."""

    name: str
    uid: str
    pool: Pool | None
    offered: Mapping[str, int] = field(default_factory=dict)

    def offered_mib(self, uuid: str, mib: int) -> int:
        """What claims may have of a device with so much memory."""
        if self.pool is None:
            return 0
        offered = self.pool.offered_mib(mib)
        return offered if self.pool.placement is None else min(offered, self.offered.get(uuid, 0))


@dataclass(frozen=True, kw_only=True)
class _Entry:
    """One device; `mib` is all of its memory, `cap` whether its driver can hold containers to budgets."""

    index: int
    uuid: str
    mib: int
    fault: Fault | None
    cap: str


def name_of(node: str, names: Names) -> str:
    """The name of the node's slice."""
    return f"{names.device_driver}-{node}"


def slice_of(survey: Survey, host: PublishingNode, names: Names, before: Object | None) -> Object:
    """The node's slice. A device that NVML cannot read is as it was `before`, and tainted; one that never was read is
    left out. The pool's generation grows when a device comes, goes, or changes in anything but its health."""
    devices = [_device(entry, host, names) for entry in _entries(survey, before)]
    spec = (before or {}).get("spec") or {}
    generation = (spec.get("pool") or {}).get("generation", 0)
    if before is None or _untainted(devices) != _untainted(spec.get("devices") or ()):
        generation += 1
    return {
        "apiVersion": RESOURCE_API,
        "kind": "ResourceSlice",
        "metadata": {
            "name": name_of(host.name, names),
            "ownerReferences": [
                {"apiVersion": "v1", "kind": "Node", "name": host.name, "uid": host.uid, "controller": True}
            ],
        },
        "spec": {
            "driver": names.device_driver,
            "nodeName": host.name,
            "pool": {"name": host.name, "generation": generation, "resourceSliceCount": 1},
            "devices": devices,
        },
    }


def differs(wanted: Object, stored: Object) -> bool:
    """Whether the stored slice must be written again. When a taint came is the API server's to say."""
    owners = [found["metadata"].get("ownerReferences") for found in (wanted, stored)]
    return owners[0] != owners[1] or _undated(wanted["spec"]) != _undated(stored["spec"])


def offered_by(stored: Object | None) -> dict[str, int]:
    """What a slice offers to claims, MiB by UUID."""
    return {
        device["attributes"][DEVICE_UUID]["string"]: whole(device["capacity"][DEVICE_OFFERED]["value"]) // MIB
        for device in ((stored or {}).get("spec") or {}).get("devices") or ()
        if DEVICE_OFFERED in device["capacity"]
    }


def memory_of(survey: Survey, before: Object | None) -> dict[str, int]:
    """MiB of each device by its UUID, as its slice will say."""
    return {entry.uuid: entry.mib for entry in _entries(survey, before)}


def _entries(survey: Survey, before: Object | None) -> Sequence[_Entry]:
    known = {device["name"]: device for device in ((before or {}).get("spec") or {}).get("devices") or ()}
    lost = (_as_before(index, known[_name(index)]) for index in survey.unreadable if _name(index) in known)
    read = (
        _Entry(
            index=device.gpu,
            uuid=device.uuid,
            mib=device.total_bytes // MIB,
            fault=device.fault,
            cap=str(device.cannot_cap or CAN_CAP),
        )
        for device in survey.devices
    )
    return sorted((*read, *lost), key=lambda entry: entry.index)


def _as_before(index: int, device: Object) -> _Entry:
    return _Entry(
        index=index,
        uuid=device["attributes"][DEVICE_UUID]["string"],
        mib=whole(device["capacity"][DEVICE_MEMORY]["value"]) // MIB,
        fault=Fault.UNREADABLE,
        cap=device["attributes"].get(DEVICE_CAP, {}).get("string", str(Fault.UNREADABLE)),
    )


def _name(index: int) -> str:
    return f"gpu-{index}"


def _device(entry: _Entry, host: PublishingNode, names: Names) -> dict[str, Any]:
    pool = host.pool
    device = {
        "name": _name(entry.index),
        "attributes": {
            DEVICE_UUID: {"string": entry.uuid},
            DEVICE_INDEX: {"int": entry.index},
            **({DEVICE_POOL: {"string": pool.name}} if pool else {}),
            **({DEVICE_CAP: {"string": entry.cap}} if pool and pool.caps else {}),
        },
        "capacity": _capacity(entry.mib, host.offered_mib(entry.uuid, entry.mib)),
        "allowMultipleAllocations": True,
    }
    if entry.fault:
        device["taints"] = [{"key": names.unhealthy_taint, "value": str(entry.fault), "effect": "NoSchedule"}]
    return device


def _capacity(mib: int, offered: int) -> Mapping[str, Any]:
    """Without a policy on `memory`, a claim that does not name it would take it all."""
    capacity = {
        DEVICE_MEMORY: {"value": canonical_mib(mib), "requestPolicy": {"default": "0", "validValues": ["0"]}},
        DEVICE_OFFERED: {
            "value": canonical_mib(offered),
            "requestPolicy": {
                "default": canonical_mib(offered),
                "validRange": {"min": canonical_mib(1), "step": canonical_mib(1)},
            },
        },
    }
    if offered < _LEAST_OFFERED_MIB:
        del capacity[DEVICE_OFFERED]
    return capacity


def _untainted(devices: Sequence[Object]) -> list[Object]:
    return [{key: value for key, value in device.items() if key != "taints"} for device in devices]


def _undated(spec: Object) -> Object:
    """Without the time that the API server writes on each taint."""
    return {**spec, "devices": [_undated_device(device) for device in spec.get("devices") or ()]}


def _undated_device(device: Object) -> Object:
    taints = [
        {key: value for key, value in taint.items() if key != "timeAdded"} for taint in device.get("taints") or ()
    ]
    return {**device, "taints": taints}
