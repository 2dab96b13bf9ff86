"""Makes the ResourceSlice with a node's devices. The exporter publishes this ResourceSlice.

Each node has one ResourceSlice of the driver `Names.device_driver`. The devices in the ResourceSlice are named
gpu-<index>. Each device has the attributes `uuid` and `index`. In a pool with `enforce: driver`, the attribute
`memoryCap` of a device is `able`, or the reason why the driver cannot cap containers on the device. The capacity
`memory` has the device's memory in whole MiB, as NVML reports it. A device with a fault has the taint
`Names.unhealthy_taint`.

The sources are k8s.io/api resource/v1, KEP-4381 for ResourceSlices, and KEP-5055 for taints.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from agents.kube.client import Object
from agents.telemetry.device import Device, Fault, Survey
from tenancy.names import (
    CAN_CAP,
    DEVICE_CAP,
    DEVICE_INDEX,
    DEVICE_MEMORY,
    DEVICE_UUID,
    RESOURCE_API,
    Names,
)
from tenancy.quantity import canonical_mib
from tenancy.units import MIB


@dataclass(frozen=True, kw_only=True)
class PublishingNode:
    """The node of the published devices. `caps` is True if the pool of the node has `enforce: driver`."""

    name: str
    uid: str
    caps: bool = False


def name_of(node: str, names: Names) -> str:
    return f"{names.device_driver}-{node}"


def slice_of(survey: Survey, host: PublishingNode, names: Names, before: Object | None) -> Object:
    """Returns the node's ResourceSlice. Each change of the ResourceSlice increases the generation of its pool, except
    if only a taint changes.

    If NVML cannot read a device, the device is copied from the old ResourceSlice `before` and gets a taint. The
    ResourceSlice leaves out a device that NVML has never read.
    """
    spec = (before or {}).get("spec") or {}
    known = {device["name"]: device for device in spec.get("devices") or ()}
    devices = {device.gpu: _device(device, host, names) for device in survey.devices}
    for index in survey.unreadable:
        if (device := known.get(_name(index))) is not None:
            devices[index] = {**device, "taints": _taints(Fault.UNREADABLE, names)}
    ordered = [devices[index] for index in sorted(devices)]
    generation = (spec.get("pool") or {}).get("generation", 0)
    if before is None or _without_taints(ordered) != _without_taints(spec.get("devices") or ()):
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
            "devices": ordered,
        },
    }


def differs(wanted: Object, stored: Object) -> bool:
    owners = [found["metadata"].get("ownerReferences") for found in (wanted, stored)]
    return owners[0] != owners[1] or _undated(wanted["spec"]) != _undated(stored["spec"])


def _name(index: int) -> str:
    return f"gpu-{index}"


def _device(device: Device, host: PublishingNode, names: Names) -> dict[str, Any]:
    found: dict[str, Any] = {
        "name": _name(device.gpu),
        "attributes": {DEVICE_UUID: {"string": device.uuid}, DEVICE_INDEX: {"int": device.gpu}},
        "capacity": {DEVICE_MEMORY: {"value": canonical_mib(device.total_bytes // MIB)}},
    }
    if host.caps:
        found["attributes"][DEVICE_CAP] = {"string": str(device.cannot_cap or CAN_CAP)}
    if device.fault:
        found["taints"] = _taints(device.fault, names)
    return found


def _taints(fault: Fault, names: Names) -> list[Object]:
    return [{"key": names.unhealthy_taint, "value": str(fault), "effect": "NoSchedule"}]


def _without_taints(devices: Sequence[Object]) -> list[Object]:
    return [{key: value for key, value in device.items() if key != "taints"} for device in devices]


def _undated(spec: Object) -> list[object]:
    """Returns the spec without the times that the API server adds to its taints."""
    devices = spec.get("devices") or ()
    taints = [
        [{key: value for key, value in taint.items() if key != "timeAdded"} for taint in device.get("taints") or ()]
        for device in devices
    ]
    return [{**spec, "devices": _without_taints(devices)}, taints]
