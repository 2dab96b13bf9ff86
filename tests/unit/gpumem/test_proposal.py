"""Tests the budgets that advise proposes from a history, and the stated risk of each budget."""

import pytest

from gpumem.proposal import DAY_SECONDS, GRID_MIB, Advice, UseSample, Verdict, advise
from tenancy.host_memory.history import interval
from tests.support.weeks import HOUR, KINDS, backtest

MINUTE = 60


def hourly(*days: float, pod: str = "a") -> list[UseSample]:
    return [
        UseSample(day * DAY_SECONDS + hour * HOUR, "s", mib, pod) for day, mib in enumerate(days) for hour in range(24)
    ]


def of(samples: list[UseSample], declared_mib: int = 3000) -> Advice:
    (found,) = advise({"s": declared_mib}, samples)
    return found


def test_a_budget_covers_the_highest_peak_and_says_how_often_a_day_may_be_above() -> None:
    found = of([*hourly(*[2000.0] * 9), UseSample(5 * DAY_SECONDS + 60, "s", 2345.0, "a")])
    assert (found.verdict, found.proposed_mib) == (Verdict.LOWER, 2400)
    assert (found.days, found.risk_day) == (9, 1 / 10)
    assert (found.used_p50_mib, found.used_max_mib) == (2000, 2345)


def test_a_proposal_is_on_the_grid_and_a_peak_on_it_is_enough() -> None:
    assert GRID_MIB == 100
    assert of(hourly(*[2300.0] * 7)).proposed_mib == 2300
    assert of(hourly(*[2300.1] * 7)).proposed_mib == 2400


def test_a_seat_is_never_lowered_on_less_than_a_week() -> None:
    six, seven = of(hourly(*[1000.0] * 6)), of(hourly(*[1000.0] * 7))
    assert (six.verdict, six.proposed_mib, six.days) == (Verdict.SHORT, 1000, 6)
    assert (seven.verdict, seven.proposed_mib) == (Verdict.LOWER, 1000)


def test_seven_mornings_are_no_week() -> None:
    mornings = [each for each in hourly(*[1000.0] * 9) if each.time % DAY_SECONDS < 9 * HOUR]
    assert (of(mornings).days, of(mornings).verdict) == (0, Verdict.SHORT)
    assert of(mornings).risk_day is None


def test_a_budget_that_was_exceeded_is_raised_however_short_the_history_is() -> None:
    found = of([UseSample(0, "s", 4000), UseSample(60, "s", 2000)])
    assert (found.verdict, found.proposed_mib, found.above, found.days_above) == (Verdict.RAISE, 4000, 0.5, 1)


def test_a_budget_on_the_grid_that_fits_stays() -> None:
    assert of(hourly(*[2950.0] * 8)).verdict is Verdict.KEEP
    assert of(hourly(*[2950.0] * 8), 2999).verdict is Verdict.KEEP


def test_who_uses_nothing_gets_no_budget_but_a_word() -> None:
    others = [UseSample(each.time, "other", 1) for each in hourly(*[1.0] * 8)]
    assert (of(others).verdict, of(others).proposed_mib) == (Verdict.UNUSED, None)
    assert of([]).verdict is Verdict.UNKNOWN
    assert of([each for each in others if each.time < DAY_SECONDS]).verdict is Verdict.UNKNOWN


def test_cold_loads_are_counted_apart_by_the_start() -> None:
    warm = [UseSample(minute * MINUTE, "s", 1000, f"p{minute // 720}") for minute in range(8 * 1440)]
    loads = [UseSample(720 * n * MINUTE + 60, "s", 2500, f"p{n}") for n in range(1, 16)]
    found = of([each for each in warm if each.time % (720 * MINUTE) != 60 or each.time < 720 * MINUTE] + loads)
    assert (found.used_max_mib, found.cold_p50_mib, found.cold_max_mib) == (1000, 2500, 2500)
    assert (found.starts, found.risk_start) == (15, 1 / 16)
    assert found.proposed_mib == 2500


def test_what_follows_a_hole_in_the_measuring_is_no_start() -> None:
    measured = [each for each in hourly(*[1000.0] * 3) if not 1 <= each.time / DAY_SECONDS < 2]
    assert of(measured).starts == 0
    gone = [UseSample(each.time, "other", 1) for each in hourly(*[1.0] * 3)]
    assert of([*measured, *gone]).starts == 1


def test_growth_is_counted_in_for_the_week_to_come() -> None:
    found = of(hourly(*[1000.0 + 50 * day for day in range(14)]))
    assert found.growth_mib_per_day == pytest.approx(50)
    assert found.proposed_mib == 2000
    assert of(hourly(*[1650.0 - 50 * day for day in range(14)])).proposed_mib == 1700
    assert of(hourly(*[1000.0, 1010.0] * 7)).growth_mib_per_day == 0


def test_each_replica_counts_for_itself() -> None:
    assert of([*hourly(*[1000.0] * 7), *hourly(*[1500.0] * 7, pod="b")]).proposed_mib == 1500


def test_a_peak_on_a_full_device_is_no_reason_to_lower() -> None:
    pressed = UseSample(7 * DAY_SECONDS + 60, "s", 2000, "a", pressed=True)
    assert of([*hourly(*[1000.0] * 9), pressed]).verdict is Verdict.SHORT
    below = UseSample(7 * DAY_SECONDS + 60, "s", 900, "a", pressed=True)
    assert of([*hourly(*[1000.0] * 9), below]).verdict is Verdict.LOWER


# For this kind of history, the real risk is higher. A history cannot predict an upgrade of the workload
# (docs/reference/gpumem.md).
_UNFORESEEN = "step after an upgrade"


@pytest.mark.parametrize("kind", KINDS)
def test_weeks_that_were_held_out_keep_to_what_was_promised(kind: str) -> None:
    found = backtest(kind, seeds=25, days=28)
    low, _ = interval(found.above, found.days)
    assert (low <= found.promised) is (kind != _UNFORESEEN)
