"""Tests that the watchdog recycles pods for a waiting seat. 4860 MiB of the device are free, and
the floor is 1536 MiB.
"""

from dataclasses import replace
from typing import Any

import pytest

from tenancy.devices.allocate import MemoryRequest
from tenancy.devices.waiting import WaitingSeat
from tenancy.ledger import Seat
from tests.support.watching import (
    ARENA,
    EMULATOR,
    LLAMA,
    Use,
    Watch,
    after,
    recycled,
    second,
    two_cards,
    verdict,
)


def waiting(mib: int = 4000, seconds: float = 60, pool: str = "t4") -> WaitingSeat:
    seat = Seat(name="tts", tenant="tts", pool=pool, gpumem_mib=4000)
    created = after(105 - seconds)
    return WaitingSeat(
        uid="w", namespace="tts", name="tts-0", request=MemoryRequest(mib), seats=(seat,), priority=0, created=created
    )


ROOMY = [(ARENA, 5_000), (LLAMA, 5_000), (EMULATOR, 500)]
CASES: dict[str, tuple[dict[str, Any], list[Use], list[str]]] = {
    "nobody above the floor": ({}, ROOMY, []),
    "an offender for a seat that waits": ({"seats": (waiting(),)}, ROOMY, ["arena"]),
    "nobody within the budget for a seat": ({"seats": (waiting(),)}, [(LLAMA, 5_000), (EMULATOR, 5_500)], []),
    "nobody for a seat while gates may still close": ({"seats": (waiting(seconds=29),)}, ROOMY, []),
    "nobody for a seat without room by the ledger": ({"seats": (waiting(mib=7000),)}, ROOMY, []),
    "nobody for a seat that could load now": ({"seats": (waiting(mib=3000),)}, ROOMY, []),
    "nobody for a seat of another pool": ({"seats": (waiting(pool="other"),)}, ROOMY, []),
}


@pytest.mark.parametrize("case", CASES)
def test_it_recycles(case: str) -> None:
    watch, uses, names = CASES[case]
    assert recycled(second(Watch(**watch), *uses)) == names


FULL = [(ARENA, 3_900), (LLAMA, 5_000), (EMULATOR, 1_600)]


@pytest.mark.parametrize(
    ("seats", "uses", "names"),
    [
        ([(4_500, 60)], FULL, []),
        ([(4_000, 61), (2_000, 60)], FULL, ["arena"]),
        ([(4_000, 62), (1_000, 61), (1_000, 60)], FULL, ["arena"]),
        ([(4_000, 60)], [(ARENA, 3_900), (LLAMA, 5_000), (EMULATOR, 5_000)], ["arena"]),
    ],
    ids=[
        "nobody for a seat for which it would be too little",
        "an offender for the first seat of two",
        "and of three",
        "an offender for the floor though not for the seat",
    ],
)
def test_recycles_free_enough_for_the_seat_that_is_first_or_nobody_goes(
    seats: list[tuple[int, float]], uses: list[Use], names: list[str]
) -> None:
    demands = tuple(replace(waiting(mib, seconds), uid=f"w{seconds}") for mib, seconds in seats)
    assert recycled(second(Watch(seats=demands), *uses)) == names


def test_terminating_pods_count_for_a_seat_that_waits() -> None:
    ending = replace(EMULATOR, gone_by=after(130))
    found = verdict(second(Watch(seats=(waiting(),)), (ARENA, 5_000), (LLAMA, 4_300), (ending, 900)))
    assert (found.recycle, found.demand.mib, found.demand.seats, found.missing_mib) == ((), 376, ("tts/tts-0",), 0)


def test_a_seat_for_which_too_little_is_coming_free_has_the_rest_freed_on_the_same_device() -> None:
    going = replace(EMULATOR, uid="uid-gone", name="gone", gone_by=after(130))
    arena, llama = replace(ARENA, uuids=("GPU-0",)), replace(LLAMA, uuids=("GPU-1",))
    decision = two_cards(Watch(seats=(waiting(),)), (going, 900, 0), (arena, 9_960, 0), (llama, 10_460, 1))
    assert recycled(decision) == ["arena"]
    assert [(each.demand.mib, each.missing_mib) for each in decision.verdicts] == [(1036, 136), (0, 0)]


def test_a_pod_takes_room_by_the_ledger_on_the_device_that_it_was_placed_on() -> None:
    llama, arena = replace(LLAMA, uuids=("GPU-0",), declared_mib=11_000), replace(ARENA, uuids=("GPU-1",))
    decision = two_cards(Watch(seats=(waiting(),)), (llama, 1_000, 0), (arena, 12_000, 1))
    assert recycled(decision) == ["arena"]


def test_for_a_seat_nobody_is_recycled_on_a_device_that_takes_no_new_pod() -> None:
    assert recycled(second(Watch(seats=(waiting(),)), *ROOMY, excluded=frozenset({"GPU-0"}))) == []
