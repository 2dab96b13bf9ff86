"""Memory pools: nodes on which host memory is oversubscribed on purpose (docs/adr/0001).

Requests cover the memory that workloads use almost always. The peaks of workloads use the memory that other pods leave
free. If the host memory runs out, the kernel kills disposable pods first.
"""

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Any

import pulumi
from pydantic import Field, ValidationInfo, field_validator

from components.admission import host_memory
from components.admission.policy import put_into_force
from components.base.manifest import Manifest, component_type, manifest, register
from components.base.spec import Count, DnsLabel, Labels, Mib, MibOrNone, PriorityKey, Spec, TaintSpec, TenantKey
from tenancy import names
from tenancy.admission.policy import MutatingApi, served_as
from tenancy.choices import Mode
from tenancy.host_memory.pool import Disposable, HostMemoryPool, HostMemoryPools, Taint, Workload
from tenancy.quantity import canonical, canonical_mib

_COMPONENT = "memory"


class OversubscribedSpec(Spec):
    """A protected workload: its request covers its usual memory, and its peak may exceed the request
    (docs/adr/0001)."""

    tenant: TenantKey
    priority: PriorityKey = Field(description="Key of priorities: the PriorityClass of the protected pods.")
    request_mib: Mib = Field(description="Memory request of a pod: steady_mib and a margin.")
    limit_mib: Mib = Field(description="Memory limit of a pod, which the kernel enforces.")
    steady_mib: Mib = Field(description="Measured host memory that the pod uses almost always.")
    peak_mib: Mib = Field(description="Measured peak of the pod's host memory.")

    @field_validator("peak_mib")
    @classmethod
    def _is_between_steady_state_and_limit(cls, peak_mib: int, info: ValidationInfo) -> int:
        steady_mib, limit_mib = info.data.get("steady_mib", 0), info.data.get("limit_mib", peak_mib)
        if not steady_mib <= peak_mib <= limit_mib:
            raise ValueError(f"must be from steady_mib {steady_mib} to limit_mib {limit_mib} (got {peak_mib})")
        return peak_mib


class DisposableSpec(Spec):
    """Pods that may be killed first. Disposable pods have the lowest PriorityClass, and are BestEffort unless they
    request memory."""

    tenant: TenantKey
    priority: PriorityKey = Field(
        description="Key of priorities: the PriorityClass of the pods that may be killed first."
    )
    pods_least: Annotated[int, Field(ge=0, le=100_000, examples=[1])] = Field(
        description="Number of the workload's pods that always run."
    )
    pods_most: Count = Field(
        description="Largest number of the workload's pods at the same time. A ResourceQuota refuses more pods."
    )
    resident_least_mib: Mib = Field(description="Measured minimum of one pod's host memory.")
    resident_most_mib: Mib = Field(description="Measured maximum of one pod's host memory.")
    request_mib: MibOrNone = Field(
        default=0, description="Memory request of one pod. 0: the pod requests nothing and is BestEffort."
    )


class HostMemoryPoolSpec(Spec):
    """Nodes with oversubscribed host memory. All numbers of a memory pool are for one node."""

    node_selector: Labels = Field(min_length=1, description="Labels of the pool's nodes.")
    memory_mib: Mib = Field(
        description="Total host memory of a node (MemTotal in /proc/meminfo, and `capacity` of the Node)."
    )
    allocatable_mib: Mib = Field(description="Host memory of a node for pods (`allocatable` of the Node).")
    eviction_threshold_mib: Mib = Field(
        default=100,
        description="The kubelet's evictionHard for memory.available. The kubelet evicts pods when less host memory "
        "is available.",
    )
    node_taints: list[TaintSpec] = Field(
        default_factory=list,
        max_length=8,
        description="Taints of the pool's nodes. They keep other pods off these nodes. Set them with `kubectl taint`. "
        "The stack's output adds the tolerations to the pool's workloads.",
    )
    workloads: dict[DnsLabel, OversubscribedSpec] = Field(
        min_length=1, description="The pool's protected workloads. Their peaks may exceed their requests."
    )
    disposable: dict[DnsLabel, DisposableSpec] = Field(
        default_factory=dict,
        description="The pool's disposable workloads. Their pods are killed first when host memory runs out.",
    )


@dataclass(frozen=True, kw_only=True)
class HostMemoryArgs:
    pools: Mapping[str, HostMemoryPoolSpec]
    namespace: str
    mode: Mode = Mode.ENFORCE
    mutating_api: MutatingApi = MutatingApi.V1


def host_memory_pools(specs: Mapping[str, HostMemoryPoolSpec]) -> HostMemoryPools:
    return HostMemoryPools(pools=tuple(_pool(name, spec) for name, spec in sorted(specs.items())))


def _pool(name: str, spec: HostMemoryPoolSpec) -> HostMemoryPool:
    own = spec.model_dump(exclude={"workloads", "disposable", "node_taints"})
    return HostMemoryPool(
        name=name,
        node_taints=tuple(Taint(**taint.model_dump()) for taint in spec.node_taints),
        workloads=tuple(Workload(name=n, **w.model_dump()) for n, w in sorted(spec.workloads.items())),
        disposable=tuple(Disposable(name=n, **d.model_dump()) for n, d in sorted(spec.disposable.items())),
        **own,
    )


def config_map(pools: HostMemoryPools, namespace: str) -> Manifest:
    """Returns the ConfigMap with the memory pools, which the policy pack reads."""
    data = {names.HOST_MEMORY_POOLS_KEY: json.dumps(pools.to_data(), sort_keys=True, separators=(",", ":"))}
    return manifest("v1", "ConfigMap", names.HOST_MEMORY_POOLS, _COMPONENT, namespace, data=data)


def quotas(pools: HostMemoryPools) -> Iterator[Manifest]:
    """Yields a quota for each tenant and PriorityClass. The quota allows only the pods that the policy pack's proof has
    counted.

    The stack declares no LimitRange, for the sake of disposable pods. With a LimitRange, a disposable pod without a
    request would get the maximum as request, and would not be BestEffort (plugin/pkg/admission/limitranger).
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
        chosen = {"scopeName": "PriorityClass", "operator": "In", "values": [priority]}
        spec = {
            "hard": {key: canonical(n) if key == "pods" else canonical_mib(n) for key, n in most.items()},
            "scopeSelector": {"matchExpressions": [chosen]},
        }
        yield manifest("v1", "ResourceQuota", f"{names.HOST_MEMORY_QUOTA}-{priority}", _COMPONENT, tenant, spec=spec)


def pod_fragments(pool: HostMemoryPoolSpec) -> dict[str, dict[str, Any]]:
    """Maps each workload of the pool to the fields that its pods need. `resources` are the resources of the main
    container.

    A disposable pod without a request has no `resources` at all, and is therefore BestEffort. The kernel and the
    kubelet end BestEffort pods before other pods.
    """
    fragments = {}
    for name, spec in _members(pool).items():
        resources = {"requests": {"memory": canonical_mib(spec.request_mib)}} if spec.request_mib else {}
        if isinstance(spec, OversubscribedSpec):
            resources["limits"] = {"memory": canonical_mib(spec.limit_mib)}
        fragments[name] = {
            "nodeSelector": dict(pool.node_selector),
            "priorityClassName": spec.priority,
            "resources": resources,
            **({"tolerations": [taint.toleration for taint in pool.node_taints]} if pool.node_taints else {}),
        }
    return fragments


def tenants_by_priority(pools: Mapping[str, HostMemoryPoolSpec]) -> dict[str, set[str]]:
    """Maps each PriorityClass of the memory pools to the tenants that use it."""
    tenants: dict[str, set[str]] = {}
    for pool in pools.values():
        for member in _members(pool).values():
            tenants.setdefault(member.priority, set()).add(member.tenant)
    return tenants


def _members(pool: HostMemoryPoolSpec) -> dict[str, OversubscribedSpec | DisposableSpec]:
    return {**pool.workloads, **pool.disposable}


class HostMemory(pulumi.ComponentResource):
    """Declares the memory pools, the tenants' quotas by PriorityClass, and the policies for the pods."""

    def __init__(self, name: str, args: HostMemoryArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        props = {"pools": {key: spec.model_dump(mode="json") for key, spec in args.pools.items()}}
        super().__init__(component_type("Memory"), name, props, opts)
        pools = host_memory_pools(args.pools)
        register(config_map(pools, args.namespace), f"{name}-pools", parent=self)
        for quota in quotas(pools) if args.mode is Mode.ENFORCE else ():
            metadata = quota["metadata"]
            register(quota, f"{name}-{metadata['namespace']}-{metadata['name']}", parent=self)
        for policy in served_as(args.mutating_api, host_memory.policies(pools)):
            # In the mode observe, no policy sets a pod's PriorityClass. The policy for PriorityClasses would therefore
            # warn about every pod of the memory pools.
            own = policy["metadata"]["name"]
            put_into_force(policy, f"{name}-{own}", parent=self, mode=args.mode, stamped=True)
        self.register_outputs({})
