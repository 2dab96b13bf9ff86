"""Host memory oversubscribed on purpose: steady state reserved, peaks in slack (seed 001)."""

from collections.abc import Mapping
from typing import Any

from pydantic import Field, ValidationInfo, field_validator

from components.spec import DnsLabel, LabelKey, LabelValue, Mib, Spec
from tenancy.quantity import canonical_mib


class OversubscribedSpec(Spec):
    """A workload whose memory request is its steady state and whose peak goes into slack (seed 001)."""

    tenant: DnsLabel
    priority: DnsLabel
    request_mib: Mib
    limit_mib: Mib
    steady_mib: Mib
    peak_mib: Mib

    @field_validator("limit_mib")
    @classmethod
    def _holds_the_request(cls, limit_mib: int, info: ValidationInfo) -> int:
        request_mib = info.data.get("request_mib", 0)
        if limit_mib < request_mib:
            raise ValueError(f"must be at least request_mib {request_mib} (got {limit_mib})")
        return limit_mib

    @field_validator("peak_mib")
    @classmethod
    def _is_between_steady_state_and_limit(cls, peak_mib: int, info: ValidationInfo) -> int:
        steady_mib, limit_mib = info.data.get("steady_mib", 0), info.data.get("limit_mib", peak_mib)
        if not steady_mib <= peak_mib <= limit_mib:
            raise ValueError(f"must be from steady_mib {steady_mib} to limit_mib {limit_mib} (got {peak_mib})")
        return peak_mib


class DisposableSpec(Spec):
    """Pods that may be killed first: BestEffort, of the lowest class."""

    tenant: DnsLabel
    priority: DnsLabel


class MemoryPoolSpec(Spec):
    """Nodes whose host memory is oversubscribed on purpose."""

    node_selector: dict[LabelKey, LabelValue] = Field(min_length=1)
    allocatable_mib: Mib
    workloads: dict[DnsLabel, OversubscribedSpec] = Field(min_length=1)
    disposable: dict[DnsLabel, DisposableSpec] = Field(default_factory=dict)


def pod_fragments(pool: MemoryPoolSpec) -> dict[str, dict[str, Any]]:
    """What the pod of each workload and each disposable of the pool must carry, by name.

    Nothing is declared in the cluster for a memory pool: who deploys the workload merges `nodeSelector` and
    `priorityClassName` into the pod and `resources` into its main container. A disposable pod has no resources at all,
    which makes it BestEffort: the first to go, by the kernel's ranking and by the kubelet's.
    """
    return {
        **{name: _fragment(pool, spec.priority, _burstable(spec)) for name, spec in pool.workloads.items()},
        **{name: _fragment(pool, spec.priority, {}) for name, spec in pool.disposable.items()},
    }


def _burstable(spec: OversubscribedSpec) -> dict[str, Any]:
    """The steady state is reserved, the peak goes into slack."""
    return {
        "requests": {"memory": canonical_mib(spec.request_mib)},
        "limits": {"memory": canonical_mib(spec.limit_mib)},
    }


def _fragment(pool: MemoryPoolSpec, priority: str, resources: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "nodeSelector": dict(pool.node_selector),
        "priorityClassName": priority,
        "resources": dict(resources),
    }


def tenants_by_priority(pools: Mapping[str, MemoryPoolSpec]) -> dict[str, set[str]]:
    """PriorityClass to the tenants whose pods the memory pools give it to."""
    tenants: dict[str, set[str]] = {}
    for pool in pools.values():
        members: list[OversubscribedSpec | DisposableSpec] = [*pool.workloads.values(), *pool.disposable.values()]
        for member in members:
            tenants.setdefault(member.priority, set()).add(member.tenant)
    return tenants
