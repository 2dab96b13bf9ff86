"""Gates over time: devices that waver, probes and exporters that fail, tenants that load slowly."""

import random
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.benchmarks.gates import SCENARIOS
from tests.support import search
from tests.support.fake_cluster import T4
from tests.support.gate_curves import Curve, Ours, Outcome, Scenario, play, steady, tenant

HOUR = 3600
WORLDS = search.cases(12, soak=60)


def steps(dice: random.Random, low: int, high: int, every: int) -> Curve:
    levels = [dice.randint(low, high) for _ in range(HOUR // every + 1)]
    return lambda second: levels[second // every]


def probe(levels: Curve) -> Callable[[int], int | None]:
    """A queue; a negative level is a probe that fails."""
    return lambda second: None if levels(second) < 0 else levels(second)


def world(dice: random.Random, *, residents: Curve) -> Scenario:
    """Up to three tenants with work that comes and goes, and an exporter that sees nothing a tenth of the time."""
    tenants = tuple(
        tenant(
            f"g{index}",
            dice.randrange(256, 4096, 64),
            probe(steps(dice, -1, 2, dice.choice((20, 90, 700)))),
            load_seconds=dice.choice((1, 60, 900)),
        )
        for index in range(dice.randint(1, 3))
    )
    seen = steps(dice, 0, 9, 120)
    return Scenario(
        name="random", tenants=tenants, residents=residents, seconds=HOUR, seen=lambda second: seen(second) > 0
    )


def check(outcome: Outcome) -> None:
    assert outcome.no_room == 0
    # It opens at most once for each cool-down, however the curves waver.
    assert all(openings <= 1 + HOUR // 300 for openings in outcome.by_tenant.values()), outcome.by_tenant


@pytest.mark.search
def test_gates_never_bring_a_device_under_its_floor_that_its_residents_leave_alone() -> None:
    dice = search.dice("steady residents")
    opened = 0
    for _ in range(WORLDS):
        outcome = play(world(dice, residents=steady(dice.randrange(4000, 13800, 64))), Ours())
        check(outcome)
        assert outcome.least_free_mib >= T4.floor_mib
        opened += outcome.openings
    assert opened > WORLDS / 4


@pytest.mark.search
def test_gates_open_at_most_once_in_a_cool_down_however_the_residents_waver() -> None:
    dice = search.dice("wavering residents")
    for _ in range(WORLDS):
        check(play(world(dice, residents=steps(dice, 6000, 13000, dice.choice((7, 15, 200)))), Ours()))


@settings(max_examples=10)
@given(st.randoms(use_true_random=False))
def test_the_smallest_world_that_breaks_a_promise_is_found(dice: random.Random) -> None:
    check(play(world(dice, residents=steps(dice, 6000, 13000, 200)), Ours()))


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.name)
def test_on_the_curves_of_the_comparison_nobody_is_let_into_no_room(scenario: Scenario) -> None:
    assert play(scenario, Ours()).no_room == 0
