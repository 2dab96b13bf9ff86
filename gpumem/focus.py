"""Writes a bill as CSV in the columns of FOCUS 1.2, the FinOps Open Cost and Usage Specification
(https://focus.finops.org/focus-specification/v1-2/)."""

import csv
import io
from datetime import UTC, datetime, timedelta
from decimal import Decimal

from gpumem.bill import Bill, Charge, decimal
from gpumem.report import rfc3339
from tenancy.names import PROJECT


def bill_csv(report: Bill) -> str:
    """Returns the bill as CSV, with one row for each charge.

    An empty cell of the CSV file stands for null. The CSV file has its columns in the order of their names.
    """
    file = io.StringIO()
    nothing = Charge(day=f"{report.month}-01", tenant="", pool="", seat_mib_hours=0, used_mib_hours=0)
    writer = csv.DictWriter(file, sorted(_focus(report, nothing)), lineterminator="\r\n")
    writer.writeheader()
    writer.writerows(_focus(report, charge) for charge in report.charges)
    return file.getvalue()


def _focus(report: Bill, charge: Charge) -> dict[str, str]:
    """Returns the mandatory columns of FOCUS and the conditional columns that apply.

    Adds our own columns, which have the prefix x_.
    """
    day = datetime.fromisoformat(charge.day).replace(tzinfo=UTC)
    start = datetime.strptime(report.month, "%Y-%m").replace(tzinfo=UTC)
    price, quantity = decimal(charge.price_per_gib_hour or 0), decimal(charge.billed_gib_hours)
    cost, unit_price = _plain(quantity * price), _plain(price)
    unit = "GiB-Hours"
    return {
        **dict.fromkeys(("BilledCost", "ContractedCost", "EffectiveCost", "ListCost"), cost),
        **dict.fromkeys(("ContractedUnitPrice", "ListUnitPrice"), unit_price),
        **dict.fromkeys(("BillingAccountId", "BillingAccountName"), report.issuer),
        **dict.fromkeys(("InvoiceIssuerName", "ProviderName", "PublisherName"), report.issuer),
        **dict.fromkeys(("SubAccountId", "SubAccountName"), charge.tenant),
        **dict.fromkeys(("ResourceId", "ResourceName"), charge.pool),
        **dict.fromkeys(("SkuId", "SkuPriceId"), f"gpumem/{charge.pool}"),
        **dict.fromkeys(("ConsumedQuantity", "PricingQuantity"), _plain(quantity)),
        **dict.fromkeys(("ConsumedUnit", "PricingUnit"), unit),
        **dict.fromkeys(("ChargeClass", "SkuPriceDetails"), ""),
        "BillingCurrency": report.currency,
        "BillingPeriodStart": rfc3339(start),
        "BillingPeriodEnd": rfc3339((start + timedelta(days=31)).replace(day=1)),
        "ChargePeriodStart": rfc3339(day),
        "ChargePeriodEnd": rfc3339(day + timedelta(days=1)),
        "ChargeCategory": "Usage",
        "ChargeFrequency": "Usage-Based",
        "ChargeDescription": f"GPU memory of pool {charge.pool}: seats, or use where that is more",
        "PricingCategory": "Standard",
        "ResourceType": "GPU memory pool",
        "ServiceCategory": "Compute",
        "ServiceName": PROJECT,
        "ServiceSubcategory": "Other (Compute)",
        "SkuMeter": "GPU memory",
        "SubAccountType": "Namespace",
        "x_SeatMibHours": _plain(decimal(charge.seat_mib_hours)),
        "x_UsedMibHours": _plain(decimal(charge.used_mib_hours)),
    }


def _plain(number: Decimal) -> str:
    """Returns the number as text without an exponent and without trailing zeros."""
    text = f"{number:f}"
    return text.rstrip("0").rstrip(".") if "." in text else text
