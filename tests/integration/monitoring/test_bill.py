"""Compares `kubectl gpumem bill` with a second calculation, on random months in a real Prometheus."""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from random import Random

import pytest

from gpumem.bill import Bill, bill
from gpumem.prometheus import HistoryError
from tenancy.names import RECORDED_SEATS, RECORDED_USED
from tenancy.units import MIB
from tests.support.kubectl import LEDGER_OF_PROD, T4
from tests.support.remembering import prometheus
from tests.support.search import cases, dice

MONTHS = cases(12, soak=1000)
# All months are in one Prometheus, because each start of Prometheus takes time.
MONTHS_OF_A_SERVER = 200
FIRST_YEAR = 1990
LOOKBACK_SECONDS = 300  # By default, Prometheus keeps the last value of a series for this many seconds.
PRICES = {"t4": 0.1, "l4": 0.25, "old": 0.07}
LEDGER = replace(
    LEDGER_OF_PROD, pools=tuple(replace(T4, name=name, price_per_gib_hour=PRICES[name]) for name in ("t4", "l4"))
)
NOW = datetime(2026, 11, 22, tzinfo=UTC)

# The key of a series has its metric, tenant, pool and Prometheus replica. A sample has a time and MiB.
Series = tuple[str, str, str, int]
Samples = Mapping[Series, list[tuple[float, int]]]


@dataclass(frozen=True)
class Month:
    start: datetime
    end: datetime
    samples: Samples


def generated(number: int, start: datetime, end: datetime) -> Month:
    drawn = dice(f"month {number}")
    samples: dict[Series, list[tuple[float, int]]] = defaultdict(list)
    length = end.timestamp() - start.timestamp()
    for begins in sorted(drawn.sample(range(-1, int(length / 86400)), drawn.randint(1, 2))):
        first = start.timestamp() + begins * 86400 + drawn.uniform(0, 86400)
        last = first + drawn.uniform(0.2, 4) * 3600
        interval = drawn.choice((15, 30, 60, 60, 120, 240))
        for metric in (RECORDED_SEATS, RECORDED_USED):
            for tenant in drawn.sample(("chat", "immich", "tts"), drawn.randint(1, 3)):
                pool = drawn.choice(tuple(PRICES))
                _record(samples, (metric, tenant, pool), (first, last), interval, drawn)
    return Month(start, end, {series: sorted(set(found)) for series, found in samples.items()})


def _record(
    samples: dict[Series, list[tuple[float, int]]],
    series: tuple[str, str, str],
    span: tuple[float, float],
    interval: int,
    drawn: Random,
) -> None:
    for replica in range(drawn.randint(1, 2)):
        begins, ends = sorted(drawn.uniform(*span) for _ in range(2)) if drawn.random() < 0.5 else span
        gap = drawn.uniform(*span)
        gap_ends = gap + drawn.choice((0, 0, 100, 400, 4000))
        moment = begins // 1 + drawn.randint(0, interval) + 0.5
        while moment < ends:
            if not gap <= moment < gap_ends:
                samples[*series, replica].append((moment, drawn.choice((0, 1, 500, 4096, 15360))))
            moment += interval


def lines(months: list[Month]) -> Iterator[str]:
    for metric in (RECORDED_SEATS, RECORDED_USED):
        yield f"# TYPE {metric} gauge"
        for month in months:
            for (name, tenant, pool, replica), found in month.samples.items():
                labels = f'tenant="{tenant}",pool="{pool}",replica="{replica}"'
                if name == metric:
                    yield from (f"{metric}{{{labels}}} {mib * MIB} {moment}" for moment, mib in found)


def in_each_minute(month: Month, metric: str) -> dict[tuple[str, str], dict[int, int]]:
    first, last = int(month.start.timestamp()), int(month.end.timestamp())
    found: dict[tuple[str, str], dict[int, int]] = defaultdict(dict)
    for (name, tenant, pool, _), samples in month.samples.items():
        if name != metric:
            continue
        values = found[tenant, pool]
        valid: dict[int, int] = {}
        for moment, mib in samples:
            for minute in range(int(moment // 60 + 1) * 60, int(moment + LOOKBACK_SECONDS) + 1, 60):
                valid[minute] = mib
        for minute, mib in valid.items():
            if first < minute <= last:
                values[minute] = max(values.get(minute, 0), mib)
    return found


def second_calculation(month: Month) -> tuple[dict[tuple[str, str], tuple[float, float, float]], float]:
    seats, used = in_each_minute(month, RECORDED_SEATS), in_each_minute(month, RECORDED_USED)
    sums = {}
    for key in {*seats, *used}:
        had, took, cost = 0.0, 0.0, 0.0
        by_hour: dict[int, list[int]] = defaultdict(lambda: [0, 0])
        for kind, values in enumerate((seats.get(key, {}), used.get(key, {}))):
            for minute, mib in values.items():
                by_hour[(minute - 60) // 3600][kind] += mib
        for of_seats, of_use in by_hour.values():
            had, took = had + of_seats / 60, took + of_use / 60
            cost += max(of_seats, of_use) / 60 / 1024 * PRICES[key[1]]
        sums[key] = had, took, cost
    minutes = {minute for series in (*seats.values(), *used.values()) for minute in series}
    return {key: value for key, value in sums.items() if seats.get(key) or used.get(key)}, len(minutes) / 60


def billed(address: str, month: Month, prices: Mapping[str, float]) -> Bill:
    return bill(address, LEDGER, month=f"{month.start:%Y-%m}", currency="EUR", now=NOW, former_prices=prices)


def begins(number: int) -> datetime:
    return datetime(FIRST_YEAR + number // 12, number % 12 + 1, 1, tzinfo=UTC)


@pytest.mark.search
@pytest.mark.parametrize("first", range(0, MONTHS, MONTHS_OF_A_SERVER))
def test_a_second_calculation_gives_the_same_bill(first: int, tmp_path: Path) -> None:
    # Every second month is empty, so that the months do not overlap.
    numbers = range(min(MONTHS_OF_A_SERVER, MONTHS - first))
    months = [generated(first + n, begins(2 * n), begins(2 * n + 1)) for n in numbers]
    former, differences = 0, []
    with prometheus(tmp_path, lines(months)) as address:
        for month in months:
            expected, hours = second_calculation(month)
            if any(pool == "old" for _, pool in expected):
                former += 1
                with pytest.raises(HistoryError, match="old: used in this month, and no longer in the ledger"):
                    billed(address, month, {})
            found = billed(address, month, {"old": PRICES["old"]})
            length = (month.end - month.start).total_seconds() / 3600
            sums: dict[tuple[str, str], list[float]] = defaultdict(lambda: [0.0, 0.0, 0.0])
            for charge in found.charges:
                amounts = (charge.seat_mib_hours, charge.used_mib_hours, charge.cost or 0.0)
                total = sums[charge.tenant, charge.pool]
                total[:] = [one + other for one, other in zip(total, amounts, strict=True)]
            same = sums.keys() == expected.keys() and all(
                sums[key] == pytest.approx(expected[key], abs=0.01) for key in expected
            )
            if not same or found.unmeasured_hours != pytest.approx(length - hours, abs=0.001):
                differences.append(
                    (f"{month.start:%Y-%m}", dict(sums), expected, found.unmeasured_hours, length - hours)
                )
    assert differences == []
    assert former > len(months) / 4
