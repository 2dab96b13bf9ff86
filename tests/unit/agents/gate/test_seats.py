"""Tests that the gate keeps memory free for seats, and stops on-demand workloads for a seat's pod.

The figures are those of prod: one T4 of 15360 MiB, a floor of 1536 MiB, and seats of 13336 MiB.
"""

from dataclasses import replace

import pytest

from agents.gate.decide import decide
from agents.gate.pods import Seating
from agents.gate.types import Action, Cause, GateState, Intent
from agents.telemetry.client import NodeTelemetry
from tests.simulation.model.tenants import STEADY
from tests.support.fake_cluster import T4
from tests.support.gating import (
    NIGHTLY,
    NO,
    NOW,
    OPEN_NEXT,
    PRESSED_BEFORE,
    TTS,
    reading,
    seat,
    seat_pod,
    state,
    used,
    waiting,
)

BUDGETS = {"immich-ml": 3000, "llama-swap": 5000, "frigate": 2000, "immich-server": 1800, "portal-stt": 1536}
SEATS = tuple(seat(name, mib) for name, mib in BUDGETS.items())
DRIVER_MIB = 450
YTDLP = replace(TTS, name="ytdlp", deployment="ytdlp")


def card(**mib: int) -> NodeTelemetry:
    return used(reading(T4.memory_mib - DRIVER_MIB - sum(mib.values())), **mib)


STARTING_SECONDS = 300


def seating(*absent: str, **changed: object) -> Seating:
    pods = tuple(seat_pod(name, mib) for name, mib in BUDGETS.items() if name not in absent)
    return replace(Seating(seats=SEATS, pods=(*pods, seat_pod("tts", 0)), starting_seconds=STARTING_SECONDS), **changed)  # type: ignore[arg-type]


def without(*names: str) -> dict[str, int]:
    return {name: mib for name, mib in STEADY.items() if name not in names}


def one(found: GateState, measured: NodeTelemetry, seats: Seating) -> Intent:
    (intent,) = decide([found], [measured], seats, NOW)
    return intent


def opens(measured: NodeTelemetry, seats: Seating) -> bool:
    return one(state(agreed=OPEN_NEXT), measured, seats).act is Action.OPEN


def let_in(**fields: object) -> GateState:
    return state(**{"replicas": 1, "used_mib": {"GPU-0": 2048}, "nodes": frozenset({"n"}), **fields})


def test_tts_waits_at_the_steady_use_of_record_0000_until_a_resident_unloads_a_model() -> None:
    """While all five residents run, 3595 MiB are free. The gate starts tts only if 3840 MiB are free."""
    assert not opens(card(**STEADY), seating())
    assert not opens(card(**{**STEADY, "immich-ml": 1906}), seating()), "3839 MiB are free"
    assert opens(card(**{**STEADY, "immich-ml": 1905}), seating())


@pytest.mark.parametrize(
    ("since", "holds_mib", "free"),
    [
        (NOW - STARTING_SECONDS, 300, True),
        (NOW - STARTING_SECONDS + 1, 300, False),
        (NOW - STARTING_SECONDS + 1, 5000, True),
        (None, 300, False),
        (NOW - 86_400, 0, False),
    ],
)
def test_the_budget_of_a_pod_that_starts_or_uses_nothing_is_kept(since: int | None, holds_mib: int, free: bool) -> None:
    pod = seat_pod("llama-swap", 5000, since=since)
    measured = used(reading(8000), **({"llama-swap": holds_mib} if holds_mib else {}))
    assert (
        opens(measured, Seating(seats=(seat("llama-swap", 5000),), pods=(pod,), starting_seconds=STARTING_SECONDS))
        is free
    )


def test_no_gate_opens_into_what_a_waiting_job_of_a_queue_was_promised() -> None:
    """Kueue has admitted the Job to its queue."""
    assert opens(reading(6500), Seating())
    assert not opens(reading(6500), Seating(waiting=(waiting("job", 3000),)))


WAITS = replace(seating("llama-swap"), waiting=(waiting("llama-swap", 5000),))


@pytest.mark.parametrize(
    "found",
    [
        let_in(),
        let_in(gate=NIGHTLY),
        let_in(changed_at=NOW - 1),
        let_in(answer=None),
        let_in(answer=NO, idle_since=NOW),
        let_in(used_mib={}),
        let_in(used_mib={}, nodes=frozenset()),
    ],
    ids=["loaded", "in its window", "just let in", "unanswered", "idle", "loading", "not bound"],
)
def test_for_a_seat_that_waits_a_gate_closes_at_the_first_sample(found: GateState) -> None:
    """Before the fix, the seat's pod waited, because the gate stopped no workload."""
    measured = used(reading(5797), tts=2048)
    for each in (measured, replace(measured, repeated=True)):
        intent = one(found, each, WAITS)
        assert (intent.act, intent.signal.cause) == (Action.CLOSE, Cause.SEAT)
        assert (
            "n, gpu 0: 5797 MiB are free, the floor is 1536; llama-swap/llama-swap waits for 5000" in intent.signal.why
        )


def test_for_a_seat_no_more_gates_close_than_it_takes_the_last_first() -> None:
    both = [let_in(), let_in(gate=YTDLP)]
    (tts, ytdlp) = decide(both, [reading(5797)], WAITS, NOW)
    assert (tts.act, ytdlp.act) == (Action.KEEP, Action.CLOSE)
    (tts, ytdlp) = decide(both, [reading(4000)], WAITS, NOW)
    assert (tts.act, ytdlp.act) == (Action.CLOSE, Action.CLOSE)


NO_PRESSURE = {
    "a seat that would fit": (reading(6536), WAITS),
    "one of another pool": (reading(5797), replace(WAITS, waiting=(waiting("llama-swap", 5000, pool="l4"),))),
    "one without room by the ledger": (
        reading(5797),
        replace(seating("llama-swap"), waiting=(waiting("llama-swap", 5701),)),
    ),
    "one that fits the node's other device": (
        reading(5797, 9000, pool=replace(T4, device_count=2)),
        replace(WAITS, pods=()),
    ),
    "one for which memory is about to be given back": (
        used(reading(5797), old=4454),
        replace(WAITS, pods=(*WAITS.pods, seat_pod("old", 5000, going_since=NOW - 5))),
    ),
}


@pytest.mark.parametrize("case", NO_PRESSURE)
def test_no_gate_closes_for(case: str) -> None:
    measured, seats = NO_PRESSURE[case]
    assert one(let_in(), measured, seats).act is Action.KEEP


def test_for_a_seat_that_starts_a_gate_closes_at_the_second_reading() -> None:
    """An exporter that hangs always returns the same reading."""
    starts = replace(WAITS, waiting=(), pods=(*WAITS.pods, seat_pod("llama-swap", 5000, since=NOW - 5)))
    measured = used(reading(7000))
    loading = let_in(used_mib={"GPU-0": 1})
    first = one(loading, measured, starts)
    assert (first.act, first.signal.act, first.signal.cause) == (Action.KEEP, Action.CLOSE, Cause.PRESSURE)
    assert "seats that have just started may load 5000 MiB" in first.signal.why
    again = replace(loading, agreed=first.signal)
    assert one(again, replace(measured, repeated=True), starts).act is Action.KEEP
    assert one(again, measured, starts).act is Action.CLOSE
    assert one(let_in(), measured, starts).signal.act is Action.KEEP


@pytest.mark.parametrize(
    ("grace", "seconds", "act"),
    [
        (30, 0, Action.KEEP),
        (30, 44, Action.KEEP),
        (30, 45, Action.CLOSE),
        (0, 15, Action.CLOSE),
        (60, 74, Action.KEEP),
        (3600, 75, Action.CLOSE),
    ],
)
def test_what_the_watchdogs_offender_gives_back_is_waited_for_before_a_gate_closes(
    grace: int, seconds: int, act: Action
) -> None:
    """Before the fix, the gate stopped tts while the evicted pod was still terminating."""
    going = seat_pod("immich-ml", 3000, going_since=NOW - seconds, grace_seconds=grace)
    seats = replace(seating("immich-ml"), pods=(*seating("immich-ml").pods, going))
    measured = used(reading(600), tts=2048, **{"immich-ml": 9000})
    assert one(let_in(agreed=PRESSED_BEFORE), measured, seats).act is act


@pytest.mark.parametrize(("node", "act"), [("a", Action.KEEP), ("b", Action.CLOSE)])
def test_pressure_on_another_node_than_its_pods_closes_no_gate(node: str, act: Action) -> None:
    nodes = [reading(9000, node="a"), replace(reading(100, node="b"), devices=reading(100, 100).devices[1:])]
    found = let_in(used_mib={}, nodes=frozenset({node}), agreed=PRESSED_BEFORE)
    (intent,) = decide([found], nodes, Seating(), NOW)
    assert intent.act is act
