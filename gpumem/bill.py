"""Implements `kubectl gpumem bill`. Reports the seats, the use and the cost of each tenant, for each day of a month.

The charge for an hour is the larger of two amounts: the tenant's seats and the tenant's use. An idle seat also has a
cost, because no other pod can have its memory. A tenant without seats pays for its use.
"""

import math
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal

from gpumem.paper import Paper, text_of_lines
from gpumem.prometheus import OPEN, SCHEMES, Access, HistoryError, Prometheus, without_password
from gpumem.report import rfc3339
from tenancy.choices import Sharing
from tenancy.ledger import Ledger
from tenancy.names import METRIC_POD_USED, RECORDED_SEATS, RECORDED_USED
from tenancy.units import MIB

HOUR_SECONDS = 3600
_DAY_SECONDS = 24 * HOUR_SECONDS
_MINUTES = 60
# This range of a PromQL query contains the end of each of the 60 minutes of an hour. The range excludes the start of
# the hour in every version of Prometheus.
_EACH_MINUTE = f"{HOUR_SECONDS * 1000 - 1}ms:1m"
NO_PRICES: Mapping[str, float] = {}
_NO_CURRENCY = "XXX"  # The code of ISO 4217 for no currency.
_MIB_IN_GIB = 1024


@dataclass(frozen=True, kw_only=True)
class Charge:
    """The charge of one day, for one tenant in one pool. `cost` is None if the pool has no price."""

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

    For the current month, the bill ends with the last whole hour. `measured` is the fraction of the month for which
    Prometheus has recordings. `unmeasured_hours` is the rest of the month.
    """

    month: str
    start: str
    end: str
    issuer: str
    currency: str
    measured: float
    unmeasured_hours: float
    charges: tuple[Charge, ...]
    unknown: tuple[str, ...]


def bill(
    source: str,
    ledger: Ledger,
    *,
    month: str | None,
    currency: str | None,
    now: datetime,
    former_prices: Mapping[str, float] = NO_PRICES,
    access: Access = OPEN,
) -> Bill:
    """Returns the bill for a month. By default, the bill covers the last whole month.

    `former_prices` has the prices of pools that are no longer in the ledger, for each GiB-hour. Raises HistoryError.
    """
    start, end = _month(month, now)
    if not source.startswith(SCHEMES):
        raise HistoryError(
            "--from must be Prometheus' http(s) address: a bill is made of what it recorded (got "
            f"{without_password(source)})"
        )
    if known := next((name for name in former_prices if ledger.pool(name)), None):
        raise HistoryError(f"--price {known}: this pool's price is pools.{known}.price_per_gib_hour in the stack file")
    prices = {**{pool.name: pool.price_per_gib_hour for pool in ledger.pools}, **former_prices}
    priced = [name for name, price in prices.items() if price is not None]
    if priced and currency is None:
        raise HistoryError(f"pools.{priced[0]} has a price: name its currency, for instance --currency EUR")
    server = Prometheus(source, access)
    length_days = math.ceil((end - start).total_seconds() / _DAY_SECONDS)
    server.refuse_what_is_mixed(METRIC_POD_USED, end.timestamp(), length_days)
    server.refuse_what_is_mixed(RECORDED_USED, end.timestamp(), length_days)
    hours = _Hours(server, start, end)
    seats, used = hours.mib(RECORDED_SEATS), hours.mib(RECORDED_USED)
    if priced and (former := sorted({pool for _, pool in {*seats, *used}} - set(prices))):
        options = " ".join(f"--price {name}=0.1" for name in former)
        raise HistoryError(
            f"{', '.join(former)}: used in this month, and no longer in the ledger; give the price of each: {options}"
        )
    length, measured = (end - start).total_seconds() / HOUR_SECONDS, hours.measured()
    return Bill(
        month=f"{start:%Y-%m}",
        start=rfc3339(start),
        end=rfc3339(end),
        issuer=ledger.domain,
        currency=currency or _NO_CURRENCY,
        measured=measured / length,
        unmeasured_hours=round(length - measured, 3),
        charges=tuple(_charges(prices, seats, used)),
        unknown=(*_unknown(ledger, server.address, measured), *sorted(server.skipped)),
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
    """Reads the recorded series, with one value for each hour.

    The value of a minute is the value that Prometheus has at the end of the minute. Therefore the result does not
    depend on how often Prometheus evaluates the rules. If several replicas of Prometheus recorded a series, the largest
    value counts.
    """

    server: Prometheus
    start: datetime
    end: datetime

    def mib(self, recorded: str) -> _Used:
        found: dict[tuple[str, str], dict[float, float]] = defaultdict(dict)
        query = f"sum_over_time((max by (tenant, pool) ({recorded}))[{_EACH_MINUTE}]) / {_MINUTES * MIB}"
        for labels, hour, value in self._over(query):
            found[labels.get("tenant", ""), labels.get("pool", "")][hour] = value
        return found

    def measured(self) -> float:
        query = f"count_over_time(max({RECORDED_SEATS} or {RECORDED_USED})[{_EACH_MINUTE}]) / {_MINUTES}"
        return sum(value for _, _, value in self._over(query))

    def _over(self, query: str) -> Iterator[tuple[Mapping[str, str], float, float]]:
        """Yields the labels, the start and the value of each hour. Prometheus limits the samples of a query, so each
        query is for one day."""
        first, end = self.start.timestamp(), self.end.timestamp()
        while first < end:
            last = min(first + _DAY_SECONDS, end)
            for series in self.server.over(query, first + HOUR_SECONDS, last, HOUR_SECONDS):
                yield from ((series.labels, at - HOUR_SECONDS, value) for at, value in series.values)
            first = last


def _charges(prices: Mapping[str, float | None], seats: _Used, used: _Used) -> Iterator[Charge]:
    for tenant, pool in sorted({*seats, *used}):
        had, took = seats.get((tenant, pool), {}), used.get((tenant, pool), {})
        days: dict[str, list[float]] = defaultdict(list)
        for hour in sorted({*had, *took}):
            days[f"{datetime.fromtimestamp(hour, UTC):%Y-%m-%d}"].append(hour)
        price = prices.get(pool)
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
    for pool in ledger.pools:
        if pool.sharing is Sharing.WHOLE:
            yield f"what is used of pool {pool.name}: it hands out whole devices, which no exporter measures"


@text_of_lines
def bill_text(report: Bill, paper: Paper) -> Iterator[str]:
    yield f"{report.month}: {report.start} to {report.end}, {report.measured:.1%} of it measured"
    header = ("POOL", "TENANT", "SEAT MIB-H", "USED MIB-H", "BILLED GIB-H", "PRICE", "COST")
    yield from paper.table(header, list(_rows(report)))
    if report.unmeasured_hours:
        yield f"  not measured: {report.unmeasured_hours:g} hours, which nobody is charged for"
    costs = [charge.cost for charge in report.charges if charge.cost is not None]
    if costs:
        yield f"  together {_money(sum(map(decimal, costs), Decimal(0)))} {report.currency}"
    elif report.charges:
        yield "  no pool has a price: pools.<name>.price_per_gib_hour in the stack file"
    yield ""
    yield from paper.unknown(report.unknown)


def _rows(report: Bill) -> Iterator[tuple[str, ...]]:
    pools: dict[str, dict[str, list[Charge]]] = defaultdict(lambda: defaultdict(list))
    for charge in report.charges:
        pools[charge.pool][charge.tenant].append(charge)
    for pool, tenants in sorted(pools.items()):
        for tenant, charges in sorted(tenants.items()):
            yield _row(pool, tenant, charges, report.currency)
        if len(tenants) > 1:
            yield _row(pool, "(all)", [charge for charges in tenants.values() for charge in charges], report.currency)


def _row(pool: str, tenant: str, charges: Sequence[Charge], currency: str) -> tuple[str, ...]:
    price = charges[0].price_per_gib_hour
    cost = None if price is None else sum((decimal(each.cost or 0) for each in charges), Decimal(0))
    return (
        pool,
        tenant,
        f"{sum(each.seat_mib_hours for each in charges):.0f}",
        f"{sum(each.used_mib_hours for each in charges):.0f}",
        f"{sum(each.billed_gib_hours for each in charges):.1f}",
        "-" if price is None else f"{decimal(price)} {currency}",
        "-" if cost is None else _money(cost),
    )


def _money(amount: Decimal) -> str:
    return f"{amount:.2f}"


def decimal(number: float) -> Decimal:
    """Returns the number with the digits that the bill prints. With the bill's digits, the printed quantity times the
    price equals the printed cost exactly."""
    return Decimal(str(number))
