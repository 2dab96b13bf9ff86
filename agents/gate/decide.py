"""Which gates to open and which to close: the pure half of gate (record 0000)."""

from collections.abc import Sequence
from dataclasses import replace

from agents.gate.headroom import Headroom
from agents.gate.ownership import JournalEntry
from agents.gate.pods import Seating
from agents.gate.probes import FreeMemory
from agents.gate.types import Action, Cause, GateState, Intent, Signal
from agents.telemetry.client import NodeTelemetry

# In a row, under the floor: one may be the moment in which a model is exchanged for another.
PRESSED_SAMPLES = 2

# What rests on a reading, which counts once however often it is asked for.
_MEASURED = (Cause.ROOM, Cause.NO_ROOM, Cause.PRESSURE)


def decide(
    entrances: Sequence[GateState], readings: Sequence[NodeTelemetry], seating: Seating, now: int
) -> tuple[Intent, ...]:
    """What one sample says about each gate, in their order: slack that one takes is no other's. A gate without an
    answer closes for a seat or under pressure, and does nothing else."""
    pools = {
        name: Headroom(
            [reading for reading in readings if reading.pool.name == name],
            [entrance for entrance in entrances if entrance.gate.pool == name],
            seating,
            now,
        )
        for name in dict.fromkeys(entrance.gate.pool for entrance in entrances)
    }
    intents = []
    for entrance in entrances:
        slack = pools[entrance.gate.pool]
        intent = _counted(entrance, _lean(entrance, slack, now), slack)
        if intent.act is Action.OPEN:
            slack.take(entrance.gate.need_mib)
        if intent.lean.cause is Cause.NO_ROOM and not isinstance(entrance.gate.demand, FreeMemory):
            slack.ask_back(entrance.gate)
        intents.append(intent)
    return tuple(intents)


def entry_after(intent: Intent, now: int, *, acts: bool) -> JournalEntry | None:
    """What the journal holds of the gate once the intent was carried out; `acts` False: it is only reported."""
    found, answer, entry = intent.entrance.deployment, intent.entrance.answer, intent.entrance.standing.entry
    if entry is None or not intent.entrance.standing.own:
        return entry
    if acts and intent.act is not Action.KEEP:
        replicas = 1 if intent.act is Action.OPEN else 0
        return JournalEntry(uid=found.uid, generation=found.generation, replicas=replicas, changed_at=now)
    if answer is None:
        return entry
    idle = found.replicas == 1 and not answer.wanted
    since = now if entry.idle_since is None else entry.idle_since
    return replace(entry, idle_since=since if idle else None)


def _counted(entrance: GateState, lean: Signal, slack: Headroom) -> Intent:
    before = entrance.agreed
    in_a_row = before is not None and (before.act, before.cause) == (lean.act, lean.cause)
    counts = lean.cause not in _MEASURED or not slack.repeats(entrance.gate)
    return Intent(entrance=entrance, lean=lean, samples=(before.samples if before and in_a_row else 0) + counts)


def _lean(entrance: GateState, slack: Headroom, now: int) -> Signal:
    standing = entrance.standing
    if standing.unreadable is not None:
        return Signal(act=Action.KEEP, cause=Cause.UNREADABLE, why=standing.unreadable)
    if standing.other is not None:
        return Signal(act=Action.KEEP, cause=Cause.OTHER, why=standing.other)
    if standing.under_way:
        return Signal(act=Action.KEEP, cause=Cause.UNDER_WAY, why="a run started to scale it and has not finished yet")
    return _leaving(entrance, slack, now) if entrance.open else _entering(entrance, slack, now)


def _leaving(entrance: GateState, slack: Headroom, now: int) -> Signal:
    gate, answer = entrance.gate, entrance.answer
    pressure = slack.pressure(gate)
    if pressure is not None:
        # A probe that fails does not keep a tenant where its neighbours starve, and a seat's pod waits for no sample.
        cause, needed = (Cause.SEAT, 1) if slack.seat_waits(pressure) else (Cause.PRESSURE, PRESSED_SAMPLES)
        return Signal(act=Action.CLOSE, cause=cause, why=slack.why(pressure), needed=needed)
    if answer is None:
        return Signal(act=Action.KEEP, cause=Cause.NO_ANSWER, why=entrance.problem, needed=gate.samples)
    if slack.is_asked_back(gate):
        return Signal(act=Action.CLOSE, cause=Cause.ASKED_BACK, why=answer.why, needed=gate.samples)
    if answer.wanted:
        return Signal(act=Action.KEEP, cause=Cause.DEMAND, why=answer.why)
    if entrance.idle_for(now) < gate.grace_seconds:
        why = f"{answer.why}, for {entrance.idle_for(now)} of {gate.grace_seconds} s"
        return Signal(act=Action.KEEP, cause=Cause.IDLE, why=why)
    return Signal(act=Action.CLOSE, cause=Cause.NO_DEMAND, why=answer.why, needed=gate.samples)


def _entering(entrance: GateState, slack: Headroom, now: int) -> Signal:
    gate, answer = entrance.gate, entrance.answer
    if answer is None:
        return Signal(act=Action.KEEP, cause=Cause.NO_ANSWER, why=entrance.problem, needed=gate.samples)
    if not answer.wanted:
        return Signal(act=Action.KEEP, cause=Cause.NO_DEMAND, why=answer.why)
    closed_for = entrance.unchanged_for(now)
    if closed_for is not None and closed_for < gate.cool_down_seconds:
        why = f"closed {closed_for} s ago; it opens again after {gate.cool_down_seconds}"
        return Signal(act=Action.KEEP, cause=Cause.COOL_DOWN, why=why)
    if slack.problem:
        return Signal(act=Action.KEEP, cause=Cause.BLIND, why=slack.problem)
    refusal = slack.refusal(gate)
    if refusal is not None:
        return Signal(act=Action.KEEP, cause=Cause.NO_ROOM, why=refusal, needed=gate.samples)
    return Signal(act=Action.OPEN, cause=Cause.ROOM, why=answer.why, needed=gate.samples)
