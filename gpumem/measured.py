"""Finds devices, and the devices of each pod, from the exporters' readings.

The module is used for a stack that does not place pods by device. Only placement by device makes ResourceSlices, and
the annotations with the devices of each pod. Pure.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace

from agents.extender.cache.inventory import NodeDevices, devices_of
from agents.extender.cache.pod_info import PodInfo
from agents.kube.client import Object
from agents.telemetry import resourceslice
from agents.telemetry.client import NodeTelemetry
from agents.telemetry.device import Survey
from agents.telemetry.resourceslice import PublishingNode
from tenancy.ledger import Ledger


def measured_devices(
    node: Object, slices: Iterable[Object], ledger: Ledger, reading: NodeTelemetry | None
) -> NodeDevices:
    """Returns the devices of a node from its ResourceSlices.

    Without ResourceSlices, returns the devices that the node's exporter measures. A node without a reading has no known
    device, but still takes pods.
    """
    names, published = ledger.names, list(slices)
    if not any(each["spec"].get("driver") == names.device_driver for each in published):
        if reading is None or not reading.devices:
            found = devices_of(node, published, ledger)
            return replace(found, unusable=None) if found.pool else found
        host = PublishingNode(name=reading.node, uid=str(node["metadata"].get("uid", "")))
        published.append(resourceslice.slice_of(Survey(devices=reading.devices), host, names, None))
    return devices_of(node, published, ledger)


def on_its_device(pod: PodInfo, devices: Mapping[str, NodeDevices], readings: Mapping[str, NodeTelemetry]) -> PodInfo:
    """Returns the pod with its devices.

    The pod has all devices of the node if it needs that many. Otherwise it has the devices that it uses. Returns the
    pod without devices if its devices are not known.
    """
    node, reading = devices.get(pod.node), readings.get(pod.node)
    if pod.is_placed or node is None:
        return pod
    every = [each.uuid for each in node.devices]
    used = {use.uuid for use in reading.uses if use.uid == pod.uid} if reading else set()
    for uuids in (every, sorted(used)):
        if len(uuids) == pod.request.count:
            return replace(pod, uuids=tuple(uuids))
    return pod
