"""Compares the agents' caches with the cluster. Units: MiB, seconds."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from agents.extender.cache.cache import Cache
from agents.extender.cache.pod_info import NO_SEAT, PodInfo, PodState
from tenancy.devices.allocate import MemoryRequest
from tenancy.names import GATE
from tests.simulation.gate_promises import GatePromises
from tests.simulation.model.api import Object
from tests.simulation.model.cron import Gate
from tests.simulation.model.devices import Machine
from tests.simulation.model.tenants import gpumem_of

if TYPE_CHECKING:
    from tests.simulation.system import System

_EXTENDER, _GATE, _READING = "extender's cache is wrong", "gate's cache is wrong", "extender's reading is wrong"
_RESERVED, _NOMINATED = "reservation stays", "nomination stays"
_LATE_SECONDS = 45.0  # The longest time until the extender's cache shows a change.
_FAULT_SECONDS = 130.0
_EVERY_SECONDS = 15.0
_PASS_SECONDS = 7.0  # The gate applies the events of its watches only in a pass.
_ENDED_MIB = 1500
_NOTHING = MemoryRequest(mib=1)


class CachePromises:
    def __init__(self, system: "System", gates: GatePromises) -> None:
        self.system = system
        self.world = system.world
        self.violations = system.violations
        self.gates = gates
        self.due = 0.0

    def look(self) -> None:
        pods = {pod["metadata"]["uid"]: pod for pod in self.system.server.pods.values()}
        self._gate(pods)
        if self.world.now < self.due:
            return
        self.due = self.world.now + _EVERY_SECONDS
        extender = self.system.extender
        if not extender.alive or extender.extender.informers.ledger is None or self.system.ledger_deleted():
            self._forget()
            return
        cache = extender.extender.measured.cache
        cache.shortages("", _NOTHING, (), self.world.now, NO_SEAT)
        held = {uid: record.held for uid, record in cache._pods.items() if isinstance(record.held, PodInfo)}  # noqa: SLF001
        is_sound = self._is_sound("extender")
        self._bound(pods, held, is_sound=is_sound)
        self._waiting(pods, held, cache, is_sound=is_sound)
        for machine in self.system.hardware.machines.values():
            self._reading(machine, cache)

    def _forget(self) -> None:
        for name in (_EXTENDER, _RESERVED, _NOMINATED, _READING):
            self.violations.forget(name, set())

    def _is_sound(self, agent: str) -> bool:
        server = self.system.server
        failed = server.failed.get(agent, -_FAULT_SECONDS)
        return self.violations.up() and not server.is_faulty and self.world.now - failed >= _FAULT_SECONDS

    def _bound(self, pods: dict[str, Object], held: dict[str, PodInfo], *, is_sound: bool) -> None:
        shown = {uid: each for uid, each in held.items() if each.is_bound}
        real = {uid: pod for uid, pod in pods.items() if self._counts(pod)}
        differing = {uid for uid in shown.keys() | real.keys() if not self._is_same(shown.get(uid), real.get(uid))}
        for uid in sorted(differing):
            text = f"the extender's cache has {shown.get(uid)} as {uid}, and the API server has another state"
            self.violations.held(_EXTENDER, uid, is_sound, _LATE_SECONDS, text)
        self.violations.forget(_EXTENDER, differing)

    def _counts(self, pod: Object) -> bool:
        is_bound = pod["spec"].get("nodeName") in self.system.hardware.machines
        has_ended = pod["status"].get("phase") in ("Succeeded", "Failed")
        return is_bound and not has_ended and gpumem_of(pod, self.system.stack.ledger.names.gpumem) > 0

    def _is_same(self, shown: PodInfo | None, pod: Object | None) -> bool:
        if shown is None or pod is None:
            return shown is pod
        names, metadata = self.system.stack.ledger.names, pod["metadata"]
        uuids = (metadata.get("annotations") or {}).get(names.device_uuid, "")
        return (
            shown.node == pod["spec"]["nodeName"]
            and shown.request.total_mib == gpumem_of(pod, names.gpumem)
            and ",".join(shown.uuids or ()) == uuids
            and (shown.state is PodState.TERMINATING) == ("deletionTimestamp" in metadata)
        )

    def _waiting(self, pods: dict[str, Object], held: dict[str, PodInfo], cache: Cache, *, is_sound: bool) -> None:
        reserved = {uid for uid, each in held.items() if (each.expires_at or self.world.now) < self.world.now}
        for uid in sorted(reserved):
            text = f"the extender's cache keeps memory for {uid}, although the reservation has expired"
            self.violations.held(_RESERVED, uid, is_sound, _EVERY_SECONDS - 1.0, text)
        self.violations.forget(_RESERVED, reserved)
        kept = set()
        for uid, record in cache._pods.items():  # noqa: SLF001
            pod, nomination = pods.get(uid), record.nomination
            if nomination is None or nomination.retained_until:
                continue
            waits = pod is not None and not pod["spec"].get("nodeName") and "deletionTimestamp" not in pod["metadata"]
            if pod is None or not waits or pod["status"].get("nominatedNodeName") != nomination.node:
                kept.add(uid)
        for uid in sorted(kept):
            text = f"the extender's cache keeps memory for {uid}, which is not nominated there"
            self.violations.held(_NOMINATED, uid, is_sound, _LATE_SECONDS, text)
        self.violations.forget(_NOMINATED, kept)

    def _reading(self, machine: Machine, cache: Cache) -> None:
        node = cache._nodes.get(machine.name)  # noqa: SLF001
        reading = node.reading if node is not None else None
        for card in machine.cards:
            shown = reading.free.get(card.index) if reading is not None else None
            wrong = shown is not None and not self._was_free(card.uuid, shown)
            wrong = wrong and self.violations.up(machine.name, card.uuid)
            text = f"the extender measured {shown} MiB free on {card.uuid}, which has {card.free_mib}"
            self.violations.held(_READING, card.uuid, wrong, _LATE_SECONDS, text)

    def _was_free(self, uuid: str, mib: int) -> bool:
        seen = [free[uuid] for free in self.gates.recently_free()]
        return max(min(seen, default=mib), 0) - 1 <= mib <= max(seen, default=mib) + _ENDED_MIB

    def _gate(self, pods: dict[str, Object]) -> None:
        gate = self.system.crons.get(GATE)
        cache = gate.made.cache if isinstance(gate, Gate) and gate.made is not None and gate.run is not None else None
        watches = cache is not None and cache._watches is not None  # noqa: SLF001
        passes = gate is not None and not gate.busy and self.world.now - max(gate.began, default=0.0) < _PASS_SECONDS
        if cache is None or not watches or not passes or not self._is_sound(GATE) or any(self._unmatched()):
            self.violations.forget(_GATE, set())
            return
        shown = {pod.uid for pod in cache.pods}
        real = {uid for uid, pod in pods.items() if pod["spec"].get("nodeName") in self.system.hardware.machines}
        ended = {uid for uid in real if pods[uid]["status"].get("phase") in ("Succeeded", "Failed")}
        brief = {uid for uid in real if (workload := self.system.tenants.of(pods[uid])) and workload.lives is not None}
        differing = (shown ^ (real - ended)) - brief
        for uid in sorted(differing):
            text = f"the gate's cache {'has' if uid in shown else 'lacks'} {uid}"
            late_seconds = 4 * float(gate.environ["INTERVAL_SECONDS"]) + 5.0 if gate else 0.0
            self.violations.held(_GATE, uid, True, late_seconds, text)
        self.violations.forget(_GATE, differing)

    def _unmatched(self) -> Iterator[str]:
        nodes = self.system.server.nodes
        for name, pool in self.system.pools.items():
            if name not in nodes or not pool.matches(nodes[name]["metadata"]["labels"]):
                yield name
