"""Tests the budgets that advise proposes from a history, and the stated risk of each budget."""

import random
from collections.abc import Sequence
from functools import cache

import pytest

from gpumem.proposal import DAY_SECONDS, Advice, UseSample, Verdict, advise
from gpumem.trend import Growth, Step, rise
from tenancy.fit.smallest_change import GRID_MIB
from tests.support.shapes import HOUR, SHAPES
from tests.support.weeks import Cell, cell, tail

MINUTE = 60


def hourly(*days: float, pod: str = "a") -> list[UseSample]:
    return [
        UseSample(day * DAY_SECONDS + hour * HOUR, "s", mib, pod) for day, mib in enumerate(days) for hour in range(24)
    ]


def of(samples: list[UseSample], declared_mib: int = 3000) -> Advice:
    (found,) = advise({"s": declared_mib}, samples)
    return found


def test_a_budget_covers_the_highest_peak_with_a_risk_of_one_week_in_the_measured_weeks() -> None:
    found = of([*hourly(*[2000.0] * 21), UseSample(5 * DAY_SECONDS + 60, "s", 2345.0, "a")])
    assert (found.verdict, found.proposed_mib) == (Verdict.LOWER, 2400)
    assert (found.days, found.horizon_days, found.risk) == (21, 7, 1 / 3)
    assert (found.used_p50_mib, found.used_max_mib) == (2000, 2345)


def test_a_proposal_is_on_the_grid_and_a_peak_on_it_is_enough() -> None:
    assert GRID_MIB == 100
    assert of(hourly(*[2300.0] * 14)).proposed_mib == 2300
    assert of(hourly(*[2300.1] * 14)).proposed_mib == 2400


def test_a_seat_is_never_lowered_on_less_than_two_weeks_with_a_day_of_gaps() -> None:
    short, enough = of(hourly(*[1000.0] * 13)[1:]), of(hourly(*[1000.0] * 13))
    assert (short.verdict, short.proposed_mib, short.risk) == (Verdict.SHORT, 1000, None)
    assert short.no_risk == "13 days must be measured hour by hour, and 13.0 were"
    assert (enough.verdict, enough.proposed_mib, enough.risk) == (Verdict.LOWER, 1000, 7 / 13)


def test_a_burst_of_samples_takes_no_day_away() -> None:
    burst = [UseSample(5 * DAY_SECONDS + second, "s", 1000, "a") for second in range(3000)]
    assert of([*hourly(*[1000.0] * 14), *burst]).days == 14


def test_a_day_of_the_week_that_was_never_measured_is_a_refusal() -> None:
    six_days = [each for each in hourly(*[1000.0] * 28) if each.time // DAY_SECONDS % 7 != 3]
    assert of(six_days).no_risk == "each day of the week must be measured at least half of the time"


def test_the_history_of_a_seat_begins_with_its_first_use() -> None:
    later = [each for each in hourly(*[1000.0] * 28) if each.time >= 3 * DAY_SECONDS]
    others = [UseSample(each.time, "other", 1) for each in hourly(*[1.0] * 28)]
    found = of([*later, *others])
    assert (found.days, found.risk) == (25, 7 / 25)


def test_a_last_week_above_all_others_is_a_refusal() -> None:
    found = of(hourly(*[1000.0, 1300.0, 1200.0, 1100.0, 1000.0, 1050.0, 1000.0] * 3, *[1000.0] * 5, 1350.0, 900.0))
    assert (found.verdict, found.risk) == (Verdict.SHORT, None)
    assert found.no_risk == "the last 7 days used up to 1350, and the days before would have proposed 1300"


def test_a_budget_that_was_exceeded_is_raised_however_short_the_history_is() -> None:
    found = of([UseSample(0, "s", 4000), UseSample(60, "s", 2000)])
    assert (found.verdict, found.proposed_mib, found.above, found.days_above) == (Verdict.RAISE, 4000, 0.5, 1)


def test_a_budget_on_the_grid_that_fits_stays() -> None:
    assert of(hourly(*[2950.0] * 8)).verdict is Verdict.KEEP
    assert of(hourly(*[2950.0] * 8), 2999).verdict is Verdict.KEEP


def test_who_uses_nothing_gets_no_budget_but_a_word() -> None:
    others = [UseSample(each.time, "other", 1) for each in hourly(*[1.0] * 14)]
    assert (of(others).verdict, of(others).proposed_mib) == (Verdict.UNUSED, None)
    assert of([]).verdict is Verdict.UNKNOWN
    assert of([each for each in others if each.time < 9 * DAY_SECONDS]).verdict is Verdict.UNKNOWN


def test_cold_loads_are_counted_apart_by_the_start() -> None:
    warm = [UseSample(minute * MINUTE, "s", 1000, f"p{minute // 720}") for minute in range(8 * 1440)]
    loads = [UseSample(720 * n * MINUTE + 60, "s", 2500, f"p{n}") for n in range(1, 16)]
    found = of([each for each in warm if each.time % (720 * MINUTE) != 60 or each.time < 720 * MINUTE] + loads)
    assert (found.used_max_mib, found.cold_p50_mib, found.cold_max_mib) == (1000, 2500, 2500)
    assert found.starts == 15
    assert found.proposed_mib == 2500


def test_what_follows_a_hole_in_the_measuring_is_no_start() -> None:
    measured = [each for each in hourly(*[1000.0] * 3) if not 1 <= each.time / DAY_SECONDS < 2]
    assert of(measured).starts == 0
    gone = [UseSample(each.time, "other", 1) for each in hourly(*[1.0] * 3)]
    assert of([*measured, *gone]).starts == 1


def test_growth_gets_the_day_on_which_it_reaches_the_budget_and_no_risk() -> None:
    found = of(hourly(*[1000.0 + 50 * day for day in range(14)]))
    assert found.growth_mib_per_day == pytest.approx(50)
    assert (found.verdict, found.risk, found.no_risk) == (Verdict.GROWS, None, "its use grows")
    assert found.reaches == "1970-02-11"  # 1650 MiB on 14 January, and 1350 MiB more in 27 days.


def test_growth_that_reaches_the_budget_within_a_week_raises_it() -> None:
    found = of(hourly(*[1000.0 + 50 * day for day in range(14)]), 1900)
    assert (found.verdict, found.proposed_mib, found.reaches) == (Verdict.RAISE, 2000, "1970-01-22")


def test_growth_by_a_fraction_is_continued_by_the_fraction() -> None:
    found = of(hourly(*[1000 * 1.03**day for day in range(28)]), 4000)
    assert found.growth_mib_per_day == pytest.approx(0.03 * 1000 * 1.03**27)
    assert found.reaches == "1970-02-17"  # 1.03 to the power of 46.9 is 4, and day 27 ends on 29 January.


def test_a_decline_and_a_change_from_day_to_day_are_no_growth() -> None:
    assert of(hourly(*[1650.0 - 50 * day for day in range(14)])).proposed_mib == 1700
    assert of(hourly(*[1000.0, 1010.0] * 7)).growth_mib_per_day == 0


def test_after_a_step_only_the_later_days_count() -> None:
    found = of(hourly(*[1000.0] * 12, *[1500.0] * 14))
    assert (found.verdict, found.days, found.since, found.risk) == (Verdict.LOWER, 14, "1970-01-13", 1 / 2)
    soon = of(hourly(*[1000.0] * 20, *[1500.0] * 6))
    assert (soon.verdict, soon.growth_mib_per_day) == (Verdict.SHORT, 0)
    assert soon.no_risk == "13 days must be measured hour by hour, and 6.0 were since its use rose on 1970-01-21"


def test_a_weak_rise_is_a_refusal() -> None:
    dice = random.Random(1)  # noqa: S311
    found = of(hourly(*[2500.0], *[1000.0 + 4 * day + dice.gauss(0, 50) for day in range(20)]))
    assert (found.risk, found.growth_mib_per_day) == (None, 0)
    assert found.no_risk == "its mean use rises from day to day, and more days must show if this is chance"


RISES: dict[str, tuple[Sequence[float], type | None]] = {
    "level": ([1000.0] * 20, None),
    "amount": ([1000.0 + 10 * day for day in range(20)], Growth),
    "fraction": ([1000.0 * 1.05**day for day in range(20)], Growth),
    "step": ([1000.0] * 10 + [1001.0] * 10, Step),
    "from nothing": ([0.0] * 3 + [100.0 * day for day in range(17)], Growth),
    "six days": ([1000.0 + 10 * day for day in range(6)], None),
}


@pytest.mark.parametrize("case", RISES)
def test_the_kind_of_a_rise_is_found(case: str) -> None:
    peaks, kind = RISES[case]
    found = rise([*enumerate(peaks)])
    assert found is None if kind is None else isinstance(found, kind)


def test_each_replica_counts_for_itself() -> None:
    assert of([*hourly(*[1000.0] * 14), *hourly(*[1500.0] * 14, pod="b")]).proposed_mib == 1500


def test_a_peak_on_a_full_device_is_no_reason_to_lower() -> None:
    pressed = UseSample(7 * DAY_SECONDS + 60, "s", 2000, "a", pressed=True)
    assert of([*hourly(*[1000.0] * 19), pressed]).verdict is Verdict.SHORT
    below = UseSample(7 * DAY_SECONDS + 60, "s", 900, "a", pressed=True)
    assert of([*hourly(*[1000.0] * 19), below]).verdict is Verdict.LOWER


SEEDS = 6


@cache
def cells() -> list[Cell]:
    return [cell(shape, days, range(SEEDS)) for shape in SHAPES for days in (7, 14, 28)]


@pytest.mark.no_cover
def test_the_weeks_after_the_histories_keep_to_the_stated_risk() -> None:
    assert [f"{each.shape} ({each.days} days)" for each in cells() if each.breaks] == []
    for days in (14, 28):
        stated = [each for each in cells() if each.days == days and each.stated]
        count = sum(each.stated for each in stated)
        assert tail(sum(each.above for each in stated), count, sum(each.risks for each in stated) / count) > 1 / 1000


@pytest.mark.no_cover
def test_a_week_of_history_never_states_a_risk_and_four_weeks_usually_do() -> None:
    assert sum(each.stated for each in cells() if each.days == 7) == 0
    usual = ("noisy", "daily", "weekly", "office hours", "bursts", "rare spikes", "restarts")
    assert sum(each.stated for each in cells() if each.days == 28 and each.shape in usual) > 0.7 * SEEDS * len(usual)


@pytest.mark.no_cover
def test_no_risk_is_stated_for_growth_and_for_hours_that_are_never_measured() -> None:
    never = ("linear growth", "three percent growth", "a gap each night", "a sample each noon")
    assert sum(each.stated for each in cells() if each.shape in never) == 0
