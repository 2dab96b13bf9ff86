"""Defines memory pools: host memory that is oversubscribed on purpose, its workloads and its disposable pods."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass

from tenancy.decode import decode
from tenancy.host_memory.oom import BEST_EFFORT_ADJ, burstable_oom_score_adj, guarded_oom_score_adj


@dataclass(frozen=True, kw_only=True)
class Workload:
    """A protected pod: it reserves `request_mib`, holds `steady_mib`, and peaks at `peak_mib` within `limit_mib`.

    `growth_mib_per_second` is how fast the pod reaches its peak. It is 0 if the peak is the steady state.
    """

    name: str
    tenant: str
    priority: str
    request_mib: int
    limit_mib: int
    steady_mib: int
    peak_mib: int
    growth_mib_per_second: int = 0

    @property
    def burst_mib(self) -> int:
        """Returns the MiB of the workload's peak above its steady state."""
        return self.peak_mib - self.steady_mib

    @property
    def is_oversubscribed(self) -> bool:
        """Returns True if the workload may hold more than its request."""
        return self.limit_mib > self.request_mib


@dataclass(frozen=True, kw_only=True)
class Disposable:
    """Pods that are killed first, on purpose. From `pods_least` to `pods_most` of them run at once.

    Each pod holds `resident_least_mib` to `resident_most_mib`. With `request_mib` 0 it is BestEffort.
    """

    name: str
    tenant: str
    priority: str
    pods_least: int
    pods_most: int
    resident_least_mib: int
    resident_most_mib: int
    request_mib: int = 0


@dataclass(frozen=True, kw_only=True)
class HostMemoryPool:
    """Nodes with oversubscribed memory; all numbers are of one node.

    `memory_mib` is the memory of the machine, `allocatable_mib` what the kubelet offers to pods. Under
    `eviction_threshold_mib` of available memory the kubelet evicts. If `guard` is True, the agent guard keeps the
    workloads' `oom_score_adj`.
    """

    name: str
    node_selector: Mapping[str, str]
    memory_mib: int
    allocatable_mib: int
    eviction_threshold_mib: int
    guard: bool
    workloads: tuple[Workload, ...]
    disposable: tuple[Disposable, ...] = ()

    @property
    def members(self) -> tuple[Workload | Disposable, ...]:
        """Returns everything that the pool declares."""
        return (*self.workloads, *self.disposable)

    @property
    def protected(self) -> tuple[str, ...]:
        """Returns the pods that the guard protects, as <tenant>/<PriorityClass>."""
        return tuple(sorted({f"{workload.tenant}/{workload.priority}" for workload in self.workloads}))

    @property
    def pods_mib(self) -> int:
        """Returns the limit of the cgroup of all pods: allocatable memory plus the threshold.

        Only the scheduler must leave the threshold free.

        Source: getNodeAllocatableInternalAbsolute in pkg/kubelet/cm/node_container_manager_linux.go.
        """
        return self.allocatable_mib + self.eviction_threshold_mib

    @property
    def totals_mib(self) -> tuple[int, ...]:
        """Returns the sizes that may run out: the pods' cgroup, and the machine."""
        return tuple(sorted({self.pods_mib, self.memory_mib}))

    @property
    def steady_mib(self) -> int:
        """Returns the sum of the workloads' steady states."""
        return sum(workload.steady_mib for workload in self.workloads)

    def oom_score_adj(self, workload: Workload) -> int:
        """Returns the oom_score_adj of the workload: the guard's value, or the kubelet's value."""
        if not self.guard:
            return burstable_oom_score_adj(workload.request_mib, self.memory_mib)
        return guarded_oom_score_adj(workload.limit_mib, self.totals_mib[0], self.least_victim_adj)

    @property
    def least_victim_adj(self) -> int:
        """Returns the lowest oom_score_adj of a disposable pod. A guarded workload must stay below this value."""
        return min((self.victim_adj(disposable) for disposable in self.disposable), default=BEST_EFFORT_ADJ)

    def victim_adj(self, disposable: Disposable) -> int:
        """Returns the kubelet's oom_score_adj of a disposable pod."""
        if not disposable.request_mib:
            return BEST_EFFORT_ADJ
        return burstable_oom_score_adj(disposable.request_mib, self.memory_mib)


@dataclass(frozen=True, kw_only=True)
class HostMemoryPools:
    """All memory pools of a stack."""

    pools: tuple[HostMemoryPool, ...]

    def to_data(self) -> dict[str, object]:
        """Returns JSON-like data, the inverse of `from_data`."""
        return asdict(self)

    @staticmethod
    def from_data(data: object) -> "HostMemoryPools":
        """Decodes the pools. Raises tenancy.decode.DecodeError with every problem and its path."""
        return decode(HostMemoryPools, data, "memory_pools")
