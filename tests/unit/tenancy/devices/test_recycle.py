"""Tests that the watchdog chooses the smallest set of offenders that restores the floor."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tenancy.devices.recycle import RecycleChoice, choose_offenders, overshoot_mib, total_overshoot


@dataclass(frozen=True, kw_only=True)
class Offender:
    name: str
    overshoot_mib: int
    priority: int = 0
    age_seconds: float = 0


ARENA = Offender(name="immich-ml", overshoot_mib=7956, priority=1_200_000, age_seconds=86_400)
TTS = Offender(name="tts", overshoot_mib=600, priority=600_000, age_seconds=600)
LLAMA = Offender(name="llama-swap", overshoot_mib=100, priority=1_200_000, age_seconds=3_600)


def names(choice: RecycleChoice[Offender]) -> list[str]:
    return [offender.name for offender in choice.chosen]


@pytest.mark.parametrize(
    ("shortfall_mib", "chosen", "restores"),
    [
        (0, [], True),
        (-5, [], True),
        (600, ["tts"], True),
        (601, ["immich-ml"], True),
        (7957, ["immich-ml", "tts"], True),
        (8657, [], False),
    ],
)
def test_of_a_runaway_a_low_priority_and_a_slight_one(shortfall_mib: int, chosen: list[str], restores: bool) -> None:
    choice = choose_offenders([LLAMA, ARENA, TTS], shortfall_mib=shortfall_mib)
    assert (names(choice), choice.restores) == (chosen, restores)


@pytest.mark.parametrize(
    ("used", "declared_mib", "over_mib"),
    [
        ({"GPU-0": 3000}, 3000, 0),
        ({"GPU-0": 3001}, 3000, 1),
        ({"GPU-1": 9000}, 3000, 0),
        ({"GPU-0": 1500, "GPU-1": 1500}, 3000, 0),
        ({"GPU-0": 2900, "GPU-1": 2900}, 3000, 2800),
        ({"GPU-0": 100, "GPU-1": 5900}, 3000, 100),
        ({}, 3000, 0),
    ],
)
def test_a_pod_is_over_when_its_devices_together_are(used: dict[str, int], declared_mib: int, over_mib: int) -> None:
    assert overshoot_mib(used=used, device="GPU-0", declared_mib=declared_mib) == over_mib


@pytest.mark.parametrize(
    ("used", "over_mib", "total_mib"),
    [
        ({"GPU-0": 3000, "GPU-1": 3000}, 0, 0),
        ({"GPU-0": 4500, "GPU-1": 100}, 1500, 1500),
        ({"GPU-0": 2900, "GPU-1": 9000}, 0, 6000),
        ({"GPU-0": 3200, "GPU-1": 3300}, 200, 500),
        ({"GPU-0": 10, "GPU-2": 700}, 0, 700),
        ({}, 0, 0),
    ],
)
def test_a_pod_on_two_devices_has_half_of_its_budget_on_each(
    used: dict[str, int], over_mib: int, total_mib: int
) -> None:
    placed_on = ("GPU-0", "GPU-1")
    assert overshoot_mib(used=used, device="GPU-0", declared_mib=6000, placed_on=placed_on) == over_mib
    assert total_overshoot(used=used, declared=6000, placed_on=placed_on) == total_mib


def expected(offenders: Sequence[Offender], shortfall_mib: int) -> RecycleChoice[Offender]:
    for size in range(1, len(offenders) + 1):
        enough = [
            chosen
            for chosen in combinations(offenders, size)
            if sum(offender.overshoot_mib for offender in chosen) >= shortfall_mib
        ]
        if enough:
            return RecycleChoice(chosen=tuple(sorted(min(enough, key=_rank), key=_order)), restores=True)
    return RecycleChoice(chosen=(), restores=False)


def _rank(chosen: Iterable[Offender]) -> tuple[list[int], list[tuple[int, int]], list[tuple[float, str]]]:
    ordered = sorted(chosen, key=_order)
    return (
        [offender.priority for offender in ordered],
        [(-offender.priority, -offender.overshoot_mib) for offender in ordered],
        [(offender.age_seconds, offender.name) for offender in ordered],
    )


def _order(offender: Offender) -> tuple[int, int, float, str]:
    return -offender.priority, -offender.overshoot_mib, offender.age_seconds, offender.name


offenders = st.lists(
    st.builds(
        Offender,
        name=st.text("abcdef", min_size=1, max_size=3),
        overshoot_mib=st.integers(1, 12),
        priority=st.integers(0, 2),
        age_seconds=st.sampled_from([1.0, 2.0]),
    ),
    min_size=1,
    max_size=7,
    unique_by=lambda offender: offender.name,
)


@given(offenders, st.integers(1, 40))
@example([LLAMA, ARENA, TTS], 7957)
def test_the_choice_is_the_best_of_all_sets(found: list[Offender], shortfall_mib: int) -> None:
    assert choose_offenders(found, shortfall_mib=shortfall_mib) == expected(found, shortfall_mib)
