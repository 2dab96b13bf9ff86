"""Makes random samples of on-demand workloads in two pools, and checks each decision of the gate."""

import random
from collections.abc import Iterable
from dataclasses import replace

from agents.gate.decide import decide
from agents.gate.ownership import Ownership
from agents.gate.pods import Seating
from agents.gate.probes import Window
from agents.gate.types import Action, Cause, GateState, Intent, Streak
from agents.telemetry.client import NodeTelemetry
from tenancy.ledger import Pool
from tenancy.units import MIB
from tests.support.fake_cluster import T4
from tests.support.gating import NIGHTLY, NO, NOW, TTS, YES, entry, reading, state

POOLS = (T4, replace(T4, name="l4", floor_mib=0))


def random_readings(dice: random.Random, pool: Pool) -> list[NodeTelemetry]:
    nodes = (f"{pool.name}-{node}" for node in range(dice.choice((1, 1, 1, 0, 2))))
    return [
        NodeTelemetry(pool=pool, node=node, problem="gone")
        if dice.random() < 0.05
        else _placed(reading(*(dice.randrange(0, 9000, 64) for _ in range(dice.randint(1, 2))), pool=pool, node=node))
        for node in nodes
    ]


def _placed(found: NodeTelemetry) -> NodeTelemetry:
    return replace(found, devices=tuple(replace(d, uuid=f"{found.node}/{d.gpu}") for d in found.devices))


def random_state(dice: random.Random, index: int) -> GateState:
    gate = replace(
        dice.choice((TTS, NIGHTLY)),
        name=f"g{index}",
        deployment=f"g{index}",
        pool=dice.choice(("t4", "t4", "l4")),
        need_mib=dice.randrange(64, 4096, 64),
        margin_mib=dice.choice((0, 256)),
        samples=dice.randint(1, 3),
    )
    replicas = dice.choice((0, 0, 0, 1, 1, 2))
    found = state(
        gate,
        replicas=replicas,
        changed_at=dice.choice((None, NOW - 9, NOW - 400, NOW + 50)),
        idle_since=dice.choice((None, NOW - 9, NOW - 400, NOW + 50)),
        answer=dice.choice((YES, YES, NO, None)),
        used_mib={
            f"{gate.pool}-{node}/{gpu}": dice.randrange(0, 4096, 64)
            for node in range(2)
            for gpu in range(2)
            if dice.random() < 0.2
        },
        nodes=dice.choice((frozenset(), frozenset({f"{gate.pool}-0"}), frozenset({f"{gate.pool}-1"}))),
        agreed=dice.choice(
            (
                None,
                Streak(act=Action.OPEN, cause=Cause.ROOM, samples=dice.randint(1, 3)),
                Streak(
                    act=Action.CLOSE, cause=dice.choice((Cause.NO_DEMAND, Cause.PRESSURE)), samples=dice.randint(1, 3)
                ),
            )
        ),
    )
    if replicas > 1 or dice.random() < 0.1:
        return replace(found, ownership=replace(found.ownership, other="somebody"))
    if dice.random() < 0.1:
        return replace(found, ownership=Ownership(entry=entry(gate, 1 - replicas, changed_at=NOW), under_way=True))
    return found


def check(states: list[GateState], readings: list[NodeTelemetry]) -> None:
    intents = decide(states, readings, Seating(), NOW)
    for pool in ("t4", "l4"):
        _check_pool([i for i in intents if i.gate.pool == pool], [r for r in readings if r.pool.name == pool])


def _check_pool(intents: list[Intent], readings: list[NodeTelemetry]) -> None:
    opened = [intent for intent in intents if intent.act is Action.OPEN]
    free_mib = {device.uuid: device.free_bytes // MIB for reading in readings for device in reading.devices}
    floor_mib = readings[0].pool.floor_mib if readings else 0
    if opened:
        assert readings
        assert all(reading.problem is None for reading in readings), "opened without telemetry"
        for uuid, free in free_mib.items():
            promised = sum(_may_still_take(intent.state, uuid, free_mib.keys()) for intent in intents)
            taken = sum(intent.gate.need_mib for intent in opened)
            assert free - promised - taken >= floor_mib, "more than the headroom"
    for intent in intents:
        pressed = {uuid for uuid, free in free_mib.items() if free < floor_mib}
        _check_act(intent, any(_may_be_on(intent.state, uuid, free_mib.keys()) for uuid in pressed))


def _may_be_on(found: GateState, uuid: str, devices: Iterable[str]) -> bool:
    if any(used in devices for used in found.used_mib):
        return uuid in found.used_mib
    return not found.nodes or uuid.partition("/")[0] in found.nodes


def _may_still_take(found: GateState, uuid: str, devices: Iterable[str]) -> int:
    replicas = found.deployment.replicas
    if found.ownership.under_way:
        replicas = 1
    here = _may_be_on(found, uuid, devices)
    return max(0, found.gate.need_mib * replicas - sum(found.used_mib.values())) if here else 0


def _check_act(intent: Intent, pressed: bool) -> None:
    found, act = intent.state, intent.act
    if act is Action.KEEP:
        return
    assert found.ownership.own, "fought another owner"
    if act is Action.OPEN:
        assert found.deployment.replicas == 0
        assert found.answer is not None
        assert found.answer.wanted
        closed_for = found.unchanged_for(NOW)
        assert closed_for is None or closed_for >= found.gate.cool_down_seconds, "flaps"
        assert found.agreed is not None or found.gate.samples == 1
        return
    assert found.deployment.replicas == 1
    if found.answer is None or found.answer.wanted:
        assert pressed, "closed on a probe that failed, in spite of demand, or for another node's trouble"
        assert found.agreed is not None
    elif not pressed and not isinstance(found.gate.demand, Window):
        assert found.idle_for(NOW) >= found.gate.idle_seconds
