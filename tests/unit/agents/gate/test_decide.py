"""Tests that the workloads that the gate starts in one pass fit into the free memory."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from agents.gate.decide import decide, entry_after
from agents.gate.ownership import UNDER_WAY_SECONDS, Ownership
from agents.gate.pods import Seating
from agents.gate.probes import FreeMemory
from agents.gate.types import Action, Cause, GateState, Intent, Signal
from agents.telemetry.client import NodeTelemetry
from tests.support.fake_cluster import T4
from tests.support.gating import (
    NEEDED_MIB,
    NIGHTLY,
    NO,
    NOW,
    OPEN_NEXT,
    PRESSED_BEFORE,
    TTS,
    YES,
    device,
    entry,
    reading,
    state,
)

IDLE_LONG, IDLE_SHORT = NOW - 300, NOW - 299
CLOSE_NEXT = Signal(act=Action.CLOSE, cause=Cause.NO_DEMAND, why="", samples=2)


def first(found: GateState, *readings: NodeTelemetry) -> Intent:
    (intent,) = decide([found], readings, Seating(), NOW)
    return intent


def again(found: NodeTelemetry) -> NodeTelemetry:
    return replace(found, repeated=True)


def test_an_error_of_one_workload_or_its_pool_leaves_the_others_as_they_are() -> None:
    broken = state(replace(TTS, name="broken"), agreed=OPEN_NEXT, problem="", answer=object())
    other = replace(TTS, name="other", pool="l4")
    found = decide(
        [broken, state(agreed=OPEN_NEXT), state(other, agreed=OPEN_NEXT)],
        [reading(9000), replace(reading(9000, pool=replace(T4, name="l4")), uses=(None,))],  # type: ignore[arg-type]
        Seating(),
        NOW,
    )
    assert [(each.act, each.signal.cause) for each in found] == [
        (Action.KEEP, Cause.UNREADABLE),
        (Action.OPEN, Cause.ROOM),
        (Action.KEEP, Cause.UNREADABLE),
    ]
    assert [each.signal.why.partition(":")[0] for each in found if each.signal.cause is Cause.UNREADABLE] == [
        "AttributeError"
    ] * 2


OPENING: dict[str, tuple[dict[str, Any], list[NodeTelemetry], Action, str]] = {
    "room to the MiB": ({}, [reading(NEEDED_MIB)], Action.OPEN, "pending is 2"),
    "a MiB too little": ({}, [reading(NEEDED_MIB - 1)], Action.KEEP, "3839 of them for newcomers; 3840 are needed"),
    "room on both devices": ({}, [reading(NEEDED_MIB, 9000)], Action.OPEN, "pending is 2"),
    "room on one device of two, and it may be given the other": (
        {},
        [reading(2000, 9000)],
        Action.KEEP,
        "n, gpu 0: 2000",
    ),
    "no demand": ({"answer": NO}, [reading(9000)], Action.KEEP, "pending is 0"),
    "a failed probe": ({"answer": None, "problem": "HTTP 500"}, [reading(9000)], Action.KEEP, "HTTP 500"),
    "no node": ({}, [], Action.KEEP, "no node of the pool is measured"),
    "no telemetry": ({}, [reading(problem="HTTP 503")], Action.KEEP, "n: HTTP 503"),
    "telemetry of one node of two": ({}, [reading(9000), reading(node="m", problem="gone")], Action.KEEP, "m: gone"),
    "a device of the node that is lost": ({}, [reading(9000, problem="gpu 1: gone")], Action.KEEP, "n: gpu 1: gone"),
    "a node without devices": ({}, [reading()], Action.KEEP, "n: no device"),
    "closed a moment ago": ({"changed_at": NOW - 299}, [reading(9000)], Action.KEEP, "it opens again after 300"),
    "closed long enough ago": ({"changed_at": NOW - 300}, [reading(9000)], Action.OPEN, "pending is 2"),
    "closed in the future, by a clock that jumped": (
        {"changed_at": NOW + 9},
        [reading(9000)],
        Action.KEEP,
        "closed 0 s",
    ),
    "somebody else's": (
        {"ownership": Ownership(entry=None, other="HPA x scales it")},
        [reading(9000)],
        Action.KEEP,
        "HPA",
    ),
    "an act under way": (
        {"ownership": Ownership(entry=entry(replicas=1), under_way=True)},
        [reading(9000)],
        Action.KEEP,
        "a run started to scale it",
    ),
}


@pytest.mark.parametrize("case", OPENING)
def test_a_closed_gate_with(case: str) -> None:
    fields, readings, act, words = OPENING[case]
    intent = first(state(agreed=OPEN_NEXT, **fields), *readings)
    assert intent.act is act
    assert words in intent.signal.why


CLOSING: dict[str, tuple[dict[str, Any], list[NodeTelemetry], Action, Cause]] = {
    "demand": ({}, [reading(1536)], Action.KEEP, Cause.DEMAND),
    "no demand for long enough": (
        {"answer": NO, "idle_since": IDLE_LONG, "agreed": CLOSE_NEXT},
        [reading(9000)],
        Action.CLOSE,
        Cause.NO_DEMAND,
    ),
    "no demand for a while": (
        {"answer": NO, "idle_since": IDLE_SHORT, "agreed": CLOSE_NEXT},
        [reading(9000)],
        Action.KEEP,
        Cause.IDLE,
    ),
    "no demand for the first time": ({"answer": NO, "agreed": CLOSE_NEXT}, [reading(9000)], Action.KEEP, Cause.IDLE),
    "the end of its window": (
        {"gate": NIGHTLY, "answer": NO, "agreed": CLOSE_NEXT},
        [reading(9000)],
        Action.CLOSE,
        Cause.NO_DEMAND,
    ),
    "no demand, and no telemetry": (
        {"answer": NO, "idle_since": IDLE_LONG, "agreed": CLOSE_NEXT},
        [reading(problem="gone")],
        Action.CLOSE,
        Cause.NO_DEMAND,
    ),
    "a failed probe": ({"answer": None, "idle_since": IDLE_LONG}, [reading(9000)], Action.KEEP, Cause.NO_ANSWER),
    "pressure": ({"agreed": PRESSED_BEFORE}, [reading(1535)], Action.CLOSE, Cause.PRESSURE),
    "pressure, and another device is lost": (
        {"agreed": PRESSED_BEFORE},
        [reading(1535, problem="gpu 1: gone")],
        Action.CLOSE,
        Cause.PRESSURE,
    ),
    "pressure for one sample": ({}, [reading(1535)], Action.KEEP, Cause.PRESSURE),
    "pressure, and a failed probe": (
        {"answer": None, "agreed": PRESSED_BEFORE},
        [reading(1535)],
        Action.CLOSE,
        Cause.PRESSURE,
    ),
    "pressure on a device that it does not use": (
        {"agreed": PRESSED_BEFORE, "used_mib": {"GPU-1": 900}},
        [reading(1535, 9000)],
        Action.KEEP,
        Cause.DEMAND,
    ),
    "no telemetry": ({"agreed": PRESSED_BEFORE}, [reading(problem="gone")], Action.KEEP, Cause.DEMAND),
    "no node": ({"agreed": PRESSED_BEFORE}, [], Action.KEEP, Cause.DEMAND),
    "another owner, under pressure": (
        {"ownership": Ownership(entry=entry(replicas=0), other="kubectl scaled it"), "agreed": PRESSED_BEFORE},
        [reading(10)],
        Action.KEEP,
        Cause.OTHER,
    ),
    "no demand, which rests on no reading": (
        {"answer": NO, "idle_since": IDLE_LONG, "agreed": CLOSE_NEXT},
        [again(reading(9000))],
        Action.CLOSE,
        Cause.NO_DEMAND,
    ),
}


@pytest.mark.parametrize("case", CLOSING)
def test_an_open_gate_with(case: str) -> None:
    fields, readings, act, cause = CLOSING[case]
    intent = first(state(**{"replicas": 1, **fields}), *readings)
    assert (intent.act, intent.signal.cause) == (act, cause)


def test_a_sample_that_says_something_else_starts_the_count_again() -> None:
    assert first(state(agreed=OPEN_NEXT), reading(9000)).signal.samples == 3
    assert first(state(agreed=replace(OPEN_NEXT, act=Action.KEEP)), reading(9000)).signal.samples == 1
    assert first(state(agreed=replace(OPEN_NEXT, cause=Cause.PRESSURE)), reading(9000)).signal.samples == 1


def test_a_reading_counts_once_however_often_it_is_asked_for() -> None:
    assert first(state(agreed=OPEN_NEXT), again(reading(9000))).signal.samples == 2
    assert first(state(), again(reading(9000))).signal.samples == 0
    assert first(state(replicas=1, agreed=PRESSED_BEFORE), again(reading(10))).signal.samples == 1
    assert first(state(agreed=OPEN_NEXT), reading(9000), again(reading(9000, node="m"))).signal.samples == 2


def test_a_node_that_tells_nothing_new_keeps_nobody_where_another_is_under_its_floor() -> None:
    elsewhere = NodeTelemetry(pool=T4, node="m", devices=(replace(device(10), uuid="GPU-m"),), repeated=True)
    gone = again(reading(node="o", problem="gone"))
    for readings in ((reading(10), elsewhere), (elsewhere, reading(10)), (reading(10), gone)):
        assert first(state(replicas=1, agreed=PRESSED_BEFORE), *readings).act is Action.CLOSE


OTHER = replace(TTS, name="ytdlp", deployment="ytdlp")


def acts(states: Sequence[GateState], *readings: NodeTelemetry) -> list[Action]:
    return [intent.act for intent in decide(states, readings, Seating(), NOW)]


def test_two_gates_are_not_given_the_same_headroom() -> None:
    both = [state(agreed=OPEN_NEXT), state(OTHER, agreed=OPEN_NEXT)]
    assert acts(both, reading(4096)) == [Action.OPEN, Action.KEEP]
    assert acts(both, reading(NEEDED_MIB + 2048)) == [Action.OPEN, Action.OPEN]
    assert acts([state(), both[1]], reading(4096)) == [Action.KEEP, Action.OPEN], "the first needs another sample"


ALWAYS = replace(TTS, name="always", deployment="always", demand=FreeMemory())
ASKED_BEFORE = Signal(act=Action.CLOSE, cause=Cause.ASKED_BACK, why="", samples=2)


@pytest.mark.parametrize(
    ("free_mib", "held_mib", "act"),
    [
        (NEEDED_MIB - 1, 2048, Action.CLOSE),
        (NEEDED_MIB - 2048, 2048, Action.CLOSE),
        (NEEDED_MIB - 2049, 2048, Action.KEEP),
        (NEEDED_MIB, 2048, Action.KEEP),
        (NEEDED_MIB + 2047, 0, Action.CLOSE),
    ],
)
def test_who_is_in_on_free_memory_alone_makes_room_for_demand_where_that_helps(
    free_mib: int, held_mib: int, act: Action
) -> None:
    held = {"GPU-0": held_mib} if held_mib else {}
    lent = state(ALWAYS, replicas=1, used_mib=held, agreed=ASKED_BEFORE)
    assert acts([state(), lent], reading(free_mib))[1] is act


@pytest.mark.parametrize(
    ("replicas", "used_mib", "free_mib", "act"),
    [
        (1, {}, NEEDED_MIB + 2047, Action.KEEP),
        (1, {}, NEEDED_MIB + 2048, Action.OPEN),
        (1, {"GPU-0": 48}, NEEDED_MIB + 1999, Action.KEEP),
        (1, {"GPU-0": 48}, NEEDED_MIB + 2000, Action.OPEN),
        (1, {"GPU-0": 2048}, NEEDED_MIB, Action.OPEN),
        (1, {"GPU-0": 3000}, NEEDED_MIB, Action.OPEN),
        (2, {"GPU-0": 2048}, NEEDED_MIB + 2047, Action.KEEP),
        (0, {"GPU-0": 2048}, NEEDED_MIB, Action.OPEN),
    ],
)
def test_who_was_let_in_and_loads_still_holds_what_it_needs(
    replicas: int, used_mib: dict[str, int], free_mib: int, act: Action
) -> None:
    loads = state(replicas=replicas, used_mib=used_mib)
    assert acts([loads, state(OTHER, agreed=OPEN_NEXT)], reading(free_mib))[1] is act


def test_an_act_under_way_holds_its_headroom_already() -> None:
    begun = state(ownership=Ownership(entry=entry(replicas=1), under_way=True))
    newcomer = state(OTHER, agreed=OPEN_NEXT)
    assert acts([begun, newcomer], reading(NEEDED_MIB + 2047)) == [Action.KEEP, Action.KEEP]
    assert acts([begun, newcomer], reading(NEEDED_MIB + 2048)) == [Action.KEEP, Action.OPEN]


@pytest.mark.parametrize(
    ("free_mib", "used_mib", "expected"),
    [
        (1036, [1000, 1000], [Action.KEEP, Action.CLOSE]),
        (536, [1000, 1000], [Action.KEEP, Action.CLOSE]),
        (535, [1000, 1000], [Action.CLOSE, Action.CLOSE]),
        (1036, [1000, None], [Action.CLOSE, Action.CLOSE]),
        (1036, [None, 1000], [Action.KEEP, Action.CLOSE]),
    ],
)
def test_under_pressure_the_last_leave_first_and_no_more_than_it_takes(
    free_mib: int, used_mib: list[int | None], expected: list[Action]
) -> None:
    held: list[dict[str, int]] = [{} if used is None else {"GPU-0": used} for used in used_mib]
    both = [
        state(gate, replicas=1, used_mib=used, agreed=PRESSED_BEFORE)
        for gate, used in zip((TTS, OTHER), held, strict=True)
    ]
    assert acts(both, reading(free_mib)) == expected


@pytest.mark.parametrize(("seconds", "act"), [(UNDER_WAY_SECONDS - 1, Action.KEEP), (UNDER_WAY_SECONDS, Action.CLOSE)])
def test_what_a_closed_gate_gives_back_is_waited_for_but_not_for_ever(seconds: int, act: Action) -> None:
    going = state(OTHER, replicas=0, used_mib={"GPU-0": 1000}, changed_at=NOW - seconds)
    stays = state(replicas=1, used_mib={"GPU-0": 1000}, agreed=PRESSED_BEFORE)
    assert acts([stays, going], reading(1036))[0] is act


def test_the_journal_holds_an_act_before_it_is_carried_out() -> None:
    opens = first(state(agreed=OPEN_NEXT), reading(9000))
    assert entry_after(opens, NOW, acts=True) == entry(replicas=1, changed_at=NOW)
    assert entry_after(opens, NOW, acts=False) == entry(replicas=0)
    closes = first(state(replicas=1, agreed=PRESSED_BEFORE, changed_at=NOW - 9), reading(1))
    assert entry_after(closes, NOW, acts=True) == entry(replicas=0, changed_at=NOW)


@pytest.mark.parametrize(
    ("fields", "idle_since"),
    [
        ({"answer": NO}, NOW),
        ({"answer": NO, "idle_since": NOW - 9}, NOW - 9),
        ({"answer": YES, "idle_since": NOW - 9}, None),
        ({"answer": None, "idle_since": NOW - 9}, NOW - 9),
        ({"answer": NO, "idle_since": NOW - 9, "replicas": 0}, None),
    ],
)
def test_the_journal_holds_since_when_an_open_gate_is_idle(fields: dict[str, Any], idle_since: int | None) -> None:
    kept = entry_after(first(state(**{"replicas": 1, **fields}), reading(9000)), NOW, acts=True)
    assert kept is not None
    assert kept.idle_since == idle_since
