"""Remembers the pods that wait, and makes kube-scheduler retry a refused pod as soon as the pod fits.

kube-scheduler retries a refused pod at the next cluster event, or after five minutes. The scheduler may notice a pod's
end earlier than the extender. The scheduler never notices that a reservation of the extender has ended
(gpushare-scheduler-extender#187, kubernetes#122019). The extender causes an event in the cluster when a refused pod
would fit. The event is a change of a ResourceClaim that no pod uses.
"""

import threading
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import NoReturn

from agents.extender.cache.cache import Cache
from agents.extender.cache.node_info import Shortage
from agents.extender.cache.pod_info import NO_SEAT, Entitlement
from agents.kube.pods import Pod
from agents.runtime.clock import Clock
from agents.runtime.log import Log
from agents.runtime.loop import ProblemLog, keep_running
from tenancy.devices.allocate import MemoryRequest
from tenancy.devices.waiting import seats_for
from tenancy.ledger import Ledger
from tenancy.names import Names

# After a refusal, the extender waits this many seconds before it causes an event, because kube-scheduler's first retry
# may come after 1 s.
GRACE_SECONDS = 1.5
# The longest time between two checks. The extender also checks at intervals, because the end of a reservation or of a
# reading causes no event.
_LOOK_SECONDS = 5.0
# kube-scheduler retries each pod within 5 minutes. A pod without a retry for this many seconds has been deleted.
_GONE_SECONDS = 600.0


@dataclass(frozen=True, kw_only=True)
class WaitingPod:
    """What the extender knows of a pod from the pod's first filter until its bind.

    `at` is the monotonic time of the last filter, and `ledger` the ledger at that time. `nodes` are the nodes that
    refused the pod, or () if it was placed. `short` has the shortages of a seat that waits or was placed while other
    pods used its memory. `held_since` is the time when the extender began to delay the pod of a seat, and `held_until`
    the end of the delay. `reported` is True after the extender has caused an event for this pod.
    """

    memory: MemoryRequest
    entitlement: Entitlement = NO_SEAT
    at: float = 0.0
    ledger: Ledger | None = None
    nodes: tuple[str, ...] = ()
    short: tuple[Shortage, ...] = ()
    held_since: float | None = None
    held_until: float = 0.0
    reported: bool = False


def waiting_pod(pod: Pod, names: Names, ledger: Ledger | None) -> WaitingPod | None:
    """Returns the pod's request, or None if the pod requests no GPU memory. Raises FieldError."""
    memory = pod.memory_request(names)
    if memory is None:
        return None
    label = pod.seat_label(names)
    seats = seats_for(ledger, pod.namespace, memory, pod.node_selector, label) if ledger else ()
    pools = frozenset(seat.pool for seat in seats)
    return WaitingPod(memory=memory, entitlement=Entitlement(pod.priority, pools, pod.namespace, label), ledger=ledger)


@dataclass(kw_only=True)
class WaitingPods:
    """The waiting pods. One thread runs `keep`. Any thread may call the other methods.

    `nudge` causes the event, and may raise AgentError. `serves` returns True while this process answers kube-scheduler.
    When this process starts to answer kube-scheduler, it calls `nudge` once for pods that other processes have refused.
    """

    cache: Cache
    ledger: Callable[[], Ledger | None]
    nudge: Callable[[], None]
    serves: Callable[[], bool]
    clock: Clock
    log: Log
    more_room: threading.Event = field(default_factory=threading.Event)  # wakes `keep`
    _served: bool = False
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _pods: dict[str, WaitingPod] = field(default_factory=dict)

    def __len__(self) -> int:
        with self._lock:
            return sum(bool(pod.nodes) for pod in self._pods.values())

    def of(self, uid: str) -> WaitingPod | None:
        return self._pods.get(uid)

    def remember(self, uid: str, pod: WaitingPod) -> None:
        """Stores a pod after its filter."""
        now = self.clock.monotonic()
        with self._lock:
            self._pods[uid] = replace(pod, at=now)
            self._pods = {uid: each for uid, each in self._pods.items() if now - each.at < _GONE_SECONDS}

    def is_held(self, uid: str) -> bool:
        """Returns True if the extender delays the pod. The extender chooses no victims for a delayed pod."""
        pod = self.of(uid)
        return pod is not None and self.clock.monotonic() < pod.held_until

    def held_by_pool(self) -> dict[str, int]:
        """Returns, for each pool, the number of seats with a delayed pod."""
        now, ledger = self.clock.monotonic(), self.ledger()
        with self._lock:
            counts = Counter(pod.short[0].pool for pod in self._pods.values() if pod.short and now < pod.held_until)
        return {**dict.fromkeys((pool.name for pool in ledger.shared_pools) if ledger else (), 0), **counts}

    def grown(self) -> None:
        """Starts a check soon, because more memory may be free."""
        self.more_room.set()

    def look(self) -> bool:
        """If a refused pod would fit now, or was judged by an older ledger, causes an event and returns True. Raises
        AgentError.
        """
        if self._begins():
            return True
        now = self.clock.monotonic()
        with self._lock:
            waiting = {
                uid: pod
                for uid, pod in self._pods.items()
                if pod.nodes and not pod.reported and GRACE_SECONDS < now - pod.at < _GONE_SECONDS
            }
        ledger, rooms = self.ledger(), dict[object, frozenset[str]]()
        fitting = {uid: pod for uid, pod in waiting.items() if pod.ledger is not ledger or self._fits(uid, pod, rooms)}
        if not fitting:
            return False
        self.nudge()
        with self._lock:
            for uid, pod in fitting.items():
                if self._pods.get(uid) is pod:
                    self._pods[uid] = replace(pod, reported=True)
        return True

    def keep(self) -> NoReturn:
        problem = ProblemLog(
            log=self.log,
            failing="pods that were refused may wait for 5 minutes",
            recovered="pods that were refused are retried as soon as there is room",
        )
        keep_running(self.look, problem, self._pause)

    def _begins(self) -> bool:
        serves = self.serves()
        begins = serves and not self._served
        if begins:
            self.nudge()
        self._served = serves
        return begins

    def _fits(self, uid: str, pod: WaitingPod, rooms: dict[object, frozenset[str]]) -> bool:
        """Returns True if the pod would now be placed. `rooms` has the nodes that were found for equal pods."""
        now = self.clock.monotonic()
        if pod.held_until:
            with self.cache.search(uid, pod.memory, pod.nodes, now, pod.entitlement) as found:
                return pod.held_until <= now or not crowded(found.short())
        nominee = uid if self.cache.nominated_node(uid, now) else ""  # the cache may keep memory for this pod
        key = pod.memory, pod.entitlement, nominee
        if key not in rooms:
            with self.cache.search(nominee, pod.memory, None, now, pod.entitlement) as found:
                rooms[key] = found.feasible(by_ledger=True)
        return not rooms[key].isdisjoint(pod.nodes)

    def _pause(self) -> None:
        if self.more_room.wait(_LOOK_SECONDS):
            self.more_room.clear()
            self.clock.sleep(GRACE_SECONDS)


def crowded(short: Iterable[Shortage]) -> bool:
    """Returns True if every node is crowded. A crowded node has a shortage above its floor, or a pod over its budget.
    On an uncrowded node, the seat's pod can allocate its whole budget. After the allocation, a device of this node is
    below its floor.
    """
    by_node: dict[str, bool] = {}
    for each in short:
        by_node[each.node] = by_node.get(each.node, False) or each.mib > each.floor_mib or bool(each.holders)
    return bool(by_node) and all(by_node.values())
