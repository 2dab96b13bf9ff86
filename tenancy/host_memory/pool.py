"""Defines memory pools, with their workloads and disposable pods.

A memory pool oversubscribes host memory on purpose.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass

from tenancy.decode import decode
from tenancy.host_memory.oom import BEST_EFFORT_ADJ, burstable_oom_score_adj, guarded_oom_score_adj


@dataclass(frozen=True, kw_only=True)
class Workload:
    """A protected pod.

    The pod requests `request_mib`, normally holds `steady_mib`, and peaks at `peak_mib`. The pod's limit is
    `limit_mib`. `growth_mib_per_second` is the rate at which the pod grows to its peak. `growth_mib_per_second` is 0 if
    the peak is the steady state.
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
    """A group of pods that may be killed first, on purpose.

    Between `pods_least` and `pods_most` of these pods run at the same time. Each pod holds between `resident_least_mib`
    and `resident_most_mib`. If `request_mib` is 0, the pods have the QoS class BestEffort.
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
    """A group of nodes with oversubscribed host memory. All amounts are for one node.

    `memory_mib` is the memory of the machine, and `allocatable_mib` is the memory that the kubelet offers to pods. The
    kubelet evicts when less than `eviction_threshold_mib` of memory is available. If `guard` is True, the guard sets
    the `oom_score_adj` of the workloads.
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
        """Returns all protected workloads and disposable pods of the pool."""
        return (*self.workloads, *self.disposable)

    @property
    def protected(self) -> tuple[str, ...]:
        """Returns the pods that the guard protects.

        Each entry has the form `<tenant>/<PriorityClass>`.
        """
        return tuple(sorted({f"{workload.tenant}/{workload.priority}" for workload in self.workloads}))

    @property
    def pods_mib(self) -> int:
        """Returns the memory limit of the control group of all pods: the allocatable memory and the eviction threshold.

        Pods may use the memory of the eviction threshold too, although kube-scheduler does not count this memory.

        Source: getNodeAllocatableInternalAbsolute in pkg/kubelet/cm/node_container_manager_linux.go.
        """
        return self.allocatable_mib + self.eviction_threshold_mib

    @property
    def totals_mib(self) -> tuple[int, ...]:
        """Returns the two amounts of memory that may run out: the memory of the pods' control group, and the memory of
        the machine.
        """
        return tuple(sorted({self.pods_mib, self.memory_mib}))

    @property
    def steady_mib(self) -> int:
        """Returns the MiB that all workloads hold together in their steady states."""
        return sum(workload.steady_mib for workload in self.workloads)

    def oom_score_adj(self, workload: Workload) -> int:
        """Returns the oom_score_adj of the workload.

        The value is set by the guard, or by the kubelet in a pool without a guard.
        """
        if not self.guard:
            return burstable_oom_score_adj(workload.request_mib, self.memory_mib)
        return guarded_oom_score_adj(workload.limit_mib, self.totals_mib[0], self.least_victim_adj)

    @property
    def least_victim_adj(self) -> int:
        """Returns the lowest oom_score_adj of a disposable pod.

        A workload that the guard protects must have a lower value.
        """
        return min((self.victim_adj(disposable) for disposable in self.disposable), default=BEST_EFFORT_ADJ)

    def victim_adj(self, disposable: Disposable) -> int:
        """Returns the oom_score_adj that the kubelet gives a disposable pod."""
        if not disposable.request_mib:
            return BEST_EFFORT_ADJ
        return burstable_oom_score_adj(disposable.request_mib, self.memory_mib)


@dataclass(frozen=True, kw_only=True)
class HostMemoryPools:
    """All memory pools of a stack."""

    pools: tuple[HostMemoryPool, ...]

    def to_data(self) -> dict[str, object]:
        """Returns the pools as JSON-like data. `from_data` reads this data."""
        return asdict(self)

    @staticmethod
    def from_data(data: object) -> "HostMemoryPools":
        """Decodes the pools. Raises tenancy.decode.DecodeError with all errors and their paths."""
        return decode(HostMemoryPools, data, "memory_pools")
