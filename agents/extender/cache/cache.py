"""The scheduler cache: the devices that each pod holds, and the nodes that pods are nominated to.

A pod's states are reserved, assumed, bound and terminating, as in kube-scheduler's cache. Everything except the
reservations can be rebuilt from the API. One lock guards the cache, and no method does I/O. Units: MiB of GPU
memory, monotonic seconds.
"""

import heapq
import threading
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from datetime import datetime

from agents.extender.cache.answers import FilterAnswer, NotAssumed
from agents.extender.cache.inventory import NodeDevices
from agents.extender.cache.node_info import MeasuredMemory, NodeInfo, Shortage, shortages_on
from agents.extender.cache.pod_info import NO_SEAT, Entitlement, Nomination, PodInfo, PodRecord, PodState, PodWithoutGpu
from agents.extender.cache.ranking import Ranking
from agents.extender.cache.snapshot import Drift, NodeUsage, drift_of, usage_of
from agents.telemetry.reading import PodUse
from tenancy.devices.allocate import MemoryRequest, Scoring

# The longest time between filter and bind. During this time, a pod may wait for its volumes.
RESERVE_SECONDS = 30.0
# The longest time between a nomination and the bind. This time includes the grace periods of the victims.
NOMINATED_SECONDS = 300.0
# A reading is valid for this time: four of the exporter's intervals.
MEASURED_SECONDS = 60.0
# If the times of two readings differ by less than this, the cache fetched one reading twice
# (agents/telemetry/client.py).
_STEP_SECONDS = 1.0
_UNKNOWN = PodRecord()
# The NodeInfo for each node that the cache does not know.
_NOWHERE = NodeInfo("")


class Cache:
    """Stores all nodes and pods. No method raises an error for an unknown node or pod.

    With Scoring.FRAGMENTATION, the score of a device depends on the requests of the pods that were bound at the last
    `replace` or `compare`.
    """

    def __init__(self, scoring: Scoring = Scoring.BEST_FIT) -> None:
        self._lock = threading.Lock()
        self._ranking = Ranking(scoring)
        self._pods: dict[str, PodRecord] = {}
        self._nodes: dict[str, NodeInfo] = {}  # `_set` keeps the nodes equal to `_pods`.
        # Each time at which a reservation, a reading or a nomination ends, with its node.
        self._due: list[tuple[float, str]] = []

    def update_node(self, devices: NodeDevices) -> bool:
        """Sets the devices of a node, and returns True if the devices changed. The node's pods keep their devices."""
        with self._lock:
            node = self._node(devices.node)
            if node.inventory == devices:
                return False
            node.inventory = devices
            node.recount()
            return True

    def remove_node(self, name: str) -> None:
        """Removes a node's devices. The informer removes the node's pods one by one with `remove_pod`."""
        with self._lock:
            node = self._node(name)
            node.inventory = node.reading = None
            self._changed(node)

    def update_pod(self, pod: PodInfo | PodWithoutGpu) -> None:
        """Records a pod that the API shows as bound and not ended."""
        with self._lock:
            record = PodRecord(held=pod)
            if self._record(pod.uid) != record:
                self._set(pod.uid, record)

    def remove_pod(self, uid: str) -> None:
        """Removes a pod that has ended or no longer exists. A terminating pod keeps its devices."""
        with self._lock:
            held = self._record(uid).held
            if held is not None:
                self._nodes[held.node].ended(uid)
            self._set(uid, _UNKNOWN)

    def nominate(self, pod: Nomination, now: float) -> None:
        """Keeps for this pod the memory that its victims free, until NOMINATED_SECONDS after the first call."""
        with self._lock:
            self._nominate(pod.confirmed(self._record(pod.uid).nomination, now + NOMINATED_SECONDS))

    def renew(self, uid: str, nodes: Collection[str], now: float) -> None:
        """Prolongs the pod's nomination if its node is one of these nodes, where more pods are being evicted.

        The API does not report this prolongation.
        """
        with self._lock:
            known = self._record(uid).nomination
            if known and known.until and known.node in nodes:
                self._nominate(replace(known, until=now + NOMINATED_SECONDS))

    def withdraw(self, uid: str, now: float) -> bool:
        """Ends a nomination, and returns True if there was one. Keeps the memory for RESERVE_SECONDS more, because
        kube-scheduler removes a nomination after a failed filter or bind and then retries the pod.
        """
        with self._lock:
            known = self._record(uid).nomination
            if known is None or not known.until:
                return False
            rest = min(known.until, now + RESERVE_SECONDS) if now < known.until else 0.0
            self._nominate(replace(known, until=0.0, retained_until=known.retained_until or rest))
            return True

    def retain(self, pod: Nomination, now: float) -> None:
        """Keeps memory for RESERVE_SECONDS for a pod that its nominated node refused.

        Otherwise the pod could lose the memory that its victims free. The scheduler may receive the victims' end before
        this cache, and retry the pod too early. After a refusal, kube-scheduler drops the nomination. A nomination that
        has ended stays ended.
        """
        with self._lock:
            self._expire(now)
            record = self._record(pod.uid)
            known = record.nomination
            if known is None or known.node != pod.node:
                known = pod
            if record.held is None or record.is_reserved:
                lapsed = 0.0 < known.until <= now
                self._nominate(replace(known, retained_until=0.0 if lapsed else now + RESERVE_SECONDS))

    def measure(
        self,
        node: str,
        free: Mapping[int, int],
        at: float,
        uses: tuple[PodUse, ...] = (),
        *,
        unknown: Iterable[str] = (),
    ) -> None:
        """Stores a node's reading from the time `at`: the free MiB by device index, and the pods that use the devices.

        The reading is valid for MEASURED_SECONDS. `unknown` has the UUIDs of the devices with unknown processes.
        Without a reading, only the ledger limits the memory that pods may get.
        """
        with self._lock:
            info = self._nodes.get(node)
            if info is None or (info.reading and at + MEASURED_SECONDS - info.reading.until < _STEP_SECONDS):
                return  # the stored reading no longer counts pods that ended later
            info.reading = MeasuredMemory(dict(free), at + MEASURED_SECONDS, uses, frozenset(unknown))
            heapq.heappush(self._due, (info.reading.until, node))
            info.recount()

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
    ) -> FilterAnswer:
        """Chooses the best node with enough unused memory, and reserves its devices for the pod.

        If no node has enough unused memory, `by_ledger` allows memory that other pods use. For a seat, this memory must
        be free by the ledger. The reservation ends at `until`, or after RESERVE_SECONDS if `until` is None. The pod's
        next filter also ends the reservation.
        """
        with self._lock:
            self._expire(now)
            self._unreserve(uid)
            best = self._ranking.best(request, nodes, lambda name: self._left(name, uid, entitlement, now))
            short: tuple[Shortage, ...] = ()
            if best is None:
                left = {name: self._left(name, uid, entitlement, now) for name in nodes}
                short = shortages_on(left.values(), request, entitlement)
                if by_ledger:
                    seats = [node for node in left.values() if node.seats_by_ledger(request, entitlement)]
                    best = self._ranking.best_by_ledger(request, seats)
                if best is None:
                    hopeless = {name: reason for name, node in left.items() if (reason := node.never(request))}
                    refused = {name: node.not_now(request) for name, node in left.items() if name not in hopeless}
                    return FilterAnswer((), refused, hopeless, short)
            pod = best.assumed(uid, request, self._ranking.choose, entitlement)
            if pod is not None and self._record(uid).held is None:
                expires_at = now + RESERVE_SECONDS if until is None else until
                self._hold(uid, replace(pod, state=PodState.RESERVED, expires_at=expires_at))
                heapq.heappush(self._due, (expires_at, best.node))
            return FilterAnswer((best.node,), {}, {}, short)

    def shortages(
        self, uid: str, request: MemoryRequest, nodes: Iterable[str], now: float, entitlement: Entitlement
    ) -> tuple[Shortage, ...]:
        """Returns the `short` that `fit` would return. Does not reserve anything."""
        with self._lock:
            self._expire(now)
            left = [self._left(name, uid, entitlement, now) for name in nodes]
            return () if any(node.fits(request) for node in left) else shortages_on(left, request, entitlement)

    def feasible_nodes(
        self,
        request: MemoryRequest,
        now: float,
        uid: str = "",
        entitlement: Entitlement = NO_SEAT,
        *,
        by_ledger: bool = False,
    ) -> frozenset[str]:
        """Returns all nodes that `fit` could choose. Does not reserve anything."""
        with self._lock:
            self._expire(now)
            left = [self._left(name, uid, entitlement, now) for name in self._nodes]
            return frozenset(
                node.node
                for node in left
                if node.fits(request) or (by_ledger and node.seats_by_ledger(request, entitlement))
            )

    def is_nominated(self, uid: str) -> bool:
        """Returns True if a node keeps memory for the pod."""
        with self._lock:
            return self._record(uid).nomination is not None

    def retained(self, uid: str, now: float) -> str | None:
        """Returns the node that refused the pod and keeps memory for it (`retain`), or None."""
        with self._lock:
            self._expire(now)
            nomination = self._record(uid).nomination
            return nomination.node if nomination and nomination.retained_until else None

    def assume(
        self, uid: str, request: MemoryRequest, node: str, now: float, entitlement: Entitlement = NO_SEAT
    ) -> PodInfo | NotAssumed:
        """Chooses devices of the node for the pod. The pod holds these devices until `update_pod`, `remove_pod` or
        `forget`.
        """
        with self._lock:
            self._expire(now)
            self._unreserve(uid)
            if self._record(uid).held is not None:
                return NotAssumed("the pod is bound already, or about to be")
            left = self._left(node, uid, entitlement, now)
            pod = left.assumed(uid, request, self._ranking.choose, entitlement)
            if pod is None:
                return NotAssumed(left.never(request) or left.not_now(request))
            self._hold(uid, pod)
            return pod

    def finish_binding(self, uid: str, now: float) -> None:
        """Records that the API accepted the binding. A later list contains the pod, unless the pod was deleted."""
        with self._lock:
            if assumed := self._record(uid).assumed:
                self._hold(uid, replace(assumed, accepted_at=now))

    def forget(self, uid: str) -> None:
        """Frees the devices of an assumed pod that was not bound."""
        with self._lock:
            if self._record(uid).assumed:
                self._hold(uid, None)

    def node(self, name: str) -> NodeInfo:
        """Returns a copy of the node. Later changes of the cache do not change the copy.

        For an unknown node, returns a NodeInfo without devices.
        """
        with self._lock:
            return self._nodes.get(name, _NOWHERE).copy()

    def victims(
        self,
        request: MemoryRequest,
        node: str,
        candidates: Collection[str],
        now: float,
        *,
        uid: str = "",
        entitlement: Entitlement = NO_SEAT,
        seated: Collection[str] = (),
        server_now: datetime | None = None,
    ) -> tuple[str, ...] | None:
        """Returns the candidates to evict from the node so that the request fits, the highest priority first.

        Returns () if no eviction is needed, and None if evictions would not help. For a seat, only the ledger counts.
        The requests of the pods in `seated` are within a seat. A terminating pod counts as ended, unless its deadline
        `due` is before `server_now`.
        """
        with self._lock:
            self._expire(now)
            left = self._left(node, uid, entitlement, now)
            return left.victims(request, candidates, seated, server_now, measured=not left.seats(entitlement))

    def snapshot(self) -> tuple[NodeUsage, ...]:
        """Returns the usage of every node with devices or pods, sorted by name."""
        with self._lock:
            nodes = [node.copy() for node in self._nodes.values()]
        return tuple(usage_of(node) for node in sorted(nodes, key=lambda node: node.node))

    def compare(self, pods: Iterable[PodInfo], since: float) -> Drift:
        """Compares the cache with the readings, and with the bound pods of a list that began at `since`.

        Removes an assumed pod that was bound before `since` if the list does not contain the pod. The pod was then
        deleted while the watch was broken. A pod that appears or ends between the list and the comparison makes one
        false difference.
        """
        listed = {pod.uid: pod for pod in pods}
        with self._lock:
            for uid, record in [*self._pods.items()]:
                if uid not in listed and record.was_accepted_before(since):
                    self._hold(uid, None)
            self._learn()
            nodes = [node.copy() for node in self._nodes.values()]
        return drift_of(nodes, listed)

    def replace(
        self, nodes: Iterable[NodeDevices], pods: Iterable[PodInfo | PodWithoutGpu | Nomination], since: float
    ) -> None:
        """Rebuilds the cache from lists of the API that began at `since`.

        Keeps the readings, the reservations and the retained memory. Keeps each assumed pod that may have been bound
        too late for the list.
        """
        with self._lock:
            records = {uid: record.unlisted(since) for uid, record in self._pods.items()}
            for pod in pods:
                if isinstance(pod, Nomination):
                    nomination = pod.confirmed(self._record(pod.uid).nomination, since + NOMINATED_SECONDS)
                    records[pod.uid] = replace(records.get(pod.uid, _UNKNOWN), nomination=nomination)
                else:
                    records[pod.uid] = PodRecord(held=pod)
            readings = {name: node.reading for name, node in self._nodes.items()}
            self._nodes = {}
            self._pods = {uid: record for uid, record in records.items() if record.parts}
            for devices in nodes:
                self._node(devices.node).inventory = devices
            for record in self._pods.values():
                for part in record.parts:
                    self._node(part.node).add(part)
            for name, node in self._nodes.items():
                node.reading = readings.get(name)
                node.recount()
            self._ranking.clear()
            self._learn()

    def _learn(self) -> None:
        self._ranking.learn(pod.request for node in self._nodes.values() for pod in node.pods.values() if pod.is_bound)

    def _record(self, uid: str) -> PodRecord:
        return self._pods.get(uid, _UNKNOWN)

    def _set(self, uid: str, record: PodRecord) -> None:
        """Replaces a pod's record. Every change of the memory that a pod holds on a node uses this method."""
        before = self._pods.pop(uid, _UNKNOWN)
        if record.parts:
            self._pods[uid] = record
        for part in before.parts:
            self._node(part.node).remove(part)
        for part in record.parts:
            self._node(part.node).add(part)
        for name in {part.node for part in (*before.parts, *record.parts)}:
            self._changed(self._node(name))

    def _hold(self, uid: str, pod: PodInfo | None) -> None:
        self._set(uid, replace(self._record(uid), held=pod))

    def _unreserve(self, uid: str) -> None:
        if self._record(uid).is_reserved:
            self._hold(uid, None)

    def _nominate(self, nomination: Nomination) -> None:
        kept = nomination if nomination.until or nomination.retained_until else None
        record = replace(self._record(nomination.uid), nomination=kept)
        if record != self._record(nomination.uid):
            self._set(nomination.uid, record)
            if nomination.retained_until:
                heapq.heappush(self._due, (nomination.retained_until, nomination.node))

    def _node(self, name: str) -> NodeInfo:
        if name not in self._nodes:
            self._nodes[name] = NodeInfo(name, self._ranking.changed)
        return self._nodes[name]

    def _left(self, name: str, uid: str, entitlement: Entitlement, now: float) -> NodeInfo:
        """Returns a copy of the node with the memory that this pod may use."""
        return self._nodes.get(name, _NOWHERE).left_to(uid, entitlement, now)

    def _changed(self, node: NodeInfo) -> None:
        node.recount()
        if node.is_idle:
            self._nodes.pop(node.node, None)

    def _expire(self, now: float) -> None:
        while self._due and self._due[0][0] <= now:
            node = self._nodes.get(heapq.heappop(self._due)[1])
            if node is None:
                continue
            for pod in [*node.pods.values()]:
                if pod.expires_at is not None and pod.expires_at <= now:
                    self._hold(pod.uid, None)
            for nomination in [*node.nominated.values()]:
                if 0.0 < nomination.retained_until <= now:
                    self._nominate(replace(nomination, retained_until=0.0))
            if node.reading and node.reading.until <= now:
                node.reading = None
                self._changed(node)
