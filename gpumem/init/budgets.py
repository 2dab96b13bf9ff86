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
from tenancy.devices.placement import fits_alike
from tenancy.names import GPU, GPU_SHARED, GPUMEM_SUFFIX, Names
from tenancy.quantity import QuantityError
from tenancy.workload import pod_request

# gpumem of HAMi's device plugin, MiB of each of a pod's devices.
HAMI_GPUMEM = f"nvidia.com{GPUMEM_SUFFIX}"


@dataclass(frozen=True, kw_only=True)
class SeatProposal:
    """A seat of a workload. `replicas` counts the devices of its pods that are on a node, else of all its pods."""

    name: str
    workload: Workload
    pool: str
    gpumem_mib: Sourced
    replicas: int


@dataclass(frozen=True)
class Claimant:
    """A workload in its pool, with its number of devices, and the budget as far as it is known."""

    user: GpuUser
    pool: PoolProposal
    devices: int
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
            replicas=each.devices,
        )
        for name, each in zip(labels, claimants, strict=True)
    )


def _claimant(user: GpuUser, pool: PoolProposal, peak: Peak | None, names: Names) -> Claimant:
    devices, declared = _count(user, pool, names), _declared(user, names)
    if peak is not None:
        shown = f"measured peak {peak.mib} of {peak.days} days, {peak.metric}"
        if declared is not None and declared.value >= peak.mib:
            return Claimant(user, pool, devices, Sourced(declared.value, f"{declared.source}; {shown}"))
        rounded = math.ceil(peak.mib / GRID_MIB) * GRID_MIB
        fitting = min(rounded, max(pool.device_mib, peak.mib))
        above = f", above the budget: {declared.source}" if declared else ""
        return Claimant(user, pool, devices, Sourced(fitting, shown + above))
    if declared is None and pool.division is Division.WHOLE and _gpus(user):
        declared = Sourced(pool.device_mib, f"each pod has a whole device by {GPU}; --from PROMETHEUS shows its use")
    return Claimant(user, pool, devices, declared)


def _declared(user: GpuUser, names: Names) -> Sourced | None:
    """Returns the MiB of a device that a pod requests."""
    for resource in (names.gpumem, HAMI_GPUMEM):
        mib = _request(user, resource)
        if mib > 0:
            spread = max(_request(user, names.gpu_count), 1) if resource == names.gpumem else 1
            return Sourced(math.ceil(mib / spread), f"its pods request {mib} {resource}")
    return None


def _count(user: GpuUser, pool: PoolProposal, names: Names) -> int:
    """Returns the number of devices of all the workload's pods. A pod that asks for several time slices may get slices
    of one device."""
    whole = _gpus(user) if pool.division is Division.WHOLE else 1
    pods = sum(pod.node is not None for pod in user.pods) or len(user.pods)
    return pods * max(whole, _request(user, names.gpu_count), 1)


def _gpus(user: GpuUser) -> int:
    return _request(user, GPU) + _request(user, GPU_SHARED)


def _request(user: GpuUser, resource: str) -> int:
    try:
        return pod_request(user.pod.spec, resource)
    except QuantityError:
        return 0


def _fits(waiting: Claimant, others: Sequence[Claimant]) -> bool:
    """Returns True if the workload's budget is unknown, or fits beside the known budgets of its pool."""
    if waiting.known is None:
        return True
    sizes = _known([*others, waiting], waiting.pool)
    return fits_alike(sizes, waiting.pool.device_mib, waiting.pool.gpus)


def _known(claimants: Sequence[Claimant], pool: PoolProposal) -> Counter[int]:
    """Returns the number of devices by known budget."""
    sizes: Counter[int] = Counter()
    for each in claimants:
        if each.pool.name == pool.name and each.known:
            sizes[each.known.value] += each.devices
    return sizes


def _equal_part(pool: PoolProposal, claimants: Sequence[Claimant]) -> Sourced:
    """Returns the largest budget with which all workloads fit, given to each workload without a known budget."""
    sizes = _known(claimants, pool)
    unknown = sum(each.devices for each in claimants if each.pool.name == pool.name and not each.known)
    left = pool.advertised_mib - sum(mib * count for mib, count in sizes.items())
    part = max(min(left // max(unknown, 1), pool.device_mib), 1)
    step = GRID_MIB if part > GRID_MIB else 1
    part = part // step * step
    while part > step and not fits_alike(sizes + Counter({part: unknown}), pool.device_mib, pool.gpus):
        part -= step
    return assumed(part, "an equal part of the rest of its pool; --from PROMETHEUS shows its use")
