"""Implements `kubectl gpumem bill`. Reports the seats, the use and the cost of each tenant, for each day of a month.

The charge for an hour is the larger of two amounts: the tenant's seats and the tenant's use. An idle seat also has a
cost, because no other pod can have its memory. A tenant without seats pays for its use.
"""

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal

from gpumem.draw import Paper, text_of_lines
from gpumem.prometheus import SCHEMES, HistoryError, Prometheus
from gpumem.report import rfc3339
from tenancy.choices import Sharing
from tenancy.ledger import Ledger
from tenancy.names import RECORDED_SEATS, RECORDED_USED
from tenancy.units import MIB

HOUR_SECONDS = 3600
SAMPLES_AN_HOUR = 60  # Prometheus records one sample of the series each minute (components/monitoring/usage.py).
# The time range of a query. The range excludes the sample at the start of the hour, in every version of Prometheus.
_AN_HOUR = f"{HOUR_SECONDS * 1000 - 1}ms"
_ENOUGH = 0.99  # The fraction of the month that Prometheus must have measured at least.
_NO_CURRENCY = "XXX"  # The code of ISO 4217 for no currency.
_MIB_IN_GIB = 1024


@dataclass(frozen=True, kw_only=True)
class Charge:
    """The charge for one tenant's day in one pool. `cost` is None if the pool has no price."""

    day: str
    tenant: str
    pool: str
    seat_mib_hours: float
    used_mib_hours: float
    billed_gib_hours: float = 0.0
    price_per_gib_hour: float | None = None
    cost: float | None = None


@dataclass(frozen=True, kw_only=True)
class Bill:
    """The bill for a month.

    For the current month, the bill ends with the last whole hour. `measured` is the fraction of the time for which
    Prometheus has recordings.
    """

    month: str
    start: str
    end: str
    issuer: str
    currency: str
    measured: float
    charges: tuple[Charge, ...]
    unknown: tuple[str, ...]


def bill(source: str, ledger: Ledger, *, month: str | None, currency: str | None, now: datetime) -> Bill:
    """Returns the bill for a month. The default is the last whole month. Raises HistoryError."""
    start, end = _month(month, now)
    if not source.startswith(SCHEMES):
        raise HistoryError(
            f"--from must be Prometheus' http(s) address: a bill is made of what it recorded (got {source})"
        )
    priced = [pool.name for pool in ledger.pools if pool.price_per_gib_hour is not None]
    if priced and currency is None:
        raise HistoryError(f"pools.{priced[0]} has a price: name its currency, for instance --currency EUR")
    hours = _Hours(Prometheus(source), start, end)
    seats, used = hours.mib(RECORDED_SEATS), hours.mib(RECORDED_USED)
    measured = hours.measured()
    return Bill(
        month=f"{start:%Y-%m}",
        start=rfc3339(start),
        end=rfc3339(end),
        issuer=ledger.domain,
        currency=currency or _NO_CURRENCY,
        measured=measured,
        charges=tuple(_charges(ledger, seats, used)),
        unknown=tuple(_unknown(ledger, source, measured)),
    )


def _month(text: str | None, now: datetime) -> tuple[datetime, datetime]:
    """Returns the start and the end of the month. The end of the current month is the end of its last whole hour."""
    this = now.replace(day=1, hour=0, minute=0, second=0, microsecond=0)
    start = (this - timedelta(days=1)).replace(day=1)
    if text is not None:
        if not re.fullmatch(r"\d{4}-(?:0[1-9]|1[0-2])", text, re.ASCII) or text.startswith("0000"):
            raise HistoryError(f"--month must be a month such as {start:%Y-%m} (got {text!r})")
        start = datetime.strptime(text, "%Y-%m").replace(tzinfo=UTC)
    over = now.replace(minute=0, second=0, microsecond=0)
    end = min((start + timedelta(days=31)).replace(day=1), over) if start < over else start
    if end <= start:
        raise HistoryError(
            f"--month {text}: nothing of it is over yet; the last whole one is {this - timedelta(days=1):%Y-%m}"
        )
    return start, end


# The MiB-hours of each hour, by tenant and pool.
_Used = Mapping[tuple[str, str], Mapping[float, float]]


@dataclass(frozen=True)
class _Hours:
    """Reads the recorded series, with one value for each hour."""

    server: Prometheus
    start: datetime
    end: datetime

    def mib(self, recorded: str) -> _Used:
        found: dict[tuple[str, str], dict[float, float]] = defaultdict(dict)
        query = f"sum by (tenant, pool) (sum_over_time({recorded}[{_AN_HOUR}])) / {SAMPLES_AN_HOUR * MIB}"
        for labels, hour, value in self._over(query):
            found[labels.get("tenant", ""), labels.get("pool", "")][hour] = value
        return found

    def measured(self) -> float:
        """Returns the fraction of the minutes for which Prometheus has at least one recorded sample."""
        query = f"max(count_over_time({RECORDED_SEATS}[{_AN_HOUR}])) / {SAMPLES_AN_HOUR}"
        shares = [min(value, 1.0) for _, _, value in self._over(query)]
        return sum(shares) / ((self.end - self.start).total_seconds() / HOUR_SECONDS)

    def _over(self, query: str) -> Iterator[tuple[Mapping[str, str], float, float]]:
        first, last = self.start.timestamp() + HOUR_SECONDS, self.end.timestamp()
        for series in self.server.over(query, first, last, HOUR_SECONDS):
            yield from ((series.labels, at - HOUR_SECONDS, value) for at, value in series.values)


def _charges(ledger: Ledger, seats: _Used, used: _Used) -> Iterator[Charge]:
    for tenant, pool in sorted({*seats, *used}):
        had, took = seats.get((tenant, pool), {}), used.get((tenant, pool), {})
        days: dict[str, list[float]] = defaultdict(list)
        for hour in sorted({*had, *took}):
            days[f"{datetime.fromtimestamp(hour, UTC):%Y-%m-%d}"].append(hour)
        known = ledger.pool(pool)
        price = known.price_per_gib_hour if known else None
        for day, hours in days.items():
            billed = round(sum(max(had.get(hour, 0.0), took.get(hour, 0.0)) for hour in hours) / _MIB_IN_GIB, 6)
            yield Charge(
                day=day,
                tenant=tenant,
                pool=pool,
                seat_mib_hours=round(sum(had.get(hour, 0.0) for hour in hours), 3),
                used_mib_hours=round(sum(took.get(hour, 0.0) for hour in hours), 3),
                billed_gib_hours=billed,
                price_per_gib_hour=price,
                cost=None if price is None else float(decimal(billed) * decimal(price)),
            )


def _unknown(ledger: Ledger, source: str, measured: float) -> Iterator[str]:
    if not measured:
        yield (
            f"{source} has no {RECORDED_SEATS} of this month: the stack's alerts record it (gpu-tenancy:alerts), from "
            "the day on that they are rolled out"
        )
    elif measured < _ENOUGH:
        yield f"what was used in {1 - measured:.1%} of the time, in which nothing was recorded; it is not charged"
    for pool in ledger.pools:
        if pool.sharing is Sharing.WHOLE:
            yield f"what is used of pool {pool.name}: it hands out whole devices, which no exporter measures"


@text_of_lines
def bill_text(report: Bill, paper: Paper) -> Iterator[str]:
    yield f"{report.month}: {report.start} to {report.end}, {report.measured:.1%} of it measured"
    rows = [_row(charges, report.currency) for charges in _by_tenant(report.charges)]
    header = ("POOL", "TENANT", "SEAT MIB-H", "USED MIB-H", "BILLED GIB-H", "PRICE", "COST")
    yield from paper.table(header, rows)
    costs = [charge.cost for charge in report.charges if charge.cost is not None]
    if costs:
        yield f"  together {_money(sum(map(decimal, costs), Decimal(0)))} {report.currency}"
    elif report.charges:
        yield "  no pool has a price: pools.<name>.price_per_gib_hour in the stack file"
    yield ""
    yield from paper.unknown(report.unknown)


def _by_tenant(charges: Sequence[Charge]) -> list[list[Charge]]:
    found: dict[tuple[str, str], list[Charge]] = defaultdict(list)
    for charge in charges:
        found[charge.pool, charge.tenant].append(charge)
    return [found[key] for key in sorted(found)]


def _row(charges: Sequence[Charge], currency: str) -> tuple[str, ...]:
    first = charges[0]
    cost = None if first.cost is None else sum((decimal(each.cost or 0) for each in charges), Decimal(0))
    return (
        first.pool,
        first.tenant,
        f"{sum(each.seat_mib_hours for each in charges):.0f}",
        f"{sum(each.used_mib_hours for each in charges):.0f}",
        f"{sum(each.billed_gib_hours for each in charges):.1f}",
        "-" if first.price_per_gib_hour is None else f"{decimal(first.price_per_gib_hour)} {currency}",
        "-" if cost is None else _money(cost),
    )


def _money(amount: Decimal) -> str:
    return f"{amount:.2f}"


def decimal(number: float) -> Decimal:
    """Returns the number with the digits that the bill prints. So the printed quantity times the price equals the
    printed cost exactly."""
    return Decimal(str(number))
