"""Counts the absent seats of a pool, and finds devices for them. Units: whole MiB."""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping

from agents.extender.cache.node_info import NodeInfo
from agents.extender.cache.pod_info import Entitlement, PodInfo
from tenancy.devices.absent import (
    Seating,
    Shape,
    absent_seats,
    present_seats,
    seat_all,
    seats_by_tenant,
    shape_of,
    taken_seats,
)
from tenancy.devices.allocate import MemoryRequest
from tenancy.ledger import Ledger, Pool, Seat

# A node that the cluster autoscaler can still create. The name of a real Node never begins with this character.
_FUTURE = "~"


class PoolSeats:
    """The absent seats of a pool, with a proof that they fit. `count` must follow each change of the pool's nodes."""

    def __init__(self, ledger: Ledger, pool: Pool) -> None:
        self.seating = Seating()
        self.free: Mapping[str, Mapping[int, int]] = {}
        self.absent: Counter[Shape] = Counter()
        self._ledger = ledger
        self._pool = pool
        self._seats = seats_by_tenant(ledger.seats, pool.name)
        self._present: Mapping[str, Counter[Shape]] = {}
        # The MiB that unbudgeted workloads of each tenant may use. A pod does not name its workload in the ledger, so
        # the tenant's largest workload applies.
        by_size = sorted(ledger.unbudgeted, key=lambda each: each.measured_mib)
        self.recorded = {each.tenant: each.measured_mib for each in by_size if each.pool == pool.name}
        # the MiB of the pool's smallest seat
        self.least_mib = min((shape.mib for seats in self._seats.values() for shape in seats), default=0)

    def count(self, nodes: Collection[NodeInfo]) -> None:
        """Counts the absent seats, and finds devices for them on these nodes, which are all nodes of the pool."""
        pods = (pod for node in nodes for pod in node.pods.values() if pod.namespace in self._seats)
        self._present = present_seats(
            self._ledger.seats, self._pool.name, ((pod.namespace, pod.request, pod.seat) for pod in pods)
        )
        absent: Counter[Shape] = Counter()
        for tenant in self._seats:
            absent.update(self._absent_of(tenant))
        free = {**self._future(len(nodes)), **{node.node: node.free for node in nodes}}
        if (absent, free) != (self.absent, self.free):
            self.seating = seat_all(absent, free, self.seating)
        self.absent, self.free = absent, free

    def taken(self, request: MemoryRequest, entitlement: Entitlement) -> Counter[Shape]:
        """Returns the absent seats of one size that the pod would take, or none."""
        tenant = entitlement.tenant
        if tenant not in self._seats:
            return Counter()
        named = self._ledger.seat_named(tenant, entitlement.seat)
        lost = self._absent_of(tenant) - self._absent_of(tenant, taken_seats(request, named, self._pool.name))
        return lost if len(lost) == 1 else Counter()

    def lacks(self, taken: Mapping[Shape, int]) -> bool:
        """Returns True if the pool has no room for the seat of the pod. Such a pod goes before other absent seats."""
        return not taken.keys().isdisjoint(self.seating.unplaced)

    def returns(self, pod: PodInfo, taken: Mapping[Shape, int]) -> bool:
        """Returns True if the pod's seat is absent after the pod has ended, and another pod does not take it."""
        tenant = pod.namespace
        if tenant not in self._seats:
            return False
        gone = taken_seats(pod.request, self._ledger.seat_named(tenant, pod.seat), self._pool.name)
        if taken.keys() == gone.keys():
            return False
        return absent_seats(self._seats[tenant], self._present[tenant] - gone) != self._absent_of(tenant)

    def unplaced(self, nodes: Iterable[NodeInfo]) -> Iterator[tuple[str, tuple[Seat, ...], int]]:
        """Yields the pool, the absent seats of one size that fit on no device, and the number of them that do not fit.

        Absent seats of one size are equal, so any of them may be the one that does not fit. A seat is not among them if
        the labels of pods name all its replicas.
        """
        named = Counter((pod.namespace, pod.seat) for node in nodes for pod in node.pods.values() if pod.seat)
        for shape, count in self.seating.unplaced.items():
            yield (
                self._pool.name,
                tuple(
                    seat
                    for seat in self._ledger.seats
                    if seat.pool == self._pool.name
                    and shape_of(seat) == shape
                    and self._absent_of(seat.tenant)[shape]
                    and named[seat.tenant, seat.name] < seat.replicas
                ),
                count,
            )

    def _absent_of(self, tenant: str, more: Counter[Shape] | None = None) -> Counter[Shape]:
        present = self._present.get(tenant, Counter())
        return absent_seats(self._seats[tenant], present + more if more else present)

    def _future(self, nodes: int) -> dict[str, Mapping[int, int]]:
        pool = self._pool
        if pool.least_nodes is None:
            return {}
        devices = dict.fromkeys(range(pool.device_count), pool.device_mib)
        return {f"{_FUTURE}{number}": devices for number in range(pool.nodes - nodes)}
