"""Computes the answers to kube-scheduler's filter and preempt requests from the cache, without I/O."""

from collections.abc import Callable, Collection
from dataclasses import dataclass, replace

from agents.extender.cache.cache import RESERVE_SECONDS, Cache
from agents.extender.cache.informers import Informers
from agents.extender.cache.node_info import NodeInfo
from agents.extender.cache.pod_info import PodInfo, PodState
from agents.extender.cache.search import Answer
from agents.extender.protocol import FilterRequest, PreemptRequest
from agents.extender.report import held_event
from agents.extender.waiting import WaitingPod, WaitingPods, crowded, waiting_pod
from agents.kube.events import Event
from agents.kube.pods import Pod
from agents.runtime.clock import Clock
from agents.runtime.items import Unjudged, judged
from tenancy.names import Names


@dataclass(frozen=True, kw_only=True)
class PlacementVerbs:
    """Computes the answers to filter and preempt requests.

    If a seat's memory is free by the ledger, its pod is placed at the latest after `hold_seconds`. While other pods use
    the memory, the pod could not allocate its budget. During this delay, the gate stops workloads and the watchdog
    recycles pods. The extender does not delay the pod if a node has a shortage of at most the floor and no pod over its
    budget, because a delay would not free memory there. `led_since` returns the time in monotonic seconds when this
    process became the leader, or None.
    """

    informers: Informers
    cache: Cache
    waiting: WaitingPods
    hold_seconds: float
    led_since: Callable[[], float | None]
    tell: Callable[[Event], None]
    clock: Clock

    def fits(self, query: FilterRequest, names: Names) -> Answer:
        """Chooses the best of the nodes in the request, and reserves devices of this node."""
        pod = judged(lambda: waiting_pod(query.pod, names, self.informers.ledger))
        if isinstance(pod, Unjudged):
            self.informers.problems.note("pod", str(query.pod), pod.why)
            return Answer((), {}, dict.fromkeys(query.nodes, pod.why))
        if pod is None:
            return Answer(query.nodes)
        uid = query.pod.uid
        before = self.waiting.of(uid)
        if before is not None:
            pod = replace(pod, held_since=before.held_since)
        answer = self._fit(query, pod)
        if answer.short:
            answer, pod = self._short(query, pod, answer)
        node = query.pod.nominated_node
        if not answer.nodes and node is not None and node in answer.refused:
            nominee = PodInfo(uid=uid, node=node, request=pod.memory, priority=pod.entitlement.priority)
            self.cache.retain(nominee, self.clock.monotonic())
        self.waiting.remember(uid, replace(pod, nodes=() if answer.nodes else query.nodes))
        return answer

    def _short(self, query: FilterRequest, pod: WaitingPod, answer: Answer) -> tuple[Answer, WaitingPod]:
        """Computes the answer for a seat that fits no node because other pods use its memory.

        At first, the extender delays the seat's pod, reserves the seat's memory and evicts no pods. When the delay
        ends, the extender places the pod even if other pods still use the seat's memory.
        """
        now, short = self.clock.monotonic(), answer.short
        since = pod.held_since if pod.held_since is not None else self._began(query.pod, now)
        until = since + self.hold_seconds
        if not crowded(short) or until <= now:
            placed = self._fit(query, pod, by_ledger=True)
            return placed, replace(pod, short=placed.short if crowded(placed.short) else ())
        self._fit(query, pod, by_ledger=True, until=until + RESERVE_SECONDS)
        if pod.held_since is None:
            self.tell(held_event(query.pod.reference, short, until - now))
        why = f"; the seat is held back for at most {self.hold_seconds:g} s for memory in use to be given back"
        hopeless = {**answer.hopeless, **{node: reason + why for node, reason in answer.refused.items()}}
        held = replace(pod, short=short, held_since=since, held_until=until)
        return Answer((), {}, hopeless, short), held

    def _began(self, pod: Pod, now: float) -> float:
        """Returns the time when the delay of the pod began.

        For a pod from before this leadership, it begins at the pod's creation, because an earlier leader may have begun
        it. A restart of the extender therefore never prolongs a delay.
        """
        created = judged(lambda: pod.created)
        if isinstance(created, Unjudged):
            return now
        age = max((self.informers.server_now - created).total_seconds(), 0.0)
        led = self.led_since()
        return now if led is not None and now - age >= led else now - age

    def _fit(
        self, query: FilterRequest, pod: WaitingPod, *, by_ledger: bool = False, until: float | None = None
    ) -> Answer:
        return self.cache.fit(
            query.pod.uid,
            pod.memory,
            query.nodes,
            self.clock.monotonic(),
            pod.entitlement,
            by_ledger=by_ledger,
            until=until,
        )

    def victims(self, query: PreemptRequest, names: Names) -> dict[str, tuple[str, ...]]:
        """Returns the UIDs of the victims on each node where evictions would help. Raises FieldError.

        While earlier victims of the pod are terminating, returns no nodes. The list of victims for a node is empty only
        if kube-scheduler named no victim and the pod fits now. A kube-scheduler without kubernetes#135486 reports an
        error for any other empty list of victims.
        """
        pod, uid = waiting_pod(query.pod, names, self.informers.ledger), query.pod.uid
        if pod is None:
            return dict(query.victims)
        if self.waiting.is_held(uid):
            return {}
        preemption = _Preemption(self, uid, pod)
        if preemption.is_under_way(query.victims):
            return {}
        found = {node: preemption.victims(node, given) for node, given in query.victims.items()}
        return {node: victims for node, victims in found.items() if victims is not None}


@dataclass(frozen=True)
class _Preemption:
    """The preemption for one pod."""

    verbs: PlacementVerbs
    uid: str
    pod: WaitingPod

    def victims(self, name: str, given: tuple[str, ...]) -> tuple[str, ...] | None:
        """Returns the victims on a node, or None if the node is not a candidate.

        kube-scheduler has chosen victims that free enough CPU and enough of the node's total gpumem. If
        kube-scheduler's victims also free enough memory of one device, they are the result. If no device gets enough
        free memory, the extender adds victims.

        If the node lacks only gpumem, the extender replaces kube-scheduler's victims by other victims. Victims that
        free enough memory of a device also free enough of the node's total gpumem.
        """
        if given and self._needed(name, given) is not None:
            return given
        node, priority = self.verbs.cache.node(name), self.pod.entitlement.priority
        lower = [pod.uid for pod in node.pods.values() if pod.state is PodState.BOUND and pod.priority < priority]
        # The cache may still have a victim in `given` as assumed.
        needed = self._needed(name, {*lower, *given})
        if needed is None or (given and not needed):
            return None  # the pod fits now; kube-scheduler would report an error for an empty list
        if given and not (self._lacks_gpumem(node) and self._has_cpu(node, needed)):
            needed = node.by_priority({*given, *needed})
        return needed

    def is_under_way(self, given: Collection[str]) -> bool:
        """Returns True if the pod did not fit on a node, but fits on this node after all its terminating pods have
        ended.

        The scheduler names no victims on such a node, because it already counts terminating pods as gone.
        """
        node = self.verbs.cache.nominated_node(self.uid, self.verbs.clock.monotonic())
        return node is not None and node not in given and self._needed(node, ()) == ()

    def _needed(self, node: str, candidates: Collection[str]) -> tuple[str, ...] | None:
        pod, now = self.pod, self.verbs.clock.monotonic()
        with self.verbs.cache.search(self.uid, pod.memory, (node,), now, pod.entitlement) as found:
            return found.victims(node, candidates, self.verbs.informers.server_now)

    def _lacks_gpumem(self, node: NodeInfo) -> bool:
        held_mib = sum(pod.request.total_mib for pod in node.pods.values())
        return held_mib + self.pod.memory.total_mib > sum(node.offered.values())

    def _has_cpu(self, node: NodeInfo, leaving: Collection[str]) -> bool:
        needed_milli, now = self.pod.memory.cpu_milli, self.verbs.informers.server_now
        gone = [p for p in node.pods.values() if p.uid in leaving or p.is_going(now)]
        freed_milli = sum(pod.request.cpu_milli for pod in gone)
        return not needed_milli or (node.cpu_milli is not None and node.cpu_milli + freed_milli >= needed_milli)
