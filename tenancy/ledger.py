"""Defines the ledger: every pool, and every promise. Components write it, the policy pack judges it, agents enforce it.

Units: whole MiB of GPU memory.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from tenancy.choices import ConsumableShares, Enforce, PodSecurity, Sharing, Source
from tenancy.decode import decode
from tenancy.encode import encode
from tenancy.frameworks import FrameworkName
from tenancy.names import GPU, Names, seat_claim_template
from tenancy.workload import Manifest, given, maps_at, pod_request

# The value of nvmlMemory_v2_t.reserved on a Tesla T4, by kai-scheduler #2212. Other GPUs reserve other amounts.
DRIVER_RESERVED_MIB = 450
# A gate opens with this much free above need and floor, and closes only under the floor.
GATE_MARGIN_MIB = 256


@dataclass(frozen=True, kw_only=True)
class Tenant:
    """A tenant with its Pod Security level, and the reason for a level below baseline.

    An `observed` tenant has no quota, and its namespace only warns of pods below the level.
    """

    name: str
    observed: bool = False
    pod_security: PodSecurity = PodSecurity.BASELINE
    pod_security_reason: str = ""

    @property
    def is_held(self) -> bool:
        """Returns True if the level forbids anything."""
        return self.pod_security is not PodSecurity.PRIVILEGED


@dataclass(frozen=True, kw_only=True)
class Pool:
    """Nodes with equal devices. The selector should match `nodes` of them."""

    name: str
    node_selector: Mapping[str, str]
    nodes: int
    device_count: int
    sharing: Sharing = Sharing.MEMORY
    memory_mib: int = 0
    reserve_mib: int = 0
    driver_reserved_mib: int = DRIVER_RESERVED_MIB
    floor_mib: int = 0
    # True if the numbers are not measured yet. The watchdog recycles nobody in such a pool.
    assumed: bool = False
    source: Source = Source.LABELS
    enforce: Enforce = Enforce.NONE
    # True: if the driver enforces, a node with an older driver takes no pod with a budget.
    require_cap: bool = True
    # The declared versions of NVIDIA's driver and container toolkit on the pool's nodes.
    driver_version: str = ""
    toolkit_version: str = ""
    # The price for `kubectl gpumem bill`.
    price_per_gib_hour: float | None = None

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Returns True for labels that include every label of the selector."""
        return all(labels.get(key) == value for key, value in self.node_selector.items())

    def offered_mib(self, memory_mib: int) -> int:
        """Returns the MiB that such a device offers: at most the declared memory, without the reserve.

        Returns 0 in a pool that does not share memory.
        """
        offered = min(memory_mib, self.memory_mib) - self.reserve_mib
        return max(offered, 0) if self.sharing is Sharing.MEMORY else 0

    @property
    def caps(self) -> bool:
        """Returns True if the driver must hold each container to its budget."""
        return self.enforce is Enforce.DRIVER and self.sharing is Sharing.MEMORY

    @property
    def gpus(self) -> int:
        """Returns the number of physical devices in the pool."""
        return self.nodes * self.device_count

    @property
    def device_mib(self) -> int:
        """Returns the MiB that a device with the declared memory offers."""
        return self.offered_mib(self.memory_mib)

    @property
    def node_mib(self) -> int:
        """Returns the MiB that reconcile advertises on each node."""
        return self.device_count * self.device_mib

    def shown_mib(self, devices: Sequence[int]) -> int:
        """Returns the MiB that a node with these devices advertises, for at most as many devices as the pool
        declares.
        """
        return sum(self.offered_mib(mib) for mib in sorted(devices, reverse=True)[: self.device_count])

    @property
    def advertised_mib(self) -> int:
        return self.nodes * self.node_mib


class SeveralPoolsError(ValueError):
    """A node matches several `pools`, so that no pool owns the node."""

    def __init__(self, pools: tuple[Pool, ...]) -> None:
        which = ", ".join(f"pools.{pool.name}" for pool in pools)
        super().__init__(f"matched by {which}: a node belongs to one pool; narrow a node_selector or relabel the node")
        self.pools = pools


@dataclass(frozen=True, kw_only=True)
class Seat:
    """A resident's budget: `gpumem_mib` on each of `devices_per_pod` devices of one node, for each replica."""

    name: str
    tenant: str
    pool: str
    gpumem_mib: int
    replicas: int = 1
    devices_per_pod: int = 1

    @property
    def devices(self) -> int:
        """Returns the number of devices of all replicas. A device that two replicas share counts twice."""
        return self.replicas * self.devices_per_pod

    @property
    def pod_mib(self) -> int:
        """Returns the MiB that a pod asks for, on all its devices together."""
        return self.gpumem_mib * self.devices_per_pod

    @property
    def total_mib(self) -> int:
        return self.gpumem_mib * self.devices

    def covers(self, mib: int, devices: int) -> bool:
        """Returns True if a pod with `mib` on each device stays within the budget.

        A pod with several devices on a seat of one device has at most the budget in sum.
        """
        if self.devices_per_pod == 1:
            return mib * devices <= self.gpumem_mib
        return mib <= self.gpumem_mib and devices == self.devices_per_pod


@dataclass(frozen=True, kw_only=True)
class OnDemand:
    """A workload without a seat, which the demand gate starts if `need_mib` of memory is free.

    Its pods ask for `gpus` nvidia.com/gpu together.
    """

    name: str
    tenant: str
    pool: str
    need_mib: int
    gpus: int = 1


@dataclass(frozen=True, kw_only=True)
class Unbudgeted:
    """A workload with a measured use and no budget. Its pods ask for `gpus` nvidia.com/gpu together."""

    name: str
    tenant: str
    pool: str
    measured_mib: int
    gpus: int = 1


@dataclass(frozen=True, kw_only=True)
class QueueQuota:
    """The amount of `resource` in a pool that a ClusterQueue hands out: its own quota, and quota borrowed from other
    queues.

    With `cohort`, the quota belongs to a Cohort, and `queue` is the name of the Cohort.
    """

    queue: str
    flavor: str
    pool: str
    resource: str
    nominal: int
    borrowing: int = 0
    cohort: bool = False

    @property
    def holder(self) -> str:
        """Returns the holder for messages: the name of the ClusterQueue, or the Cohort with its kind."""
        return f"cohort {self.queue}" if self.cohort else self.queue

    @property
    def most(self) -> int:
        """Returns the most that the queue may hand out at once."""
        return self.nominal + self.borrowing


@dataclass(frozen=True, kw_only=True)
class LocalQueue:
    """A tenant's LocalQueue, which leads to a ClusterQueue."""

    name: str
    tenant: str
    queue: str


@dataclass(frozen=True, kw_only=True)
class AdmissionTerms:
    """The terms of admission other than promises. Pods are judged by these terms before they exist.

    `priorities`: the tenants that may use a PriorityClass; `gpu_priority` is for pods that reach a GPU, too.
    `gpu_priority_value` is None in an old ledger. `exempt_priorities`: classes for pods in exempt namespaces alone.
    `device_classes`: DeviceClasses that give no GPU. `own`: the stack's own namespaces, the agents' first. `devices`:
    the most devices of a node if pods are placed by device, else 0.
    """

    gpu_priority: str
    priorities: Mapping[str, tuple[str, ...]]
    own: tuple[str, ...]
    device_classes: tuple[str, ...] = ()
    devices: int = 0
    gpu_priority_value: int | None = None
    exempt_priorities: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Ledger:
    """Contains every pool and every promise."""

    domain: str
    pools: tuple[Pool, ...]
    seats: tuple[Seat, ...] = ()
    on_demand: tuple[OnDemand, ...] = ()
    unbudgeted: tuple[Unbudgeted, ...] = ()
    quotas: tuple[QueueQuota, ...] = ()
    # The namespaces of GPU pods without a budget, which queue for whole devices.
    queue_tenants: tuple[str, ...] = ()
    local_queues: tuple[LocalQueue, ...] = ()
    # The kinds of work that Kueue queues for the queue tenants. Ledgers of version 0.1.0 have no such list.
    frameworks: tuple[FrameworkName, ...] = (FrameworkName.JOB,)
    # The values of the WorkloadPriorityClasses, by name.
    workload_priorities: Mapping[str, int] = field(default_factory=dict)
    tenants: tuple[Tenant, ...] = ()
    # Admission changes and refuses nothing in these namespaces.
    exempt_namespaces: tuple[str, ...] = ()
    # Accounts of these namespaces may have rights beyond the budgets. Their pods are judged.
    trusted_namespaces: tuple[str, ...] = ()
    # These people may have such rights as well.
    trusted_groups: tuple[str, ...] = ()
    # None if the stack declares no admission.
    admission: AdmissionTerms | None = None
    # The shares that seats claim of the devices of NVIDIA's DRA driver (docs/adr/0027). None means that seats use no
    # claims.
    claimed: ConsumableShares | None = None
    # The parts of the stack that only observe.
    observes: tuple[str, ...] = ()

    @property
    def names(self) -> Names:
        return Names(self.domain)

    @property
    def observed(self) -> str:
        """Returns a note for people on the parts that only observe; empty if all parts enforce."""
        return (
            f"this stack observes: {', '.join(self.observes)} only report what they would do" if self.observes else ""
        )

    def pool(self, name: str) -> Pool | None:
        return next((pool for pool in self.pools if pool.name == name), None)

    @property
    def reads_slices(self) -> bool:
        """Returns True if some pool needs ResourceSlices to advertise."""
        return any(pool.source is not Source.LABELS for pool in self.shared_pools)

    @property
    def shared_pools(self) -> tuple[Pool, ...]:
        """Returns the pools that share memory by budget."""
        return tuple(pool for pool in self.pools if pool.sharing is Sharing.MEMORY)

    def pool_of(self, labels: Mapping[str, str]) -> Pool | None:
        """Returns the pool that owns a node with these labels, or None if no pool matches. Raises SeveralPoolsError."""
        mine = tuple(pool for pool in self.pools if pool.matches(labels))
        if len(mine) > 1:
            raise SeveralPoolsError(mine)
        return mine[0] if mine else None

    @cached_property
    def _seats_by_tenant(self) -> Mapping[str, tuple[Seat, ...]]:
        grouped: dict[str, tuple[Seat, ...]] = {}
        for seat in self.seats:
            grouped[seat.tenant] = (*grouped.get(seat.tenant, ()), seat)
        return grouped

    def seats_in(self, pool: str) -> tuple[Seat, ...]:
        """Returns the seats of a pool, the largest total first, then by name."""
        return tuple(sorted((s for s in self.seats if s.pool == pool), key=lambda s: (-s.total_mib, s.name)))

    def seats_of(self, tenant: str) -> tuple[Seat, ...]:
        """Returns the seats of a tenant, in the order of the ledger."""
        return self._seats_by_tenant.get(tenant, ())

    @cached_property
    def tenants_by_name(self) -> Mapping[str, Tenant]:
        """Returns every namespace with a promise or a declaration."""
        promised = {seat.tenant for seat in self.seats} | self.tenants_without_budget
        return {name: Tenant(name=name) for name in promised} | {tenant.name: tenant for tenant in self.tenants}

    @property
    def tenants_without_budget(self) -> frozenset[str]:
        """Returns the tenants of on-demand and unbudgeted workloads, and the queue tenants."""
        on_record = {each.tenant for each in self.on_demand} | {each.tenant for each in self.unbudgeted}
        return frozenset(on_record.union(self.queue_tenants))

    def claim_mib(self, seat: Seat) -> int:
        """Returns the MiB that a claim on the seat asks for: the budget and its part of the reserve, rounded up.

        Claims that fill a device leave the reserve free.
        """
        pool = self.pool(seat.pool)
        if pool is None or not pool.device_mib:
            return seat.gpumem_mib
        return -(-seat.gpumem_mib * pool.memory_mib // pool.device_mib)

    def taken_mib(self, seat: Seat) -> int:
        """Returns the MiB that a pod of the seat takes of its device, as the pod's scheduler counts."""
        pool = self.pool(seat.pool)
        if self.claimed is None or pool is None:
            return seat.gpumem_mib
        return self.claim_mib(seat) if self.claimed is ConsumableShares.MEMORY else pool.memory_mib

    def device_room_mib(self, pool: Pool) -> int:
        """Returns the MiB of a device that pods of seats may take together."""
        return pool.device_mib if self.claimed is None else pool.memory_mib

    def quota_mib(self, pool: str) -> int:
        """Returns the gpumem of all queues in a pool, without borrowing."""
        return sum(q.nominal for q in self.quotas if q.pool == pool and q.resource == self.names.gpumem)

    def quota_gpus(self, pool: str) -> int:
        """Returns the whole devices of all queues in a pool, without borrowing."""
        return sum(q.nominal for q in self.quotas if q.pool == pool and q.resource == GPU)

    def promised_mib(self, pool: str) -> int:
        """Returns every MiB promised on a pool: all devices of the seats, plus the queues' gpumem."""
        return sum(seat.total_mib for seat in self.seats_in(pool)) + self.quota_mib(pool)

    def budget_mib(self, tenant: str) -> int:
        """Returns the sum of a tenant's seats, which is the tenant's ResourceQuota."""
        return sum(seat.total_mib for seat in self.seats_of(tenant))

    def devices_of(self, tenant: str) -> int:
        """Returns the number of devices that all replicas of a tenant's seats use together."""
        return sum(seat.devices for seat in self.seats_of(tenant))

    def gpus_of(self, tenant: str) -> int | None:
        """Returns the nvidia.com/gpu that a tenant's pods may ask for together, or None without such a workload.

        These are the devices of workloads without a budget, and one for each device of a seat.
        """
        users: tuple[OnDemand | Unbudgeted, ...] = (*self.on_demand, *self.unbudgeted)
        on_record = [each.gpus for each in users if each.tenant == tenant]
        return sum(on_record) + self.devices_of(tenant) if on_record else None

    def declared_mib(self, namespace: str, pod_spec: Manifest) -> int:
        """Returns the MiB of GPU memory in a pod's limits and in its claims on seats.

        Raises QuantityError and ShapeError.
        """
        seats = () if self.claimed is None else self.seats_of(namespace)
        templates = {seat_claim_template(seat.name): seat.gpumem_mib for seat in seats}
        claims = maps_at(pod_spec, "resourceClaims")
        claimed = (templates.get(given(claim, "resourceClaimTemplateName", ""), 0) for claim in claims)
        return pod_request(pod_spec, self.names.gpumem) + sum(claimed)

    def with_budgets(self, budgets: Mapping[str, int]) -> "Ledger":
        """Returns a ledger with other MiB for these seats."""
        seats = (replace(seat, gpumem_mib=budgets.get(seat.name, seat.gpumem_mib)) for seat in self.seats)
        return replace(self, seats=tuple(seats))

    def to_data(self) -> dict[str, object]:
        """Returns JSON-like data, the inverse of `from_data`."""
        return encode(self)

    @staticmethod
    def from_data(data: object, ignored: list[str] | None = None) -> "Ledger":
        """Decodes a ledger. Raises tenancy.decode.DecodeError with every problem and its path.

        An unknown key is a problem. With `ignored`, the key's path is added to `ignored` instead.
        """
        return decode(Ledger, data, ignored=ignored)
