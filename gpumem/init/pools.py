"""Groups nodes with equal devices into pools, and finds labels that distinguish the pools. Pure."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from agents.kube.errors import Object
from gpumem.init.evidence import LABEL_PRODUCT, LABEL_SHARING, Division
from gpumem.init.nodes import GROUP_LABELS, GpuNode
from gpumem.init.sourced import SourcedNumber, assumed, dns_label, unique
from tenancy.ledger import DRIVER_RESERVED_MIB
from tenancy.names import GPU, LABEL_GPU_COUNT, LABEL_GPU_MEMORY, LABEL_GPU_REPLICAS, LABEL_HOSTNAME
from tenancy.workload import map_at

# If the cluster shows no reserve, the reserve is a device's memory divided by this number. For example, a device of
# 15360 MiB has a reserve of 1280 MiB.
RESERVE_PART = 12
_GRID_MIB = 100
_PRESENT = f"{GPU}.present"
# Labels for node selectors, in the order of preference. Cloud providers set the last labels of the list. On nodes
# without GPU feature discovery, only the labels of cloud providers select a pool.
_CHOOSING = (
    LABEL_PRODUCT,
    LABEL_GPU_MEMORY,
    LABEL_GPU_COUNT,
    LABEL_SHARING,
    LABEL_GPU_REPLICAS,
    "cloud.google.com/gke-accelerator",
    "cloud.google.com/gke-gpu-sharing-strategy",
    "cloud.google.com/gke-gpu-partition-size",
    "karpenter.k8s.aws/instance-gpu-name",
    "karpenter.k8s.aws/instance-gpu-count",
    "eks.amazonaws.com/instance-gpu-name",
    "karpenter.azure.com/sku-gpu-name",
    "aliyun.accelerator/nvidia_name",
    *GROUP_LABELS,
)
_MAKERS = re.compile(r"^(?:(?:nvidia|tesla|geforce|quadro|grid)[-_ ]+)+", re.IGNORECASE)


@dataclass(frozen=True, kw_only=True)
class PoolProposal:
    """A proposed pool. The amounts in MiB are None in a pool that hands out whole devices."""

    name: str
    selector: Mapping[str, str]
    nodes: tuple[str, ...]
    product: str
    division: Division
    device_count: SourcedNumber
    memory_mib: SourcedNumber | None
    reserve_mib: SourcedNumber | None
    driver_reserved_mib: SourcedNumber | None
    floor_mib: SourcedNumber | None
    by_slices: bool
    # The devices of a node that MIG leaves whole.
    whole_devices: int = 0
    # What the pods of a node may request together. None is no bound, because it is unknown or a pod requests more.
    cpus: SourcedNumber | None = None
    host_memory_mib: SourcedNumber | None = None

    @property
    def shares_memory(self) -> bool:
        return self.memory_mib is not None

    @property
    def is_assumed(self) -> bool:
        """Returns True if at least one number of the pool is only assumed."""
        numbers = (self.device_count, self.memory_mib, self.reserve_mib, self.driver_reserved_mib, self.floor_mib)
        return any(number is not None and number.is_assumed for number in numbers)

    @property
    def device_mib(self) -> int:
        """Returns the MiB that each device offers."""
        return self.memory_mib.value - self.reserve_mib.value if self.memory_mib and self.reserve_mib else 0

    @property
    def gpus(self) -> int:
        """Returns the number of devices on all nodes of the pool."""
        return self.device_count.value * len(self.nodes)

    @property
    def advertised_mib(self) -> int:
        return self.device_mib * self.gpus


def pool_proposals(nodes: Sequence[GpuNode], others: Iterable[Object], domain: str) -> tuple[PoolProposal, ...]:
    """Returns the proposed pools for these nodes.

    `others` has the cluster's nodes without GPUs. No pool may match one of the nodes in `others`.
    """
    groups: dict[tuple[object, ...], list[GpuNode]] = {}
    for node in nodes:
        shown = node.devices
        memory = shown.memory_mib.value if shown.memory_mib else None
        alike = (shown.division, shown.product, shown.count.value, memory, shown.by_labels)
        groups.setdefault(alike, []).append(node)
    labels = [map_at(other, "metadata", "labels") for other in others]
    parts = list(groups.values())
    selectors = _selectors(parts, labels)
    if selectors is None:
        parts = [[node] for node in nodes]
        selectors = [{LABEL_HOSTNAME: node.labels.get(LABEL_HOSTNAME, node.name)} for node in nodes]
    names = unique(_name(part[0]) for part in parts)
    made = (_pool(name, part, chosen, domain) for name, part, chosen in zip(names, parts, selectors, strict=True))
    return tuple(sorted(made, key=lambda pool: pool.name))


def _name(node: GpuNode) -> str:
    return dns_label(_MAKERS.sub("", node.card), most=40) or "gpu"


def _selectors(groups: Sequence[Sequence[GpuNode]], others: Sequence[Mapping[str, str]]) -> list[dict[str, str]] | None:
    """Returns a node selector for each group.

    The selectors of two groups differ in at least one label. No node outside of a group matches the group's selector.
    If the labels cannot distinguish the groups, returns None.
    """
    every = [node for group in groups for node in group]
    usable = [key for key in _CHOOSING if all(_common(group, key) for group in groups)]
    present = [_PRESENT] if all(node.labels.get(_PRESENT) == "true" for node in every) else []
    keys = [*present, *(key for key in usable if key == LABEL_PRODUCT)]
    for key in usable:
        if _separate(groups, others, keys):
            break
        if key not in keys and _separations(groups, others, [*keys, key]) > _separations(groups, others, keys):
            keys.append(key)
    if not keys or not _separate(groups, others, keys):
        return None
    return [{key: group[0].labels[key] for key in keys} for group in groups]


def _common(group: Sequence[GpuNode], key: str) -> bool:
    values = {node.labels.get(key) for node in group}
    return len(values) == 1 and None not in values


def _separate(groups: Sequence[Sequence[GpuNode]], others: Sequence[Mapping[str, str]], keys: Sequence[str]) -> bool:
    pairs = len(groups) * (len(groups) - 1) // 2
    return bool(keys) and _separations(groups, others, keys) == pairs + len(groups) * len(others)


def _separations(groups: Sequence[Sequence[GpuNode]], others: Sequence[Mapping[str, str]], keys: Sequence[str]) -> int:
    """Returns the number of pairs that the labels distinguish. A pair consists of two groups, or of a group and another
    node."""
    values = [tuple(group[0].labels.get(key) for key in keys) for group in groups]
    strangers = [tuple(labels.get(key) for key in keys) for labels in others]
    apart = sum(value != later for index, value in enumerate(values) for later in values[index + 1 :])
    return apart + sum(value != stranger for value in values for stranger in strangers)


def _pool(name: str, group: Sequence[GpuNode], selector: Mapping[str, str], domain: str) -> PoolProposal:
    first = next((node for node in group if node.devices.count.is_assumed), group[0])
    memory = first.devices.memory_mib
    reserve = _reserve(group, memory, domain) if memory else None
    driver = _driver(first, reserve) if reserve else None
    return PoolProposal(
        name=name,
        selector=selector,
        nodes=tuple(node.name for node in group),
        product=first.devices.product,
        division=first.devices.division,
        device_count=first.devices.count,
        memory_mib=memory,
        reserve_mib=reserve,
        driver_reserved_mib=driver,
        floor_mib=_floor(memory, reserve, driver) if memory and reserve and driver else None,
        whole_devices=min(node.devices.whole for node in group),
        by_slices=not first.devices.by_labels,
        cpus=_least(int(node.cpus) for node in group) if memory else None,
        host_memory_mib=_least(node.host_memory_mib for node in group) if memory else None,
    )


def _least(amounts: Iterable[int]) -> SourcedNumber | None:
    least = min(amounts)
    return SourcedNumber(least, "allocatable; a seat may request its part of it") if least > 0 else None


def _reserve(group: Sequence[GpuNode], memory: SourcedNumber, domain: str) -> SourcedNumber:
    """Returns the reserve of a device.

    If the nodes already advertise gpumem, the reserve is the device's memory minus its advertised gpumem. Without
    advertised gpumem, the reserve is a fixed part of the device's memory.
    """
    resource = f"{domain}/gpumem"
    shown = {(node.advertised or {}).get(resource, 0) // node.devices.count.value for node in group}
    if len(shown) == 1 and 0 < (mib := shown.pop()) < memory.value:
        return SourcedNumber(memory.value - mib, f"node {group[0].name} advertises {mib} {resource} for each device")
    offered = min(memory.value * (RESERVE_PART - 1) // RESERVE_PART, memory.value - DRIVER_RESERVED_MIB)
    offered = max(offered // _GRID_MIB * _GRID_MIB, 1)
    return assumed(memory.value - offered, f"a {RESERVE_PART}th of the device or more, for driver and unbudgeted pods")


def _driver(node: GpuNode, reserve: SourcedNumber) -> SourcedNumber:
    mib = min(DRIVER_RESERVED_MIB, reserve.value)
    if mib == DRIVER_RESERVED_MIB and node.card.endswith("T4"):
        return SourcedNumber(mib, "a Tesla T4's")
    return assumed(mib, "Reserved of nvidia-smi -q -d MEMORY")


def _floor(memory: SourcedNumber, reserve: SourcedNumber, driver: SourcedNumber) -> SourcedNumber:
    mib = min(reserve.value - driver.value, memory.value - reserve.value - 1)
    return assumed(max(mib, 0), "the part of a device that full seats leave free")
