"""The ledger: per pool, every promise on it. Components write it, the policy pack judges it, agents enforce it.

Units: all memory is whole MiB of GPU memory. Sources: record 0000 (budgets on one card), record 0002 (queues),
record 0003 (several devices a node).
"""

import enum
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from functools import cached_property
from typing import Any

from tenancy.decode import decode
from tenancy.names import DEVICE_MEMORY, DEVICE_OFFERED, GPU, Names, seat_claim_template
from tenancy.workload import Manifest, given, maps_at, pod_request

# nvmlMemory_v2_t.reserved of a Tesla T4, as kai-scheduler #2212 has it. Other cards keep other amounts.
DRIVER_RESERVED_MIB = 450


class Sharing(enum.StrEnum):
    """How the devices of a pool are handed out."""

    MEMORY = "memory"  # by budget: gpumem is advertised, many tenants a device
    WHOLE = "whole"  # by the device: one tenant at a time, queued by Kueue


class Source(enum.StrEnum):
    """What must show a node's devices before their memory is advertised (docs/adr/0026)."""

    LABELS = "labels"  # of NVIDIA's GPU feature discovery
    SLICES = "slices"  # ResourceSlices of NVIDIA's DRA driver or of our exporter, each device for itself
    DECLARED = "declared"  # whichever of the two there is; it must show all that the pool declares


class PlacementMode(enum.StrEnum):
    """Who chooses a pod's device, and counts."""

    EXTENDER = "extender"  # our scheduler extender, of the gpumem that the node advertises
    DRA = "dra"  # Kubernetes' own allocator, by claims on the devices of the node's ResourceSlice


class Enforce(enum.StrEnum):
    """Who holds a container to its budget."""

    NONE = "none"  # the watchdog acts on what was measured, after the fact
    DRIVER = "driver"  # NVIDIA's driver refuses the allocation itself, by control group (from R615 on)


class PodSecurity(enum.StrEnum):
    """Levels of the Pod Security Standards, the loosest first
    (https://kubernetes.io/docs/concepts/security/pod-security-standards/)."""

    PRIVILEGED = "privileged"
    BASELINE = "baseline"
    RESTRICTED = "restricted"

    @property
    def at_least(self) -> tuple["PodSecurity", ...]:
        """The levels that hold pods to this one."""
        levels = tuple(PodSecurity)
        return levels[levels.index(self) :]


@dataclass(frozen=True, kw_only=True)
class Tenant:
    """What a tenant's pods are held to besides budgets, and why to less than baseline."""

    name: str
    pod_security: PodSecurity = PodSecurity.BASELINE
    pod_security_reason: str = ""

    @property
    def is_held(self) -> bool:
        """Whether there is a level at all that its pods are held to."""
        return self.pod_security is not PodSecurity.PRIVILEGED


@dataclass(frozen=True, kw_only=True)
class Pool:
    """Nodes whose devices are alike. `nodes` is how many the selector is expected to match."""

    name: str
    node_selector: Mapping[str, str]
    nodes: int
    device_count: int
    sharing: Sharing = Sharing.MEMORY
    memory_mib: int = 0
    reserve_mib: int = 0
    driver_reserved_mib: int = DRIVER_RESERVED_MIB
    floor_mib: int = 0
    source: Source = Source.LABELS
    enforce: Enforce = Enforce.NONE
    # Where the driver enforces: nodes whose driver cannot take no pod with a budget.
    require_cap: bool = True
    # What runs on its nodes, as declared: the driver, and NVIDIA's container toolkit.
    driver_version: str = ""
    toolkit_version: str = ""
    # What `kubectl gpumem bill` charges; None where the pool has no price.
    price_per_gib_hour: float | None = None
    # Where pools differ in who places on them, who does here; None where the whole stack is placed alike.
    placement: PlacementMode | None = None

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Whether a node with these labels has every label of the selector, as a pod's nodeSelector is read."""
        return all(labels.get(key) == value for key, value in self.node_selector.items())

    def offered_mib(self, memory_mib: int) -> int:
        """What a device of that memory offers: no more than the pool declares, less the reserve, never negative; 0
        where memory is not shared."""
        offered = min(memory_mib, self.memory_mib) - self.reserve_mib
        return max(offered, 0) if self.sharing is Sharing.MEMORY else 0

    @property
    def caps(self) -> bool:
        """Whether the driver is to hold each container to its budget."""
        return self.enforce is Enforce.DRIVER and self.sharing is Sharing.MEMORY

    @property
    def gpus(self) -> int:
        """Physical devices in the pool."""
        return self.nodes * self.device_count

    @property
    def device_mib(self) -> int:
        """What one device offers, if it has the memory that the pool declares."""
        return self.offered_mib(self.memory_mib)

    @property
    def node_mib(self) -> int:
        """What reconcile advertises on each node."""
        return self.device_count * self.device_mib

    def shown_mib(self, devices: Sequence[int]) -> int:
        """What a node advertises whose devices are shown to have so much memory, each counted for what it has: no more
        of them than the pool declares, the largest."""
        return sum(self.offered_mib(mib) for mib in sorted(devices, reverse=True)[: self.device_count])

    @property
    def advertised_mib(self) -> int:
        """What the whole pool advertises."""
        return self.nodes * self.node_mib


class SeveralPoolsError(ValueError):
    """A node is matched by several pools, so that none owns it; `pools` are they."""

    def __init__(self, pools: tuple[Pool, ...]) -> None:
        which = ", ".join(f"pools.{pool.name}" for pool in pools)
        super().__init__(f"matched by {which}: a node belongs to one pool; narrow a node_selector or relabel the node")
        self.pools = pools


@dataclass(frozen=True, kw_only=True)
class Seat:
    """A resident's budget: `gpumem_mib` a replica, on one device."""

    name: str
    tenant: str
    pool: str
    gpumem_mib: int
    replicas: int = 1

    @property
    def total_mib(self) -> int:
        return self.gpumem_mib * self.replicas


@dataclass(frozen=True, kw_only=True)
class OnDemand:
    """A tenant without a seat: a demand gate lets it into `need_mib` of real slack. `gpus` is how many nvidia.com/gpu
    its pods ask for together."""

    name: str
    tenant: str
    pool: str
    need_mib: int
    gpus: int = 1


@dataclass(frozen=True, kw_only=True)
class Unbudgeted:
    """A tenant that uses the device with neither seat nor gate, on record with what was measured. `gpus` is how many
    nvidia.com/gpu its pods ask for together."""

    name: str
    tenant: str
    pool: str
    measured_mib: int
    gpus: int = 1


@dataclass(frozen=True, kw_only=True)
class QueueQuota:
    """What a ClusterQueue may hand out of `resource` in a pool: its own, and at most so much of other queues' own."""

    queue: str
    flavor: str
    pool: str
    resource: str
    nominal: int
    borrowing: int = 0

    @property
    def most(self) -> int:
        """The most that the queue may hand out at once."""
        return self.nominal + self.borrowing


@dataclass(frozen=True, kw_only=True)
class LocalQueue:
    """Where a tenant's Jobs queue: for what its ClusterQueue may hand out."""

    name: str
    tenant: str
    queue: str


@dataclass(frozen=True, kw_only=True)
class AdmissionTerms:
    """What admission goes by that is no promise, for whoever judges a pod before it is there.

    `priorities`: PriorityClass to the tenants that may use it; `gpu_priority` is for pods that reach a GPU, too.
    `gpu_priority_value` is None in a ledger from before it had it. `exempt_priorities`: classes for pods in exempt
    namespaces alone, which others declare. `device_classes`: what may be claimed beside seats. `own`: the stack's own
    namespaces, the agents' first. `devices`: the most that a node has, where pods are placed by device; else 0.
    """

    gpu_priority: str
    priorities: Mapping[str, tuple[str, ...]]
    own: tuple[str, ...]
    device_classes: tuple[str, ...] = ()
    devices: int = 0
    gpu_priority_value: int | None = None
    exempt_priorities: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class ClaimedDevices:
    """Devices that `driver` publishes with all of their memory, and that seats are claims on. `shared`: claims take
    shares of the memory; else each takes a whole device (docs/adr/0027)."""

    driver: str
    shared: bool = False


@dataclass(frozen=True, kw_only=True)
class Ledger:
    """Every pool and every promise."""

    domain: str
    pools: tuple[Pool, ...]
    seats: tuple[Seat, ...] = ()
    on_demand: tuple[OnDemand, ...] = ()
    unbudgeted: tuple[Unbudgeted, ...] = ()
    quotas: tuple[QueueQuota, ...] = ()
    # Namespaces whose GPU pods carry no budget of their own: they queue for whole devices.
    queue_tenants: tuple[str, ...] = ()
    local_queues: tuple[LocalQueue, ...] = ()
    tenants: tuple[Tenant, ...] = ()
    # Namespaces in which admission stamps and refuses nothing.
    exempt_namespaces: tuple[str, ...] = ()
    # Namespaces whose accounts may have rights past the budgets; their pods are judged.
    trusted_namespaces: tuple[str, ...] = ()
    # People who may have them as well.
    trusted_groups: tuple[str, ...] = ()
    # None where the stack declares no admission.
    admission: AdmissionTerms | None = None
    # None where seats are no claims, or claims on what the exporter publishes, less the reserve.
    claimed: ClaimedDevices | None = None

    @property
    def names(self) -> Names:
        return Names(self.domain)

    def pool(self, name: str) -> Pool | None:
        return next((pool for pool in self.pools if pool.name == name), None)

    @property
    def reads_slices(self) -> bool:
        """Whether ResourceSlices must be read to know what a node may advertise."""
        return self.moves or any(pool.source is not Source.LABELS for pool in self.shared_pools)

    @property
    def moves(self) -> bool:
        """Whether nodes may go from one placement to the other: no memory of theirs is to be promised by both."""
        return any(pool.placement is not None for pool in self.shared_pools)

    def is_claimed(self, seat: Seat) -> bool:
        """Whether its pool says that it is a claim, where pools differ."""
        pool = self.pool(seat.pool)
        return pool is not None and pool.placement is PlacementMode.DRA

    @property
    def shared_pools(self) -> tuple[Pool, ...]:
        """The pools whose devices' memory is handed out by budget."""
        return tuple(pool for pool in self.pools if pool.sharing is Sharing.MEMORY)

    def pool_of(self, labels: Mapping[str, str]) -> Pool | None:
        """The pool that owns a node with these labels, None where none matches. Raises SeveralPoolsError."""
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
        """The seats of a pool, largest total first, then by name: the order in which people read them."""
        return tuple(sorted((s for s in self.seats if s.pool == pool), key=lambda s: (-s.total_mib, s.name)))

    def seats_of(self, tenant: str) -> tuple[Seat, ...]:
        """The seats of a tenant, in the order of the ledger."""
        return self._seats_by_tenant.get(tenant, ())

    @cached_property
    def tenants_by_name(self) -> Mapping[str, Tenant]:
        """Every namespace that something is promised to, or that is declared."""
        promised = {seat.tenant for seat in self.seats} | self.tenants_without_budget
        return {name: Tenant(name=name) for name in promised} | {tenant.name: tenant for tenant in self.tenants}

    @property
    def tenants_without_budget(self) -> frozenset[str]:
        """Those that are on record as users of devices and declare nothing: on demand, unbudgeted, or queueing."""
        on_record = {each.tenant for each in self.on_demand} | {each.tenant for each in self.unbudgeted}
        return frozenset(on_record.union(self.queue_tenants))

    @property
    def claim_capacity(self) -> str:
        """The capacity of a device that a claim on a seat names."""
        return DEVICE_OFFERED if self.claimed is None else DEVICE_MEMORY

    def claim_mib(self, seat: Seat) -> int:
        """What a claim on the seat asks for of that capacity: its budget. Where the capacity is all of the device's
        memory, with the budget's part of the reserve, rounded up: claims that fill a device leave it the reserve,
        whichever seats they are of."""
        pool = self.pool(seat.pool)
        if self.claimed is None or pool is None or not pool.device_mib:
            return seat.gpumem_mib
        return -(-seat.gpumem_mib * pool.memory_mib // pool.device_mib)

    def taken_mib(self, seat: Seat) -> int:
        """What a pod of the seat takes of its device, as whoever places it counts."""
        pool = self.pool(seat.pool)
        if self.claimed is None or pool is None or self.claimed.shared:
            return self.claim_mib(seat)
        return pool.memory_mib

    def device_room_mib(self, pool: Pool) -> int:
        """What there is to take of a device of the pool, counted alike."""
        return pool.device_mib if self.claimed is None else pool.memory_mib

    def quota_mib(self, pool: str) -> int:
        """The gpumem that queues have of a pool; what one borrows is another's."""
        return sum(q.nominal for q in self.quotas if q.pool == pool and q.resource == self.names.gpumem)

    def quota_gpus(self, pool: str) -> int:
        """The whole devices that queues have of a pool; what one borrows is another's."""
        return sum(q.nominal for q in self.quotas if q.pool == pool and q.resource == GPU)

    def promised_mib(self, pool: str) -> int:
        """Every MiB promised on a pool: seats times replicas, plus the queues' gpumem."""
        return sum(seat.total_mib for seat in self.seats_in(pool)) + self.quota_mib(pool)

    def budget_mib(self, tenant: str) -> int:
        """The sum of a tenant's seats: its ResourceQuota. A seat that moved to claims has a quota of its own."""
        return sum(seat.total_mib for seat in self.seats_of(tenant) if not self.is_claimed(seat))

    def devices_of(self, tenant: str) -> int:
        """The devices that all replicas of a tenant's seats are on together, claims apart."""
        return sum(seat.replicas for seat in self.seats_of(tenant) if not self.is_claimed(seat))

    def gpus_of(self, tenant: str) -> int | None:
        """The nvidia.com/gpu that a tenant's pods may ask for together: what is on record of those without a budget,
        and one for each device of a seat. None where budgets or Kueue count them all."""
        users: tuple[OnDemand | Unbudgeted, ...] = (*self.on_demand, *self.unbudgeted)
        on_record = [each.gpus for each in users if each.tenant == tenant]
        return sum(on_record) + self.devices_of(tenant) if on_record else None

    def seat_sizes(self, tenant: str) -> dict[int, int]:
        """What a pod of the tenant may take of a device, MiB of a seat to the devices that it may be spread over: it is
        as large as one of the seats, or as several of that size together."""
        sizes: dict[int, int] = {}
        for seat in self.seats_of(tenant):
            sizes[seat.gpumem_mib] = sizes.get(seat.gpumem_mib, 0) + seat.replicas
        return sizes

    def declared_mib(self, namespace: str, pod_spec: Manifest) -> int:
        """What a pod declares of GPU memory, in its limits and by claims on seats together.

        A claim is made by the template of its seat, which admission holds to the seat's MiB. Raises QuantityError and
        ShapeError.
        """
        templates = {seat_claim_template(seat.name): seat.gpumem_mib for seat in self.seats_of(namespace)}
        claims = maps_at(pod_spec, "resourceClaims")
        claimed = (templates.get(given(claim, "resourceClaimTemplateName", ""), 0) for claim in claims)
        return pod_request(pod_spec, self.names.gpumem) + sum(claimed)

    def with_budgets(self, budgets: Mapping[str, int]) -> "Ledger":
        """The same with other MiB for these seats, by name."""
        seats = (replace(seat, gpumem_mib=budgets.get(seat.name, seat.gpumem_mib)) for seat in self.seats)
        return replace(self, seats=tuple(seats))

    def to_data(self) -> dict[str, object]:
        """JSON-like data, the inverse of `from_data`. What is as by default is left out: agents of a version that does
        not know the key read the same (docs/adr/0022)."""
        return {key: _data(value) for key, value in _given(self)}

    @staticmethod
    def from_data(data: object, ignored: list[str] | None = None) -> "Ledger":
        """Raises tenancy.decode.DecodeError with every problem and its path. An unknown key is a problem, unless
        `ignored` is given, which takes its path."""
        return decode(Ledger, data, ignored=ignored)


def _given(promise: Any) -> Iterator[tuple[str, Any]]:
    values = ((field, getattr(promise, field.name)) for field in fields(promise))
    return ((field.name, value) for field, value in values if value != field.default)


def _data(value: Any) -> Any:
    if isinstance(value, tuple):
        return [_data(each) for each in value]
    if is_dataclass(value):
        return {key: _data(each) for key, each in _given(value)}
    if isinstance(value, Mapping):
        return {key: _data(each) for key, each in value.items()}
    return str(value) if isinstance(value, enum.Enum) else value
