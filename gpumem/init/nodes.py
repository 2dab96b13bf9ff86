"""Finds the nodes with GPUs that a pool can have. Pure."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from agents.kube.device_slices import DeviceSlice, PublishedDevices, published_devices, slice_of
from agents.kube.errors import Object
from gpumem.init.evidence import Devices, devices_of, withdrawn
from gpumem.survey import Survey
from tenancy.names import GPU, GPUMEM_SUFFIX, Names
from tenancy.quantity import QuantityError, parse, whole
from tenancy.sharers import sharers_of_node
from tenancy.units import MIB
from tenancy.workload import map_at, maps_at, text_at

# Matches the resource domains that a stack file accepts. A domain for a stack file has a dot, and does not belong to
# NVIDIA or Kubernetes.
_DOMAIN = re.compile(
    r"(?!.*(?:nvidia\.com|kubernetes\.io|k8s\.io)$)(?=.{1,56}$)[a-z0-9][a-z0-9-]*(?:\.[a-z0-9][a-z0-9-]*)+"
)
# Labels by which a provider groups nodes of one kind.
GROUP_LABELS = (
    "cloud.google.com/gke-nodepool",
    "eks.amazonaws.com/nodegroup",
    "kubernetes.azure.com/agentpool",
    "karpenter.sh/nodepool",
    "node.kubernetes.io/instance-type",
)
_OF_THE_CLUSTER = ("node.kubernetes.io/", "node-role.kubernetes.io/", "node.cloudprovider.kubernetes.io/")


@dataclass(frozen=True, order=True)
class Taint:
    """A taint that keeps away pods without a toleration."""

    key: str
    effect: str


@dataclass(frozen=True, kw_only=True)
class GpuNode:
    """A node with GPUs, and what its devices are."""

    name: str
    labels: Mapping[str, str]
    devices: Devices
    cpus: float = 0
    host_memory_mib: int = 0
    advertised: Mapping[str, int] | None = None
    taints: tuple[Taint, ...] = ()
    # The other programs that share its devices, each with what shows it.
    sharers: tuple[tuple[str, str], ...] = ()

    @property
    def card(self) -> str:
        """Returns the name of the product without the suffix that feature discovery adds to a shared device."""
        return self.devices.product.removesuffix("-SHARED")


def domain_of(survey: Survey) -> str | None:
    """Returns the resource domain of the gpumem that a node already advertises, or None if no node has gpumem."""
    resources = (name for node in survey.nodes for name in map_at(node, "status", "allocatable"))
    found = {name.removesuffix(GPUMEM_SUFFIX) for name in resources if name.endswith(GPUMEM_SUFFIX)}
    return min(filter(_DOMAIN.fullmatch, found), default=None)


def gpu_nodes(survey: Survey, names: Names, gaps: list[str], left_out: list[str]) -> tuple[GpuNode, ...]:
    """Returns the nodes with GPUs, sorted by name.

    `left_out` gets a sentence about each node with GPUs that no pool can have, and `gaps` one about each node with
    invalid data, or with fewer devices now than it has.
    """
    published = _devices(survey.slices, names)
    found, silent = [], []
    for node in sorted(survey.nodes, key=lambda each: str(each["metadata"]["name"])):
        name = str(node["metadata"]["name"])
        try:
            devices = devices_of(node, published.get(name, PublishedDevices()))
            gaps += [f"node {name}: {line}" for line in withdrawn(node)]
        except QuantityError as error:
            gaps.append(f"node {name} is left out: {error}")
            continue
        if isinstance(devices, Devices):
            found.append(_gpu_node(node, devices))
        else:
            silent.append((node, devices))
    for node, without in silent:
        withheld = str(map_at(node, "status", "capacity").get(GPU)) == "0"
        if withheld and (twin := _twin(node, found)) is not None:
            found.append(_gpu_node(node, twin.devices))
            gaps.append(
                f"node {node['metadata']['name']} offers no {GPU} now; the file counts devices as on node {twin.name}"
            )
        elif without.why:
            left_out.append(f"node {node['metadata']['name']} is in no pool: {without.why}")
    return tuple(sorted(found, key=lambda each: each.name))


def _twin(node: Object, found: Iterable[GpuNode]) -> GpuNode | None:
    """Returns a node of the same node group, whose devices are alike."""
    labels = map_at(node, "metadata", "labels")
    own = {key: labels[key] for key in GROUP_LABELS if key in labels}
    return next((each for each in found if own and own.items() <= each.labels.items()), None)


def _devices(slices: Iterable[Object], names: Names) -> dict[str, PublishedDevices]:
    by_node: dict[str, list[DeviceSlice]] = {}
    for item in slices:
        if (found := slice_of(item, names)) is not None:
            by_node.setdefault(found.node, []).append(found)
    return {node: published_devices(found) for node, found in by_node.items()}


def _gpu_node(node: Object, devices: Devices) -> GpuNode:
    offered = map_at(node, "status", "allocatable")
    return GpuNode(
        name=node["metadata"]["name"],
        labels=map_at(node, "metadata", "labels"),
        devices=devices,
        cpus=float(parse(offered.get("cpu", 0))),
        host_memory_mib=int(parse(offered.get("memory", 0)) / MIB),
        advertised={name: whole(mib) for name, mib in offered.items() if name.endswith(GPUMEM_SUFFIX)},
        taints=_taints(node),
        sharers=tuple(sharers_of_node(node)),
    )


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
