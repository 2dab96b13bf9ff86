"""Computes the answers to kube-scheduler's filter and preempt requests from the cache, without I/O."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from functools import partial

from agents.extender.cache.answers import FilterAnswer
from agents.extender.cache.cache import Cache
from agents.extender.cache.informers import Informers
from agents.extender.cache.node_info import NodeInfo, Shortage
from agents.extender.cache.pod_info import (
    NO_SEAT,
    Entitlement,
    Nomination,
    PodInfo,
    PodState,
)
from agents.extender.cache.state import RESERVE_SECONDS
from agents.extender.hold import HeldSeat, SeatHolds, crowded, reclaimable
from agents.extender.protocol import FilterRequest, PreemptRequest, Victims
from agents.extender.report import held_event
from agents.kube.events import Event
from agents.kube.pods import Pod
from agents.runtime.clock import Clock
from agents.runtime.items import Unjudged, judged
from tenancy.devices.allocate import MemoryRequest
from tenancy.devices.waiting import seats_for
from tenancy.ledger import Ledger
from tenancy.names import Names


@dataclass(frozen=True, kw_only=True)
class CachedRequest:
    """A pod's request, and the result of the pod's last filter.

    `short` has the shortages of a seat that was placed while other pods used its memory. `held` is set while the
    extender delays the pod of a seat.
    """

    memory: MemoryRequest
    entitlement: Entitlement = NO_SEAT
    short: tuple[Shortage, ...] = ()
    held: HeldSeat | None = None


def request_of(pod: Pod, names: Names, ledger: Ledger | None) -> CachedRequest | None:
    """Returns the pod's request, or None if the pod requests no GPU memory. Raises FieldError."""
    memory = pod.memory_request(names)
    if memory is None:
        return None
    label = pod.seat_label(names)
    seats = seats_for(ledger, pod.namespace, memory, pod.node_selector, label) if ledger else ()
    pools = frozenset(seat.pool for seat in seats)
    return CachedRequest(memory=memory, entitlement=Entitlement(pod.priority, pools, pod.namespace, label))


class RequestCache:
    """Stores the requests of the last filtered pods, because a bind request contains only the pod's name."""

    _MOST = 10_000

    def __init__(self) -> None:
        self._requests: dict[str, CachedRequest] = {}

    def remember(self, uid: str, request: CachedRequest) -> None:
        self._requests.pop(uid, None)
        self._requests[uid] = request
        while len(self._requests) > self._MOST:
            self._requests.pop(next(iter(self._requests)), None)

    def of(self, uid: str) -> CachedRequest | None:
        return self._requests.get(uid)


@dataclass(frozen=True, kw_only=True)
class PlacementVerbs:
    """Computes the answers to filter and preempt requests. `requests` stores the request of each pod until the pod is
    bound.
    """

    informers: Informers
    cache: Cache
    holds: SeatHolds
    tell: Callable[[Event], None]
    clock: Clock
    requests: RequestCache = field(default_factory=RequestCache)

    def fits(self, query: FilterRequest, names: Names) -> FilterAnswer:
        """Chooses the best of the nodes in the request, and reserves devices of this node."""
        request = judged(lambda: request_of(query.pod, names, self.informers.ledger))
        if isinstance(request, Unjudged):
            self.informers.problems.note("pod", str(query.pod), request.why)
            return FilterAnswer((), {}, dict.fromkeys(query.nodes, request.why))
        if request is None:
            return FilterAnswer(query.nodes, {}, {})
        uid, now = query.pod.uid, self.clock.monotonic()
        fits = self._fit(query, request)
        if fits.short:
            fits, request = self._short(query, request, fits)
        if fits.nodes:
            self.holds.release(uid)
        elif (node := query.pod.nominated_node) is not None and node in fits.refused:
            self.cache.retain(
                Nomination(uid=uid, node=node, request=request.memory, priority=request.entitlement.priority), now
            )
        self.requests.remember(uid, request)
        return fits

    def _short(
        self, query: FilterRequest, request: CachedRequest, fits: FilterAnswer
    ) -> tuple[FilterAnswer, CachedRequest]:
        """Computes the answer for a seat that fits no node because other pods use its memory.

        At first, the extender delays the seat's pod, reserves the seat's memory and evicts no pods. When the hold ends,
        the extender places the pod even if other pods still use the seat's memory.
        """
        pod, before = query.pod, self.requests.of(query.pod.uid)
        short = reclaimable(fits.short, self.informers.ledger)
        held = self.holds.hold(pod, short, self.informers.server_now)
        until = None if held is None else held.until + RESERVE_SECONDS
        by_ledger = self._fit(query, request, by_ledger=True, until=until)
        if held is None:
            short = reclaimable(by_ledger.short, self.informers.ledger)
            return by_ledger, replace(request, short=short if crowded(short) else ())
        if before is None or before.held is None:
            self.tell(held_event(pod.reference, short, held.until - self.clock.monotonic()))
        why = f"; the seat is held back for at most {self.holds.seconds:g} s for memory in use to be given back"
        hopeless = {**fits.hopeless, **{node: reason + why for node, reason in fits.refused.items()}}
        return FilterAnswer((), {}, hopeless, short), replace(request, held=held)

    def _fit(
        self, query: FilterRequest, request: CachedRequest, *, by_ledger: bool = False, until: float | None = None
    ) -> FilterAnswer:
        """Returns the answer of `Cache.fit` to the request. If a node causes an error, the pod cannot get this node."""

        def on(nodes: Collection[str]) -> FilterAnswer:
            now, entitlement = self.clock.monotonic(), request.entitlement
            return self.cache.fit(
                query.pod.uid, request.memory, nodes, now, entitlement, by_ledger=by_ledger, until=until
            )

        found = judged(partial(on, query.nodes))
        if not isinstance(found, Unjudged):
            return found
        each = {node: judged(partial(on, (node,))) for node in query.nodes}
        broken = {node: alone.why for node, alone in each.items() if isinstance(alone, Unjudged)}
        for node, why in broken.items():
            self.informers.problems.note("node", node, why)
        rest = on([node for node in query.nodes if node not in broken])
        return replace(rest, hopeless={**rest.hopeless, **broken})

    def _is_held(self, uid: str) -> bool:
        """Returns True if the extender delays the pod. The extender chooses no victims for a delayed pod."""
        last = self.requests.of(uid)
        return last is not None and last.held is not None and self.clock.monotonic() < last.held.until

    def victims(self, query: PreemptRequest, names: Names) -> dict[str, Victims]:
        """Returns the victims on each node where evictions would help. Raises FieldError.

        While earlier victims of the pod are terminating, returns no nodes. The list of victims for a node is empty only
        if kube-scheduler named no victim and the pod fits now. A kube-scheduler without kubernetes#135486 reports an
        error for any other empty list of victims.
        """
        request, uid = request_of(query.pod, names, self.informers.ledger), query.pod.uid
        if request is None:
            return dict(query.victims)
        if self._is_held(uid):
            return {}
        preemption = _Preemption(self, uid, request)
        if preemption.is_under_way(query.victims):
            return {}
        chosen = {node: judged(partial(preemption.victims, node, given)) for node, given in query.victims.items()}
        found = {}
        for node, victims in chosen.items():
            if isinstance(victims, Victims):
                found[node] = victims
            elif isinstance(victims, Unjudged):
                self.informers.problems.note("node", node, victims.why)
        self.cache.renew(uid, {node for node, each in found.items() if each.uids}, self.clock.monotonic())
        return found


@dataclass(frozen=True)
class _Preemption:
    """The preemption for one pod."""

    verbs: PlacementVerbs
    uid: str
    request: CachedRequest

    def victims(self, name: str, given: Victims) -> Victims | None:
        """Returns the victims on a node, or None if the node is not a candidate.

        kube-scheduler has chosen victims that free enough CPU and enough of the node's total gpumem. If
        kube-scheduler's victims also free enough memory of one device, they are the result. If no device gets enough
        free memory, the extender adds victims.

        If the node lacks only gpumem, the extender replaces kube-scheduler's victims by other victims. Victims that
        free enough memory of a device also free enough of the node's total gpumem.
        """
        if given.uids and self._needed(name, given.uids) is not None:
            return given
        node = self.verbs.cache.node(name)
        # The cache may still have a victim in `given` as assumed.
        candidates = {*(pod.uid for pod in self._lower(node)), *given.uids}
        needed = self._needed(name, candidates)
        if needed is None or (given.uids and not needed):
            return None  # the pod fits now; kube-scheduler would report an error for an empty list
        if given.uids and not (self._lacks_gpumem(node) and self._has_cpu(node, needed)):
            needed = node.by_priority({*given.uids, *needed})
        return Victims(needed, given.pdb_violations)

    def _lower(self, node: NodeInfo) -> list[PodInfo]:
        priority = self.request.entitlement.priority
        return [pod for pod in node.pods.values() if pod.state is PodState.BOUND and pod.priority < priority]

    def is_under_way(self, given: Mapping[str, Victims]) -> bool:
        """Returns True if the pod did not fit on a node, but fits on this node after all its terminating pods have
        ended.

        The scheduler names no victims on such a node, because it already counts terminating pods as gone.
        """
        node = self.verbs.cache.retained(self.uid, self.verbs.clock.monotonic())
        return node is not None and node not in given and self._needed(node, ()) == ()

    def _needed(self, node: str, candidates: Collection[str]) -> tuple[str, ...] | None:
        request, now = self.request, self.verbs.clock.monotonic()
        return self.verbs.cache.victims(
            request.memory,
            node,
            candidates,
            now,
            uid=self.uid,
            entitlement=request.entitlement,
            seated=self._seated(node),
            server_now=self.verbs.informers.server_now,
        )

    def _seated(self, name: str) -> Collection[str]:
        ledger, node = self.verbs.informers.ledger, self.verbs.cache.node(name)
        if ledger is None or node.inventory is None:
            return ()
        pool = node.inventory.pool
        return {
            pod.uid
            for pod in node.pods.values()
            if pool in {seat.pool for seat in seats_for(ledger, pod.namespace, pod.request, label=pod.seat)}
        }

    def _lacks_gpumem(self, node: NodeInfo) -> bool:
        held_mib = sum(pod.request.total_mib for pod in node.pods.values())
        return held_mib + self.request.memory.total_mib > sum(node.offered.values())

    def _has_cpu(self, node: NodeInfo, leaving: Collection[str]) -> bool:
        needed_milli, now = self.request.memory.cpu_milli, self.verbs.informers.server_now
        gone = [p for p in node.pods.values() if p.uid in leaving or p.is_going(now)]
        freed_milli = sum(pod.request.cpu_milli for pod in gone)
        return not needed_milli or (node.cpu_milli is not None and node.cpu_milli + freed_milli >= needed_milli)
