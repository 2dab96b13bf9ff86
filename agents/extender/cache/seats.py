"""Counts the absent seats of each tenant in each pool, and keeps memory for them. Units: whole MiB."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping

from agents.extender.cache.node_info import NodeInfo
from agents.extender.cache.pod_info import Entitlement, PodInfo
from tenancy.devices.absent import (
    OwnSeat,
    Place,
    Seating,
    Shape,
    absent_seats,
    place_beside,
    seat_all,
    shape_of,
    shapes_of,
    taken_seats,
)
from tenancy.devices.allocate import MemoryRequest, best_fit
from tenancy.ledger import Ledger, Pool, Seat

# A node that the cluster autoscaler can still create. The name of a real Node never begins with this character.
_FUTURE = "~"

# The seat that a pod takes in each pool.
OwnSeats = Mapping[str, OwnSeat]


class KeptSeats:
    """The absent seats of all pools, and the memory that is kept for these seats."""

    def __init__(self) -> None:
        self._ledger: Ledger | None = None
        self._pools: dict[str, Pool] = {}
        self._seats: dict[str, dict[str, list[Seat]]] = {}
        self._sizes: dict[tuple[str, str], Counter[Shape]] = {}
        self._present: dict[tuple[str, str], Counter[Shape]] = defaultdict(Counter)
        self._of_tenant: dict[tuple[str, str], Counter[Shape]] = {}  # the absent seats, where they were counted
        self._named: Counter[Seat] = Counter()  # the replicas with a pod that has a seat label
        self._of_node: dict[str, str] = {}  # the pool of each known node
        self._free: dict[str, dict[str, Mapping[int, int]]] = {}
        self._absent: dict[str, Counter[Shape]] = {}
        self._seatings: dict[str, Seating] = {}

    def promise(self, ledger: Ledger) -> None:
        """Sets the seats. `rebuild` must follow."""
        self._ledger = ledger
        self._pools = {pool.name: pool for pool in ledger.shared_pools}
        self._seats = {}
        for each in ledger.seats:
            if each.pool in self._pools and each.gpumem_mib > 0 and each.replicas > 0:
                self._seats.setdefault(each.pool, {}).setdefault(each.tenant, []).append(each)
        self._sizes = {(p, t): shapes_of(own) for p, tenants in self._seats.items() for t, own in tenants.items()}

    def kept(self, node: str, own: OwnSeats | None = None) -> Mapping[int, int]:
        """Returns the MiB of each device of a node that are kept for absent seats, from a pod with these seats."""
        pool = self._of_node.get(node, "")
        return self._seatings[pool].kept(node, (own or {}).get(pool)) if pool in self._seatings else {}

    def rebuild(self, nodes: Mapping[str, NodeInfo]) -> None:
        """Counts all pods again, and finds devices for the absent seats of all pools."""
        self._present.clear()
        self._of_tenant.clear()
        self._named.clear()
        self._of_node = {name: pool for name, node in nodes.items() if (pool := _pool(node)) is not None}
        for name, pool in self._of_node.items():
            for pod in nodes[name].pods.values():
                self._add(pool, pod, 1)
        self._seatings = {pool: self._seatings.get(pool, Seating()) for pool in self._seats}
        self._free = {pool: self._future(pool) for pool in self._seats}
        for name, pool in self._of_node.items():
            if pool in self._seats:
                self._free[pool][name] = nodes[name].unheld
        for pool in self._seats:
            self._seat(pool)

    def change(
        self, names: Iterable[str], nodes: Mapping[str, NodeInfo], pods: Iterable[tuple[PodInfo, int]] = ()
    ) -> Iterable[str]:
        """Finds new devices for absent seats after pods were added (1) or removed (-1). `names` has the nodes that have
        changed. Returns the nodes on which the kept memory has changed.
        """
        if not self._seats:
            return ()
        pools = set()
        for pod, count in pods:
            pool = self._of_node.get(pod.node)
            if pool in self._seats:
                self._add(pool, pod, count)
                pools.add(pool)
        pools = {pool for pool in pools if self._count(pool) != self._absent[pool]}
        for name in names:
            pool = self._of_node.get(name)
            if pool in self._seats and name in nodes and self._free[pool].get(name) != nodes[name].unheld:
                self._free[pool][name] = nodes[name].unheld
                pools.add(pool)
        return [node for pool in pools for node in self._seat(pool)]

    def own(self, request: MemoryRequest, entitlement: Entitlement, reserved: PodInfo | None) -> OwnSeats:
        """Returns, for each pool, the absent seats that the pod takes. `reserved` is the reservation of the
        pod itself.
        """
        found, tenant = {}, entitlement.tenant
        for pool, tenants in self._seats.items():
            if tenant not in tenants:
                continue
            pods, absent = self._present[pool, tenant], self._absent_of(pool, tenant)
            if reserved is not None and self._of_node.get(reserved.node) == pool:
                pods = pods - self._taken(pool, reserved).counted
                absent = absent_seats(self._sizes[pool, tenant], pods)
            taken = taken_seats(request, self._seat_named(tenant, entitlement.seat), pool)
            lost = absent - absent_seats(self._sizes[pool, tenant], pods + taken.counted)
            if len(lost) == 1:
                ((shape, seats),) = lost.items()
                found[pool] = OwnSeat(shape, seats)
        return found

    def place(
        self, request: MemoryRequest, own: OwnSeats, nodes: Iterable[NodeInfo], *, measured: bool
    ) -> Place | None:
        """Searches these nodes for a place that the pod can take so that all absent seats still fit elsewhere.

        If the pool has no room for the seat of the pod, the pod goes before other absent seats.
        """
        by_pool: dict[str, dict[str, Mapping[int, int]]] = {}
        for node in nodes:
            pool = _pool(node)
            if pool in self._seatings and self._seatings[pool].places:
                room = node.as_measured(node.unheld) if measured else node.unheld
                if sum(mib >= request.mib for mib in room.values()) >= request.count:
                    by_pool.setdefault(pool, {})[node.node] = room
        for pool, room_by_node in by_pool.items():
            others = self._absent[pool] - (own[pool].counted if pool in own else Counter())
            found = place_beside(request, others, self._free[pool], room_by_node, self._seatings[pool])
            if found is None and self._lacks(pool, own):
                ways = [
                    (way.cost, n, way.indices) for n, room in room_by_node.items() if (way := best_fit(request, room))
                ]
                found = Place(*min(ways)[1:])
            if found:
                return found
        return None

    def goes_first(self, node: str, own: OwnSeats) -> bool:
        """Returns True if the node's pool has no room for the seat of the pod. A pod without room for its seat goes
        before absent seats.
        """
        return self._lacks(self._of_node.get(node, ""), own)

    def returns(self, pod: PodInfo, own: OwnSeats) -> bool:
        """Returns True if the pod's memory is kept for its seat after the pod has ended."""
        pool, tenant = self._of_node.get(pod.node, ""), pod.namespace
        if tenant not in self._seats.get(pool, ()):
            return False
        taken, pods = self._taken(pool, pod), self._present[pool, tenant]
        if pool in own and own[pool].shape == taken.shape:
            return False
        return absent_seats(self._sizes[pool, tenant], pods - taken.counted) != self._absent_of(pool, tenant)

    def unplaced(self) -> Iterator[tuple[str, tuple[Seat, ...], int]]:
        """Yields each pool in which absent seats fit on no device, with these seats and the number of them that do not
        fit. Absent seats of one size are equal, so any of them may be the one that does not fit. A seat is not among
        them if the labels of pods name all its replicas.
        """
        for pool, seating in self._seatings.items():
            for shape, count in seating.unplaced.items():
                tenants = [tenant for tenant in self._seats[pool] if self._absent_of(pool, tenant)[shape]]
                seats = [each for tenant in tenants for each in self._seats[pool][tenant] if shape_of(each) == shape]
                yield pool, tuple(each for each in seats if self._named[each] < each.replicas), count

    def _lacks(self, pool: str, own: OwnSeats) -> bool:
        return pool in own and own[pool].shape in self._seatings[pool].unplaced

    def _seat_named(self, tenant: str, label: str) -> Seat | None:
        return self._ledger.seat_named(tenant, label) if label and self._ledger else None

    def _taken(self, pool: str, pod: PodInfo) -> OwnSeat:
        return taken_seats(pod.request, self._seat_named(pod.namespace, pod.seat), pool)

    def _add(self, pool: str, pod: PodInfo, count: int) -> None:
        taken, named = self._taken(pool, pod), self._seat_named(pod.namespace, pod.seat)
        self._present[pool, pod.namespace][taken.shape] += count * taken.seats
        self._of_tenant.pop((pool, pod.namespace), None)
        if named is not None and named.pool == pool and shape_of(named) == taken.shape:
            self._named[named] += count * taken.seats

    def _absent_of(self, pool: str, tenant: str) -> Counter[Shape]:
        key = pool, tenant
        if key not in self._of_tenant:
            self._of_tenant[key] = absent_seats(self._sizes[key], self._present[key])
        return self._of_tenant[key]

    def _count(self, pool: str) -> Counter[Shape]:
        """Returns the absent seats of all tenants in the pool."""
        found: Counter[Shape] = Counter()
        for tenant in self._seats[pool]:
            found.update(self._absent_of(pool, tenant))
        return found

    def _seat(self, pool: str) -> Iterable[str]:
        """Finds devices for the pool's absent seats, and returns the nodes on which the kept memory has changed."""
        last = self._seatings[pool]
        self._absent[pool] = self._count(pool)
        self._seatings[pool] = seat_all(self._absent[pool], self._free[pool], last)
        before, after = last.places, self._seatings[pool].places
        return [node for node in {**before, **after} if before.get(node) != after.get(node)]

    def _future(self, pool: str) -> dict[str, Mapping[int, int]]:
        declared = self._pools[pool]
        if declared.least_nodes is None:
            return {}
        missing = declared.nodes - sum(each == pool for each in self._of_node.values())
        devices = dict.fromkeys(range(declared.device_count), declared.device_mib)
        return {f"{_FUTURE}{number}": devices for number in range(missing)}


def _pool(node: NodeInfo) -> str | None:
    return node.inventory.pool if node.inventory else None
