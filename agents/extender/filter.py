"""Filter and preempt: the cache's answers in the scheduler's words. No I/O."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace

from agents.extender.cache.cache import RESERVE_SECONDS, Cache, Fits
from agents.extender.cache.informers import Informers
from agents.extender.cache.inventory import NodeDevices
from agents.extender.cache.node_info import DeviceShare, Shortage
from agents.extender.cache.pod_info import ANYBODY, AskError, Nomination, PodInfo, Standing, ask_of
from agents.extender.hold import HeldSeat, SeatHolds, crowded, reclaimable
from agents.extender.protocol import Json, PodNodes, PodVictims, Victims
from agents.extender.report import held_event
from agents.kube.events import Event
from agents.kube.pods import Pod
from agents.runtime.clock import Clock
from tenancy.devices.allocate import Ask
from tenancy.devices.waiting import seats_for
from tenancy.ledger import Ledger
from tenancy.names import Names
from tenancy.workload import at


@dataclass(frozen=True, kw_only=True)
class Request:
    """What a pod asks, and what it may claim. `short`, of a seat that was let through by the ledger alone: what it
    lacks. `held`: it is held back."""

    ask: Ask
    standing: Standing = ANYBODY
    short: tuple[Shortage, ...] = ()
    held: HeldSeat | None = None


def request_of(pod: Json, names: Names, ledger: Ledger | None) -> Request | None:
    """None where the pod asks for no GPU memory. Raises AskError."""
    spec, namespace = pod["spec"], pod["metadata"].get("namespace", "")
    ask = ask_of(spec, names)
    if ask is None:
        return None
    seats = seats_for(ledger, namespace, ask, at(spec, "nodeSelector")) if ledger else ()
    return Request(ask=ask, standing=Standing(spec.get("priority") or 0, frozenset(seat.pool for seat in seats)))


class RequestCache:
    """What the pods asked that were filtered last; a bind does not tell."""

    _MOST = 10_000

    def __init__(self) -> None:
        self._requests: dict[str, Request] = {}

    def remember(self, uid: str, request: Request) -> None:
        self._requests.pop(uid, None)
        self._requests[uid] = request
        while len(self._requests) > self._MOST:
            self._requests.pop(next(iter(self._requests)), None)

    def of(self, uid: str) -> Request | None:
        return self._requests.get(uid)


@dataclass(frozen=True, kw_only=True)
class Verbs:
    """Judges pods by what the informers keep up to date. `requests` remembers what each pod asked, for its bind."""

    informers: Informers
    cache: Cache
    holds: SeatHolds
    tell: Callable[[Event], None]
    clock: Clock
    requests: RequestCache = field(default_factory=RequestCache)

    def fits(self, query: PodNodes, names: Names) -> Fits:
        """Which of the nodes with room is the best; it keeps the room for the pod."""
        try:
            request = request_of(query.pod, names, self.informers.ledger)
        except AskError as error:
            return Fits((), {}, dict.fromkeys(query.nodes, str(error)))
        if request is None:
            return Fits(query.nodes, {}, {})
        uid, now = query.pod["metadata"]["uid"], self.clock.monotonic()
        fits = self.cache.fit(uid, request.ask, query.nodes, now, request.standing)
        if fits.short:
            fits, request = self._short(query, request, fits)
        if fits.nodes:
            self.holds.release(uid)
        elif (node := at(query.pod, "status").get("nominatedNodeName", "")) in fits.refused:
            self.cache.retain(Nomination(uid=uid, node=node, ask=request.ask, priority=request.standing.priority), now)
        self.requests.remember(uid, request)
        return fits

    def _short(self, query: PodNodes, request: Request, fits: Fits) -> tuple[Fits, Request]:
        """Of a seat that memory in use keeps out everywhere: it is held back for a while, then the ledger decides.

        While it is held back nobody is evicted for it, and nobody else gets the room that the ledger has for it.
        """
        pod, before = Pod(query.pod), self.requests.of(query.pod["metadata"]["uid"])
        short = reclaimable(fits.short, self.informers.ledger)
        held = self.holds.hold(pod, short, self.informers.server_now)
        by_ledger = self.cache.fit(
            pod.uid,
            request.ask,
            query.nodes,
            self.clock.monotonic(),
            request.standing,
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
        return Fits((), {}, hopeless, short), replace(request, held=held)

    def _is_held(self, uid: str) -> bool:
        """Whether the pod is held back now: nobody is evicted for it, also on nodes that its filter did not judge."""
        last = self.requests.of(uid)
        return last is not None and last.held is not None and self.clock.monotonic() < last.held.until

    def victims(self, query: PodVictims, names: Names) -> dict[str, Victims]:
        """Who must go from each node; nodes where nobody's going would help are left out. Raises AskError.

        Only a node that came without victims is named without any: the pod fits there now. A scheduler from before
        kubernetes#135486 asks of no such node, and takes one in the answer for an error. Nobody more goes for a pod for
        which others are going.
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
    """One pod's."""

    verbs: Verbs
    uid: str
    request: Request

    def victims(self, node: str, given: Victims) -> Victims | None:
        """The scheduler's own choice frees what the pod lacks of the node: its sum of gpumem, or CPU, or another thing.

        If a device is free then as well, it stands. If not, it is added to; it is replaced only where gpumem is what
        lacks and the node's CPU suffices without: a device that is free brings the sum with it.
        """
        if given.uids and self._needed(node, given.uids) is not None:
            return given
        pods, claims = self.verbs.cache.pods(node), self.verbs.cache.claims(node)
        lower = {pod.uid for pod in pods if pod.priority < self.request.standing.priority and not pod.terminating}
        needed = self._needed(node, {*lower, *given.uids})  # the scheduler may know of one whose binding we still await
        if needed is None or (given.uids and not needed):
            return None  # room came meanwhile: for the scheduler, victims that became none are an error of all nodes
        if given.uids and not (self._lacks_gpumem(node, claims) and self._has_cpu(node, claims, needed)):
            needed = self.verbs.cache.by_priority({*given.uids, *needed}, node)
        return Victims(needed, given.pdb_violations)

    def is_under_way(self, given: Mapping[str, Victims]) -> bool:
        """Whether the pod was refused where others go for it, and fits there once they are gone; kube-scheduler holds
        them for gone already, or it would name somebody there."""
        node = self.verbs.cache.retained(self.uid, self.verbs.clock.monotonic())
        return node is not None and node not in given and self._needed(node, ()) == ()

    def _needed(self, node: str, candidates: Collection[str]) -> tuple[str, ...] | None:
        return self.verbs.cache.victims(
            self.request.ask,
            node,
            candidates,
            self.verbs.clock.monotonic(),
            uid=self.uid,
            standing=self.request.standing,
            seated=self._seated(node),
        )

    def _seated(self, node: str) -> Collection[str]:
        """The pods of the node that keep within a seat of its pool."""
        ledger, devices = self.verbs.informers.ledger, self.verbs.informers.devices(node)
        if ledger is None or devices is None:
            return ()
        pods = self.verbs.cache.pods(node)
        return {p.uid for p in pods if devices.pool in {s.pool for s in seats_for(ledger, p.namespace, p.ask)}}

    def _lacks_gpumem(self, node: str, claims: Collection[PodInfo | DeviceShare]) -> bool:
        """Whether the node's sum is what keeps the ask out, as the scheduler sums."""
        devices: NodeDevices | None = self.verbs.informers.devices(node)
        offered = sum(device.offered_mib for device in devices.devices) if devices else 0
        return sum(claim.ask.total_mib for claim in claims) + self.request.ask.total_mib > offered

    def _has_cpu(self, node: str, claims: Collection[PodInfo | DeviceShare], leaving: Collection[str]) -> bool:
        free_milli, needed_milli = self.verbs.cache.cpu_milli(node), self.request.ask.cpu_milli
        freed_milli = sum(each.ask.cpu_milli for each in claims if each.uid in leaving or each.terminating)
        return not needed_milli or (free_milli is not None and free_milli + freed_milli >= needed_milli)
