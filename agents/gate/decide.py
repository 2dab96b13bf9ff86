"""Decides which on-demand workloads to start (scale to 1) and which to stop (scale to 0). All functions are pure."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from agents.gate.headroom import Headroom, Pressure, asked_back, headroom_of, pressures, refusal, why, with_opened
from agents.gate.ownership import JournalEntry
from agents.gate.pods import Seating
from agents.gate.probes import FreeMemory
from agents.gate.types import Action, Cause, GateState, Intent, Signal
from agents.runtime.items import Unjudged, judged
from agents.telemetry.client import NodeTelemetry

# The gate stops a workload after this number of samples in a row with a device below its floor. One sample below the
# floor can be normal, for example while one model replaces another.
PRESSED_SAMPLES = 2

# The causes that depend on a reading. For a cause that depends on a reading, a sample counts only if its reading is
# new.
_MEASURED = (Cause.ROOM, Cause.NO_ROOM, Cause.PRESSURE)


def decide(
    states: Sequence[GateState], readings: Sequence[NodeTelemetry], seating: Seating, now: int
) -> tuple[Intent, ...]:
    """Returns one intent for each on-demand workload after a sample, in the order of GATES. The workload that comes
    first in GATES gets headroom first. After a failed probe, the gate stops a workload only if a seat needs the memory
    or a device is below its floor. After an error of a workload or of its pool, the workload keeps its replicas.
    """
    gates: dict[str, list[GateState]] = {}
    for state in states:
        gates.setdefault(state.gate.pool, []).append(state)
    pools = {
        name: judged(partial(_PoolPass, [r for r in readings if r.pool.name == name], gates[name], seating, now))
        for name in gates
    }
    intents = []
    for state in states:
        pool = pools[state.gate.pool]
        intent = pool if isinstance(pool, Unjudged) else judged(partial(pool.intent, state))
        intents.append(_kept(state, intent.why) if isinstance(intent, Unjudged) else intent)
    return tuple(intents)


class _PoolPass:
    """Decides on the on-demand workloads of one pool. The caller must call `intent` in the order of GATES."""

    def __init__(
        self, readings: Sequence[NodeTelemetry], states: Sequence[GateState], seating: Seating, now: int
    ) -> None:
        self._states, self._now = states, now
        self._pool = headroom_of(readings, states, seating, now)
        self._closing = pressures(self._pool, states)
        self._leaving: frozenset[str] = frozenset()

    def intent(self, state: GateState) -> Intent:
        gate, pool, pressure = state.gate, self._pool, self._closing.get(state.gate.name)
        signal = _signal(state, pool, pressure, self._now, is_asked_back=gate.name in self._leaving)
        intent = _counted(state, signal, pool, pressure)
        if intent.act is Action.OPEN:
            self._pool = with_opened(pool, gate)
        if signal.cause is Cause.NO_ROOM and not isinstance(gate.demand, FreeMemory):
            self._leaving |= asked_back(pool, self._states, gate)
        return intent


def _kept(state: GateState, why: str) -> Intent:
    return Intent(state=state, signal=Signal(act=Action.KEEP, cause=Cause.UNREADABLE, why=why))


def entry_after(intent: Intent, now: int, *, acts: bool) -> JournalEntry | None:
    """Returns the journal entry of a workload for an intent. `acts` is False if the gate only reports the intent."""
    found, answer, entry = intent.state.deployment, intent.state.answer, intent.state.ownership.entry
    if entry is None or not intent.state.ownership.own:
        return entry
    if acts and intent.act is not Action.KEEP:
        replicas = 1 if intent.act is Action.OPEN else 0
        return JournalEntry(uid=found.uid, generation=found.generation, replicas=replicas, changed_at=now)
    if answer is None:
        return entry
    idle = found.replicas == 1 and not answer.wanted
    since = now if entry.idle_since is None else entry.idle_since
    return replace(entry, idle_since=since if idle else None)


def _counted(state: GateState, signal: Signal, pool: Headroom, pressure: Pressure | None) -> Intent:
    """Returns the intent with its signal, and with the number of samples in a row that had this signal.

    A sample with the same reading as the last sample does not count.
    """
    before = state.agreed
    in_a_row = before is not None and (before.act, before.cause) == (signal.act, signal.cause)
    repeated = pressure.device.repeated if pressure else any(device.repeated for device in pool.devices)
    counts = signal.cause not in _MEASURED or not repeated
    samples = (before.samples if before and in_a_row else 0) + counts
    return Intent(state=state, signal=replace(signal, samples=samples))


def _signal(state: GateState, pool: Headroom, pressure: Pressure | None, now: int, *, is_asked_back: bool) -> Signal:
    ownership = state.ownership
    if ownership.unreadable is not None:
        return Signal(act=Action.KEEP, cause=Cause.UNREADABLE, why=ownership.unreadable)
    if ownership.other is not None:
        return Signal(act=Action.KEEP, cause=Cause.OTHER, why=ownership.other)
    if ownership.under_way:
        return Signal(act=Action.KEEP, cause=Cause.UNDER_WAY, why="a run started to scale it and has not finished yet")
    if not state.open:
        return _of_closed(state, pool, now)
    if pressure is not None:
        # If the memory of a workload's pods is needed, the gate stops the workload even after a failed probe. If a
        # seat's pod waits, one sample is enough to stop a workload.
        waits = pressure.for_seats and bool(pool.waiting)
        cause, needed = (Cause.SEAT, 1) if waits else (Cause.PRESSURE, PRESSED_SAMPLES)
        return Signal(act=Action.CLOSE, cause=cause, why=why(pool, pressure), needed=needed)
    return _of_open(state, now, is_asked_back=is_asked_back)


def _of_open(state: GateState, now: int, *, is_asked_back: bool) -> Signal:
    gate, answer = state.gate, state.answer
    if answer is None:
        return Signal(act=Action.KEEP, cause=Cause.NO_ANSWER, why=state.problem, needed=gate.samples)
    if is_asked_back:
        return Signal(act=Action.CLOSE, cause=Cause.ASKED_BACK, why=answer.why, needed=gate.samples)
    if answer.wanted:
        return Signal(act=Action.KEEP, cause=Cause.DEMAND, why=answer.why)
    idle_seconds = state.idle_for(now)
    if idle_seconds < gate.longest_idle_seconds:
        text = f"{answer.why}, for {idle_seconds} of {gate.longest_idle_seconds} s"
        return Signal(act=Action.KEEP, cause=Cause.IDLE, why=text)
    return Signal(act=Action.CLOSE, cause=Cause.NO_DEMAND, why=answer.why, needed=gate.samples)


def _of_closed(state: GateState, pool: Headroom, now: int) -> Signal:
    gate, answer = state.gate, state.answer
    if answer is None:
        return Signal(act=Action.KEEP, cause=Cause.NO_ANSWER, why=state.problem, needed=gate.samples)
    if not answer.wanted:
        return Signal(act=Action.KEEP, cause=Cause.NO_DEMAND, why=answer.why)
    closed_for = state.unchanged_for(now)
    if closed_for is not None and closed_for < gate.cool_down_seconds:
        text = f"closed {closed_for} s ago; it opens again after {gate.cool_down_seconds}"
        return Signal(act=Action.KEEP, cause=Cause.COOL_DOWN, why=text)
    if pool.problem:
        return Signal(act=Action.KEEP, cause=Cause.BLIND, why=pool.problem)
    refused = refusal(pool, gate)
    if refused is not None:
        return Signal(act=Action.KEEP, cause=Cause.NO_ROOM, why=refused, needed=gate.samples)
    return Signal(act=Action.OPEN, cause=Cause.ROOM, why=answer.why, needed=gate.samples)
