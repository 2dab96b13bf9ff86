"""The scheduler cache: which pod, by UID, holds how much of which device.

It holds what the API says (bound pods), what is being bound, and what was promised between filter and bind. Everything
but the promises can be rebuilt from the API. One lock; no method does I/O. Units: MiB of GPU memory, monotonic seconds.
"""

import heapq
import math
import threading
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from agents.extender.cache.inventory import NodeDevices
from agents.extender.cache.node_info import MeasuredMemory, NodeInfo
from agents.extender.cache.pod_info import Bystander, PodInfo
from agents.extender.cache.snapshot import Drift, NodeUsage, drift_of, usage_of
from agents.extender.preemption import Occupant, fewest
from tenancy.devices.allocate import Ask, Chooser, Scoring, best_fit
from tenancy.devices.fragmentation import Mix

# From filter to bind; a pod may have to wait for its volumes in between.
RESERVE_SECONDS = 30.0
# A measurement counts for so long: four refreshes of the exporter's.
MEASURED_SECONDS = 60.0
# What the scheduler takes from an extender at most (MaxExtenderPriority in k8s.io/kube-scheduler/extender/v1).
TOP_SCORE = 10


@dataclass(frozen=True)
class Fits:
    """The nodes that fit. `refused` says why another does not now, `hopeless` why it would not if it were empty."""

    nodes: tuple[str, ...]
    refused: Mapping[str, str]
    hopeless: Mapping[str, str]


@dataclass(frozen=True)
class AssumedPod:
    """A pod's devices, in the order of their indices, and MiB on each."""

    indices: tuple[int, ...]
    uuids: tuple[str, ...]
    mib: int


@dataclass(frozen=True)
class NotAssumed:
    reason: str


class Cache:
    """All nodes. Every method is total: what is unknown is an answer, not an error.

    By Scoring.FRAGMENTATION the usual pods are those bound at the last `replace` or `audit`. Without bystanders and the
    nodes' CPU, CPU is taken to be there.
    """

    def __init__(self, scoring: Scoring = Scoring.BEST_FIT) -> None:
        self._scoring = scoring
        self._choose: Chooser = best_fit
        self._lock = threading.Lock()
        self._rooms: dict[str, NodeInfo] = {}
        # The node of each pod that is bound, being bound, or promised room.
        self._bound: dict[str, str] = {}
        self._taken: dict[str, str] = {}
        self._reserved: dict[str, str] = {}
        # Of those being bound, when the API said yes.
        self._settled: dict[str, float] = {}
        # When something of a node runs out.
        self._due: list[tuple[float, str]] = []

    def update_node(self, devices: NodeDevices) -> None:
        """What a node offers, also after a change; what is held there stays held."""
        with self._lock:
            room = self._room(devices.node)
            if room.inventory != devices:
                room.inventory = devices
                room.recount()

    def remove_node(self, name: str) -> None:
        """A node that is gone; its pods are dropped one by one."""
        with self._lock:
            room = self._room(name)
            room.inventory = room.reading = None
            self._changed(room)

    def update_pod(self, pod: PodInfo | Bystander) -> None:
        """A pod as the API has it: bound, not ended. What was kept for it until now is no longer needed."""
        with self._lock:
            known = self._rooms.get(pod.node, _NOWHERE)
            if isinstance(pod, Bystander):
                if known.bystanders.get(pod.uid) != pod:
                    self._admit(pod).recount_cpu()
            elif known.pods.get(pod.uid) != pod:
                self._admit(pod).recount()

    def remove_pod(self, uid: str) -> None:
        """A pod that is gone or has ended; not one whose deletion has only begun."""
        with self._lock:
            self._release(uid)
            self._untake(uid)
            self._unreserve(uid)

    def measure(self, node: str, free: Mapping[int, int], at: float) -> None:
        """Free MiB of a node's devices by index as measured at `at`; it counts for MEASURED_SECONDS."""
        with self._lock:
            room = self._rooms.get(node)
            if room is not None:
                room.reading = MeasuredMemory(dict(free), at + MEASURED_SECONDS)
                heapq.heappush(self._due, (room.reading.until, node))
                room.recount()

    def fit(self, uid: str, ask: Ask, nodes: Iterable[str], now: float) -> Fits:
        """The nodes with room. The best of them keeps it for the pod for RESERVE_SECONDS, or until its next filter, so
        that another pod's filter is not offered the same room."""
        with self._lock:
            self._expire(now)
            self._unreserve(uid)
            found, refused, hopeless = [], {}, {}
            for name in nodes:
                room = self._rooms.get(name, _NOWHERE)
                if room.fits(ask):
                    found.append(room)
                elif reason := room.never(ask):
                    hopeless[name] = reason
                else:
                    refused[name] = room.not_now(ask)
            if found and uid not in self._bound and uid not in self._taken:
                self._reserve(uid, ask, self._best(ask, found), now + RESERVE_SECONDS)
            return Fits(tuple(room.node for room in found), refused, hopeless)

    def feasible_nodes(self, ask: Ask, now: float) -> frozenset[str]:
        """All nodes that have room; nobody is promised any."""
        with self._lock:
            self._expire(now)
            return frozenset(name for name, room in self._rooms.items() if room.fits(ask))

    def scores(self, uid: str, ask: Ask, nodes: Iterable[str], now: float) -> Mapping[str, int]:
        """TOP_SCORE for the best node alone, to which the pod's promise moves; less for the others by their cost, 0 for
        those that do not fit."""
        with self._lock:
            self._expire(now)
            until = self._unreserve(uid)
            rooms = {name: self._rooms.get(name, _NOWHERE) for name in nodes}
            costs = {name: choice.cost for name, room in rooms.items() if (choice := room.choice(ask, self._choose))}
            if not costs:
                return dict.fromkeys(rooms, 0)
            best = self._best(ask, [rooms[name] for name in costs])
            if until is not None:
                self._reserve(uid, ask, best, until)
            least, most = min(costs.values()), max(costs.values())
            scale = (TOP_SCORE - 2) / (most - least) if most > least else 0.0
            scores = {name: TOP_SCORE - 1 - round((cost - least) * scale) for name, cost in costs.items()}
            return dict.fromkeys(rooms, 0) | scores | {best.node: TOP_SCORE}

    def assume(self, uid: str, ask: Ask, node: str, now: float) -> AssumedPod | NotAssumed:
        """Devices on the node, kept until `update_pod`, `remove_pod` or `forget`: however long the binding takes."""
        with self._lock:
            self._expire(now)
            if uid in self._bound or uid in self._taken:
                return NotAssumed("the pod is bound already, or about to be")
            self._unreserve(uid)
            room = self._rooms.get(node, _NOWHERE)
            choice = room.choice(ask, self._choose)
            if choice is None:
                return NotAssumed(room.never(ask) or room.not_now(ask))
            hold = room.hold(uid, ask, choice.indices)
            room.taken[uid] = hold
            self._taken[uid] = node
            room.recount()
            return AssumedPod(hold.indices, hold.uuids, ask.mib)

    def finish_binding(self, uid: str, now: float) -> None:
        """The API accepted the binding: a list of the pods that begins later shows the pod, or it is gone."""
        with self._lock:
            if uid in self._taken:
                self._settled[uid] = now

    def forget(self, uid: str) -> None:
        """The binding failed, and it is certain that it did."""
        with self._lock:
            self._untake(uid)

    def pods(self, node: str) -> tuple[PodInfo, ...]:
        """The pods bound to a node."""
        with self._lock:
            return tuple(self._rooms[node].pods.values()) if node in self._rooms else ()

    def victims(self, ask: Ask, node: str, candidates: Collection[str], now: float) -> tuple[str, ...] | None:
        """The uids of those candidates who must leave the node for the ask to fit; () where nobody must, None where it
        would not help. What terminates counts as gone: it leaves by itself. A pod stays of which nobody knows on which
        devices it is: its going might free another."""
        with self._lock:
            self._expire(now)
            room = self._rooms.get(node, _NOWHERE)
            if room.never(ask):
                return None
            free = {index: mib for index, mib in room.room.items() if room.offered[index] >= ask.mib}
            occupants = []
            for pod in room.pods.values():
                indices = room.places[pod.uid]
                if pod.terminating:
                    free |= {index: free[index] + pod.ask.mib for index in indices if index in free}
                elif pod.uid in candidates and pod.placed:
                    occupants.append(Occupant(uid=pod.uid, priority=pod.priority, mib=pod.ask.mib, indices=indices))
            return fewest(ask, free, occupants)

    def snapshot(self) -> tuple[NodeUsage, ...]:
        """Every node that is known or holds something, by name."""
        with self._lock:
            rooms = [room.as_now() for room in self._rooms.values()]
        return tuple(usage_of(room) for room in sorted(rooms, key=lambda room: room.node))

    def compare(self, pods: Iterable[PodInfo], since: float) -> Drift:
        """Compares the ledger with the bound pods of a list that began at `since`, and with measurements that count. A
        pod that comes or goes between the two shows once. Room whose pod was bound before and is not listed is freed:
        the pod came and went while no watch was there to tell."""
        listed = {pod.uid: pod for pod in pods}
        with self._lock:
            for uid in self._settled_before(since):
                if uid not in listed:
                    self._untake(uid)
            self._learn()
            rooms = [room.as_now() for room in self._rooms.values()]
        return drift_of(rooms, listed)

    def replace(self, nodes: Iterable[NodeDevices], pods: Iterable[PodInfo | Bystander], since: float) -> None:
        """Everything again from lists of the API that began at `since`. Kept are promises, measurements, and what is
        being bound, unless it was settled before the list began: then the pod is in it, or gone."""
        with self._lock:
            for uid in self._settled_before(since):
                self._untake(uid)
            self._bound.clear()
            for room in self._rooms.values():
                room.inventory = None
                room.pods.clear()
                room.bystanders.clear()
            for devices in nodes:
                self._room(devices.node).inventory = devices
            for pod in pods:
                self._admit(pod)
            for room in [*self._rooms.values()]:
                self._changed(room)
            self._learn()

    def _settled_before(self, since: float) -> list[str]:
        return [uid for uid, at in self._settled.items() if at < since]

    def _learn(self) -> None:
        """The usual pods are those that are bound; before there are any, best fit chooses."""
        if self._scoring is Scoring.FRAGMENTATION:
            self._choose = Mix(pod.ask for room in self._rooms.values() for pod in room.pods.values()).choice
            for room in self._rooms.values():
                room.forget_choices()

    def _room(self, node: str) -> NodeInfo:
        if node not in self._rooms:
            self._rooms[node] = NodeInfo(node)
        return self._rooms[node]

    def _changed(self, room: NodeInfo) -> None:
        room.recount()
        if room.idle:
            self._rooms.pop(room.node, None)

    def _admit(self, pod: PodInfo | Bystander) -> NodeInfo:
        self._untake(pod.uid)
        self._unreserve(pod.uid)
        room = self._room(pod.node)
        if isinstance(pod, Bystander):
            room.bystanders[pod.uid] = pod
        else:
            room.pods[pod.uid] = pod
        self._bound[pod.uid] = pod.node
        return room

    def _release(self, uid: str) -> None:
        node = self._bound.pop(uid, None)
        if node is not None:
            room = self._rooms[node]
            room.pods.pop(uid, None)
            room.bystanders.pop(uid, None)
            self._changed(room)

    def _untake(self, uid: str) -> None:
        self._settled.pop(uid, None)
        node = self._taken.pop(uid, None)
        if node is not None:
            del self._rooms[node].taken[uid]
            self._changed(self._rooms[node])

    def _best(self, ask: Ask, rooms: Iterable[NodeInfo]) -> NodeInfo:
        """Of rooms that fit; of equals the first by name, so that one is filled after another."""

        def order(room: NodeInfo) -> tuple[float, str]:
            choice = room.choice(ask, self._choose)
            return (choice.cost if choice else math.inf, room.node)

        return min(rooms, key=order)

    def _reserve(self, uid: str, ask: Ask, room: NodeInfo, until: float) -> None:
        choice = room.choice(ask, self._choose)
        if choice is not None:
            room.reserved[uid] = room.hold(uid, ask, choice.indices, until)
            self._reserved[uid] = room.node
            heapq.heappush(self._due, (until, room.node))
            room.recount()

    def _unreserve(self, uid: str) -> float | None:
        """Until when the promise would have been kept; None where there is none."""
        node = self._reserved.pop(uid, None)
        if node is None:
            return None
        until = self._rooms[node].reserved.pop(uid).until
        self._changed(self._rooms[node])
        return until

    def _expire(self, now: float) -> None:
        while self._due and self._due[0][0] <= now:
            room = self._rooms.get(heapq.heappop(self._due)[1])
            if room is None:
                continue
            for hold in [*room.reserved.values()]:
                if hold.until is not None and hold.until <= now:
                    self._unreserve(hold.uid)
            if room.reading and room.reading.until <= now:
                room.reading = None
                self._changed(room)


# For nodes of which nothing is known.
_NOWHERE = NodeInfo("")
