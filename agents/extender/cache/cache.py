"""The scheduler cache: the pods on each device, and the choice of nodes and devices for waiting pods.

A pod's states are reserved, assumed, bound and terminating, as in kube-scheduler's cache. The API has everything in the
cache except the reservations. One lock guards the cache, and no method does I/O. Sizes are in MiB of GPU memory, and
times are in monotonic seconds.
"""

import threading
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime

from agents.extender.cache.inventory import NodeDevices
from agents.extender.cache.node_info import MeasuredMemory, NodeInfo, Shortage
from agents.extender.cache.pod_info import NO_SEAT, Entitlement, Known, Nomination, PodInfo, PodState
from agents.extender.cache.search import Answer, Search
from agents.extender.cache.seats import PoolSeats
from agents.extender.cache.snapshot import Drift, NodeUsage, drift_of, usage_of
from agents.telemetry.reading import PodUse
from tenancy.devices.allocate import Chooser, MemoryRequest, Scoring, best_fit
from tenancy.devices.fragmentation import PodMix
from tenancy.ledger import Ledger, Seat

# The longest time between the filter and the bind of a pod. Between its filter and its bind, a pod may wait for its
# volumes.
RESERVE_SECONDS = 30.0
# The longest time between a pod's nomination and its bind. The time between nomination and bind includes the grace
# periods of the victims.
NOMINATED_SECONDS = 300.0
# The watch shows a bound pod within this time. An assumed pod that may not be bound keeps its devices for as long.
LOST_SECONDS = 60.0
# A reading is valid for this time: four of the exporter's intervals.
MEASURED_SECONDS = 60.0
# If two readings are less than this many seconds apart, the cache has fetched the same reading twice
# (agents/telemetry/client.py).
_STEP_SECONDS = 1.0
# The NodeInfo for each node that the cache does not know.
NOWHERE = NodeInfo("")


class Cache:
    """Stores all nodes and pods. For an unknown node or pod, the methods raise no error.

    With Scoring.FRAGMENTATION, the score of a device depends on the requests of the bound pods. The cache learns the
    requests of the bound pods from the calls of `replace` and `drift`.
    """

    def __init__(self, scoring: Scoring = Scoring.BEST_FIT) -> None:
        self._lock = threading.RLock()
        self._scoring = scoring
        self._choose: Chooser = best_fit
        self._pools: dict[str, PoolSeats] = {}
        self._pods: dict[str, Known] = {}
        self._nodes: dict[str, NodeInfo] = {}  # Whenever `_pods` changes, `_set` updates the nodes.
        self._ends: dict[str, float] = {}  # the ends of reservations and of memory that is kept for pods
        self._stale = True  # if the absent seats must be counted again

    # The methods that record what the API and the exporters show.

    def promise(self, ledger: Ledger, nodes: Iterable[NodeDevices] = ()) -> None:
        """Sets the absent seats that need memory, and the devices of these nodes."""
        with self._lock:
            self._pools = {pool.name: PoolSeats(ledger, pool) for pool in ledger.shared_pools}
            for devices in nodes:
                node = self._node(devices.node)
                node.inventory = devices
                self._changed(node)
            self._stale = True

    def update_node(self, devices: NodeDevices) -> bool:
        """Sets the devices of a node, and returns True if the devices changed. The pods of the node keep
        their devices.
        """
        with self._lock:
            node = self._node(devices.node)
            if node.inventory == devices:
                return False
            node.inventory = devices
            self._changed(node)
            return True

    def remove_node(self, name: str) -> None:
        """Removes a node's devices. The informer removes the pods of the node one by one with `remove_pod`."""
        with self._lock:
            node = self._node(name)
            node.inventory = node.reading = None
            self._changed(node)

    def update_pod(self, pod: Known) -> None:
        """Records a pod that the API shows as bound and not ended."""
        with self._lock:
            if self._pods.get(pod.uid) != pod:
                self._set(pod.uid, pod)

    def remove_pod(self, uid: str) -> None:
        """Removes a pod that has ended or no longer exists. A terminating pod keeps its devices."""
        with self._lock:
            known = self._pods.get(uid)
            if known is not None:
                self._nodes[known.node].ended(uid)
                self._set(uid, None)

    def nominate(self, pod: Nomination, now: float) -> None:
        """Keeps the memory of the pod's victims for the pod until NOMINATED_SECONDS after the pod's first nomination to
        the node. A pod with a reservation needs no nomination.
        """
        with self._lock:
            self._nominate(pod, now)

    def renew(self, uid: str, nodes: Collection[str], now: float) -> None:
        """Prolongs the pod's nomination if the nominated node is in `nodes`, because more pods are being evicted there.

        The API does not show that a nomination is prolonged.
        """
        with self._lock:
            known = self._pods.get(uid)
            if isinstance(known, Nomination) and known.shown and known.node in nodes:
                self._set(uid, replace(known, ends=now + NOMINATED_SECONDS))

    def withdraw(self, uid: str, now: float) -> bool:
        """Ends the pod's nomination, and returns True if the pod had one. Keeps the nominated pod's memory for another
        RESERVE_SECONDS.

        After a failed filter or bind, kube-scheduler removes the nomination and then retries the pod.
        """
        with self._lock:
            known, nomination = self._pods.get(uid), self._nomination(uid)
            if nomination is None or not nomination.shown:
                return False
            ends = min(nomination.ends, now + RESERVE_SECONDS)
            left = replace(nomination, shown=False, ends=ends) if now < ends else None
            self._set(uid, replace(known, nomination=left) if isinstance(known, PodInfo) else left)
            return True

    def retain(self, pod: Nomination, now: float) -> None:
        """Keeps memory on the nominated node for RESERVE_SECONDS after the pod did not fit there.

        Without `retain`, another pod could take the memory of the pod's victims. The scheduler may retry the pod before
        the cache knows that the victims have ended. After the extender refuses a pod, kube-scheduler drops the pod's
        nomination. A nomination that has ended stays ended.
        """
        with self._lock:
            known = self._pods.get(pod.uid)
            if isinstance(known, Nomination) and known.node == pod.node and known.shown:
                return
            if known is None or isinstance(known, Nomination):
                self._set(pod.uid, replace(pod, shown=False, ends=now + RESERVE_SECONDS))

    def nominated_node(self, uid: str, now: float) -> str | None:
        """Returns the node that keeps memory for the pod, or None."""
        with self._lock:
            known = self._pods.get(uid)
            return known.node if isinstance(known, Nomination) and now < known.ends else None

    def measure(
        self,
        node: str,
        unused: Mapping[int, int],
        at: float,
        uses: tuple[PodUse, ...] = (),
        *,
        unknown: Iterable[str] = (),
    ) -> None:
        """Stores a node's reading from the time `at`: the unused MiB of each device, and the pods that use the devices.

        The reading of a node is valid for MEASURED_SECONDS. `unknown` has the UUIDs of devices with unknown processes.
        Without a reading, only the ledger limits the memory that pods may get.
        """
        with self._lock:
            info = self._nodes.get(node)
            if info is None or (info.reading and at + MEASURED_SECONDS - info.reading.until < _STEP_SECONDS):
                return  # keeps the stored reading, which `ended` has corrected for pods that have ended since
            info.reading = MeasuredMemory(dict(unused), at + MEASURED_SECONDS, uses, frozenset(unknown))
            info.recount_room(info.absent)

    def finish_binding(self, uid: str, now: float) -> None:
        """Records that the API server has accepted the pod's binding. A list that begins after this call contains the
        pod, unless the pod was deleted.
        """
        with self._lock:
            known = self._pods.get(uid)
            if isinstance(known, PodInfo) and known.state is PodState.ASSUMED:
                self._set(uid, replace(known, accepted_at=now))

    def doubt(self, uid: str, ends: float) -> None:
        """Frees the devices of an assumed pod at the time `ends`, unless the API shows by then that it was bound."""
        with self._lock:
            known = self._pods.get(uid)
            if isinstance(known, PodInfo) and known.state is PodState.ASSUMED:
                self._set(uid, replace(known, ends=ends))

    def forget(self, uid: str, now: float) -> None:
        """Frees the devices of an assumed pod that was not bound. Keeps memory for the pod's retry (`retain`)."""
        with self._lock:
            known = self._pods.get(uid)
            if isinstance(known, PodInfo) and known.state is PodState.ASSUMED:
                self._set(uid, None)
                self.retain(Nomination(uid=uid, node=known.node, request=known.request, priority=known.priority), now)

    def replace(self, nodes: Iterable[NodeDevices], pods: Iterable[Known], since: float) -> None:
        """Rebuilds the cache from new lists, which began at `since`.

        Keeps the readings, the reservations and the memory that is kept for nominated pods. Keeps each assumed pod that
        may have been bound after the list was made.
        """
        with self._lock:
            before, readings = self._pods, {name: node.reading for name, node in self._nodes.items()}
            listed = {pod.uid: pod for pod in pods}
            self._nodes, self._pods, self._ends, self._stale = {}, {}, {}, True
            for uid, known in before.items():
                if _is_unlisted(known, since) or (isinstance(known, Nomination) and uid in listed):
                    self._set(uid, _doubted(known, since))
            for pod in listed.values():
                if isinstance(pod, Nomination):
                    self._nominate(pod, since)
                else:
                    self._set(pod.uid, pod)
            for devices in nodes:
                self._node(devices.node).inventory = devices
            for name, node in self._nodes.items():
                node.reading = readings.get(name)
                node.recount()
            self._learn()

    # The methods that give devices to pods.

    def fit(
        self,
        uid: str,
        request: MemoryRequest,
        nodes: Collection[str],
        now: float,
        entitlement: Entitlement = NO_SEAT,
        *,
        by_ledger: bool = False,
        until: float | None = None,
    ) -> Answer:
        """Chooses the best node with enough measured room, and reserves devices of this node for the pod.

        If no node has enough measured room and `by_ledger` is True, a seat gets memory that other pods use. The seat
        must have room by the ledger. The reservation ends at `until`. If `until` is None, it ends after
        RESERVE_SECONDS. The next filter of the pod also ends the reservation.
        """
        with self._lock:
            self._unreserve(uid)
            found = self._found(uid, request, nodes, now, entitlement)
            place = found.place(measured=True)
            short = found.short() if place is None else ()
            if place is None and by_ledger:
                place = found.place(measured=False)
            if place is None:
                return found.refusal(short)
            pod = PodInfo(
                uid=uid,
                namespace=entitlement.tenant,
                node=place.node,
                request=request,
                state=PodState.RESERVED,
                indices=place.devices,
                uuids=self._nodes[place.node].uuids(place.devices),
                priority=entitlement.priority,
                seat=entitlement.seat,
                ends=now + RESERVE_SECONDS if until is None else until,
                why=found.why(place),
                nomination=self._nomination(uid),
            )
            if not isinstance(self._pods.get(uid), PodInfo):
                self._set(uid, pod)
            return Answer((place.node,), short=short, pod=pod)

    def shortages(
        self, uid: str, request: MemoryRequest, nodes: Iterable[str], now: float, entitlement: Entitlement
    ) -> tuple[Shortage, ...]:
        """Returns the `short` that `fit` would return, but reserves nothing."""
        with self._without(uid):
            found = self._found(uid, request, nodes, now, entitlement)
            return () if any(node.fits(request) for node in found.nodes.values()) else found.short()

    def feasible_nodes(
        self,
        request: MemoryRequest,
        now: float,
        uid: str = "",
        entitlement: Entitlement = NO_SEAT,
        *,
        by_ledger: bool = False,
    ) -> frozenset[str]:
        """Returns all nodes that `fit` could choose, but reserves nothing."""
        with self._without(uid):
            found = self._found(uid, request, self._nodes, now, entitlement)
            limit = entitlement if by_ledger else None
            fitting = frozenset(name for name, node in found.nodes.items() if node.fits(request, limit))
            beside = None if fitting else found.beside(measured=True)
            return frozenset({beside.node}) if beside else fitting

    def assume(
        self, uid: str, request: MemoryRequest, node: str, now: float, entitlement: Entitlement = NO_SEAT
    ) -> Answer:
        """Gives the pod its reserved devices of the node, or chooses devices if it has no valid reservation there. The
        pod holds the devices until `update_pod`, `remove_pod` or `forget`.
        """
        with self._lock:
            self._expire(now)
            known = self._pods.get(uid)
            if isinstance(known, PodInfo) and known.state is not PodState.RESERVED:
                return Answer((), {node: "the pod is bound already, or about to be"})
            if not isinstance(known, PodInfo) or known.node != node or not self._nodes[node].offers(known):
                answer = self.fit(uid, request, (node,), now, entitlement, by_ledger=True)
                if answer.pod is None:
                    return answer
                known = answer.pod
            pod = replace(known, state=PodState.ASSUMED, ends=None, nomination=None)
            self._set(uid, pod)
            return Answer((node,), pod=pod)

    def victims(
        self,
        request: MemoryRequest,
        node: str,
        candidates: Collection[str],
        now: float,
        *,
        uid: str = "",
        entitlement: Entitlement = NO_SEAT,
        server_now: datetime | None = None,
    ) -> tuple[str, ...] | None:
        """Returns the candidates to evict from the node so that the request fits. The highest priority comes first.

        Returns () if no eviction is necessary, and None if evictions would not help. For a seat, only its room by the
        ledger matters. If the deadline `due` of a terminating pod is after `server_now`, the pod counts as ended.
        """
        with self._without(uid):
            found = self._found(uid, request, (node,), now, entitlement)
            seen, returning = found.nodes[node], set[str]()
            pool, taken = self._pools.get(seen.pool), found.taken.get(seen.pool)
            if pool is not None and pool.lacks(taken):
                seen = self._nodes[node].for_pod(uid, entitlement.priority, now, {})
            elif pool is not None:
                returning = {pod.uid for pod in seen.pods.values() if pool.returns(pod, taken)}
            return seen.victims(
                request, candidates, server_now, measured=not seen.seats(entitlement), returning=returning
            )

    # The methods that only answer.

    def drift(self) -> Drift:
        """Compares the pods of the cache with the devices and the readings."""
        with self._lock:
            self._learn()
            return drift_of(self._nodes.values())

    def unplaced_seats(self) -> tuple[tuple[str, tuple[Seat, ...], int], ...]:
        """Returns the absent seats that fit on no device: for each size, the pool, the seats and their number."""
        with self._lock:
            self._count()
            return tuple(
                each
                for name, pool in self._pools.items()
                for each in pool.unplaced(node for node in self._nodes.values() if node.pool == name)
            )

    def known(self, uid: str) -> Known | None:
        """Returns what the cache knows of the pod."""
        with self._lock:
            return self._pods.get(uid)

    def node(self, name: str) -> NodeInfo:
        """Returns a copy of the node. Later changes of the cache do not change the copy.

        For an unknown node, returns a NodeInfo without devices.
        """
        with self._lock:
            self._count()
            return self._nodes.get(name, NOWHERE).copy()

    def snapshot(self) -> tuple[NodeUsage, ...]:
        """Returns the usage of every node with devices or pods, sorted by the node's name."""
        with self._lock:
            self._count()
            return tuple(usage_of(node) for _, node in sorted(self._nodes.items()))

    def _found(
        self, uid: str, request: MemoryRequest, names: Iterable[str], now: float, entitlement: Entitlement
    ) -> Search:
        """Returns the nodes as the pod finds them, without the memory that absent seats of others need."""
        self._expire(now)
        self._count()
        taken = {name: own for name, pool in self._pools.items() if (own := pool.taken(request, entitlement))}
        nodes = {}
        for name in names:
            node = self._nodes.get(name, NOWHERE)
            pool, own = self._pools.get(node.pool), taken.get(node.pool)
            absent = node.absent if pool is None or own is None else pool.seating.needed_mib(name, own)
            nodes[name] = node.for_pod(uid, entitlement.priority, now, absent)
        return Search(request, entitlement, nodes, self._pools, taken, self._choose)

    def _learn(self) -> None:
        """Sets the requests of the bound pods for Scoring.FRAGMENTATION."""
        if self._scoring is Scoring.FRAGMENTATION:
            pods = (pod for node in self._nodes.values() for pod in node.pods.values())
            self._choose = PodMix(pod.request for pod in pods if pod.is_bound).choice

    def _set(self, uid: str, pod: Known | None) -> None:
        """Replaces a pod in the cache. Every change of the memory that a pod holds on a node goes through this
        method.
        """
        before = self._pods.pop(uid, None)
        self._ends.pop(uid, None)
        if before is not None:
            self._node(before.node).remove(uid)
        if pod is not None:
            self._pods[uid] = pod
            self._node(pod.node).add(pod)
            ends = pod.ends if isinstance(pod, PodInfo) or (isinstance(pod, Nomination) and not pod.shown) else None
            if ends is not None:
                self._ends[uid] = ends
        for name in {each.node for each in (before, pod) if each is not None}:
            self._changed(self._nodes[name])

    @contextmanager
    def _without(self, uid: str) -> Iterator[None]:
        """Locks the cache, and leaves out the reservation of the pod."""
        with self._lock:
            known = self._pods.get(uid)
            self._unreserve(uid)
            try:
                yield
            finally:
                if known is not None and self._pods.get(uid) != known:
                    self._set(uid, known)

    def _unreserve(self, uid: str) -> None:
        known = self._pods.get(uid)
        if isinstance(known, PodInfo) and known.state is PodState.RESERVED:
            self._set(uid, known.nomination)

    def _nomination(self, uid: str) -> Nomination | None:
        known = self._pods.get(uid)
        return known.nomination if isinstance(known, PodInfo) else known if isinstance(known, Nomination) else None

    def _nominate(self, pod: Nomination, now: float) -> None:
        known = self._pods.get(pod.uid)
        again = isinstance(known, Nomination) and known.shown and known.node == pod.node
        if not again and not isinstance(known, PodInfo):
            self._set(pod.uid, replace(pod, ends=now + NOMINATED_SECONDS))

    def _node(self, name: str) -> NodeInfo:
        if name not in self._nodes:
            self._nodes[name] = NodeInfo(name)
        return self._nodes[name]

    def _changed(self, node: NodeInfo) -> None:
        node.recount()
        self._stale = True
        if node.is_idle:
            self._nodes.pop(node.node, None)

    def _count(self) -> None:
        """Counts the absent seats after a change, and finds devices for them."""
        if not self._stale:
            return
        self._stale = False
        for name, pool in self._pools.items():
            pool.count([node for node in self._nodes.values() if node.pool == name])
        for name, node in self._nodes.items():
            absent = self._pools[node.pool].seating.needed_mib(name) if node.pool in self._pools else {}
            if absent != node.absent:
                node.recount_room(absent)

    def _expire(self, now: float) -> None:
        for uid in [uid for uid, ends in self._ends.items() if ends <= now]:
            left = self._nomination(uid) if isinstance(self._pods[uid], PodInfo) else None
            self._set(uid, left if left is not None and now < left.ends else None)
        for node in self._nodes.values():
            if node.reading and node.reading.until <= now:
                node.reading = None
                node.recount_room(node.absent)


def _doubted(known: Known, since: float) -> Known:
    """Returns an assumed pod with an end. A pod that was bound and has ended before the list was made is in neither the
    list nor the events after it, so nothing else would free its devices."""
    if isinstance(known, PodInfo) and known.state is PodState.ASSUMED and known.ends is None:
        return replace(known, ends=since + LOST_SECONDS)
    return known


def _is_unlisted(known: Known, since: float) -> bool:
    """Returns True if a list from the time `since` cannot contain what the cache knows of the pod. A list cannot
    contain a reservation, memory that is kept after a nomination, or a binding that the API server accepts later.
    """
    if isinstance(known, Nomination):
        return not known.shown
    if not isinstance(known, PodInfo) or known.is_bound:
        return False
    return known.accepted_at is None or known.accepted_at >= since
