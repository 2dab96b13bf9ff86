"""Finds devices, and the devices of each pod, from the exporters' readings.

The reports use this module for a stack that does not place pods by device. A stack without placement by device lacks
ResourceSlices. The pods of a stack without placement by device have no annotations with their devices. Pure.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace

from agents.extender.cache.inventory import NodeDevices, devices_of
from agents.extender.cache.pod_info import PodInfo
from agents.kube.client import Object
from agents.kube.nodes import Node
from agents.telemetry import resourceslice
from agents.telemetry.client import NodeTelemetry
from agents.telemetry.device import Survey
from agents.telemetry.resourceslice import PublishingNode
from tenancy.ledger import Ledger


def measured_devices(
    node: Node, slices: Iterable[Object], ledger: Ledger, reading: NodeTelemetry | None
) -> NodeDevices:
    """Returns the devices of a node from its ResourceSlices.

    Without ResourceSlices, returns the devices that the node's exporter measures. A node without a reading has no known
    devices, but still takes pods.
    """
    names, published = ledger.names, list(slices)
    if not any(each["spec"].get("driver") == names.device_driver for each in published):
        if reading is None or not reading.devices:
            found = devices_of(node, published, ledger)
            return replace(found, unusable=None) if found.pool else found
        host = PublishingNode(name=reading.node, uid=node.uid)
        published.append(resourceslice.slice_of(Survey(devices=reading.devices), host, names, None))
    return devices_of(node, published, ledger)


def on_its_device(pod: PodInfo, devices: Mapping[str, NodeDevices], readings: Mapping[str, NodeTelemetry]) -> PodInfo:
    """Returns the pod with its devices.

    If the pod needs as many devices as the node has, the pod has all devices of the node. If the pod needs fewer
    devices, the pod has the devices that it uses. If the pod's devices are unknown, returns the pod without devices.
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
