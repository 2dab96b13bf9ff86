"""Chooses nodes and devices for waiting pods, from the state of the scheduler cache.

Sizes are in MiB of GPU memory, and times are in monotonic seconds.
"""

import heapq
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from datetime import datetime

from agents.extender.cache.answers import FilterAnswer, NotAssumed
from agents.extender.cache.node_info import NodeInfo, Shortage, shortages_on
from agents.extender.cache.pod_info import NO_SEAT, Entitlement, PodInfo, PodState
from agents.extender.cache.seats import OwnSeats
from agents.extender.cache.state import NOWHERE, RESERVE_SECONDS, CacheState
from tenancy.devices.allocate import MemoryRequest


class Cache(CacheState):
    """The scheduler cache. `fit` and `assume` give devices to a waiting pod, and the other methods only answer."""

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
        """Chooses the best node with enough unused memory, and reserves devices of this node for the pod.

        If no node has enough unused memory and `by_ledger` is True, a seat gets memory that other pods use. The memory
        for a seat must be free by the ledger. The reservation ends at `until`. If `until` is None, it ends after
        RESERVE_SECONDS. The next filter of the pod also ends the reservation.
        """
        with self._lock:
            self._expire(now)
            self._unreserve(uid)
            own = self._own(uid, request, entitlement)
            best = self._ranking.best(request, nodes, lambda name: self._left(name, uid, entitlement, now, own), own)
            if best is None:
                best = self._beside_absent(uid, request, nodes, now, entitlement)
            short: tuple[Shortage, ...] = ()
            if best is None:
                left = self._left_on(uid, request, nodes, now, entitlement)
                short = shortages_on(left.values(), request, entitlement)
                if by_ledger:
                    best = self._best_by_ledger(left, request, entitlement)
                    if best is None:
                        best = self._beside_absent(uid, request, nodes, now, entitlement, measured=False)
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
        """Returns the `short` that `fit` would return, but reserves nothing."""
        with self._lock:
            self._expire(now)
            left = self._left_on(uid, request, nodes, now, entitlement).values()
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
        """Returns all nodes that `fit` could choose, but reserves nothing."""
        with self._lock:
            self._expire(now)
            names = (*self._nodes,)
            found = self._feasible(uid, request, names, now, entitlement, by_ledger=by_ledger)
            if found:
                return found
            beside = self._beside_absent(uid, request, names, now, entitlement)
            return frozenset() if beside is None else frozenset({beside.node})

    def assume(
        self, uid: str, request: MemoryRequest, node: str, now: float, entitlement: Entitlement = NO_SEAT
    ) -> PodInfo | NotAssumed:
        """Chooses devices of the node for the pod. The pod holds the chosen devices until `update_pod`, `remove_pod` or
        `forget`.
        """
        with self._lock:
            self._expire(now)
            record = self._record(uid)
            if record.held is not None and not record.is_reserved:
                return NotAssumed("the pod is bound already, or about to be")
            if record.held is not None and record.held.node != node:
                self._unreserve(uid)
            own = self._own(uid, request, entitlement)
            left = self._left(node, uid, entitlement, now, own)
            pod = left.assumed(uid, request, self._ranking.choose, entitlement)
            if pod is None:
                by_measure = not left.seats(entitlement)
                beside = self._beside_absent(uid, request, (node,), now, entitlement, measured=by_measure)
                if beside is not None:
                    pod = beside.assumed(uid, request, self._ranking.choose, entitlement)
            if pod is None:
                return NotAssumed(left.never(request) or left.not_now(request))
            self._hold(uid, pod)
            return pod

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
        """Returns the candidates to evict from the node so that the request fits. The highest priority comes first.

        Returns () if no eviction is necessary, and None if evictions would not help. For a seat, only the memory that
        is free by the ledger matters. For each pod in `seated`, the ledger has a seat that is at least as large as the
        pod's request. If the deadline `due` of a terminating pod is after `server_now`, the pod counts as ended.
        """
        with self._lock:
            self._expire(now)
            own = self._own(uid, request, entitlement)
            if self._seats.goes_first(node, own):
                returning, left = set(), self._nodes.get(node, NOWHERE).left_to(uid, entitlement, now, {})
            else:
                left = self._left(node, uid, entitlement, now, own)
                returning = {pod.uid for pod in left.pods.values() if self._seats.returns(pod, own)}
            return left.victims(
                request,
                candidates,
                seated,
                server_now,
                measured=not left.seats(entitlement),
                returning=returning,
            )

    def _own(self, uid: str, request: MemoryRequest, entitlement: Entitlement) -> OwnSeats:
        held = self._record(uid).held
        reserved = held if isinstance(held, PodInfo) and held.state is PodState.RESERVED else None
        return self._seats.own(request, entitlement, reserved)

    def _left(self, name: str, uid: str, entitlement: Entitlement, now: float, own: OwnSeats) -> NodeInfo:
        """Returns a copy of the node with the memory that this pod may use. `own` has the seats that belong to the pod
        itself.
        """
        node = self._nodes.get(name, NOWHERE)
        # A pod with a reservation on the node already has its seat there.
        kept = self._seats.kept(name, own) if own and uid not in node.pods else None
        return node.left_to(uid, entitlement, now, kept)

    def _left_on(
        self, uid: str, request: MemoryRequest, names: Iterable[str], now: float, entitlement: Entitlement
    ) -> dict[str, NodeInfo]:
        own = self._own(uid, request, entitlement)
        return {name: self._left(name, uid, entitlement, now, own) for name in names}

    def _feasible(
        self,
        uid: str,
        request: MemoryRequest,
        names: Iterable[str],
        now: float,
        entitlement: Entitlement,
        *,
        by_ledger: bool,
    ) -> frozenset[str]:
        left = self._left_on(uid, request, names, now, entitlement)
        return frozenset(
            name
            for name, node in left.items()
            if node.fits(request) or (by_ledger and node.seats_by_ledger(request, entitlement))
        )

    def _best_by_ledger(
        self, left: Mapping[str, NodeInfo], request: MemoryRequest, entitlement: Entitlement
    ) -> NodeInfo | None:
        seats = [node for node in left.values() if node.seats_by_ledger(request, entitlement)]
        return self._ranking.best_by_ledger(request, seats)

    def _beside_absent(
        self,
        uid: str,
        request: MemoryRequest,
        names: Iterable[str],
        now: float,
        entitlement: Entitlement,
        *,
        measured: bool = True,
    ) -> NodeInfo | None:
        """Searches for devices that the pod can take while all absent seats still fit elsewhere. Returns a copy of
        their node on which the pod may use only these devices.

        If `measured` is False, the pod may get memory that other pods use.
        """
        own = self._own(uid, request, entitlement)
        nodes = {name: self._nodes.get(name, NOWHERE).left_to(uid, entitlement, now) for name in names}
        place = self._seats.place(request, own, nodes.values(), measured=measured)
        return nodes[place.node].only(place.devices) if place else None
