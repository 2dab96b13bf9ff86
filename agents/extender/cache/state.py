"""The state of the scheduler cache: the devices that each pod holds, and the nodes to which pods are nominated.

A pod's states are reserved, assumed, bound and terminating, as in kube-scheduler's cache. The API has everything in the
cache except the reservations. One lock guards the cache, and no method does I/O. Sizes are in MiB of GPU memory, and
times are in monotonic seconds.
"""

import heapq
import threading
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace

from agents.extender.cache.inventory import NodeDevices
from agents.extender.cache.node_info import MeasuredMemory, NodeInfo
from agents.extender.cache.pod_info import Holder, Nomination, PodInfo, PodRecord, UnreadablePod
from agents.extender.cache.ranking import Ranking
from agents.extender.cache.seats import KeptSeats
from agents.extender.cache.snapshot import Drift, NodeUsage, drift_of, usage_of
from agents.telemetry.reading import PodUse
from tenancy.devices.allocate import Scoring
from tenancy.ledger import Ledger, Seat

# The longest time between the filter and the bind of a pod. Between its filter and its bind, a pod may wait for its
# volumes.
RESERVE_SECONDS = 30.0
# The longest time between a pod's nomination and its bind. The time between nomination and bind includes the grace
# periods of the victims.
NOMINATED_SECONDS = 300.0
# A reading is valid for this time: four of the exporter's intervals.
MEASURED_SECONDS = 60.0
# If two readings are less than this many seconds apart, the cache has fetched the same reading twice
# (agents/telemetry/client.py).
_STEP_SECONDS = 1.0
_UNKNOWN = PodRecord()
# The NodeInfo for each node that the cache does not know.
NOWHERE = NodeInfo("")


class CacheState:
    """Stores all nodes and pods. For an unknown node or pod, the methods raise no error.

    With Scoring.FRAGMENTATION, the score of a device depends on the requests of the bound pods. The cache learns the
    requests of the bound pods from the calls of `replace` and `compare`.
    """

    def __init__(self, scoring: Scoring = Scoring.BEST_FIT) -> None:
        self._lock = threading.Lock()
        self._ranking = Ranking(scoring)
        self._seats = KeptSeats()
        self._pods: dict[str, PodRecord] = {}
        self._nodes: dict[str, NodeInfo] = {}  # Whenever `_pods` changes, `_set` updates the nodes.
        # The end times of reservations, readings and nominations, each with the name of the node.
        self._due: list[tuple[float, str]] = []

    def promise(self, ledger: Ledger, nodes: Iterable[NodeDevices] = ()) -> None:
        """Sets the absent seats for which memory is kept, and the devices of these nodes."""
        with self._lock:
            for devices in nodes:
                node = self._node(devices.node)
                node.inventory = devices
                node.recount()
            self._seats.promise(ledger)
            self._seat_again()

    def update_node(self, devices: NodeDevices) -> bool:
        """Sets the devices of a node, and returns True if the devices changed. The pods of the node keep
        their devices.
        """
        with self._lock:
            node = self._node(devices.node)
            if node.inventory == devices:
                return False
            before, node.inventory = node.inventory, devices
            node.recount()
            if before is not None and before.pool == devices.pool:
                self._keep(self._seats.change([node.node], self._nodes))
            else:
                self._seat_again()
            return True

    def remove_node(self, name: str) -> None:
        """Removes a node's devices. The informer removes the pods of the node one by one with `remove_pod`."""
        with self._lock:
            node = self._node(name)
            node.inventory = node.reading = None
            self._changed(node)
            self._seat_again()

    def update_pod(self, pod: Holder) -> None:
        """Records a pod that the API shows as bound and not ended."""
        with self._lock:
            record = self._shown(pod)
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
        """Keeps the memory of the pod's victims for the pod until NOMINATED_SECONDS after the pod's first nomination to
        the node.
        """
        with self._lock:
            self._nominate(pod.confirmed(self._record(pod.uid).nomination, now + NOMINATED_SECONDS))

    def renew(self, uid: str, nodes: Collection[str], now: float) -> None:
        """Prolongs the pod's nomination if the nominated node is in `nodes`, because more pods are being evicted there.

        The API does not show that a nomination is prolonged.
        """
        with self._lock:
            known = self._record(uid).nomination
            if known and known.until and known.node in nodes:
                self._nominate(replace(known, until=now + NOMINATED_SECONDS))

    def withdraw(self, uid: str, now: float) -> bool:
        """Ends the pod's nomination, and returns True if the pod had one. Keeps the nominated pod's memory for another
        RESERVE_SECONDS.

        After a failed filter or bind, kube-scheduler removes the nomination and then retries the pod.
        """
        with self._lock:
            known = self._record(uid).nomination
            if known is None or not known.until:
                return False
            rest = min(known.until, now + RESERVE_SECONDS) if now < known.until else 0.0
            self._nominate(replace(known, until=0.0, retained_until=known.retained_until or rest))
            return True

    def retain(self, pod: Nomination, now: float) -> None:
        """Keeps memory on the nominated node for RESERVE_SECONDS after the pod did not fit there.

        Without `retain`, another pod could take the memory of the pod's victims. The scheduler may retry the pod before
        the cache knows that the victims have ended. After the extender refuses a pod, kube-scheduler drops the pod's
        nomination. A nomination that has ended stays ended.
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
        """Stores a node's reading from the time `at`: the free MiB of each device, and the pods that use the devices.

        The reading of a node is valid for MEASURED_SECONDS. `unknown` has the UUIDs of devices with unknown processes.
        Without a reading, only the ledger limits the memory that pods may get.
        """
        with self._lock:
            info = self._nodes.get(node)
            if info is None or (info.reading and at + MEASURED_SECONDS - info.reading.until < _STEP_SECONDS):
                return  # keeps the stored reading, which `ended` has corrected for pods that have ended since
            info.reading = MeasuredMemory(dict(free), at + MEASURED_SECONDS, uses, frozenset(unknown))
            heapq.heappush(self._due, (info.reading.until, node))
            info.recount()

    def finish_binding(self, uid: str, now: float) -> None:
        """Records that the API server has accepted the pod's binding. A list that begins after this call contains the
        pod, unless the pod was deleted.
        """
        with self._lock:
            if assumed := self._record(uid).assumed:
                self._hold(uid, replace(assumed, accepted_at=now))

    def forget(self, uid: str) -> None:
        """Frees the devices of an assumed pod that was not bound."""
        with self._lock:
            if self._record(uid).assumed:
                self._hold(uid, None)

    def replace(self, nodes: Iterable[NodeDevices], pods: Iterable[Holder | Nomination], since: float) -> None:
        """Rebuilds the cache from new lists, which began at `since`.

        Keeps the readings, the reservations and the memory that is kept for nominated pods. Keeps each assumed pod that
        may have been bound after the list was made.
        """
        with self._lock:
            records = {uid: record.unlisted(since) for uid, record in self._pods.items()}
            for pod in pods:
                if isinstance(pod, Nomination):
                    nomination = pod.confirmed(self._record(pod.uid).nomination, since + NOMINATED_SECONDS)
                    records[pod.uid] = replace(records.get(pod.uid, _UNKNOWN), nomination=nomination)
                else:
                    records[pod.uid] = self._shown(pod)
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
            self._seat_again()
            self._ranking.clear()
            self._learn()

    def compare(self, pods: Iterable[PodInfo], since: float) -> Drift:
        """Compares the cache with the readings and with a list of the bound pods. The request for the list of bound
        pods was sent at `since`.

        Removes an assumed pod that was bound before `since` if the list does not contain it. Such a missing pod was
        deleted while the watch was broken. If a pod appears or ends between the list and the comparison, the comparison
        reports one false difference.
        """
        listed = {pod.uid: pod for pod in pods}
        with self._lock:
            for uid, record in [*self._pods.items()]:
                if uid not in listed and record.was_accepted_before(since):
                    self._hold(uid, None)
            self._learn()
            nodes = [node.copy() for node in self._nodes.values()]
        return drift_of(nodes, listed)

    def unplaced_seats(self) -> tuple[tuple[str, tuple[Seat, ...], int], ...]:
        """Returns the absent seats that fit on no device: for each size, the pool, the seats and their number."""
        with self._lock:
            return tuple(self._seats.unplaced())

    def is_nominated(self, uid: str) -> bool:
        """Returns True if a node keeps memory for the pod."""
        with self._lock:
            return self._record(uid).nomination is not None

    def retained(self, uid: str, now: float) -> str | None:
        """Returns the node that keeps memory for the pod after the pod did not fit there (`retain`), or None."""
        with self._lock:
            self._expire(now)
            nomination = self._record(uid).nomination
            return nomination.node if nomination and nomination.retained_until else None

    def held(self, uid: str) -> Holder | None:
        """Returns the memory that the pod holds."""
        with self._lock:
            return self._record(uid).held

    def node(self, name: str) -> NodeInfo:
        """Returns a copy of the node. Later changes of the cache do not change the copy.

        For an unknown node, returns a NodeInfo without devices.
        """
        with self._lock:
            return self._nodes.get(name, NOWHERE).copy()

    def snapshot(self) -> tuple[NodeUsage, ...]:
        """Returns the usage of every node with devices or pods, sorted by the node's name."""
        with self._lock:
            nodes = [node.copy() for node in self._nodes.values()]
        return tuple(usage_of(node) for node in sorted(nodes, key=lambda node: node.node))

    def _learn(self) -> None:
        self._ranking.learn(pod.request for node in self._nodes.values() for pod in node.pods.values() if pod.is_bound)

    def _shown(self, pod: Holder) -> PodRecord:
        return self._record(pod.uid).after_unreadable(pod) if isinstance(pod, UnreadablePod) else PodRecord(held=pod)

    def _record(self, uid: str) -> PodRecord:
        return self._pods.get(uid, _UNKNOWN)

    def _set(self, uid: str, record: PodRecord) -> None:
        """Replaces a pod's record in the cache. Every change of the memory that a pod holds on a node goes through this
        method.
        """
        before = self._pods.pop(uid, _UNKNOWN)
        if record.parts:
            self._pods[uid] = record
        for part in before.parts:
            self._node(part.node).remove(part)
        for part in record.parts:
            self._node(part.node).add(part)
        names = {part.node for part in (*before.parts, *record.parts)}
        for name in names:
            self._changed(self._node(name))
        pods = [(part, count) for parts, count in ((before.parts, -1), (record.parts, 1)) for part in parts]
        self._keep(self._seats.change(names, self._nodes, [(p, count) for p, count in pods if isinstance(p, PodInfo)]))

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

    def _changed(self, node: NodeInfo) -> None:
        node.recount()
        if node.is_idle:
            self._nodes.pop(node.node, None)

    def _seat_again(self) -> None:
        self._seats.rebuild(self._nodes)
        self._keep(self._nodes)

    def _keep(self, names: Iterable[str]) -> None:
        """Copies the kept memory of these nodes from the seatings of the absent seats."""
        for name in names:
            node, kept = self._nodes.get(name), self._seats.kept(name)
            if node is not None:
                node.keep(kept)  # Even with equal sums, the memory may be kept for another seat.

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
