"""Proposes a seat for each workload with pods that reach a GPU. Pure."""

import math
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

from gpumem.init.evidence import Division
from gpumem.init.peaks import Peak
from gpumem.init.pools import PoolProposal
from gpumem.init.sourced import SourcedNumber, assumed, dns_label, unique
from gpumem.pods import WholePod, Workload
from gpumem.users import GpuWorkload
from tenancy.devices.placement import Item, Placement
from tenancy.devices.spread import AlikeNodes, fits_on_separate_nodes, place_on_nodes
from tenancy.fit.smallest_change import GRID_MIB
from tenancy.names import GPU, GPU_SHARED, Names
from tenancy.quantity import QuantityError
from tenancy.sharers import asked_of_sharer
from tenancy.units import MIB
from tenancy.workload import containers_request, pod_level_request, pod_request

_STEPS = 2000  # The maximum number of steps of one search for a placement of pods with several devices.


@dataclass(frozen=True, kw_only=True)
class SeatProposal:
    """The proposed seat of a workload.

    `replicas` is the number of the workload's pods on nodes. If no pod of the workload is on a node, `replicas` is the
    number of all its pods.
    """

    name: str
    workload: Workload
    pool: str
    gpumem_mib: SourcedNumber
    replicas: int
    devices_per_pod: int = 1

    @property
    def total_mib(self) -> int:
        """Returns the sum of the MiB for all replicas on all their devices."""
        return self.gpumem_mib.value * self.replicas * self.devices_per_pod


@dataclass(frozen=True)
class Claimant:
    """A workload that needs a seat in a pool.

    `known` is None if the workload's budget is not known.
    """

    user: GpuWorkload
    pool: PoolProposal
    pods: int
    devices_per_pod: int
    known: SourcedNumber | None

    @property
    def is_running(self) -> bool:
        """Returns True if at least one pod of the workload is on a node."""
        return any(pod.node for pod in self.user.pods)


def seat_proposals(
    placed: Sequence[tuple[GpuWorkload, PoolProposal]],
    peaks: Mapping[Workload, Peak],
    names: Names,
    reached: Collection[str] = (),
) -> tuple[SeatProposal, ...]:
    """Returns a seat for each workload in these pools, which all share memory.

    A budget is the larger of the workload's request and its measured peak. If the request and the peak are unknown, the
    budget of a pod with a whole device is the device's memory. No pod has a whole device on the nodes `reached`, where
    another pod reaches it too. All other workloads of a pool get equal parts of the
    memory that is left. A waiting workload with a known budget gets a seat only if its pool has enough memory for the
    budget.
    """
    found = [_claimant(user, pool, peaks.get(user.workload), names, reached) for user, pool in placed]
    claimants = [each for each in found if each.is_running]
    for each in found:
        if not each.is_running and _fits(each, claimants):
            claimants.append(each)
    claimants.sort(key=lambda each: each.user.workload)
    parts = {pool.name: _equal_part(pool, claimants) for _, pool in placed}
    labels = unique(dns_label(claimant.user.workload.name) or "workload" for claimant in claimants)
    return tuple(
        SeatProposal(
            name=name,
            workload=each.user.workload,
            pool=each.pool.name,
            gpumem_mib=each.known or parts[each.pool.name],
            replicas=each.pods,
            devices_per_pod=each.devices_per_pod,
        )
        for name, each in zip(labels, claimants, strict=True)
    )


def _claimant(
    user: GpuWorkload, pool: PoolProposal, peak: Peak | None, names: Names, reached: Collection[str]
) -> Claimant:
    pods = sum(pod.node is not None for pod in user.pods) or len(user.pods)
    devices, declared = _devices_per_pod(user, pool, names), _declared(user, pool, names)
    if peak is not None:
        shown = f"measured peak {peak.mib} of {peak.days} days, {peak.metric}"
        if declared is not None and declared.value >= peak.mib:
            return Claimant(user, pool, pods, devices, SourcedNumber(declared.value, f"{declared.source}; {shown}"))
        rounded = math.ceil(peak.mib / GRID_MIB) * GRID_MIB
        fitting = min(rounded, max(pool.device_mib, peak.mib))
        above = f", above the budget: {declared.source}" if declared else ""
        return Claimant(user, pool, pods, devices, SourcedNumber(fitting, shown + above))
    if declared is None and gpus_of(user.pod) and _has_whole_devices(user, pool, reached):
        words = f"each pod has a whole device by {GPU}; --from PROMETHEUS shows its use"
        unproven = pool.device_count.is_assumed
        declared = assumed(pool.device_mib, words) if unproven else SourcedNumber(pool.device_mib, words)
    return Claimant(user, pool, pods, devices, declared)


def _has_whole_devices(user: GpuWorkload, pool: PoolProposal, reached: Collection[str]) -> bool:
    nodes = {pod.node for pod in user.pods if pod.node} or {*pool.nodes}
    return pool.division is Division.WHOLE and nodes.isdisjoint(reached)


def _declared(user: GpuWorkload, pool: PoolProposal, names: Names) -> SourcedNumber | None:
    """Returns the MiB that a pod requests on each device, of us or of another program, with the source."""
    mib = _request(user, names.gpumem)
    if mib > 0:
        each = math.ceil(mib / max(_request(user, names.gpu_count), 1))
        return SourcedNumber(each, f"its pods request {mib} {names.gpumem}")
    asked, resource = asked_of_sharer(user.pod.metadata, user.pod.spec, pool.memory_mib.value if pool.memory_mib else 0)
    if asked > pool.device_mib > 0:
        return SourcedNumber(pool.device_mib, f"its pods ask for {asked} by {resource}, more than a device offers")
    return SourcedNumber(asked, f"its pods request {asked} {resource}") if asked else None


def _devices_per_pod(user: GpuWorkload, pool: PoolProposal, names: Names) -> int:
    """Returns the number of devices that each pod needs.

    A pod that requests several time slices counts as a pod with one device, because all its slices can be on one
    device.
    """
    whole = gpus_of(user.pod) if pool.division is Division.WHOLE else 1
    return min(max(whole, _request(user, names.gpu_count), 1), pool.device_count.value)


def gpus_of(pod: WholePod) -> int:
    """Returns the devices or shares that the device plugin gives to a pod."""
    return _asked(pod, GPU) + _asked(pod, GPU_SHARED)


def _request(user: GpuWorkload, resource: str) -> int:
    return _asked(user.pod, resource)


def _asked(pod: WholePod, resource: str) -> int:
    try:
        return pod_request(pod.spec, resource)
    except QuantityError:
        return 0


def _fits(waiting: Claimant, others: Sequence[Claimant]) -> bool:
    if waiting.known is None:
        return True
    return _all_fit(_known([*others, waiting], waiting.pool), waiting.pool)


def _all_fit(requests: Counter[tuple[int, int]], pool: PoolProposal) -> bool:
    """Returns True if the search finds devices for each pod. All devices of one pod must be on one node."""
    alike = AlikeNodes(nodes=len(pool.nodes), device_count=pool.device_count.value, device_mib=pool.device_mib)
    if fits_on_separate_nodes(requests, alike):
        return True
    items = [Item("", mib, devices) for mib, devices in requests.elements()]
    several = any(item.devices > 1 for item in items)
    return several and isinstance(place_on_nodes(items, alike.needed(items), steps=_STEPS), Placement)


def _known(claimants: Sequence[Claimant], pool: PoolProposal) -> Counter[tuple[int, int]]:
    requests: Counter[tuple[int, int]] = Counter()
    for each in claimants:
        if each.pool.name == pool.name and each.known:
            requests[each.known.value, each.devices_per_pod] += each.pods
    return requests


def _equal_part(pool: PoolProposal, claimants: Sequence[Claimant]) -> SourcedNumber:
    """Returns the equal budget for all workloads without a known budget.

    The equal budget is the largest with which all workloads fit.
    """
    requests = _known(claimants, pool)
    # The keys of `unknown` are numbers of devices. The value of a key is the number of pods that need this number of
    # devices.
    unknown: Counter[int] = Counter()
    for each in claimants:
        if each.pool.name == pool.name and not each.known:
            unknown[each.devices_per_pod] += each.pods
    left = pool.advertised_mib - sum(mib * devices * count for (mib, devices), count in requests.items())
    shares = sum(devices * count for devices, count in unknown.items())
    part = max(min(left // max(shares, 1), pool.device_mib), 1)
    step = GRID_MIB if part > GRID_MIB else 1
    part = part // step * step
    while part > step:
        wanted = Counter({(part, devices): count for devices, count in unknown.items()})
        if _all_fit(requests + wanted, pool):
            break
        part -= step
    return assumed(part, "an equal part of the rest of its pool; --from PROMETHEUS shows its use")


def bounded(
    pool: PoolProposal, placed: Sequence[tuple[GpuWorkload, PoolProposal]], seats: Sequence[SeatProposal]
) -> PoolProposal:
    """Returns the pool with those bounds on CPUs and host memory that all its pods keep today.

    A seat may request the part of a node that its MiB are of the node's GPU memory (tenancy/shares.py).
    """
    users = {user.workload: user for user, home in placed if home.name == pool.name}
    node_mib = pool.memory_mib.value * pool.device_count.value if pool.memory_mib else 0
    fits = {"cpu": True, "memory": True}
    for seat in seats:
        for pod in users[seat.workload].pods if seat.pool == pool.name and seat.workload in users else ():
            part = Fraction(seat.gpumem_mib.value * seat.devices_per_pod, node_mib)
            for resource, most, unit in (("cpu", pool.cpus, 1), ("memory", pool.host_memory_mib, MIB)):
                fits[resource] &= most is not None and _requested(pod, resource) <= part * most.value * unit
    return replace(
        pool,
        cpus=pool.cpus if fits["cpu"] else None,
        host_memory_mib=pool.host_memory_mib if fits["memory"] else None,
    )


def _requested(pod: WholePod, resource: str) -> float | Fraction:
    try:
        level = pod_level_request(pod.spec, resource)
        return containers_request(pod.spec, resource) if level is None else level
    except QuantityError:
        return math.inf
