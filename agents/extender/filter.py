"""Computes the answers to kube-scheduler's filter and preempt requests from the cache. Does no I/O."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace

from agents.extender.cache.answers import FilterAnswer
from agents.extender.cache.cache import RESERVE_SECONDS, Cache
from agents.extender.cache.informers import Informers
from agents.extender.cache.node_info import NodeInfo, Shortage
from agents.extender.cache.pod_info import (
    NO_SEAT,
    Entitlement,
    MemoryRequestError,
    Nomination,
    PodState,
    memory_request_of,
)
from agents.extender.hold import HeldSeat, SeatHolds, crowded, reclaimable
from agents.extender.protocol import FilterRequest, Json, PreemptRequest, Victims
from agents.extender.report import held_event
from agents.kube.events import Event
from agents.kube.pods import Pod
from agents.runtime.clock import Clock
from tenancy.devices.allocate import MemoryRequest
from tenancy.devices.waiting import seats_for
from tenancy.ledger import Ledger
from tenancy.names import Names
from tenancy.workload import map_at


@dataclass(frozen=True, kw_only=True)
class CachedRequest:
    """A pod's request, and the result of its last filter.

    `short` has the shortages of a seat that was placed although other pods use its memory. `held` is set while the seat
    is held back.
    """

    memory: MemoryRequest
    entitlement: Entitlement = NO_SEAT
    short: tuple[Shortage, ...] = ()
    held: HeldSeat | None = None


def request_of(pod: Json, names: Names, ledger: Ledger | None) -> CachedRequest | None:
    """Returns the pod's request, or None if the pod requests no GPU memory. Raises MemoryRequestError."""
    spec, namespace = pod["spec"], pod["metadata"].get("namespace", "")
    memory = memory_request_of(spec, names)
    if memory is None:
        return None
    seats = seats_for(ledger, namespace, memory, map_at(spec, "nodeSelector")) if ledger else ()
    return CachedRequest(
        memory=memory, entitlement=Entitlement(spec.get("priority") or 0, frozenset(seat.pool for seat in seats))
    )


class RequestCache:
    """Stores the requests of the pods filtered last, because a bind request contains only the pod's name."""

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
    """Computes the answers to filter and preempt. `requests` stores each pod's request for its bind."""

    informers: Informers
    cache: Cache
    holds: SeatHolds
    tell: Callable[[Event], None]
    clock: Clock
    requests: RequestCache = field(default_factory=RequestCache)

    def fits(self, query: FilterRequest, names: Names) -> FilterAnswer:
        """Chooses the best of the query's nodes, and reserves devices of this node."""
        try:
            request = request_of(query.pod, names, self.informers.ledger)
        except MemoryRequestError as error:
            return FilterAnswer((), {}, dict.fromkeys(query.nodes, str(error)))
        if request is None:
            return FilterAnswer(query.nodes, {}, {})
        uid, now = query.pod["metadata"]["uid"], self.clock.monotonic()
        fits = self.cache.fit(uid, request.memory, query.nodes, now, request.entitlement)
        if fits.short:
            fits, request = self._short(query, request, fits)
        if fits.nodes:
            self.holds.release(uid)
        elif (node := map_at(query.pod, "status").get("nominatedNodeName", "")) in fits.refused:
            self.cache.retain(
                Nomination(uid=uid, node=node, request=request.memory, priority=request.entitlement.priority), now
            )
        self.requests.remember(uid, request)
        return fits

    def _short(
        self, query: FilterRequest, request: CachedRequest, fits: FilterAnswer
    ) -> tuple[FilterAnswer, CachedRequest]:
        """Computes the answer for a seat that fits no node because other pods use its memory.

        The seat is first held back, with its memory reserved and without evictions. Later, the seat is placed although
        other pods use its memory.
        """
        pod, before = Pod(query.pod), self.requests.of(query.pod["metadata"]["uid"])
        short = reclaimable(fits.short, self.informers.ledger)
        held = self.holds.hold(pod, short, self.informers.server_now)
        by_ledger = self.cache.fit(
            pod.uid,
            request.memory,
            query.nodes,
            self.clock.monotonic(),
            request.entitlement,
            by_ledger=True,
            until=None if held is None else held.until + RESERVE_SECONDS,
        )
        if held is None:
            short = reclaimable(by_ledger.short, self.informers.ledger)
            return by_ledger, replace(request, short=short if crowded(short) else ())
        if before is None or before.held is None:
            self.tell(held_event(pod.reference, short, held.until - self.clock.monotonic()))
        why = f"; the seat is held back for at most {self.holds.seconds:g} s for memory in use to be given back"
        hopeless = {**fits.hopeless, **{node: reason + why for node, reason in fits.refused.items()}}
        return FilterAnswer((), {}, hopeless, short), replace(request, held=held)

    def _is_held(self, uid: str) -> bool:
        """Returns True if the pod is held back. The extender then chooses no victims for this pod."""
        last = self.requests.of(uid)
        return last is not None and last.held is not None and self.clock.monotonic() < last.held.until

    def victims(self, query: PreemptRequest, names: Names) -> dict[str, Victims]:
        """Returns the victims on each node where evictions would help. Raises MemoryRequestError.

        Returns no nodes while earlier victims of this pod terminate. The list of a node's victims is empty only if the
        scheduler named no victim and the pod fits now. For any other empty list, a scheduler without kubernetes#135486
        reports an error.
        """
        request, uid = request_of(query.pod, names, self.informers.ledger), query.pod["metadata"]["uid"]
        if request is None:
            return dict(query.victims)
        if self._is_held(uid):
            return {}
        preemption = _Preemption(self, uid, request)
        if preemption.is_under_way(query.victims):
            return {}
        chosen = {node: preemption.victims(node, given) for node, given in query.victims.items()}
        found = {node: victims for node, victims in chosen.items() if victims is not None}
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

        The scheduler's victims free enough of the node's resources, such as CPU and the sum of gpumem. If these victims
        also free a device, the result is these victims. Otherwise, the extender adds more victims. If the node lacks
        only gpumem, other victims replace the scheduler's victims, because freeing a device also frees enough of the
        sum.
        """
        if given.uids and self._needed(name, given.uids) is not None:
            return given
        node = self.verbs.cache.node(name)
        priority = self.request.entitlement.priority
        lower = {pod.uid for pod in node.pods.values() if pod.state is PodState.BOUND and pod.priority < priority}
        needed = self._needed(name, {*lower, *given.uids})  # the scheduler's victim may be assumed in the cache
        if needed is None or (given.uids and not needed):
            return None  # the pod fits now, and for an empty list the scheduler would report an error
        if given.uids and not (self._lacks_gpumem(node) and self._has_cpu(node, needed)):
            needed = node.by_priority({*given.uids, *needed})
        return Victims(needed, given.pdb_violations)

    def is_under_way(self, given: Mapping[str, Victims]) -> bool:
        """Returns True if a node refused the pod, but the pod will fit there after all terminating pods have ended.

        kube-scheduler names no victims on this node, because kube-scheduler already counts terminating pods as gone.
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
        """Returns the node's pods with a request within a seat of the node's pool."""
        ledger, node = self.verbs.informers.ledger, self.verbs.cache.node(name)
        if ledger is None or node.inventory is None:
            return ()
        pool = node.inventory.pool
        return {
            p.uid for p in node.pods.values() if pool in {s.pool for s in seats_for(ledger, p.namespace, p.request)}
        }

    def _lacks_gpumem(self, node: NodeInfo) -> bool:
        """Returns True if the request exceeds the node's free sum of gpumem, which kube-scheduler checks."""
        held_mib = sum(pod.request.total_mib for pod in node.pods.values())
        return held_mib + self.request.memory.total_mib > sum(node.offered.values())

    def _has_cpu(self, node: NodeInfo, leaving: Collection[str]) -> bool:
        needed_milli, now = self.request.memory.cpu_milli, self.verbs.informers.server_now
        gone = [p for p in node.pods.values() if p.uid in leaving or p.is_going(now)]
        freed_milli = sum(pod.request.cpu_milli for pod in gone)
        return not needed_milli or (node.cpu_milli is not None and node.cpu_milli + freed_milli >= needed_milli)
