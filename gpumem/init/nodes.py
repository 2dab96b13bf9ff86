"""Finds the GPUs of each node from the best source that the cluster has. Pure.

The first source of GPUs is the labels of GPU feature discovery, and the second is the ResourceSlices of NVIDIA's DRA
driver. The last source of GPUs is the number of nvidia.com/gpu that the node offers. The number of nvidia.com/gpu does
not show the memory of a device.
"""

import enum
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from agents.kube.device_slices import DeviceSlice, PublishedDevices, published_devices, slice_of
from agents.kube.errors import Object
from gpumem.survey import Survey
from tenancy.names import (
    GPU,
    GPU_SHARED,
    GPUMEM_SUFFIX,
    LABEL_GPU_COUNT,
    LABEL_GPU_MEMORY,
    LABEL_GPU_REPLICAS,
    Names,
)
from tenancy.quantity import QuantityError, whole
from tenancy.reach import GPU_RESOURCES
from tenancy.workload import map_at, maps_at, text_at

LABEL_PRODUCT = f"{GPU}.product"
LABEL_SHARING = f"{GPU}.sharing-strategy"
# Matches the resource domains that a stack file accepts. A domain for a stack file has a dot, and does not belong to
# NVIDIA or Kubernetes.
_DOMAIN = re.compile(
    r"(?!.*(?:nvidia\.com|kubernetes\.io|k8s\.io)$)(?=.{1,56}$)[a-z0-9][a-z0-9-]*(?:\.[a-z0-9][a-z0-9-]*)+"
)
_MIG_PRODUCT = re.compile(r"-MIG-[0-9]+g\.")
_MIG_RESOURCES = f"{GPU_RESOURCES}mig-"
_OF_THE_CLUSTER = ("node.kubernetes.io/", "node-role.kubernetes.io/", "node.cloudprovider.kubernetes.io/")


class Division(enum.StrEnum):
    """The way in which a node currently hands out its GPUs."""

    WHOLE = "whole devices"
    TIME_SLICING = "time-slicing"
    MPS = "MPS"
    MIG = "MIG"


@dataclass(frozen=True, order=True)
class Taint:
    """A taint that keeps away pods without a toleration."""

    key: str
    effect: str


@dataclass(frozen=True, kw_only=True)
class GpuNode:
    """A node with GPUs, and the figures that the cluster shows.

    `device_count` is the number of physical devices, or of MIG devices. `memory_mib` is the memory of one device, or
    None if no source shows the memory. `shown_by` names the source of the figures.
    """

    name: str
    labels: Mapping[str, str]
    division: Division
    device_count: int
    memory_mib: int | None
    shown_by: str
    product: str = ""
    sizes: tuple[int, ...] = ()
    advertised: Mapping[str, int] | None = None
    taints: tuple[Taint, ...] = ()

    @property
    def card(self) -> str:
        """Returns the name of the product without the suffix that feature discovery adds to a shared device."""
        return self.product.removesuffix("-SHARED")

    @property
    def by_labels(self) -> bool:
        """Returns True if the node's figures come from the labels of GPU feature discovery."""
        return self.shown_by == BY_LABELS


BY_LABELS = "labels of GPU feature discovery"
BY_SLICES = "ResourceSlices"
BY_RESOURCE = f"allocatable {GPU}"


def domain_of(survey: Survey) -> str | None:
    """Returns the resource domain of the gpumem that a node already advertises, or None if no node has gpumem."""
    resources = (name for node in survey.nodes for name in map_at(node, "status", "allocatable"))
    found = {name.removesuffix(GPUMEM_SUFFIX) for name in resources if name.endswith(GPUMEM_SUFFIX)}
    return min(filter(_DOMAIN.fullmatch, found), default=None)


def gpu_nodes(survey: Survey, names: Names, gaps: list[str]) -> tuple[GpuNode, ...]:
    """Returns the nodes with GPUs, sorted by name.

    A node with invalid data is left out, and `gaps` has the reason.
    """
    devices = _devices(survey.slices, names)
    found = []
    for node in sorted(survey.nodes, key=lambda each: str(each["metadata"]["name"])):
        try:
            one = _gpu_node(node, devices.get(node["metadata"]["name"], PublishedDevices()))
        except QuantityError as error:
            gaps.append(f"node {node['metadata']['name']} is left out: {error}")
            continue
        if one is not None:
            found.append(one)
    return tuple(found)


def _devices(slices: Iterable[Object], names: Names) -> dict[str, PublishedDevices]:
    by_node: dict[str, list[DeviceSlice]] = {}
    for item in slices:
        if (found := slice_of(item, names)) is not None:
            by_node.setdefault(found.node, []).append(found)
    return {node: published_devices(found) for node, found in by_node.items()}


def _gpu_node(node: Object, shown: PublishedDevices) -> GpuNode | None:
    labels = map_at(node, "metadata", "labels")
    offered = {name: whole(amount) for name, amount in map_at(node, "status", "allocatable").items() if _counts(name)}
    units = offered.get(GPU, 0) + offered.get(GPU_SHARED, 0)
    division = _division(labels, offered)
    count, memory_mib, shown_by, sizes = _evidence(labels, shown, units)
    if count < 1 and division is Division.MIG:
        count = sum(amount for name, amount in offered.items() if name.startswith(_MIG_RESOURCES))
    if count < 1:
        return None
    return GpuNode(
        name=node["metadata"]["name"],
        labels=labels,
        division=division,
        device_count=count,
        memory_mib=memory_mib,
        shown_by=shown_by,
        product=labels.get(LABEL_PRODUCT, ""),
        sizes=sizes,
        advertised={name: mib for name, mib in offered.items() if name.endswith(GPUMEM_SUFFIX)},
        taints=_taints(node),
    )


def _counts(resource: str) -> bool:
    return resource.startswith(GPU_RESOURCES) or resource.endswith(GPUMEM_SUFFIX)


def _division(labels: Mapping[str, str], offered: Mapping[str, int]) -> Division:
    if _MIG_PRODUCT.search(labels.get(LABEL_PRODUCT, "")) or any(
        name.startswith(_MIG_RESOURCES) and amount for name, amount in offered.items()
    ):
        return Division.MIG
    if labels.get(LABEL_SHARING) == "mps":
        return Division.MPS
    shared = offered.get(GPU_SHARED, 0) or (_number(labels, LABEL_GPU_REPLICAS) or 0) > 1
    return Division.TIME_SLICING if labels.get(LABEL_SHARING) == "time-slicing" or shared else Division.WHOLE


def _evidence(
    labels: Mapping[str, str], shown: PublishedDevices, units: int
) -> tuple[int, int | None, str, tuple[int, ...]]:
    """Returns the number of a node's devices, the MiB of its smallest device, and the name of the source.

    Also returns the MiB of each device if the source shows each device.
    """
    count, memory_mib = _number(labels, LABEL_GPU_COUNT), _number(labels, LABEL_GPU_MEMORY)
    if count and memory_mib:
        return count, memory_mib, BY_LABELS, ()
    if shown.devices:
        return len(shown.devices), min(shown.devices), BY_SLICES, shown.devices
    replicas = max(_number(labels, LABEL_GPU_REPLICAS) or 1, 1)
    return count or units // replicas, memory_mib, BY_RESOURCE, ()


def _number(labels: Mapping[str, str], label: str) -> int | None:
    value = labels.get(label, "")
    return int(value) if value.isascii() and value.isdecimal() and len(value) < 10 else None


def _taints(node: Object) -> tuple[Taint, ...]:
    """Returns the taints that people have set on the node.

    The function ignores taints that Kubernetes sets, because they change with the state of the node.
    """
    found = [(text_at(taint, "key"), text_at(taint, "effect")) for taint in maps_at(node, "spec", "taints")]
    return tuple(
        sorted(
            Taint(key, effect)
            for key, effect in found
            if effect in ("NoSchedule", "NoExecute") and not key.startswith(_OF_THE_CLUSTER)
        )
    )
