"""The scheduler cache: which pod, by UID, holds how much of which device.

It holds what the API says (bound pods), what is being bound, and what was promised between filter and bind. Everything
but the promises can be rebuilt from the API. One lock; no method does I/O. Units: MiB of GPU memory, monotonic seconds.
"""

import heapq
import math
import threading
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace

from agents.extender.cache.inventory import NodeDevices
from agents.extender.cache.node_info import DeviceShare, MeasuredMemory, NodeInfo, Shortage
from agents.extender.cache.pod_info import ANYBODY, Bystander, Nomination, PodInfo, Standing
from agents.extender.cache.ranking import Ranking
from agents.extender.cache.snapshot import Drift, NodeUsage, drift_of, usage_of
from agents.extender.preemption import Occupant, fewest
from agents.telemetry.reading import PodUse
from tenancy.devices.allocate import Ask, Chooser, Scoring, best_fit
from tenancy.devices.fragmentation import Mix

# From filter to bind; a pod may have to wait for its volumes in between.
RESERVE_SECONDS = 30.0
# From a nomination to the bind, the grace of those who were evicted included. Who is not bound by then does not come.
NOMINATED_SECONDS = 300.0
# A measurement counts for so long: four refreshes of the exporter's.
MEASURED_SECONDS = 60.0
# Two readings less than this apart are one, asked for twice (agents/telemetry/client.py).
_STEP_SECONDS = 1.0


@dataclass(frozen=True)
class Fits:
    """The node that suits best alone. Where none fits, `refused` says why each does not now, or `hopeless` why it would
    not if it were empty.

    `short`, of a seat that fits nowhere: what it lacks where only memory in use keeps it out.
    """

    nodes: tuple[str, ...]
    refused: Mapping[str, str]
    hopeless: Mapping[str, str]
    short: tuple[Shortage, ...] = ()


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
        self._ranking = Ranking()
        # The node of each pod that is bound, being bound, or promised room.
        self._bound: dict[str, str] = {}
        self._taken: dict[str, str] = {}
        self._reserved: dict[str, str] = {}
        # The node of each pod that is nominated to one.
        self._nominated: dict[str, str] = {}
        # The same of each that was refused there.
        self._kept: dict[str, str] = {}
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
            self._unnominate(uid)
            self._unkeep(uid)

    def nominate(self, pod: Nomination, now: float) -> None:
        """What others leave on the node is kept for the pod, for NOMINATED_SECONDS from the first word of it."""
        with self._lock:
            if self._kept.get(pod.uid) != pod.node:
                self._unkeep(pod.uid)
            if self._nominated.get(pod.uid) != pod.node:
                self._unnominate(pod.uid)
                self._nominate(replace(pod, until=now + NOMINATED_SECONDS))

    def renew(self, uid: str, nodes: Collection[str], now: float) -> None:
        """Others go from these nodes for the pod. Where it is nominated to one already, no other word of it comes."""
        with self._lock:
            node = self._nominated.get(uid)
            if node is not None and node in nodes:
                known = self._rooms[node].nominated[uid]
                self._nominate(replace(known, until=now + NOMINATED_SECONDS))

    def withdraw(self, uid: str, now: float) -> bool:
        """A pod that is not nominated, any more or at all; whether it was. For RESERVE_SECONDS it loses nothing by it:
        kube-scheduler takes a nomination away where it fails to ask or to bind, and tries again."""
        with self._lock:
            node = self._nominated.get(uid)
            known = self._rooms[node].nominated[uid] if node else None
            if known is not None and now < known.until and uid not in self._kept:
                self._keep(replace(known, until=min(known.until, now + RESERVE_SECONDS)))
            return self._unnominate(uid)

    def retain(self, pod: Nomination, now: float) -> None:
        """A pod that is refused where it is nominated: should it lose the nomination by that, the room stays its own
        for RESERVE_SECONDS. kube-scheduler tried it too early, having heard before us that who was evicted is gone. A
        nomination that has lapsed is made no longer by it."""
        with self._lock:
            self._expire(now)
            self._unkeep(pod.uid)
            room = self._rooms.get(pod.node, _NOWHERE)
            lapsed = pod.uid in room.nominated and room.nominated[pod.uid].until <= now
            if not lapsed and pod.uid not in self._bound and pod.uid not in self._taken:
                self._keep(replace(pod, until=now + RESERVE_SECONDS))

    def measure(
        self,
        node: str,
        free: Mapping[int, int],
        at: float,
        uses: tuple[PodUse, ...] = (),
        *,
        unknown: Iterable[str] = (),
    ) -> None:
        """Free MiB of a node's devices by index as measured at `at`, and who uses them, but for the UUIDs in `unknown`;
        it counts for MEASURED_SECONDS. A device that is left out is placed on by the ledger alone."""
        with self._lock:
            room = self._rooms.get(node)
            if room is None or (room.reading and at + MEASURED_SECONDS - room.reading.until < _STEP_SECONDS):
                return  # the reading that is known already, which does not know of the pods that ended since
            room.reading = MeasuredMemory(dict(free), at + MEASURED_SECONDS, uses, frozenset(unknown))
            heapq.heappush(self._due, (room.reading.until, node))
            room.recount()

    def fit(
        self,
        uid: str,
        ask: Ask,
        nodes: Collection[str],
        now: float,
        standing: Standing = ANYBODY,
        *,
        by_ledger: bool = False,
        until: float | None = None,
    ) -> Fits:
        """Of the nodes with room that nobody uses the best; `by_ledger`, for a seat where there is none: of those with
        room by the ledger. It keeps the room for the pod for RESERVE_SECONDS, or `until` then, or until its next
        filter, so that another pod's filter is not offered the same."""
        with self._lock:
            self._expire(now)
            self._unreserve(uid)
            best = self._best(uid, ask, nodes, now, standing)
            short: tuple[Shortage, ...] = ()
            if best is None:
                rooms = {name: self._left(name, uid, standing, now) for name in nodes}
                short = _shortages(rooms.values(), ask, standing)
                best = self._best_by_ledger(rooms.values(), ask, standing) if by_ledger else None
                if best is None:
                    hopeless = {name: reason for name, room in rooms.items() if (reason := room.never(ask))}
                    refused = {name: room.not_now(ask) for name, room in rooms.items() if name not in hopeless}
                    return Fits((), refused, hopeless, short)
            if uid not in self._bound and uid not in self._taken:
                self._reserve(uid, ask, best, now + RESERVE_SECONDS if until is None else until, standing)
            return Fits((best.node,), {}, {}, short)

    def shortages(
        self, uid: str, ask: Ask, nodes: Iterable[str], now: float, standing: Standing
    ) -> tuple[Shortage, ...]:
        """As `fit` has them; nobody is promised any."""
        with self._lock:
            self._expire(now)
            rooms = [self._left(name, uid, standing, now) for name in nodes]
            return () if any(room.fits(ask) for room in rooms) else _shortages(rooms, ask, standing)

    def feasible_nodes(
        self, ask: Ask, now: float, uid: str = "", standing: Standing = ANYBODY, *, by_ledger: bool = False
    ) -> frozenset[str]:
        """As `fit`, of all nodes; nobody is promised any."""
        with self._lock:
            self._expire(now)
            rooms = [self._left(name, uid, standing, now) for name in self._rooms]
            return frozenset(
                room.node for room in rooms if room.fits(ask) or (by_ledger and room.seats_by_ledger(ask, standing))
            )

    def nominated(self, uid: str) -> bool:
        """Whether others were evicted from a node for the pod."""
        with self._lock:
            return uid in self._nominated or uid in self._kept

    def retained(self, uid: str, now: float) -> str | None:
        """The node on which the pod was refused though it was nominated there; None where there is none."""
        with self._lock:
            self._expire(now)
            return self._kept.get(uid)

    def assume(
        self, uid: str, ask: Ask, node: str, now: float, standing: Standing = ANYBODY
    ) -> AssumedPod | NotAssumed:
        """Devices on the node, kept until `update_pod`, `remove_pod` or `forget`: however long the binding takes."""
        with self._lock:
            self._expire(now)
            if uid in self._bound or uid in self._taken:
                return NotAssumed("the pod is bound already, or about to be")
            self._unreserve(uid)
            left = self._left(node, uid, standing, now)
            choice = left.choice(ask, self._choose, left.seats(standing))
            if choice is None:
                return NotAssumed(left.never(ask) or left.not_now(ask))
            room = self._room(node)
            hold = room.hold(uid, ask, choice.indices, priority=standing.priority)
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

    def claims(self, node: str) -> tuple[PodInfo | DeviceShare, ...]:
        """The same, those that are being bound, and those that were promised room."""
        with self._lock:
            return tuple(self._rooms.get(node, _NOWHERE).claims())

    def cpu_milli(self, node: str) -> int | None:
        """The CPU of a node that no pod requests, in thousandths; None where it is not known."""
        with self._lock:
            return self._rooms.get(node, _NOWHERE).cpu_milli

    def by_priority(self, uids: Iterable[str], node: str) -> tuple[str, ...]:
        """Pods of a node in the order that the scheduler wants of victims: by falling priority."""
        with self._lock:
            room = self._rooms.get(node, _NOWHERE)
            known = {each.uid: each.priority for each in (*room.claims(), *room.bystanders.values())}
        return tuple(sorted(uids, key=lambda uid: (-known.get(uid, 0), uid)))

    def victims(
        self,
        ask: Ask,
        node: str,
        candidates: Collection[str],
        now: float,
        *,
        uid: str = "",
        standing: Standing = ANYBODY,
        seated: Collection[str] = (),
    ) -> tuple[str, ...] | None:
        """The uids of those candidates who must leave the node for the ask to fit, by falling priority; () where nobody
        must, None where it would not help. What terminates counts as gone: it leaves by itself. A pod stays of which
        nobody knows on which devices it is: its going might free another. One that is being bound is known, also
        where it still waits for its volumes.

        For a seat the ledger's room counts. Else also what is measured, of which a pod leaves behind what it uses, not
        what it declared; of the `seated` only what goes beyond that, because they come back.
        """
        with self._lock:
            self._expire(now)
            room = self._left(node, uid, standing, now)
            if room.never(ask):
                return None
            free = room.rooms(measured=not room.seats(standing))
            free = {index: each for index, each in free.items() if room.offered[index] >= ask.mib}
            occupants = []
            for pod in room.claims():
                indices = room.places[pod.uid]
                used = {index: room.used_mib(pod, index) for index in indices}
                if pod.terminating:
                    free |= {index: free[index].more(pod.ask.mib, used[index]) for index in indices if index in free}
                elif pod.uid in candidates and pod.placed:
                    occupants.append(
                        Occupant(
                            uid=pod.uid,
                            priority=pod.priority,
                            mib=pod.ask.mib,
                            used_mib=used,
                            seated=pod.uid in seated,
                        )
                    )
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

    def replace(
        self, nodes: Iterable[NodeDevices], pods: Iterable[PodInfo | Bystander | Nomination], since: float
    ) -> None:
        """Everything again from lists of the API that began at `since`. Kept are promises, measurements, and what is
        being bound, unless it was settled before the list began: then the pod is in it, or gone."""
        with self._lock:
            for uid in self._settled_before(since):
                self._untake(uid)
            nominated = {pod.uid: pod for room in self._rooms.values() for pod in room.nominated.values()}
            self._bound.clear()
            self._nominated.clear()
            for room in self._rooms.values():
                room.inventory = None
                room.pods.clear()
                room.bystanders.clear()
                room.nominated.clear()
            for devices in nodes:
                self._room(devices.node).inventory = devices
            for pod in pods:
                if isinstance(pod, Nomination):
                    before = nominated.get(pod.uid)
                    known = before is not None and before.node == pod.node
                    self._nominate(before if before and known else replace(pod, until=since + NOMINATED_SECONDS))
                else:
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
            self._ranking.clear()

    def _room(self, node: str) -> NodeInfo:
        if node not in self._rooms:
            self._rooms[node] = NodeInfo(node, self._ranking.changed)
        return self._rooms[node]

    def _left(self, node: str, uid: str, standing: Standing, now: float) -> NodeInfo:
        """A node as that pod finds it."""
        return self._rooms.get(node, _NOWHERE).left_to(uid, standing, now)

    def _changed(self, room: NodeInfo) -> None:
        room.recount()
        if room.idle:
            self._rooms.pop(room.node, None)

    def _admit(self, pod: PodInfo | Bystander) -> NodeInfo:
        self._untake(pod.uid)
        self._unreserve(pod.uid)
        self._unnominate(pod.uid)
        self._unkeep(pod.uid)
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
            room.ended(uid)
            self._changed(room)

    def _nominate(self, pod: Nomination) -> None:
        self._room(pod.node).nominated[pod.uid] = pod
        self._ranking.changed(pod.node)
        self._nominated[pod.uid] = pod.node

    def _unnominate(self, uid: str) -> bool:
        node = self._nominated.pop(uid, None)
        if node is None:
            return False
        del self._rooms[node].nominated[uid]
        self._changed(self._rooms[node])
        return True

    def _keep(self, pod: Nomination) -> None:
        self._room(pod.node).kept[pod.uid] = pod
        self._ranking.changed(pod.node)
        self._kept[pod.uid] = pod.node
        heapq.heappush(self._due, (pod.until, pod.node))

    def _unkeep(self, uid: str) -> None:
        node = self._kept.pop(uid, None)
        if node is not None:
            del self._rooms[node].kept[uid]
            self._changed(self._rooms[node])

    def _untake(self, uid: str) -> None:
        self._settled.pop(uid, None)
        node = self._taken.pop(uid, None)
        if node is not None:
            del self._rooms[node].taken[uid]
            self._changed(self._rooms[node])

    def _best(self, uid: str, ask: Ask, nodes: Collection[str], now: float, standing: Standing) -> NodeInfo | None:
        """Of the nodes with room that nobody uses; of equals the first by name, so that one is filled after another."""
        costs = self._ranking.costs(ask)
        for name in nodes:
            if name not in costs:
                costs[name] = self._cost(self._left(name, uid, standing, now), ask)
        least = min(map(costs.__getitem__, nodes), default=math.inf)
        if least == math.inf:
            return None
        return self._left(min(name for name in nodes if costs[name] == least), uid, standing, now)

    def _cost(self, room: NodeInfo, ask: Ask) -> float:
        """Infinite where the ask does not fit. What is kept there for others is not the same for all who ask: such a
        node is judged each time."""
        if room.kept or room.nominated:
            self._ranking.changed(room.node)
        choice = room.choice(ask, self._choose)
        return math.inf if choice is None else choice.cost

    def _best_by_ledger(self, rooms: Iterable[NodeInfo], ask: Ask, standing: Standing) -> NodeInfo | None:
        """Of the nodes where a seat has room by the ledger, whoever uses it."""

        def order(room: NodeInfo) -> tuple[float, str]:
            choice = room.choice(ask, self._choose, seated=True)
            return (choice.cost if choice else math.inf, room.node)

        return min((room for room in rooms if room.seats_by_ledger(ask, standing)), key=order, default=None)

    def _reserve(self, uid: str, ask: Ask, left: NodeInfo, until: float, standing: Standing) -> None:
        choice = left.choice(ask, self._choose, left.seats(standing))
        if choice is not None:
            room = self._room(left.node)
            room.reserved[uid] = room.hold(uid, ask, choice.indices, until, priority=standing.priority)
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
            for pod in [*room.kept.values()]:
                if pod.until <= now:
                    self._unkeep(pod.uid)
            if room.reading and room.reading.until <= now:
                room.reading = None
                self._changed(room)


# For nodes of which nothing is known.
_NOWHERE = NodeInfo("")


def _shortages(rooms: Iterable[NodeInfo], ask: Ask, standing: Standing) -> tuple[Shortage, ...]:
    """What keeps a seat out of each of these nodes by measurement alone."""
    return tuple(each for room in rooms if room.seats(standing) for each in room.shortages(ask))
