"""Defines the ledger with every pool and every promise.

The components write the ledger, the policy pack judges the ledger, and the agents enforce it. Units: whole MiB of GPU
memory.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from tenancy.choices import Enforce, PodSecurity, Sharing, Source
from tenancy.decode import decode
from tenancy.encode import encode
from tenancy.frameworks import FrameworkName
from tenancy.names import GPU, LABEL_HOSTNAME, Names

# The MiB that NVIDIA's driver reserves on a Tesla T4 (nvmlMemory_v2_t.reserved, from kai-scheduler #2212). NVIDIA's
# driver reserves other amounts on other GPUs.
DRIVER_RESERVED_MIB = 450
# The demand gate starts a workload only if at least this many MiB stay free above the floor. The margin above the floor
# matters only for the start of a workload. The gate stops a workload only if a device is below its floor or a seat
# needs memory.
GATE_MARGIN_MIB = 256


@dataclass(frozen=True, kw_only=True)
class Tenant:
    """A tenant, its Pod Security level, and the reason for a level below baseline.

    If `observed` is True, the tenant has no ResourceQuota, and Pod Security only warns about pods.
    """

    name: str
    observed: bool = False
    pod_security: PodSecurity = PodSecurity.BASELINE

    @property
    def is_held(self) -> bool:
        """Returns True unless the tenant's Pod Security level is privileged."""
        return self.pod_security is not PodSecurity.PRIVILEGED


@dataclass(frozen=True, kw_only=True)
class Pool:
    """Nodes with equal devices. The pool's selector matches `nodes` nodes, or between `least_nodes` and
    `nodes` nodes.
    """

    name: str
    node_selector: Mapping[str, str]
    nodes: int
    device_count: int
    sharing: Sharing = Sharing.MEMORY
    memory_mib: int = 0
    reserve_mib: int = 0
    driver_reserved_mib: int = DRIVER_RESERVED_MIB
    floor_mib: int = 0
    # True if the memory figures of the pool are assumed and not measured. The watchdog recycles no pod in a pool with
    # assumed figures.
    assumed: bool = False
    source: Source = Source.LABELS
    enforce: Enforce = Enforce.NONE
    # The price of 1 GiB for one hour, which `kubectl gpumem bill` reads. The command's flag --currency names the
    # currency of the price.
    price_per_gib_hour: float | None = None
    # What the pods on a node may request together: CPUs, and MiB of host memory. None is not known.
    cpus: float | None = None
    host_memory_mib: int | None = None
    # The number of nodes that always exist. The cluster autoscaler creates all other nodes of the pool on demand.
    least_nodes: int | None = None

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Returns True if the pool's node selector matches a node with these labels."""
        return all(labels.get(key) == value for key, value in self.node_selector.items())

    def offered_mib(self, memory_mib: int) -> int:
        """Returns the MiB that a device with `memory_mib` of memory offers, or 0 if the pool does not share memory."""
        offered = min(memory_mib, self.memory_mib) - self.reserve_mib
        return max(offered, 0) if self.sharing is Sharing.MEMORY else 0

    @property
    def caps(self) -> bool:
        """Returns True if NVIDIA's driver must cap each container at its budget."""
        return self.enforce is Enforce.DRIVER and self.sharing is Sharing.MEMORY

    @property
    def declared_nodes(self) -> range:
        """Returns the numbers of nodes that the pool may have at a time."""
        return range(self.nodes if self.least_nodes is None else self.least_nodes, self.nodes + 1)

    @property
    def has_room_for_nodes(self) -> bool:
        """Returns False if the selector names one node by its hostname, so that the pool cannot have more."""
        return LABEL_HOSTNAME not in self.node_selector

    @property
    def or_raise(self) -> str:
        """Returns the end of a remedy that begins with lower promises: more nodes, if the pool can have more."""
        return f" or raise pools.{self.name}" if self.has_room_for_nodes else ""

    @property
    def gpus(self) -> int:
        """Returns the number of devices in the pool."""
        return self.nodes * self.device_count

    @property
    def device_mib(self) -> int:
        """Returns the MiB that a device with the pool's declared memory offers."""
        return self.offered_mib(self.memory_mib)

    @property
    def node_mib(self) -> int:
        """Returns the MiB that reconcile advertises on a node with all declared devices."""
        return self.device_count * self.device_mib

    def shown_mib(self, devices: Sequence[int]) -> int:
        """Returns the MiB that reconcile advertises on a node with these devices. At most `device_count` devices of the
        node count.
        """
        return sum(self.offered_mib(mib) for mib in sorted(devices, reverse=True)[: self.device_count])

    @property
    def advertised_mib(self) -> int:
        return self.nodes * self.node_mib


class SeveralPoolsError(ValueError):
    """A node matches several `pools`, and therefore belongs to no pool."""

    def __init__(self, pools: tuple[Pool, ...]) -> None:
        which = ", ".join(f"pools.{pool.name}" for pool in pools)
        super().__init__(f"matched by {which}: a node belongs to one pool; narrow a node_selector or relabel the node")
        self.pools = pools


@dataclass(frozen=True, kw_only=True)
class Seat:
    """A resident's budget. Each replica is promised `gpumem_mib` on each of `devices_per_pod` devices of one node.

    `cpus` and `host_memory_mib` are the most that a replica may request, or None for its part of the node.
    """

    name: str
    tenant: str
    pool: str
    gpumem_mib: int
    replicas: int = 1
    devices_per_pod: int = 1
    cpus: float | None = None
    host_memory_mib: int | None = None

    @property
    def devices(self) -> int:
        """Returns the number of devices of all replicas together. A device that two replicas share counts twice."""
        return self.replicas * self.devices_per_pod

    @property
    def pod_mib(self) -> int:
        """Returns the MiB that a pod asks for on all its devices together."""
        return self.gpumem_mib * self.devices_per_pod

    @property
    def total_mib(self) -> int:
        return self.gpumem_mib * self.devices

    def covers(self, mib: int, devices: int) -> bool:
        """Returns True if a pod with `mib` on each device stays within the budget.

        A pod with several devices can use a seat of one device, if the pod's sum over all devices is within the budget.
        """
        if self.devices_per_pod == 1:
            return mib * devices <= self.gpumem_mib
        return mib <= self.gpumem_mib and devices == self.devices_per_pod


@dataclass(frozen=True, kw_only=True)
class OnDemand:
    """An on-demand workload, which has no seat. The demand gate starts the workload when the headroom is at least
    `need_mib`.

    All pods of the workload together request `gpus` nvidia.com/gpu. The gate scales the Deployment `deployment`, which
    by default has the name of the workload.
    """

    name: str
    tenant: str
    pool: str
    need_mib: int
    gpus: int = 1
    deployment: str | None = None
    cpus: float | None = None
    host_memory_mib: int | None = None


@dataclass(frozen=True, kw_only=True)
class Unbudgeted:
    """An unbudgeted workload, with its measured use. All pods of the workload together request `gpus`
    nvidia.com/gpu.
    """

    name: str
    tenant: str
    pool: str
    measured_mib: int
    gpus: int = 1
    cpus: float | None = None
    host_memory_mib: int | None = None


@dataclass(frozen=True, kw_only=True)
class QueueQuota:
    """The quota of a ClusterQueue for `resource` in a pool: its own amount, and the amount that it may borrow.

    With `cohort`, the quota belongs to a Cohort, and `queue` is the name of the Cohort. With `clusters`, Kueue
    dispatches the queue's work to one of these worker clusters, and `pool` is empty.
    """

    queue: str
    flavor: str
    pool: str
    resource: str
    nominal: int
    borrowing: int = 0
    cohort: bool = False
    clusters: tuple[str, ...] = ()

    @property
    def holder(self) -> str:
        """Returns the name of the quota's holder for messages. In a message, a Cohort has the prefix "cohort"."""
        return f"cohort {self.queue}" if self.cohort else self.queue

    @property
    def most(self) -> int:
        """Returns the largest amount that the queue may hand out at one time."""
        return self.nominal + self.borrowing


@dataclass(frozen=True, kw_only=True)
class WorkerCluster:
    """A worker cluster, to which Kueue dispatches work. `promises` maps each resource to the amount that the worker
    cluster's own queues keep for dispatched work.
    """

    name: str
    promises: Mapping[str, int]


@dataclass(frozen=True, kw_only=True)
class LocalQueue:
    """The LocalQueue of a tenant, and the LocalQueue's ClusterQueue."""

    name: str
    tenant: str
    queue: str


@dataclass(frozen=True, kw_only=True)
class AdmissionTerms:
    """The facts by which the admission policies judge pods, without the promises.

    Admission sets `gpu_priority` on the pods that ask for a device, or the class of their tenant in
    `tenant_priorities`. `priorities` maps each PriorityClass to the tenants that may use it. Every pod that asks for a
    device may use `gpu_priority`. `gpu_priority_value` is None in a ledger of an older version. Only pods in exempt
    namespaces may use the PriorityClasses in `exempt_priorities`. `device_classes` are DeviceClasses that give access
    to no GPU. `own` has the namespaces of the stack itself. The first of them is the agents' namespace. `devices` is
    the largest number of devices of a node, or 0 if the stack does not place pods by device.
    """

    gpu_priority: str
    priorities: Mapping[str, tuple[str, ...]]
    own: tuple[str, ...]
    device_classes: tuple[str, ...] = ()
    devices: int = 0
    gpu_priority_value: int | None = None
    exempt_priorities: tuple[str, ...] = ()
    tenant_priorities: Mapping[str, str] = field(default_factory=dict)

    def priority_of(self, tenant: str) -> str:
        """Returns the PriorityClass that admission sets on the tenant's pods that ask for a device."""
        return self.tenant_priorities.get(tenant, self.gpu_priority)


@dataclass(frozen=True, kw_only=True)
class Ledger:
    """Every pool and every promise of a stack."""

    domain: str
    pools: tuple[Pool, ...]
    seats: tuple[Seat, ...] = ()
    on_demand: tuple[OnDemand, ...] = ()
    unbudgeted: tuple[Unbudgeted, ...] = ()
    quotas: tuple[QueueQuota, ...] = ()
    clusters: tuple[WorkerCluster, ...] = ()
    # The queue tenants: the namespaces of pods without a budget that wait in a queue for whole devices.
    queue_tenants: tuple[str, ...] = ()
    local_queues: tuple[LocalQueue, ...] = ()
    # The kinds of work that Kueue queues for the queue tenants. A ledger of version 0.1.0 does not have the list of
    # frameworks.
    frameworks: tuple[FrameworkName, ...] = (FrameworkName.JOB,)
    # The value of each WorkloadPriorityClass, by name.
    workload_priorities: Mapping[str, int] = field(default_factory=dict)
    # The tenants that may use a WorkloadPriorityClass, by its name. All tenants may use the other classes.
    priority_tenants: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    tenants: tuple[Tenant, ...] = ()
    # The admission policies do not change or deny pods in these namespaces.
    exempt_namespaces: tuple[str, ...] = ()
    # The settings that the admission policies use, or None if the stack file declares no admission policies.
    admission: AdmissionTerms | None = None
    # The parts of the stack in the mode observe.
    observes: tuple[str, ...] = ()
    # The names of the CronJobs, Deployments and DaemonSets that must exist: the agents, and Kueue if the stack installs
    # it. A ledger of an older version has none.
    workloads: tuple[str, ...] = ()

    @property
    def names(self) -> Names:
        return Names(self.domain)

    @property
    def observed(self) -> str:
        """Returns a message with the parts of the stack in the mode observe, or "" if all parts enforce."""
        return (
            f"this stack observes: {', '.join(self.observes)} only report what they would do" if self.observes else ""
        )

    @property
    def places_by_device(self) -> bool:
        """Returns True if the scheduler extender chooses the devices of each pod."""
        return self.admission is not None and self.admission.devices > 0

    def pool(self, name: str) -> Pool | None:
        return next((pool for pool in self.pools if pool.name == name), None)

    @property
    def reads_slices(self) -> bool:
        """Returns True if reconcile needs ResourceSlices to advertise the gpumem of any pool."""
        return any(pool.source is not Source.LABELS for pool in self.shared_pools)

    @property
    def shared_pools(self) -> tuple[Pool, ...]:
        """Returns the pools that share the memory of their devices by budget."""
        return tuple(pool for pool in self.pools if pool.sharing is Sharing.MEMORY)

    def pool_of(self, labels: Mapping[str, str]) -> Pool | None:
        """Returns the pool of a node with these labels, or None if no pool matches.

        Raises SeveralPoolsError.
        """
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
        """Returns the seats of a pool, sorted by total MiB with the largest first, and then by name."""
        return tuple(sorted((s for s in self.seats if s.pool == pool), key=lambda s: (-s.total_mib, s.name)))

    def seats_of(self, tenant: str) -> tuple[Seat, ...]:
        """Returns the seats of a tenant, in the order of the ledger."""
        return self._seats_by_tenant.get(tenant, ())

    @cached_property
    def _seats_by_name(self) -> Mapping[str, Seat]:
        return {seat.name: seat for seat in self.seats}

    def seat_named(self, tenant: str, label: str) -> Seat | None:
        """Returns the seat that a tenant's pod names by its label (`Names.seat_label`). Returns None for a pod without
        the label, and if the tenant has no such seat. These pods are matched with seats by their size.
        """
        seat = self._seats_by_name.get(label)
        return seat if seat is not None and seat.tenant == tenant else None

    def pool_by_label(self, tenant: str) -> dict[str, str]:
        """Returns the pool of each GPU pod of a tenant with seats in several pools, by the seat in the pod's label. The
        key "" is for pods without the label, which have no budget. Returns {} if all workloads are in one pool.
        """
        seats = {seat.name: seat.pool for seat in self.seats_of(tenant)}
        on_record: tuple[OnDemand | Unbudgeted, ...] = (*self.on_demand, *self.unbudgeted)
        others = [each.pool for each in on_record if each.tenant == tenant]
        pools = {**({"": others[0]} if others else {}), **seats}
        return pools if seats and len({*pools.values()}) > 1 else {}

    @cached_property
    def tenants_by_name(self) -> Mapping[str, Tenant]:
        """Returns the tenants of all namespaces that have a promise or that the stack file declares."""
        promised = {seat.tenant for seat in self.seats} | self.tenants_without_budget
        return {name: Tenant(name=name) for name in promised} | {tenant.name: tenant for tenant in self.tenants}

    @property
    def gated_deployments(self) -> dict[str, list[str]]:
        """Returns the Deployments that the demand gate scales, for each tenant whose other pods have no GPU without a
        budget."""
        found: dict[str, list[str]] = {}
        for each in self.on_demand:
            found.setdefault(each.tenant, []).append(each.deployment or each.name)
        others = {each.tenant for each in self.unbudgeted}.union(self.queue_tenants)
        return {tenant: sorted(names) for tenant, names in found.items() if tenant not in others}

    @property
    def tenants_without_budget(self) -> frozenset[str]:
        """Returns the names of all queue tenants, and of all tenants with on-demand or unbudgeted workloads."""
        on_record = {each.tenant for each in self.on_demand} | {each.tenant for each in self.unbudgeted}
        return frozenset(on_record.union(self.queue_tenants))

    def quota_mib(self, pool: str) -> int:
        """Returns the MiB of gpumem that all queues of a pool may hand out without borrowing."""
        return sum(q.nominal for q in self.quotas if q.pool == pool and q.resource == self.names.gpumem)

    def quota_gpus(self, pool: str) -> int:
        """Returns the number of whole devices that all queues of a pool may hand out without borrowing."""
        return sum(q.nominal for q in self.quotas if q.pool == pool and q.resource == GPU)

    def promised_mib(self, pool: str) -> int:
        """Returns the MiB of all promises in a pool: the budgets of the seats on all their devices, and the queues'
        gpumem.
        """
        return sum(seat.total_mib for seat in self.seats_in(pool)) + self.quota_mib(pool)

    def budget_mib(self, tenant: str) -> int:
        """Returns the MiB of all seats of a tenant, which is the limit of the tenant's ResourceQuota."""
        return sum(seat.total_mib for seat in self.seats_of(tenant))

    def devices_of(self, tenant: str) -> int:
        """Returns the number of devices of all replicas of a tenant's seats.

        A device that two replicas share counts twice.
        """
        return sum(seat.devices for seat in self.seats_of(tenant))

    def gpus_of(self, tenant: str) -> int | None:
        """Returns the number of nvidia.com/gpu that all pods of a tenant may request together.

        Returns None if no workload of the tenant requests nvidia.com/gpu. The number includes the devices of workloads
        without a budget, and one nvidia.com/gpu for each device of a seat.
        """
        users: tuple[OnDemand | Unbudgeted, ...] = (*self.on_demand, *self.unbudgeted)
        on_record = [each.gpus for each in users if each.tenant == tenant]
        return sum(on_record) + self.devices_of(tenant) if on_record else None

    def with_budgets(self, budgets: Mapping[str, int]) -> "Ledger":
        """Returns a copy of the ledger with new budgets. `budgets` maps each seat to its new MiB."""
        seats = (replace(seat, gpumem_mib=budgets.get(seat.name, seat.gpumem_mib)) for seat in self.seats)
        return replace(self, seats=tuple(seats))

    def to_data(self) -> dict[str, object]:
        """Returns the ledger as JSON-like data. `from_data` reads the result."""
        return encode(self)

    @staticmethod
    def from_data(data: object, ignored: list[str] | None = None) -> "Ledger":
        """Decodes a ledger. Raises tenancy.decode.DecodeError with every problem and its path.

        By default, an unknown key is an error. With `ignored`, an unknown key is skipped and its path is added to
        `ignored`.
        """
        return decode(Ledger, data, ignored=ignored)
