"""Who may be let into a pool's real slack, and who must leave: the pure half of gate (seed 000)."""

from collections.abc import Sequence
from dataclasses import replace

from agents.entrance import Act, Cause, Entrance, Intent, Lean
from agents.slack import Slack
from agents.telemetry import NodeTelemetry
from agents.tenure import Entry

# In a row, under the floor: one may be the moment in which a model is exchanged for another.
PRESSED_SAMPLES = 2

# What rests on a reading, which counts once however often it is asked for.
_MEASURED = (Cause.ROOM, Cause.NO_ROOM, Cause.PRESSURE)


def decide(entrances: Sequence[Entrance], readings: Sequence[NodeTelemetry], now: int) -> tuple[Intent, ...]:
    """What one sample says about each gate, in their order: slack that one takes is no other's."""
    pools = {
        name: Slack(
            [reading for reading in readings if reading.pool.name == name],
            [entrance for entrance in entrances if entrance.gate.pool == name],
            now,
        )
        for name in dict.fromkeys(entrance.gate.pool for entrance in entrances)
    }
    intents = []
    for entrance in entrances:
        slack = pools[entrance.gate.pool]
        intent = _counted(entrance, _lean(entrance, slack, now), slack)
        if intent.act is Act.OPEN:
            slack.take(entrance.gate.need_mib)
        intents.append(intent)
    return tuple(intents)


def entry_after(intent: Intent, now: int, *, acts: bool) -> Entry | None:
    """What the journal holds of the gate once the intent was carried out; `acts` False: it is only told."""
    found, answer, entry = intent.entrance.deployment, intent.entrance.answer, intent.entrance.standing.entry
    if entry is None or not intent.entrance.standing.own:
        return entry
    if acts and intent.act is not Act.KEEP:
        replicas = 1 if intent.act is Act.OPEN else 0
        return Entry(uid=found.uid, generation=found.generation, replicas=replicas, changed_at=now)
    if answer is None:
        return entry
    idle = found.replicas == 1 and not answer.wanted
    since = now if entry.idle_since is None else entry.idle_since
    return replace(entry, idle_since=since if idle else None)


def _counted(entrance: Entrance, lean: Lean, slack: Slack) -> Intent:
    before = entrance.agreed
    in_a_row = before is not None and (before.act, before.cause) == (lean.act, lean.cause)
    counts = lean.cause not in _MEASURED or not slack.repeats(entrance.gate)
    return Intent(entrance=entrance, lean=lean, samples=(before.samples if before and in_a_row else 0) + counts)


def _lean(entrance: Entrance, slack: Slack, now: int) -> Lean:
    standing = entrance.standing
    if standing.other is not None:
        return Lean(act=Act.KEEP, cause=Cause.OTHER, why=standing.other)
    if standing.under_way:
        return Lean(act=Act.KEEP, cause=Cause.UNDER_WAY, why="a run began to scale it and has not ended yet")
    return _leaving(entrance, slack, now) if entrance.open else _entering(entrance, slack, now)


def _leaving(entrance: Entrance, slack: Slack, now: int) -> Lean:
    gate, answer = entrance.gate, entrance.answer
    pressure = slack.pressure(gate)
    if pressure is not None:
        # A probe that fails does not keep a tenant where its neighbours starve.
        return Lean(act=Act.CLOSE, cause=Cause.PRESSURE, why=pressure, needed=PRESSED_SAMPLES)
    if answer is None:
        return Lean(act=Act.KEEP, cause=Cause.NO_ANSWER, why=entrance.problem, needed=gate.samples)
    if answer.wanted:
        return Lean(act=Act.KEEP, cause=Cause.DEMAND, why=answer.why)
    if entrance.idle_for(now) < gate.grace_seconds:
        why = f"{answer.why}, for {entrance.idle_for(now)} of {gate.grace_seconds} s"
        return Lean(act=Act.KEEP, cause=Cause.IDLE, why=why)
    return Lean(act=Act.CLOSE, cause=Cause.NO_DEMAND, why=answer.why, needed=gate.samples)


def _entering(entrance: Entrance, slack: Slack, now: int) -> Lean:
    gate, answer = entrance.gate, entrance.answer
    if answer is None:
        return Lean(act=Act.KEEP, cause=Cause.NO_ANSWER, why=entrance.problem, needed=gate.samples)
    if not answer.wanted:
        return Lean(act=Act.KEEP, cause=Cause.NO_DEMAND, why=answer.why)
    closed_for = entrance.unchanged_for(now)
    if closed_for is not None and closed_for < gate.cool_down_seconds:
        why = f"closed {closed_for} s ago; it opens again after {gate.cool_down_seconds}"
        return Lean(act=Act.KEEP, cause=Cause.COOL_DOWN, why=why)
    if slack.problem:
        return Lean(act=Act.KEEP, cause=Cause.BLIND, why=slack.problem)
    refusal = slack.refusal(gate)
    if refusal is not None:
        return Lean(act=Act.KEEP, cause=Cause.NO_ROOM, why=refusal, needed=gate.samples)
    return Lean(act=Act.OPEN, cause=Cause.ROOM, why=answer.why, needed=gate.samples)
