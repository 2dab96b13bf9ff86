"""Tests the charges of bill for an hour and for a month, in the columns of FOCUS."""

import csv
import io
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal

import pytest

from gpumem import cli
from gpumem.arguments import parser
from gpumem.bill import Bill, bill, bill_text
from gpumem.focus import bill_csv
from gpumem.paper import Paper
from gpumem.prometheus import HistoryError, Prometheus, Series
from tenancy.ledger import Ledger
from tenancy.names import RECORDED_SEATS
from tests.support.kubectl import LEDGER_OF_PROD, T4

ADDRESS = "http://prometheus:9090"
NOW = datetime(2026, 11, 22, 12, 34, tzinfo=UTC)
PRICED = replace(LEDGER_OF_PROD, pools=(replace(T4, price_per_gib_hour=0.1), *LEDGER_OF_PROD.pools[1:]))
OCTOBER = datetime(2026, 10, 1, tzinfo=UTC).timestamp()
HOURS = 31 * 24
# The MiB-hours for each hour of October.
SEATS = {"llama-swap": lambda hour: 5000.0, "immich": lambda hour: 4800.0 if hour < 48 else 2400.0}
USED = {"llama-swap": lambda hour: 6000.0 if hour % 2 else 4000.0, "tts": lambda hour: 2048.0 if hour == 5 else None}


@pytest.fixture
def _october(monkeypatch: pytest.MonkeyPatch) -> None:
    def over(self: Prometheus, query: str, start: float, end: float, *rest: object) -> Iterator[Series]:
        assert rest[0] == 3600
        hours = range(round((start - OCTOBER) / 3600) - 1, round((end - OCTOBER) / 3600))
        if query.startswith("count_over_time("):
            yield Series({}, tuple((OCTOBER + (hour + 1) * 3600, 1.0) for hour in hours if 0 <= hour < HOURS))
            return
        for tenant, mib in (SEATS if RECORDED_SEATS in query else USED).items():
            values = ((OCTOBER + (hour + 1) * 3600, mib(hour)) for hour in hours if 0 <= hour < HOURS)
            yield Series(
                {"tenant": tenant, "pool": "t4"}, tuple((at, value) for at, value in values if value is not None)
            )

    monkeypatch.setattr(Prometheus, "over", over)
    monkeypatch.setattr(Prometheus, "at", lambda *_: [])


def october(ledger: Ledger = PRICED, month: str | None = None, currency: str | None = "EUR") -> Bill:
    return bill(ADDRESS, ledger, month=month, currency=currency, now=NOW)


@pytest.mark.usefixtures("_october")
def test_the_cost_is_quantity_times_price_to_the_last_digit() -> None:
    rows = list(csv.DictReader(io.StringIO(bill_csv(october()))))
    assert len(rows) == 31 + 31 + 1
    for row in rows:
        assert Decimal(row["PricingQuantity"]) * Decimal(row["ListUnitPrice"]) == Decimal(row["ListCost"])
        assert row["BilledCost"] == row["EffectiveCost"] == row["ContractedCost"] == row["ListCost"]
    total = sum(Decimal(row["BilledCost"]) for row in rows)
    assert f"together {total:.2f} EUR" in bill_text(october(), Paper())


# Columns of FOCUS 1.2, from specification/columns of FOCUS_Spec at v1.2. A column in MUST may not be null.
FILLED = (
    *("BilledCost", "BillingAccountId", "BillingCurrency", "BillingPeriodEnd", "BillingPeriodStart", "ChargeCategory"),
    *("ChargeFrequency", "ChargePeriodEnd", "ChargePeriodStart", "ConsumedQuantity", "ConsumedUnit", "ContractedCost"),
    *("ContractedUnitPrice", "EffectiveCost", "InvoiceIssuerName", "ListCost", "ListUnitPrice", "PricingCategory"),
    *("PricingQuantity", "PricingUnit", "ProviderName", "PublisherName", "ResourceId", "ResourceName", "ResourceType"),
    *("ServiceCategory", "ServiceName", "ServiceSubcategory", "SkuId", "SkuMeter", "SkuPriceId"),
    *("SubAccountId", "SubAccountName", "SubAccountType"),
)
NULLABLE = ("BillingAccountName", "ChargeClass", "ChargeDescription", "SkuPriceDetails")


@pytest.mark.usefixtures("_october")
@pytest.mark.parametrize("ledger", [PRICED, LEDGER_OF_PROD], ids=["a price", "no price"])
def test_the_columns_are_those_of_focus(ledger: Ledger) -> None:
    rows = list(csv.DictReader(io.StringIO(bill_csv(october(ledger, currency="EUR")))))
    row = rows[0]
    assert list(row) == sorted([*FILLED, *NULLABLE, "x_SeatMibHours", "x_UsedMibHours"])
    assert [column for column in FILLED if not row[column]] == []
    assert Decimal(row["ListUnitPrice"]) * Decimal(row["PricingQuantity"]) == Decimal(row["ListCost"])
    assert (row["SubAccountId"], row["ResourceId"], row["ChargeClass"]) == ("immich", "t4", "")
    assert (row["ChargePeriodStart"], row["ChargePeriodEnd"]) == ("2026-10-01T00:00:00Z", "2026-10-02T00:00:00Z")
    assert (row["BillingPeriodStart"], row["BillingPeriodEnd"]) == ("2026-10-01T00:00:00Z", "2026-11-01T00:00:00Z")
    assert row["BilledCost"] == ("11.25" if ledger is PRICED else "0")
    assert row["ListUnitPrice"] == ("0.1" if ledger is PRICED else "0")


@pytest.mark.usefixtures("_october")
def test_without_a_price_it_counts_and_says_where_to_write_one() -> None:
    found = october(LEDGER_OF_PROD, currency=None)
    assert found.currency == "XXX"
    assert {charge.cost for charge in found.charges} == {None}
    assert "pools.<name>.price_per_gib_hour" in bill_text(found, Paper())


def without(pool: str) -> Ledger:
    return replace(
        PRICED, pools=(replace(T4, name="l4", price_per_gib_hour=0.1), *(p for p in PRICED.pools if p.name != pool))
    )


@pytest.mark.usefixtures("_october")
def test_a_pool_that_has_left_the_ledger_needs_a_price() -> None:
    message = "t4: used in this month, and no longer in the ledger; give the price of each: --price t4=0.1"
    with pytest.raises(HistoryError, match=message):
        october(without("t4"))
    found = bill(ADDRESS, without("t4"), month=None, currency="EUR", now=NOW, former_prices={"t4": 0.1})
    assert found.charges == october().charges


@pytest.mark.usefixtures("_october")
def test_a_pool_of_the_ledger_has_its_price_in_the_stack_file() -> None:
    with pytest.raises(HistoryError, match=r"--price t4: this pool's price is pools\.t4\.price_per_gib_hour"):
        bill(ADDRESS, PRICED, month=None, currency="EUR", now=NOW, former_prices={"t4": 0.2})


@pytest.mark.usefixtures("_october")
def test_what_was_not_measured_is_reported() -> None:
    found = october(month="2026-11")
    assert found.unmeasured_hours == 21 * 24 + 12
    assert "not measured: 516 hours, which nobody is charged for" in bill_text(found, Paper())
    assert (found.end, found.measured, found.charges) == ("2026-11-22T12:00:00Z", 0, ())
    assert found.unknown[0].startswith(f"{ADDRESS} has no {RECORDED_SEATS} of this month: the stack's alerts record it")
    assert "what is used of pool batch: it hands out whole devices" in found.unknown[1]


@pytest.mark.parametrize(
    ("source", "month", "currency", "message"),
    [
        ("use.csv", None, "EUR", r"--from must be Prometheus' http\(s\) address: .* \(got use.csv\)"),
        (ADDRESS, "2026-13", "EUR", r"--month must be a month such as 2026-10 \(got '2026-13'\)"),
        (ADDRESS, "11-2026", "EUR", "--month must be a month such as 2026-10"),
        (ADDRESS, "2026-12", "EUR", "--month 2026-12: nothing of it is over yet; the last whole one is 2026-10"),
        (ADDRESS, "9999-12", "EUR", "--month 9999-12: nothing of it is over yet"),
        (ADDRESS, None, None, "pools.t4 has a price: name its currency, for instance --currency EUR"),
    ],
)
def test_a_bill_that_cannot_be_made_is_one_sentence(
    source: str, month: str | None, currency: str | None, message: str
) -> None:
    with pytest.raises(HistoryError, match=message):
        bill(source, PRICED, month=month, currency=currency, now=NOW)


def test_january_follows_december(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Prometheus, "over", lambda *_: iter(()))
    monkeypatch.setattr(Prometheus, "at", lambda *_: [])
    found = bill(ADDRESS, LEDGER_OF_PROD, month=None, currency=None, now=datetime(2027, 1, 1, tzinfo=UTC))
    assert (found.start, found.end) == ("2026-12-01T00:00:00Z", "2027-01-01T00:00:00Z")


def test_csv_is_for_bills_alone(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        cli.main(["who", "-o", "csv"], {})
    with pytest.raises(SystemExit):
        cli.main(["bill", "--from", ADDRESS, "--currency", "euro"], {})
    assert "'euro': must be a code of ISO 4217, such as EUR" in capsys.readouterr().err


@pytest.mark.parametrize("price", ["old", "old=", "=0.1", "old=-1", "old=nan"])
def test_a_price_names_its_pool(price: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parser().parse_args(["bill", "--from", ADDRESS, "--price", price])
    assert f"{price!r}: must be a pool and its price, such as old=0.1" in capsys.readouterr().err
