"""Searches for the devices of one pod, and gives the reason for the choice. Units: whole MiB of GPU memory."""

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import datetime

from agents.extender.cache.node_info import NodeInfo, Shortage, has_room
from agents.extender.cache.pod_info import Entitlement, PodInfo
from agents.extender.cache.seats import PoolSeats
from tenancy.devices.absent import Place, Shape, place_beside
from tenancy.devices.allocate import Chooser, DeviceChoice, MemoryRequest, best_fit


@dataclass(frozen=True)
class Answer:
    """The node and the devices of a pod, or the reasons why no node fits.

    `refused` has the nodes that now have too little room. `hopeless` has the nodes that would have too little memory
    even without any pods. `short` has the devices on which the seat fits by the ledger, but other pods use the seat's
    memory. `pod` has the chosen devices.
    """

    nodes: tuple[str, ...]
    refused: Mapping[str, str] = field(default_factory=dict)
    hopeless: Mapping[str, str] = field(default_factory=dict)
    short: tuple[Shortage, ...] = ()
    pod: PodInfo | None = field(default=None, compare=False)


@dataclass
class Search:
    """The search for one pod's devices. `nodes` are the nodes as the pod finds them, and `taken` has the absent seats
    that the pod would take in each pool. `choices` has the devices on each node from the last call of `place`.
    """

    request: MemoryRequest
    entitlement: Entitlement
    nodes: Mapping[str, NodeInfo]
    pools: Mapping[str, PoolSeats]
    taken: Mapping[str, Counter[Shape]]
    choose: Chooser
    measured: bool = True
    choices: Mapping[str, DeviceChoice | None] = field(default_factory=dict)

    def place(self, *, measured: bool) -> Place | None:
        """Returns the devices with the lowest cost. Without `measured`, only a seat's pod gets devices. If several
        nodes have the lowest cost, returns the first by name, so that pods fill one node after the other.
        """
        self.measured = measured
        self.choices = {name: self._choice(node) for name, node in self.nodes.items()}
        return _cheapest(self.choices) or self.beside(measured=measured)

    def _choice(self, node: NodeInfo) -> DeviceChoice | None:
        if self.measured:
            return node.choice(self.request, self.choose)
        return node.choice_by_ledger(self.request) if node.seats(self.entitlement) else None

    def beside(self, *, measured: bool) -> Place | None:
        """Searches for devices that the pod can take so that all absent seats still fit elsewhere.

        If the pool has no room for the seat of the pod, the pod goes before other absent seats.
        """
        for name, pool in self.pools.items():
            rooms = {
                node.node: node.as_measured(node.free) if measured else node.free
                for node in self.nodes.values()
                if node.pool == name and pool.seating.places and (measured or node.seats(self.entitlement))
            }
            rooms = {node: room for node, room in rooms.items() if has_room(self.request, room)}
            if not rooms:
                continue
            own = self.taken[name]
            found = place_beside(self.request, pool.absent - own, pool.free, rooms, pool.seating)
            if found is None and pool.lacks(own):
                ways = {node: best_fit(self.request, room) for node, room in rooms.items()}
                found = Place(*min((way.cost, node, way.indices) for node, way in ways.items() if way)[1:])
            if found:
                return found
        return None

    def feasible(self, *, by_ledger: bool) -> frozenset[str]:
        """Returns all nodes that `place` could choose. With `by_ledger`, only its room by the ledger limits a seat."""
        limit = self.entitlement if by_ledger else None
        fitting = frozenset(name for name, node in self.nodes.items() if node.fits(self.request, limit))
        beside = None if fitting else self.beside(measured=True)
        return frozenset({beside.node}) if beside else fitting

    def short(self) -> tuple[Shortage, ...]:
        """Returns the devices that have enough room for a seat by the ledger, although other pods use the memory.
        Returns () if the pod has room as measured.
        """
        if any(node.fits(self.request) for node in self.nodes.values()):
            return ()
        seated = (node for node in self.nodes.values() if node.seats(self.entitlement))
        recorded = {name: pool.recorded for name, pool in self.pools.items()}
        return tuple(each for node in seated for each in node.shortages(self.request, recorded.get(node.pool, {})))

    def victims(self, name: str, candidates: Collection[str], server_now: datetime | None) -> tuple[str, ...] | None:
        """Returns the candidates to evict from the node so that the pod fits, with the highest priority first.

        Returns () if no eviction is necessary, and None if evictions would not help. If the deadline `due` of a
        terminating pod is after `server_now`, the pod counts as ended. For a seat, only its room by the ledger matters.
        An evicted pod with a seat frees only its overshoot, because its seat is absent from then on.
        """
        node, returning = self.nodes[name], set[str]()
        pool = self.pools.get(node.pool)
        if pool is not None and pool.lacks(self.taken[node.pool]):
            node = node.with_absent({})
        elif pool is not None:
            returning = {pod.uid for pod in node.pods.values() if pool.returns(pod, self.taken[node.pool])}
        measured = not node.seats(self.entitlement)
        return node.victims(self.request, candidates, server_now, measured=measured, returning=returning)

    def refusal(self, short: tuple[Shortage, ...]) -> Answer:
        hopeless = {name: why for name, node in self.nodes.items() if (why := node.never(self.request))}
        refused = {name: node.not_now(self.request) for name, node in self.nodes.items() if name not in hopeless}
        return Answer((), refused, hopeless, short)

    def why(self, place: Place) -> str:
        """Returns the reason for the result of `place`: the chosen devices with their free memory, and the second-best
        devices.
        """
        mib, node = self.request.mib, self.nodes[place.node]
        given = ", ".join(
            f"device {index}, where {node.free[index]} of {node.offered[index]} MiB were free"
            for index in place.devices
        )
        rest = node.with_absent({**node.absent, **{index: node.free[index] for index in place.devices}})
        others = {**self.nodes, place.node: rest}
        second = _cheapest({**self.choices, place.node: self._choice(rest)})
        return f"gets {mib} MiB of {place.node} {given}; {self._why_not(place, second, others)}"

    def _why_not(self, place: Place, second: Place | None, others: Mapping[str, NodeInfo]) -> str:
        if second is None:
            left = [(mib, name, index) for name, node in others.items() for index, mib in node.measured_room.items()]
            closest = max(((m, n, i) for m, n, i in left if n != place.node or i not in place.devices), default=None)
            if closest is None:
                return "there is no other device"
            return f"next best was {closest[1]} device {closest[2]}, which has room for only {closest[0]} MiB"
        named = f"next best was {_named(second)}, which"
        here, there = self._left(place), self._left(second)
        if here == there:
            return f"{named} would leave as much"
        return f"{named} would leave {self._amount(second, there)}, and not {self._amount(place, here)}"

    def _left(self, place: Place) -> int:
        room = self.nodes[place.node].measured_room
        return sum(max(room[index] - self.request.mib, 0) for index in place.devices)

    def _amount(self, place: Place, mib: int) -> str:
        pool = self.pools.get(self.nodes[place.node].pool)
        least = pool.least_mib if pool else 0
        return f"{mib} MiB that no seat can use" if 0 < mib < least else f"{mib} MiB"


def _cheapest(choices: Mapping[str, DeviceChoice | None]) -> Place | None:
    found = [(choice.cost, name, choice.indices) for name, choice in choices.items() if choice is not None]
    return Place(*min(found)[1:]) if found else None


def _named(place: Place) -> str:
    return f"{place.node} device {', '.join(map(str, place.devices))}"
