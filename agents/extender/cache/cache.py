"""The scheduler cache: what the API and the exporters have shown of nodes and pods, and the devices that the extender
has given to pods since (search.py).

A pod has one state (pod_info.py), as in kube-scheduler's cache. The API has everything in the cache except the
reservations. One lock guards the cache, and no method does I/O. Sizes are in MiB of GPU memory, and
times are in monotonic seconds.
"""

import threading
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace

from agents.extender.cache.inventory import NodeDevices
from agents.extender.cache.node_info import NodeInfo
from agents.extender.cache.pod_info import NO_SEAT, Entitlement, Known, PodInfo, PodState, PodWithoutGpu
from agents.extender.cache.reading import MeasuredMemory
from agents.extender.cache.search import Answer, Search
from agents.extender.cache.seats import PoolSeats
from agents.telemetry.reading import PodUse
from tenancy.devices.allocate import Chooser, MemoryRequest, Scoring, best_fit
from tenancy.devices.fragmentation import PodMix
from tenancy.ledger import Ledger, Seat

# The longest time between the filter and the bind of a pod. Between its filter and its bind, a pod may wait for its
# volumes.
RESERVE_SECONDS = 30.0
# A pod whose bind got no answer keeps its devices for this time.
LOST_SECONDS = 60.0
# A bound pod keeps its devices for this time until the API shows it. If its watch is silent for so long, the kubelet
# has restarted the extender.
SHOWN_SECONDS = 300.0
# A reading is valid for this time: four of the exporter's intervals.
MEASURED_SECONDS = 60.0
# If two readings are less than this many seconds apart, the cache has fetched the same reading twice
# (agents/telemetry/client.py).
_STEP_SECONDS = 1.0


class Cache:
    """Stores all nodes and pods. For an unknown node or pod, the methods raise no error.

    With Scoring.FRAGMENTATION, the score of a device depends on the requests of the bound pods. The cache learns the
    requests of the bound pods from the calls of `replace` and `learn`.
    """

    def __init__(self, scoring: Scoring = Scoring.BEST_FIT) -> None:
        self._lock = threading.RLock()
        self._scoring = scoring
        self._choose: Chooser = best_fit
        self._pools: dict[str, PoolSeats] = {}
        self._devices: dict[str, NodeDevices] = {}
        self._readings: dict[str, MeasuredMemory] = {}
        self._pods: dict[str, Known] = {}
        self._on: dict[str, dict[str, Known]] = {}  # the pods of each node
        self._ends: dict[str, float] = {}  # when pods lose their memory
        # The nodes, made anew by `_changed` whenever one of the fields above changes.
        self._nodes: dict[str, NodeInfo] = {}
        self._stale = True  # if the absent seats must be counted again

    # The methods that record what the API and the exporters show.

    def promise(self, ledger: Ledger, nodes: Iterable[NodeDevices] = ()) -> None:
        """Sets the absent seats that need memory, and the devices of these nodes."""
        with self._lock:
            self._pools = {pool.name: PoolSeats(ledger, pool) for pool in ledger.shared_pools}
            for devices in nodes:
                self.update_node(devices)
            self._stale = True

    def update_node(self, devices: NodeDevices) -> bool:
        """Sets the devices of a node, and returns True if the devices changed. The pods of the node keep
        their devices.
        """
        with self._lock:
            if self._devices.get(devices.node) == devices:
                return False
            self._devices[devices.node] = devices
            self._changed(devices.node)
            return True

    def remove_node(self, name: str) -> None:
        """Removes a node's devices. The informer removes the pods of the node one by one with `remove_pod`."""
        with self._lock:
            self._devices.pop(name, None)
            self._readings.pop(name, None)
            self._changed(name)

    def update_pod(self, pod: Known) -> None:
        """Records a pod that the API shows as bound and not ended."""
        with self._lock:
            if self._pods.get(pod.uid) != pod:
                self._set(pod.uid, pod)

    def remove_pod(self, uid: str) -> None:
        """Removes a pod that has ended or no longer exists. A terminating pod keeps its devices."""
        with self._lock:
            pod = self._pods.get(uid)
            if pod is not None and (reading := self._readings.get(pod.node)):
                devices = self._devices[pod.node].devices if pod.node in self._devices else ()
                self._readings[pod.node] = reading.without(uid, {device.uuid: device.index for device in devices})
            self._set(uid, None)

    def nominate(self, pod: PodInfo, now: float) -> None:
        """Keeps the memory of the pod's victims for the pod while the API shows its nomination, as kube-scheduler does
        for the sum of the node. A pod that has devices already needs no nomination.
        """
        with self._lock:
            known = self._nominated(pod.uid)
            if known is not None or pod.uid not in self._pods:
                since = known.since if known is not None and known.node == pod.node else now
                self._set(pod.uid, replace(pod, state=PodState.NOMINATED, since=since))

    def withdraw(self, uid: str, now: float) -> bool:
        """Ends the pod's nomination, and returns True if the API showed one until now. Keeps the nominated pod's memory
        for another RESERVE_SECONDS.

        After a failed filter or bind, kube-scheduler removes the nomination and then retries the pod.
        """
        with self._lock:
            known = self._nominated(uid)
            if known is None or not known.is_shown:
                return False
            self._set(uid, replace(known, ends=now + RESERVE_SECONDS))
            return True

    def retain(self, pod: PodInfo, now: float) -> None:
        """Keeps memory on the nominated node for RESERVE_SECONDS after the pod did not fit there.

        Without `retain`, another pod could take the memory of the pod's victims. The scheduler may retry the pod before
        the cache knows that the victims have ended. After the extender refuses a pod, kube-scheduler drops the pod's
        nomination.
        """
        with self._lock:
            known = self._nominated(pod.uid)
            if known is None or not known.is_shown or known.node != pod.node:
                self.nominate(replace(pod, ends=now + RESERVE_SECONDS), now)

    def nominated_node(self, uid: str, now: float) -> str | None:
        """Returns the node that keeps memory for the pod, or None."""
        with self._lock:
            known = self._nominated(uid)
            return known.node if known is not None and (known.ends is None or now < known.ends) else None

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
            last, until = self._readings.get(node), at + MEASURED_SECONDS
            if node not in self._nodes or (last and until - last.until < _STEP_SECONDS):
                return  # keeps the stored reading, which `remove_pod` has corrected for pods that have ended since
            self._readings[node] = MeasuredMemory(dict(unused), until, uses, frozenset(unknown))
            self._changed(node)

    def finish_binding(self, uid: str, now: float) -> None:
        """Records that the API server has accepted the pod's binding. Only a pod that has been deleted since is not
        shown within SHOWN_SECONDS.
        """
        with self._lock:
            known = self._in(uid, PodState.ASSUMED)
            if known is not None:
                self._set(uid, replace(known, ends=now + SHOWN_SECONDS))

    def forget(self, uid: str, now: float) -> None:
        """Frees the devices of an assumed pod that was not bound. Keeps memory for the pod's retry (`retain`)."""
        with self._lock:
            known = self._in(uid, PodState.ASSUMED)
            if known is not None:
                self._set(uid, None)
                self.retain(known, now)

    def replace(self, nodes: Iterable[NodeDevices], pods: Iterable[Known], since: float) -> None:
        """Rebuilds the cache from new lists, which began at `since`.

        Keeps the readings, the reservations, the assumed pods and the memory that is kept for nominated pods. The lists
        may have been made before the bind of an assumed pod.
        """
        with self._lock:
            listed = {pod.uid: pod for pod in pods}
            shown = {uid for uid, pod in self._pods.items() if isinstance(pod, PodWithoutGpu) or pod.is_shown}
            for uid in shown - listed.keys():
                self._set(uid, None)
            devices = {each.node: each for each in nodes}
            for name in self._devices.keys() - devices.keys():
                self.remove_node(name)
            for each in devices.values():
                self.update_node(each)
            for pod in listed.values():
                if isinstance(pod, PodInfo) and pod.state is PodState.NOMINATED:
                    self.nominate(pod, since)
                else:
                    self.update_pod(pod)
            self.learn()

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
            )
            if uid not in self._pods or self._nominated(uid):
                self._set(uid, pod)
            return Answer((place.node,), short=short, pod=pod)

    @contextmanager
    def search(
        self,
        uid: str,
        request: MemoryRequest,
        nodes: Iterable[str] | None,
        now: float,
        entitlement: Entitlement = NO_SEAT,
    ) -> Iterator[Search]:
        """Yields the search of `fit` on these nodes, or on all nodes, and reserves nothing. Locks the cache, and leaves
        out the reservation of the pod meanwhile.
        """
        with self._lock:
            known = self._pods.get(uid)
            self._unreserve(uid)
            try:
                yield self._found(uid, request, self._nodes if nodes is None else nodes, now, entitlement)
            finally:
                if known is not None and uid not in self._pods:
                    self._set(uid, known)

    def assume(
        self, uid: str, request: MemoryRequest, node: str, now: float, entitlement: Entitlement = NO_SEAT
    ) -> Answer:
        """Gives the pod its reserved devices of the node, or chooses devices if it has no valid reservation there. The
        pod holds the devices until `update_pod`, `remove_pod` or `forget`, or without an answer to its bind until
        LOST_SECONDS have passed.
        """
        with self._lock:
            self._expire(now)
            known = self._in(uid, PodState.RESERVED)
            if known is None and uid in self._pods and not self._nominated(uid):
                return Answer((), {node: "the pod is bound already, or about to be"})
            if known is None or known.node != node or not self._nodes[node].offers(known):
                answer = self.fit(uid, request, (node,), now, entitlement, by_ledger=True)
                if answer.pod is None:
                    return answer
                known = answer.pod
            pod = replace(known, state=PodState.ASSUMED, ends=now + LOST_SECONDS)
            self._set(uid, pod)
            return Answer((node,), pod=pod)

    # The methods that only answer.

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
        """Returns the node. For an unknown node, returns a NodeInfo without devices."""
        with self._lock:
            self._count()
            return self._nodes.get(name) or NodeInfo(name)

    def snapshot(self) -> tuple[NodeInfo, ...]:
        """Returns every node with devices or pods, sorted by the node's name."""
        with self._lock:
            self._count()
            return tuple(node for _, node in sorted(self._nodes.items()))

    def learn(self) -> None:
        """Sets the requests of the bound pods for Scoring.FRAGMENTATION."""
        with self._lock:
            if self._scoring is Scoring.FRAGMENTATION:
                pods = [pod for pod in self._pods.values() if isinstance(pod, PodInfo)]
                self._choose = PodMix(pod.request for pod in pods if pod.is_bound).choice

    def _found(
        self, uid: str, request: MemoryRequest, names: Iterable[str], now: float, entitlement: Entitlement
    ) -> Search:
        """Returns the nodes as the pod finds them, without the memory that absent seats of others need."""
        self._expire(now)
        self._count()
        taken = {name: pool.taken(request, entitlement) for name, pool in self._pools.items()}
        nodes = {}
        for name in names:
            node = self._nodes.get(name) or NodeInfo(name)
            own = taken.get(node.pool)
            absent = self._pools[node.pool].seating.needed_mib(name, own) if own else node.absent
            nodes[name] = node.for_pod(uid, entitlement.priority, now, absent)
        return Search(request, entitlement, nodes, self._pools, taken, self._choose)

    def _in(self, uid: str, state: PodState) -> PodInfo | None:
        """Returns the pod if it is in this state."""
        known = self._pods.get(uid)
        return known if isinstance(known, PodInfo) and known.state is state else None

    def _nominated(self, uid: str) -> PodInfo | None:
        return self._in(uid, PodState.NOMINATED)

    def _set(self, uid: str, pod: Known | None) -> None:
        """Replaces a pod in the cache. Every change of the memory that a pod holds on a node goes through this
        method.
        """
        before = self._pods.pop(uid, None)
        self._ends.pop(uid, None)
        if before is not None:
            del self._on[before.node][uid]
        if pod is not None:
            self._pods[uid] = self._on.setdefault(pod.node, {})[uid] = pod
            if isinstance(pod, PodInfo) and pod.ends is not None:
                self._ends[uid] = pod.ends
        for name in {each.node for each in (before, pod) if each is not None}:
            self._changed(name)

    def _changed(self, name: str) -> None:
        """Makes the node anew."""
        devices, pods = self._devices.get(name), self._on.get(name, {})
        self._nodes[name] = NodeInfo(name, devices, pods.values(), self._readings.get(name))
        self._stale = True
        if not pods:
            self._on.pop(name, None)
            if devices is None:
                del self._nodes[name]

    def _unreserve(self, uid: str) -> None:
        if self._in(uid, PodState.RESERVED):
            self._set(uid, None)

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
                self._nodes[name] = node.with_absent(absent)

    def _expire(self, now: float) -> None:
        for uid in [uid for uid, ends in self._ends.items() if ends <= now]:
            self._set(uid, None)
        for name in [name for name, reading in self._readings.items() if reading.until <= now]:
            del self._readings[name]
            self._changed(name)
