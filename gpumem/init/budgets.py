"""Proposes a seat for each workload that reaches a GPU. Pure."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from gpumem.init.nodes import Division
from gpumem.init.peaks import Peak
from gpumem.init.pools import PoolProposal
from gpumem.init.sourced import Sourced, assumed, dns_label, unique
from gpumem.proposal import GRID_MIB
from gpumem.users import GpuUser, Workload
from tenancy.devices.placement import Item, Placement
from tenancy.devices.spread import AlikeNodes, fits_apart, place_on_nodes
from tenancy.names import GPU, GPU_SHARED, GPUMEM_SUFFIX, Names
from tenancy.quantity import QuantityError
from tenancy.workload import pod_request

# gpumem of HAMi's device plugin, MiB of each of a pod's devices.
HAMI_GPUMEM = f"nvidia.com{GPUMEM_SUFFIX}"

_STEPS = 2000  # of one search for a placement of pods with several devices


@dataclass(frozen=True, kw_only=True)
class SeatProposal:
    """A seat of a workload. `replicas` counts the workload's pods on nodes, or all its pods if none is on a node."""

    name: str
    workload: Workload
    pool: str
    gpumem_mib: Sourced
    replicas: int
    devices_per_pod: int = 1

    @property
    def total_mib(self) -> int:
        """Returns the MiB of all devices of all replicas."""
        return self.gpumem_mib.value * self.replicas * self.devices_per_pod


@dataclass(frozen=True)
class Claimant:
    """A workload in its pool, with its number of pods, the devices of each pod, and the budget if it is known."""

    user: GpuUser
    pool: PoolProposal
    pods: int
    devices_per_pod: int
    known: Sourced | None

    @property
    def is_running(self) -> bool:
        """Returns True if one of the workload's pods is on a node."""
        return any(pod.node for pod in self.user.pods)


def seat_proposals(
    placed: Sequence[tuple[GpuUser, PoolProposal]], peaks: Mapping[Workload, Peak], names: Names
) -> tuple[SeatProposal, ...]:
    """A seat for each workload of these pools, all of which share memory. A budget is what the workload requests, or
    its measured peak if that is more; else a whole device that it has alone; else an equal part of the rest.

    A workload without a pod on any node has none if its known budget does not fit beside the others.
    """
    found = [_claimant(user, pool, peaks.get(user.workload), names) for user, pool in placed]
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


def _claimant(user: GpuUser, pool: PoolProposal, peak: Peak | None, names: Names) -> Claimant:
    pods = sum(pod.node is not None for pod in user.pods) or len(user.pods)
    devices, declared = _devices_per_pod(user, pool, names), _declared(user, names)
    if peak is not None:
        shown = f"measured peak {peak.mib} of {peak.days} days, {peak.metric}"
        if declared is not None and declared.value >= peak.mib:
            return Claimant(user, pool, pods, devices, Sourced(declared.value, f"{declared.source}; {shown}"))
        rounded = math.ceil(peak.mib / GRID_MIB) * GRID_MIB
        fitting = min(rounded, max(pool.device_mib, peak.mib))
        above = f", above the budget: {declared.source}" if declared else ""
        return Claimant(user, pool, pods, devices, Sourced(fitting, shown + above))
    if declared is None and pool.division is Division.WHOLE and _gpus(user):
        declared = Sourced(pool.device_mib, f"each pod has a whole device by {GPU}; --from PROMETHEUS shows its use")
    return Claimant(user, pool, pods, devices, declared)


def _declared(user: GpuUser, names: Names) -> Sourced | None:
    """Returns the MiB of a device that a pod requests."""
    for resource in (names.gpumem, HAMI_GPUMEM):
        mib = _request(user, resource)
        if mib > 0:
            spread = max(_request(user, names.gpu_count), 1) if resource == names.gpumem else 1
            return Sourced(math.ceil(mib / spread), f"its pods request {mib} {resource}")
    return None


def _devices_per_pod(user: GpuUser, pool: PoolProposal, names: Names) -> int:
    """Returns the number of devices of each pod. A pod that asks for several time slices may get slices of one
    device."""
    whole = _gpus(user) if pool.division is Division.WHOLE else 1
    return max(whole, _request(user, names.gpu_count), 1)


def _gpus(user: GpuUser) -> int:
    return _request(user, GPU) + _request(user, GPU_SHARED)


def _request(user: GpuUser, resource: str) -> int:
    try:
        return pod_request(user.pod.spec, resource)
    except QuantityError:
        return 0


def _fits(waiting: Claimant, others: Sequence[Claimant]) -> bool:
    """Returns True if the workload's budget is unknown, or fits next to the known budgets of its pool."""
    if waiting.known is None:
        return True
    return _all_fit(_known([*others, waiting], waiting.pool), waiting.pool)


def _all_fit(requests: Counter[tuple[int, int]], pool: PoolProposal) -> bool:
    """Returns True if the search finds different devices of one node for each pod."""
    alike = AlikeNodes(nodes=len(pool.nodes), device_count=pool.device_count.value, device_mib=pool.device_mib)
    if fits_apart(requests, alike):
        return True
    items = [Item("", mib, devices) for mib, devices in requests.elements()]
    several = any(item.devices > 1 for item in items)
    return several and isinstance(place_on_nodes(items, alike.needed(items), steps=_STEPS), Placement)


def _known(claimants: Sequence[Claimant], pool: PoolProposal) -> Counter[tuple[int, int]]:
    """Returns the number of pods by known budget and number of devices."""
    requests: Counter[tuple[int, int]] = Counter()
    for each in claimants:
        if each.pool.name == pool.name and each.known:
            requests[each.known.value, each.devices_per_pod] += each.pods
    return requests


def _equal_part(pool: PoolProposal, claimants: Sequence[Claimant]) -> Sourced:
    """Returns the largest budget with which all workloads fit, given to each workload without a known budget."""
    requests = _known(claimants, pool)
    unknown: Counter[int] = Counter()  # pods by their number of devices
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
