"""Defines memory pools, with their workloads and disposable pods.

A memory pool promises more host memory than its nodes have, on purpose.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass

from tenancy.decode import decode


@dataclass(frozen=True, kw_only=True)
class Workload:
    """A protected pod.

    The pod requests `request_mib` of host memory, normally uses `steady_mib`, and uses `peak_mib` at its peak. The
    limit of the pod is `limit_mib`.
    """

    name: str
    tenant: str
    priority: str
    request_mib: int
    limit_mib: int
    steady_mib: int
    peak_mib: int

    @property
    def burst_mib(self) -> int:
        """Returns the MiB between the workload's steady state and its peak."""
        return self.peak_mib - self.steady_mib

    @property
    def is_oversubscribed(self) -> bool:
        """Returns True if the workload can use more host memory than it requests."""
        return self.limit_mib > self.request_mib


@dataclass(frozen=True, kw_only=True)
class Disposable:
    """A group of pods that the operator has declared as the first to be killed.

    Between `pods_least` and `pods_most` pods of the group run at the same time. Each pod of the group uses between
    `resident_least_mib` and `resident_most_mib`. If `request_mib` is 0, the pods of the group have the QoS class
    BestEffort.
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
class Taint:
    """The taint of a node, with the fields of the Kubernetes API."""

    key: str
    value: str
    effect: str

    def __str__(self) -> str:
        """Returns the taint as `kubectl taint` writes it."""
        return f"{self.key}={self.value}:{self.effect}"


@dataclass(frozen=True, kw_only=True)
class HostMemoryPool:
    """A group of nodes that have less host memory than their workloads can use together. All amounts of a memory pool
    are for one node.

    `memory_mib` is the machine's memory, and `allocatable_mib` is the memory that the kubelet offers to pods. The
    kubelet evicts pods when less than `eviction_threshold_mib` of host memory is available. The guard sets the
    `oom_score_adj` of the workloads. The `node_taints` keep all other pods off the nodes.
    """

    name: str
    node_selector: Mapping[str, str]
    memory_mib: int
    allocatable_mib: int
    eviction_threshold_mib: int
    workloads: tuple[Workload, ...]
    disposable: tuple[Disposable, ...] = ()
    node_taints: tuple[Taint, ...] = ()

    @property
    def members(self) -> tuple[Workload | Disposable, ...]:
        """Returns all protected workloads and disposable pods of the memory pool."""
        return (*self.workloads, *self.disposable)

    @property
    def protected(self) -> tuple[str, ...]:
        """Returns the pods that the guard protects, in the form `<tenant>/<PriorityClass>`."""
        return tuple(sorted({f"{workload.tenant}/{workload.priority}" for workload in self.workloads}))

    @property
    def pods_mib(self) -> int:
        """Returns the memory limit of the control group that contains all pods. The limit is the sum of the allocatable
        memory and the eviction threshold.

        Pods can also use the memory below the eviction threshold. kube-scheduler does not count this memory.

        The source is getNodeAllocatableInternalAbsolute in pkg/kubelet/cm/node_container_manager_linux.go.
        """
        return self.allocatable_mib + self.eviction_threshold_mib

    @property
    def steady_mib(self) -> int:
        """Returns the MiB that all workloads together use in their steady states."""
        return sum(workload.steady_mib for workload in self.workloads)

    @property
    def victim_request_mib(self) -> int:
        """Returns the largest host memory request of a disposable pod."""
        return max((disposable.request_mib for disposable in self.disposable), default=0)


@dataclass(frozen=True, kw_only=True)
class HostMemoryPools:
    """All memory pools of a stack."""

    pools: tuple[HostMemoryPool, ...]

    def to_data(self) -> dict[str, object]:
        """Returns the memory pools as JSON-like data. `from_data` reads the result."""
        return asdict(self)

    @staticmethod
    def from_data(data: object) -> "HostMemoryPools":
        """Decodes the pools. Raises tenancy.decode.DecodeError with all errors and their paths."""
        return decode(HostMemoryPools, data, "memory_pools")
