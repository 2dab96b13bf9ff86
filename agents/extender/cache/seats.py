"""Keeps a SeatPlan for each pool, and counts the absent seats of each tenant in the pool. Units: whole MiB."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping

from agents.extender.cache.node_info import NodeInfo
from agents.extender.cache.pod_info import Entitlement, PodInfo
from tenancy.devices.allocate import MemoryRequest
from tenancy.devices.plan import OwnSeat, SeatPlan, Shape, absent_seats, taken_seats
from tenancy.ledger import Ledger, Pool, Seat

# A node that the cluster autoscaler can still create. The name of a real Node never begins with this character.
_FUTURE = "~"

# The seat that a pod takes in each pool.
OwnSeats = Mapping[str, OwnSeat]


class KeptSeats:
    """The absent seats of all pools, and the memory that is kept for these seats."""

    def __init__(self) -> None:
        self.plans: dict[str, SeatPlan] = {}
        self._ledger: Ledger | None = None
        self._pools: dict[str, Pool] = {}
        self._seats: dict[str, dict[str, list[Seat]]] = {}
        self._sizes: dict[tuple[str, str], Counter[Shape]] = {}
        self._totals: dict[str, Counter[Shape]] = {}
        self._present: dict[tuple[str, str], Counter[Shape]] = defaultdict(Counter)
        self._named: Counter[Seat] = Counter()  # the replicas with a pod that has a seat label
        self._absent: dict[str, dict[str, Counter[Shape]]] = {}
        self._of_node: dict[str, str] = {}  # the pool of each known node

    def promise(self, ledger: Ledger) -> None:
        """Sets the seats. `rebuild` must follow."""
        self._ledger = ledger
        self._pools = {pool.name: pool for pool in ledger.shared_pools}
        self._seats = {}
        for seat in ledger.seats:
            if seat.pool in self._pools and seat.gpumem_mib > 0 and seat.replicas > 0:
                self._seats.setdefault(seat.pool, {}).setdefault(seat.tenant, []).append(seat)
        self._sizes = {
            (pool, tenant): _shapes(seats) for pool, tenants in self._seats.items() for tenant, seats in tenants.items()
        }
        self.plans = {pool: self.plans.get(pool) or SeatPlan() for pool in self._seats}

    def kept(self, node: str) -> Mapping[int, int]:
        """Returns the MiB of each device of a node that are kept for absent seats."""
        plan = self.plans.get(self._of_node.get(node, ""))
        return {**plan.kept.get(node, {})} if plan else {}

    def rebuild(self, nodes: Mapping[str, NodeInfo]) -> None:
        """Counts all pods again, and plans the absent seats of all pools."""
        self._present.clear()
        self._named.clear()
        self._of_node = {name: pool for name, node in nodes.items() if (pool := _pool(node)) is not None}
        for name, pool in self._of_node.items():
            for pod in nodes[name].pods.values():
                self._add(pool, pod, 1)
        self._absent = {pool: {} for pool in self._seats}
        self._totals = {pool: Counter() for pool in self._seats}
        for pool, tenants in self._seats.items():
            for tenant in tenants:
                self._count(pool, tenant)
        for pool, plan in self.plans.items():
            free: dict[str, Mapping[int, int] | None] = dict.fromkeys(plan.nodes)
            free |= {name: nodes[name].unheld for name, each in self._of_node.items() if each == pool}
            plan.update({**free, **self._future(pool)}, self._totals[pool], thorough=True)

    def change(
        self,
        names: Iterable[str],
        nodes: Mapping[str, NodeInfo],
        pods: Iterable[tuple[PodInfo, int]] = (),
        *,
        thorough: bool = False,
    ) -> frozenset[str]:
        """Changes the plans after pods were added (1) or removed (-1). `names` has the nodes that have changed. Returns
        the nodes on which the kept memory has changed.
        """
        if not self.plans:
            return frozenset()
        for pod, count in pods:
            pool = self._of_node.get(pod.node)
            if pool in self.plans:
                taken = self._add(pool, pod, count)
                absent = self._absent[pool].get(pod.namespace)
                if count == 1 and absent and absent[taken.shape] >= taken.seats:
                    # The pod takes seats of its own size, and the seats of the other pods stay the same.
                    for each in (absent, self._totals[pool]):
                        each[taken.shape] -= taken.seats
                else:
                    self._count(pool, pod.namespace)
        changed: set[str] = set()
        by_pool: dict[str, dict[str, Mapping[int, int]]] = {}
        for name in names:
            pool = self._of_node.get(name)
            if pool in self.plans and name in nodes:
                by_pool.setdefault(pool, {})[name] = nodes[name].unheld
        for pool, free in by_pool.items():
            changed |= self.plans[pool].update(free, self._totals[pool], thorough=thorough)
        return frozenset(changed)

    def own(self, request: MemoryRequest, entitlement: Entitlement, reserved: PodInfo | None) -> OwnSeats:
        """Returns, for each pool, the absent seats that the pod takes. `reserved` is the reservation of the
        pod itself.
        """
        found = {}
        for pool in self.plans:
            sizes = self._sizes.get((pool, entitlement.tenant))
            if sizes is None:
                continue
            pods, absent = self._present[pool, entitlement.tenant], self._absent[pool][entitlement.tenant]
            if reserved is not None and self._of_node.get(reserved.node) == pool:
                pods = pods - _counted(self._taken(pool, reserved))
                absent = absent_seats(sizes, pods)
            taken = taken_seats(request, self._seat_named(pool, entitlement.tenant, entitlement.seat))
            if absent[taken.shape] >= taken.seats:  # The seats of the other pods stay the same.
                found[pool] = taken
                continue
            lost = absent - absent_seats(sizes, pods + _counted(taken))
            if len(lost) == 1:
                ((shape, seats),) = lost.items()
                found[pool] = OwnSeat(shape, seats)
        return found

    def spared(self, node: NodeInfo, own: OwnSeats) -> Mapping[int, int]:
        """Returns the kept MiB of each device that the pod may use, because the seat of the pod is planned there."""
        pool = _pool(node)
        return self.plans[pool].spared(node.node, own[pool]) if pool in own and pool in self.plans else {}

    def make_room(
        self, request: MemoryRequest, own: OwnSeats, nodes: Iterable[NodeInfo], *, measured: bool
    ) -> frozenset[str]:
        """Plans the absent seats in another way, so that the pod fits on one of the nodes. Returns the nodes on which
        the kept memory has changed.
        """
        by_pool: dict[str, dict[str, Mapping[int, int]]] = {}
        for node in nodes:
            pool = _pool(node)
            if pool in self.plans and self.plans[pool].kept:
                room = node.as_measured(node.unheld) if measured else node.unheld
                if sum(mib >= request.mib for mib in room.values()) >= request.count:
                    by_pool.setdefault(pool, {})[node.node] = room
        for pool, room_by_node in by_pool.items():
            if changed := self.plans[pool].make_room(request, own.get(pool), room_by_node):
                return changed
        return frozenset()

    def goes_first(self, node: NodeInfo, own: OwnSeats) -> bool:
        """Returns True if the node's pool has no room for the seat of the pod. A pod without room for its seat goes
        before absent seats.
        """
        pool = _pool(node)
        return pool in own and pool in self.plans and self.plans[pool].unplaced[own[pool].shape] > 0

    def returns(self, pod: PodInfo, own: OwnSeats) -> bool:
        """Returns True if the pod's memory is kept for its seat after the pod has ended."""
        pool = self._of_node.get(pod.node)
        sizes = self._sizes.get((pool or "", pod.namespace))
        if pool is None or sizes is None:
            return False
        taken = self._taken(pool, pod)
        if pool in own and own[pool].shape == taken.shape:
            return False
        others = self._present[pool, pod.namespace] - _counted(taken)
        return absent_seats(sizes, others) != self._absent[pool][pod.namespace]

    def unplaced(self) -> Iterator[tuple[str, tuple[Seat, ...], int]]:
        """Yields each pool in which absent seats fit on no device, with these seats and the number of them that do not
        fit. Absent seats of one size are equal, so any of them may be the one that does not fit. A seat is not among
        them if the labels of pods name all its replicas.
        """
        for pool, plan in self.plans.items():
            for shape, count in plan.unplaced.items():
                tenants = [tenant for tenant, absent in self._absent[pool].items() if absent[shape]]
                seats = [seat for tenant in tenants for seat in self._seats[pool][tenant] if _size(seat) == shape]
                yield pool, tuple(seat for seat in seats if self._named[seat] < seat.replicas), count

    def _seat_named(self, pool: str, tenant: str, label: str) -> Seat | None:
        seat = self._ledger.seat_named(tenant, label) if label and self._ledger else None
        return seat if seat is not None and seat.pool == pool else None

    def _taken(self, pool: str, pod: PodInfo) -> OwnSeat:
        return taken_seats(pod.request, self._seat_named(pool, pod.namespace, pod.seat))

    def _add(self, pool: str, pod: PodInfo, count: int) -> OwnSeat:
        taken, named = self._taken(pool, pod), self._seat_named(pool, pod.namespace, pod.seat)
        self._present[pool, pod.namespace][taken.shape] += count * taken.seats
        if named is not None and _size(named) == taken.shape:
            self._named[named] += count * taken.seats
        return taken

    def _count(self, pool: str, tenant: str) -> None:
        sizes = self._sizes.get((pool, tenant))
        if sizes is not None:
            self._totals[pool].subtract(self._absent[pool].get(tenant, {}))
            self._absent[pool][tenant] = absent_seats(sizes, self._present[pool, tenant])
            self._totals[pool].update(self._absent[pool][tenant])

    def _future(self, pool: str) -> Mapping[str, Mapping[int, int]]:
        declared = self._pools[pool]
        if declared.least_nodes is None:
            return {}
        missing = declared.nodes - sum(each == pool for each in self._of_node.values())
        devices = dict.fromkeys(range(declared.device_count), declared.device_mib)
        return {f"{_FUTURE}{number}": devices for number in range(missing)}


def _pool(node: NodeInfo) -> str | None:
    return node.inventory.pool if node.inventory else None


def _counted(taken: OwnSeat) -> Counter[Shape]:
    return Counter({taken.shape: taken.seats})


def _size(seat: Seat) -> Shape:
    return Shape(seat.gpumem_mib, seat.devices_per_pod)


def _shapes(seats: Iterable[Seat]) -> Counter[Shape]:
    found: Counter[Shape] = Counter()
    for seat in seats:
        found[_size(seat)] += seat.replicas
    return found
