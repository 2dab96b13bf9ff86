"""Host memory that is oversubscribed on purpose: who reserves what, who peaks into slack, who is there to be killed."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass

from tenancy.decode import decode


@dataclass(frozen=True, kw_only=True)
class Workload:
    """A protected pod: it reserves `request_mib`, holds `steady_mib`, and peaks at `peak_mib` within `limit_mib`.

    `growth_mib_per_second` is how fast it gets there; 0 where the peak is the steady state.
    """

    name: str
    tenant: str
    priority: str
    request_mib: int
    limit_mib: int
    steady_mib: int
    peak_mib: int
    growth_mib_per_second: int = 0


@dataclass(frozen=True, kw_only=True)
class Disposable:
    """Pods that are there to be killed first: `pods_least` to `pods_most` of them at once, each of which holds
    `resident_least_mib` to `resident_most_mib`. `request_mib` 0 is BestEffort."""

    name: str
    tenant: str
    priority: str
    pods_least: int
    pods_most: int
    resident_least_mib: int
    resident_most_mib: int
    request_mib: int = 0


@dataclass(frozen=True, kw_only=True)
class MemoryPool:
    """Nodes whose memory is oversubscribed; all numbers are of one node.

    `memory_mib` is the machine's; `allocatable_mib` what the kubelet offers to pods; at `eviction_mib` of available
    memory the kubelet evicts, a pod in `eviction_seconds`. `guard`: the agent of that name keeps the workloads'
    oom_score_adj low.
    """

    name: str
    node_selector: Mapping[str, str]
    memory_mib: int
    allocatable_mib: int
    eviction_mib: int
    eviction_seconds: int
    guard: bool
    workloads: tuple[Workload, ...]
    disposable: tuple[Disposable, ...] = ()

    @property
    def total_mib(self) -> int:
        """What the kernel measures by when the pods run out: the limit of their cgroup, which holds back no threshold.

        Source: getNodeAllocatableInternalAbsolute in pkg/kubelet/cm/node_container_manager_linux.go.
        """
        return self.allocatable_mib + self.eviction_mib


@dataclass(frozen=True, kw_only=True)
class MemoryPools:
    """Every memory pool of a stack."""

    pools: tuple[MemoryPool, ...]

    def to_data(self) -> dict[str, object]:
        """JSON-like data, the inverse of `from_data`."""
        return asdict(self)

    @staticmethod
    def from_data(data: object) -> "MemoryPools":
        """Raises tenancy.decode.DecodeError with every problem and its path."""
        return decode(MemoryPools, data)
