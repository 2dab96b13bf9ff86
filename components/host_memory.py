"""Host memory oversubscribed on purpose: steady use reserved, peaks in slack, victims killed first (record 0001)."""

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Any

import pulumi
from pydantic import Field, ValidationInfo, field_validator

from components.admission import host_memory
from components.admission.policy import binding
from components.base.manifest import Manifest, component_type, register
from components.base.spec import Count, DnsLabel, LabelKey, LabelValue, Mib, Seconds, Spec
from tenancy import names
from tenancy.host_memory.pool import Disposable, HostMemoryPool, HostMemoryPools, Workload
from tenancy.quantity import canonical, canonical_mib

_COMPONENT = "memory"
_MibOrNone = Annotated[int, Field(ge=0, le=2**31)]


class OversubscribedSpec(Spec):
    """A workload whose memory request is its steady state and whose peak goes into slack (record 0001)."""

    tenant: DnsLabel = Field(description="Key of tenants: the namespace it runs in.")
    priority: DnsLabel = Field(description="Key of priorities: the class that goes last.")
    request_mib: Mib = Field(description="Reserved: the steady state and a margin.")
    limit_mib: Mib = Field(description="What the kernel lets it hold.")
    steady_mib: Mib = Field(description="Measured: what it holds almost always.")
    peak_mib: Mib = Field(description="Measured: the most that it held.")
    growth_mib_per_second: _MibOrNone = Field(
        default=0, validate_default=True, description="How fast it gets from its steady state to its peak."
    )

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

    @field_validator("growth_mib_per_second")
    @classmethod
    def _is_given_where_it_grows(cls, growth: int, info: ValidationInfo) -> int:
        if not growth and info.data.get("peak_mib", 0) > info.data.get("steady_mib", 0):
            raise ValueError("is missing though peak_mib is above steady_mib; write how fast it grows at most")
        return growth


class DisposableSpec(Spec):
    """Pods that may be killed first: of the lowest class, and BestEffort unless they request something."""

    tenant: DnsLabel = Field(description="Key of tenants: the namespace they run in.")
    priority: DnsLabel = Field(description="Key of priorities: the class that goes first.")
    pods_least: Annotated[int, Field(ge=0, le=100_000)] = Field(description="How many are always there.")
    pods_most: Count = Field(description="How many may run at once; the API server refuses more.")
    resident_least_mib: Mib = Field(description="Measured: the least that one holds.")
    resident_most_mib: Mib = Field(description="Measured: the most that one holds.")
    request_mib: _MibOrNone = Field(default=0, description="Of one pod; 0 is BestEffort.")

    @field_validator("pods_most", "resident_most_mib")
    @classmethod
    def _is_no_less_than_the_least(cls, most: int, info: ValidationInfo) -> int:
        lower = (info.field_name or "").replace("most", "least")
        if most < info.data.get(lower, most):
            raise ValueError(f"must be at least {lower} {info.data[lower]} (got {most})")
        return most


class HostMemoryPoolSpec(Spec):
    """Nodes whose host memory is oversubscribed on purpose; all numbers are of one node."""

    node_selector: dict[LabelKey, LabelValue] = Field(min_length=1)
    memory_mib: Mib = Field(description="The machine's memory: MemTotal of /proc/meminfo, capacity of its Node.")
    allocatable_mib: Mib = Field(description="What the kubelet offers to pods: allocatable of its Node.")
    eviction_threshold_mib: Mib = Field(
        default=100,
        validate_default=True,
        description="evictionHard memory.available of the kubelet: with less the kubelet evicts.",
    )
    eviction_interval_seconds: Seconds = Field(
        default=10, le=600, description="How often the kubelet looks; 10 is built into it."
    )
    guard: bool = Field(default=True, description="Keep the workloads' oom_score_adj below every victim's.")
    workloads: dict[DnsLabel, OversubscribedSpec] = Field(min_length=1)
    disposable: dict[DnsLabel, DisposableSpec] = Field(default_factory=dict)

    @field_validator("allocatable_mib")
    @classmethod
    def _is_less_than_the_machine_has(cls, allocatable_mib: int, info: ValidationInfo) -> int:
        memory_mib = info.data.get("memory_mib")
        if memory_mib is not None and allocatable_mib >= memory_mib:
            most = f"memory_mib {memory_mib} less the kubelet's eviction_threshold_mib"
            raise ValueError(f"must be at most {most} (got {allocatable_mib})")
        return allocatable_mib

    @field_validator("eviction_threshold_mib")
    @classmethod
    def _is_on_the_machine(cls, threshold_mib: int, info: ValidationInfo) -> int:
        memory_mib, allocatable_mib = info.data.get("memory_mib"), info.data.get("allocatable_mib")
        if memory_mib is not None and allocatable_mib is not None and allocatable_mib + threshold_mib > memory_mib:
            raise ValueError(
                f"must be at most {memory_mib - allocatable_mib}, memory_mib less allocatable_mib (got {threshold_mib})"
            )
        return threshold_mib


@dataclass(frozen=True, kw_only=True)
class HostMemoryArgs:
    """The pools by name, and the namespace of the agents."""

    pools: Mapping[str, HostMemoryPoolSpec]
    namespace: str


def host_memory_pools(specs: Mapping[str, HostMemoryPoolSpec]) -> HostMemoryPools:
    """The pools as everybody else reads them, by name."""
    return HostMemoryPools(pools=tuple(_pool(name, spec) for name, spec in sorted(specs.items())))


def _pool(name: str, spec: HostMemoryPoolSpec) -> HostMemoryPool:
    own = spec.model_dump(exclude={"workloads", "disposable"})
    return HostMemoryPool(
        name=name,
        workloads=tuple(Workload(name=n, **w.model_dump()) for n, w in sorted(spec.workloads.items())),
        disposable=tuple(Disposable(name=n, **d.model_dump()) for n, d in sorted(spec.disposable.items())),
        **own,
    )


def config_map(pools: HostMemoryPools, namespace: str) -> Manifest:
    """The pools as the policy pack reads them."""
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": names.HOST_MEMORY_POOLS, "namespace": namespace, "labels": names.labels(_COMPONENT)},
        "data": {names.HOST_MEMORY_POOLS_KEY: json.dumps(pools.to_data(), sort_keys=True, separators=(",", ":"))},
    }


def quotas(pools: HostMemoryPools) -> Iterator[Manifest]:
    """What each tenant may run of each class, so that no more runs than was proven to fit.

    No LimitRange stands next to them: its maximum of memory is also the default limit and so the request of a pod that
    states none, and a victim would no longer be BestEffort (plugin/pkg/admission/limitranger).
    """
    hard: dict[tuple[str, str], Counter[str]] = {}
    for pool in pools.pools:
        for workload in pool.workloads:
            most = hard.setdefault((workload.tenant, workload.priority), Counter())
            most["requests.memory"] += workload.request_mib
            most["limits.memory"] += workload.limit_mib
        for disposable in pool.disposable:
            hard.setdefault((disposable.tenant, disposable.priority), Counter())["pods"] += disposable.pods_most
    for (tenant, priority), most in sorted(hard.items()):
        written = {key: canonical(n) if key == "pods" else canonical_mib(n) for key, n in most.items()}
        yield _quota(tenant, priority, written)


def _quota(tenant: str, priority: str, hard: Mapping[str, str]) -> Manifest:
    chosen = {"scopeName": "PriorityClass", "operator": "In", "values": [priority]}
    return {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {
            "name": f"{names.HOST_MEMORY_QUOTA}-{priority}",
            "namespace": tenant,
            "labels": names.labels(_COMPONENT),
        },
        "spec": {"hard": dict(hard), "scopeSelector": {"matchExpressions": [chosen]}},
    }


def pod_fragments(pool: HostMemoryPoolSpec) -> dict[str, dict[str, Any]]:
    """What the pod of each workload and each disposable of the pool must carry, by name.

    Who deploys the workload merges `nodeSelector` and `priorityClassName` into the pod and `resources` into its main
    container. A disposable pod has no resources at all unless it requests some, which makes it BestEffort: the first
    to go, by the kernel's ranking and by the kubelet's.
    """
    return {
        **{name: _fragment(pool, spec.priority, _burstable(spec)) for name, spec in pool.workloads.items()},
        **{name: _fragment(pool, spec.priority, _smallest(spec)) for name, spec in pool.disposable.items()},
    }


def _burstable(spec: OversubscribedSpec) -> dict[str, Any]:
    """The steady state is reserved, the peak goes into slack."""
    return {
        "requests": {"memory": canonical_mib(spec.request_mib)},
        "limits": {"memory": canonical_mib(spec.limit_mib)},
    }


def _smallest(spec: DisposableSpec) -> dict[str, Any]:
    return {"requests": {"memory": canonical_mib(spec.request_mib)}} if spec.request_mib else {}


def _fragment(pool: HostMemoryPoolSpec, priority: str, resources: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "nodeSelector": dict(pool.node_selector),
        "priorityClassName": priority,
        "resources": dict(resources),
    }


def tenants_by_priority(pools: Mapping[str, HostMemoryPoolSpec]) -> dict[str, set[str]]:
    """PriorityClass to the tenants whose pods the memory pools give it to."""
    tenants: dict[str, set[str]] = {}
    for pool in pools.values():
        members: list[OversubscribedSpec | DisposableSpec] = [*pool.workloads.values(), *pool.disposable.values()]
        for member in members:
            tenants.setdefault(member.priority, set()).add(member.tenant)
    return tenants


class HostMemory(pulumi.ComponentResource):
    """Declares the pools, what each tenant may run of their classes, and how those pods must look."""

    pools: pulumi.Output[list[str]]

    def __init__(self, name: str, args: HostMemoryArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        props = {"pools": {key: spec.model_dump(mode="json") for key, spec in args.pools.items()}}
        super().__init__(component_type("Memory"), name, props, opts)
        pools = host_memory_pools(args.pools)
        declared = register(config_map(pools, args.namespace), f"{name}-pools", parent=self)
        for quota in quotas(pools):
            metadata = quota["metadata"]
            register(quota, f"{name}-{metadata['namespace']}-{metadata['name']}", parent=self)
        for policy in host_memory.policies(pools):
            admitted = register(policy, f"{name}-{policy['metadata']['name']}", parent=self)
            register(
                binding(policy), f"{name}-{policy['metadata']['name']}-binding", parent=self, depends_on=[admitted]
            )
        self.pools = declared.urn.apply(lambda _: sorted(args.pools))
        self.register_outputs({"pools": self.pools})
