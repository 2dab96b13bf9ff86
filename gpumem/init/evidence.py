"""Decides what a node's devices are, from everything that the node shows. Pure.

Each source gives a reading: the labels of GPU feature discovery, ResourceSlices, the annotation in which HAMi or
Volcano registers devices, the labels of a cloud or of Karpenter, and the resources of device plugins. No source knows
all. Feature discovery describes one kind of card, a cloud's label the card as it is sold, and a resource counts shares
as if they were devices. So every reading counts: the first one with a number gives the number, any one that shows
sharing makes the devices shared, and a number that another reading contradicts is only assumed.
"""

import enum
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from agents.kube.device_slices import PublishedDevices
from gpumem.init.sourced import SourcedNumber, assumed
from tenancy.names import GPU, LABEL_GPU_COUNT, LABEL_GPU_MEMORY, LABEL_GPU_REPLICAS
from tenancy.quantity import QuantityError, parse, whole
from tenancy.reach import GPU_RESOURCES
from tenancy.sharers import REGISTER, sharer_of_resource
from tenancy.units import MIB
from tenancy.workload import Manifest, map_at, text_at

LABEL_PRODUCT = f"{GPU}.product"
LABEL_SHARING = f"{GPU}.sharing-strategy"
BY_LABELS = "labels of GPU feature discovery"
BY_SLICES = "ResourceSlices"
BY_RESOURCE = f"capacity {GPU}"
# The MiB of a device if no source shows its memory. A Tesla T4 has 15360 MiB.
UNKNOWN_MIB = 15360
# What nvidia-smi shows for cards that clouds name. The name of a card contains the key, and the first key counts.
_CARDS = {
    "h200": 143771,
    "h100": 81559,
    "a100-80gb": 81251,
    "a100": 40536,
    "l40s": 46068,
    "a10g": 23028,
    "l4": 23034,
    "v100": 16160,
    "p100": 16276,
    "k80": 11441,
    "p4": 7606,
    "m60": 7618,
    "t4": 15360,
}
_MOST_DEVICES = 16  # No server has more GPUs, so that a larger number counts shares.
_MIG_PRODUCT = re.compile(r"-MIG-[0-9]+g\.")
_MIG_RESOURCES = f"{GPU_RESOURCES}mig-"
# Cards that share the memory of their host, for which NVML shows no memory of a device.
_UNIFIED = re.compile(r"\b(?:GB10|Thor|Orin|Xavier|Tegra|Jetson|DGX-Spark)\b", re.IGNORECASE)
_TO_MACHINES = re.compile(r"vm-(?:passthrough|vgpu)")
# The names that clouds and node provisioners give their labels end alike. Karpenter writes instance-gpu-count or
# sku-gpu-count, GKE gke-accelerator-count, ACK nvidia_count, CoreWeave gpu.nvidia.com/count.
_OF_A_CLOUD = {
    "count": re.compile(r"(?:gpu|gke-accelerator|nvidia|nvidia\.com)[-_./](?:count|number)"),
    "memory": re.compile(r"(?:gpu|nvidia|nvidia\.com)[-_./](?:memory|mem|vram)"),
    "product": re.compile(r"(?:gpu|nvidia|nvidia\.com)[-_./](?:name|model|product|type)|(?:gke-)?accelerator"),
    "clients": re.compile(r"gpu[-_.](?:replicas|slices)|max-shared-clients-per-gpu"),
    "strategy": re.compile(r"gpu[-_.]sharing[-_.]strategy"),
    "partition": re.compile(r"(?:gpu-partition-size|gpu-instance-profile|mig-profile)"),
    "maker": re.compile(r"gpu[-_.]manufacturer"),
}


class Division(enum.StrEnum):
    """The way in which a node currently hands out its GPUs."""

    WHOLE = "whole devices"
    TIME_SLICING = "time-slicing"
    MPS = "MPS"
    SPLIT = "split by another plugin"
    MIG = "MIG"


@dataclass(frozen=True, kw_only=True)
class Reading:
    """What one source shows. None and "" are not shown. `shares` is the number of units of one device, and the memory
    in MiB is `nominal` if it is that of the card as it is sold.
    """

    source: str
    count: int | None = None
    memory_mib: int | None = None
    nominal: bool = False
    shares: int | None = None
    division: Division | None = None
    product: str = ""
    sizes: tuple[int, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Devices:
    """What a node's devices are. The count is of devices, or of MIG devices where each is one GPU to Kubernetes.

    `memory_mib` is None for MIG devices. `whole` and `slices` count the units that are whole devices and MIG devices.
    """

    division: Division
    count: SourcedNumber
    memory_mib: SourcedNumber | None
    product: str
    by_labels: bool
    sizes: tuple[int, ...] = ()
    whole: int = 0
    slices: int = 0


@dataclass(frozen=True)
class NoDevices:
    """A node with GPUs that no pool can have. `why` is the reason, or "" for a node without a GPU."""

    why: str = ""


def devices_of(node: Manifest, shown: PublishedDevices) -> Devices | NoDevices:
    """Returns what the devices of a node are. Raises QuantityError."""
    labels = map_at(node, "metadata", "labels")
    units = _units(node)
    readings = [each for each in _readings(node, labels, shown) if each is not None]
    slices = sum(amount for name, amount in units.items() if name.startswith(_MIG_RESOURCES))
    wholes = sum(amount for name, amount in units.items() if name == GPU or name.startswith(f"{GPU}."))
    if not wholes and not slices and all(each.nominal for each in readings):
        return NoDevices(_unoffered(units, readings))
    if why := _unusable(node, labels, readings):
        return NoDevices(why)
    product = next((each.product for each in readings if each.product), "")
    division = _division(readings, wholes, slices)
    if division is Division.MIG:
        return _divided(readings, product, wholes, slices)
    shares = max((each.shares for each in readings if each.shares), default=None)
    count, division = _count(readings, wholes, shares, division)
    return Devices(
        division=division,
        count=count,
        memory_mib=_memory(readings, product),
        product=product,
        by_labels=not _of_several_kinds(readings)
        and any(each.source == BY_LABELS and each.count and each.memory_mib for each in readings),
        sizes=next((each.sizes for each in readings if each.sizes), ()),
        whole=wholes,
    )


def _units(node: Manifest) -> dict[str, int]:
    """Returns the amounts of the GPU resources of all plugins. A unit that is withdrawn now still counts."""
    found: dict[str, int] = {}
    for part in ("capacity", "allocatable"):
        for name, amount in map_at(node, "status", part).items():
            if name.startswith(GPU_RESOURCES) or sharer_of_resource(name):
                found[name] = max(found.get(name, 0), whole(amount))
    return {name: amount for name, amount in found.items() if amount}


def withdrawn(node: Manifest) -> Iterator[str]:
    """Yields a sentence for each resource of which the node offers less now than it has. Raises QuantityError."""
    offered, has = map_at(node, "status", "allocatable"), map_at(node, "status", "capacity")
    for name in sorted(name for name in has if name.startswith(GPU_RESOURCES)):
        now, all_of_them = whole(offered.get(name, 0)), whole(has[name])
        if now < all_of_them:
            yield f"{all_of_them - now} of its {all_of_them} {name} is withdrawn now; the file counts it as there"


def _unoffered(units: Mapping[str, int], readings: Iterable[Reading]) -> str:
    machines = [name for name in units if name.startswith(GPU_RESOURCES)]
    if machines:
        return f"it offers {machines[0]}, which is a card for virtual machines"
    named = [each.source for each in readings if "nvidia" in f"{each.source} {each.product}".lower()]
    return f"its {named[0]} shows a GPU, and no device plugin offers one" if named else ""


def _unusable(node: Manifest, labels: Mapping[str, str], readings: Iterable[Reading]) -> str:
    system = map_at(node, "status", "nodeInfo")
    names = [*(each.product for each in readings), text_at(system, "kernelVersion")]
    unified = next((name for name in names if _UNIFIED.search(name.replace("_", "-"))), "")
    if unified:
        return f"{unified} has one memory with its host, where no budget of GPU memory can be measured"
    if _TO_MACHINES.fullmatch(use := labels.get(f"{GPU}.workload.config", "")):
        return f"its label {GPU}.workload.config={use} gives its devices to virtual machines"
    discovered = next((each for each in readings if each.source == BY_LABELS), None)
    unmeasured = discovered and discovered.count and not any(each.memory_mib for each in readings)
    if discovered and unmeasured and discovered.division is not Division.MIG and not _has_slices(node):
        return f"feature discovery counts its {discovered.product or 'devices'} and shows no memory of them"
    return ""


def _has_slices(node: Manifest) -> bool:
    return any(name.startswith(_MIG_RESOURCES) for name in _units(node))


def _readings(node: Manifest, labels: Mapping[str, str], shown: PublishedDevices) -> Iterator[Reading | None]:
    yield _by_discovery(labels)
    if shown.devices:
        yield Reading(
            source=BY_SLICES, count=len(shown.devices), memory_mib=min(shown.devices), sizes=tuple(shown.devices)
        )
    for name, value in map_at(node, "metadata", "annotations").items():
        if re.fullmatch(REGISTER, name):
            yield _registered(name, str(value))
    yield _by_cloud({key: value for key, value in labels.items() if not key.startswith(GPU_RESOURCES)})
    for name, amount in _units(node).items():
        if plugin := sharer_of_resource(name):
            count = amount if name.endswith("gpu-count") else None
            yield Reading(source=f"{name} of {plugin}", count=count, shares=2, division=Division.SPLIT)


def _by_discovery(labels: Mapping[str, str]) -> Reading | None:
    found = Reading(
        source=BY_LABELS,
        count=_number(labels.get(LABEL_GPU_COUNT)),
        memory_mib=_number(labels.get(LABEL_GPU_MEMORY)),
        shares=_number(labels.get(LABEL_GPU_REPLICAS)),
        product=labels.get(LABEL_PRODUCT, ""),
        division=_strategy(labels.get(LABEL_SHARING, "")),
    )
    if found.product.endswith("-SHARED") and found.division is None:
        found = replace(found, division=Division.TIME_SLICING)
    if _MIG_PRODUCT.search(found.product):
        found = replace(found, division=Division.MIG)
    return found if found.count or found.product else None


def _registered(name: str, value: str) -> Reading | None:
    """Reads the devices that HAMi's or Volcano's plugin registers: JSON, or ID,shares,MiB,cores,type,… of each device
    before a colon. Source: pkg/device/nvidia of HAMi.
    """
    try:
        rows = [(each["count"], each["devmem"], each.get("type", "")) for each in json.loads(value)]
    except (ValueError, TypeError, KeyError, AttributeError):
        fields = [row.split(",") for row in value.split(":") if row.count(",") >= 3]
        rows = [(row[1], row[2], row[4] if len(row) > 4 else "") for row in fields]
    shares = [_number(str(count)) or 1 for count, _, _ in rows]
    sizes = [_number(str(mib)) for _, mib, _ in rows]
    if not rows:
        return None
    known = [mib for mib in sizes if mib]
    return Reading(
        source=f"annotation {name}",
        count=len(rows),
        memory_mib=min(known) if known else None,
        shares=max(shares),
        division=Division.SPLIT,
        product=str(rows[0][2]).replace(" ", "-"),
    )


def _by_cloud(labels: Mapping[str, str]) -> Reading | None:
    found: dict[str, tuple[str, str]] = {}
    for key, value in sorted(labels.items()):
        for part, pattern in _OF_A_CLOUD.items():
            if re.fullmatch(rf"(?:.*[-_./])?(?:{pattern.pattern})", key):
                found.setdefault(part, (key, value))
    if not found or "nvidia" not in found.get("maker", ("", "nvidia"))[1].lower():
        return None
    values = {part: value for part, (_, value) in found.items()}
    mig, product = values.get("partition", ""), values.get("product", "")
    product = "" if product.lower() == "nvidia" else product
    first = next(found[part] for part in ("count", "clients", "partition", *found) if part in found)
    return Reading(
        source=f"label {first[0]}",
        count=None if mig else _number(values.get("count")),
        memory_mib=_mib(values.get("memory", "")),
        nominal=True,
        shares=_number(values.get("clients")),
        division=Division.MIG if mig else _strategy(values.get("strategy", "")),
        product="-MIG-".join(filter(None, [product, mig])),
    )


def _strategy(value: str) -> Division | None:
    names = {"mps": Division.MPS, "time-slicing": Division.TIME_SLICING, "time-sharing": Division.TIME_SLICING}
    return names.get(value.lower())


def _division(readings: Iterable[Reading], wholes: int, slices: int) -> Division:
    """Returns how the devices are handed out. MIG divides them in hardware, so it counts before all sharing."""
    shown = {each.division for each in readings} | ({Division.MIG} if slices else set())
    shared = any(each.shares and each.shares > 1 for each in readings)
    order = (Division.MIG, Division.SPLIT, Division.MPS, Division.TIME_SLICING)
    return next((each for each in order if each in shown), Division.TIME_SLICING if shared else Division.WHOLE)


def _divided(readings: Iterable[Reading], product: str, wholes: int, slices: int) -> Devices:
    """Returns the devices of a node with MIG.

    Where each MIG device is one nvidia.com/gpu, they are counted. Else the physical devices are, of which some may be
    whole and others divided.
    """
    shown = next((each for each in readings if each.count), None)
    if not slices:
        by = shown.source if shown and shown.division is Division.MIG else BY_RESOURCE
        count = SourcedNumber(
            shown.count if shown and shown.count and by != BY_RESOURCE else wholes, f"MIG devices by {by}"
        )
    elif shown is None or not shown.count:
        count = assumed(wholes + slices, f"{wholes} whole and {slices} MIG devices; write the number of cards")
    else:
        words = f"by {shown.source}, of which {wholes} are whole; MIG divides the others into {slices}"
        count = SourcedNumber(shown.count, words)
    return Devices(
        division=Division.MIG,
        count=count,
        memory_mib=None,
        product=product,
        by_labels=False,
        whole=wholes if slices else 0,
        slices=slices or wholes,
    )


def _count(
    readings: list[Reading], units: int, shares: int | None, division: Division
) -> tuple[SourcedNumber, Division]:
    """Returns the number of devices, and the division that the number of units shows.

    More units than devices times shares is a contradiction. Then the devices are shared, in a way that only their
    plugin knows.
    """
    counted = [each for each in readings if each.count]
    if not counted:
        if units > _MOST_DEVICES or (shares is None and division is not Division.WHOLE):
            reason = f"{BY_RESOURCE} is {units} and counts shares; write the number of cards that nvidia-smi -L lists"
            return assumed(1, reason), division if division is not Division.WHOLE else Division.TIME_SLICING
        if shares and division is not Division.WHOLE:
            source = next(each.source for each in readings if each.shares == shares)
            words = f"{units} {GPU}, {shares} of each device by {source}"
            if units % shares or division is Division.SPLIT:
                return assumed(max(units // shares, 1), words), division
            return SourcedNumber(max(units // shares, 1), words), division
        reason = f"devices by {BY_RESOURCE}, which counts shares too; compare it with nvidia-smi -L"
        return assumed(max(units, 1), reason), division
    first = min(counted, key=lambda each: each.source != BY_SLICES) if _of_several_kinds(counted) else counted[0]
    most = (first.count or 0) * max(shares or 1, 1)
    others = [f"{each.count} by {each.source}" for each in counted if each.count != first.count]
    if division is not Division.SPLIT and units > most:
        others.append(f"{BY_RESOURCE} is {units}, so its plugin shares each, or there are cards of another kind")
        division = Division.TIME_SLICING if division is Division.WHOLE else division
    if others:
        return assumed(first.count or 1, f"{first.count} by {first.source}, but {', '.join(others)}"), division
    return SourcedNumber(first.count or 1, f"devices by {first.source}"), division


def _of_several_kinds(counted: Iterable[Reading]) -> bool:
    """Returns True if ResourceSlices, which list each device, show more than feature discovery, which describes one
    kind of card."""
    by = {each.source: each.count or 0 for each in counted}
    return by.get(BY_SLICES, 0) > by.get(BY_LABELS, 0) > 0


def _memory(readings: list[Reading], product: str) -> SourcedNumber:
    """Returns the MiB of a device: the smallest that a source measured, what a card of this name has, or a guess."""
    measured = [each for each in readings if each.memory_mib and not each.nominal]
    if measured:
        least = min(measured, key=lambda each: each.memory_mib or 0)
        mib, smallest = least.memory_mib or 0, " (the smallest of them)" if len(set(least.sizes)) > 1 else ""
        others = [f"{each.memory_mib} by {each.source}" for each in measured if each.memory_mib != mib]
        if others and not smallest:
            return assumed(mib, f"{least.source}, but {', '.join(others)}")
        return SourcedNumber(mib, f"{least.source}{smallest}")
    sold = next((each for each in readings if each.memory_mib), None)
    card = next((key for key in _CARDS if re.search(rf"(?<![a-z0-9]){key}(?![0-9])", product.lower())), None)
    if card is not None:
        mib = min(_CARDS[card], sold.memory_mib or 0) if sold else _CARDS[card]
        return assumed(mib, f"what an {card.upper()} has; compare it with nvidia-smi -q -d MEMORY")
    if sold is not None:
        return assumed((sold.memory_mib or 0) * 15 // 16, f"a 16th below {sold.source.partition(' ')[0]}s as sold")
    return assumed(UNKNOWN_MIB, f"{BY_RESOURCE} shows no memory; write what nvidia-smi -q -d MEMORY shows")


def _mib(text: str) -> int | None:
    """Returns the MiB in a cloud's label: a number of MiB, a small number of GB, or a quantity such as 15109MiB."""
    try:
        amount = parse(text.removesuffix("B"))
    except QuantityError:
        return None
    if amount >= MIB:
        return int(amount / MIB)
    return int(amount * (1000**3 / MIB if amount < 1000 else 1)) or None


def _number(value: str | None) -> int | None:
    text = value or ""
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 10 else None
