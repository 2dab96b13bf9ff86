"""Implements `kubectl gpumem who --since`: which seats left how much of their memory unused over some days. Pure."""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime

from gpumem.history import SeatUses
from gpumem.paper import Paper, text_of_lines
from gpumem.report import rfc3339
from tenancy.ledger import Ledger


@dataclass(frozen=True, kw_only=True)
class SeatWaste:
    """The memory of a seat on all its devices, in MiB.

    `used_mib` and `waste_mib` are means over the measured time, and `used_max_mib` is the maximum. A seat without a pod
    wastes its whole budget. `ran` is the fraction of the measured time in which the seat used memory.
    """

    tenant: str
    seat: str
    pool: str
    declared_mib: int
    used_mib: float
    used_max_mib: float
    waste_mib: float
    ran: float


@dataclass(frozen=True, kw_only=True)
class Waste:
    """The report, with the seat that wasted most first. `first` and `last` are the times of the first and the last
    sample, in UTC. Nothing was measured if they are None, and `seats` is then empty."""

    first: str | None
    last: str | None
    seats: tuple[SeatWaste, ...]
    unknown: tuple[str, ...]


def wasted(uses: SeatUses, ledger: Ledger, *, namespace: str | None = None, pool: str | None = None) -> Waste:
    """Returns the report on the seats of a namespace and of a pool. None selects all."""
    times = {sample.time for sample in uses.samples}
    used: dict[tuple[str, float], float] = defaultdict(float)
    for sample in uses.samples:
        used[sample.seat, sample.time] += sample.mib
    rows = []
    for seat in ledger.seats if times else ():
        if namespace not in (None, seat.tenant) or pool not in (None, seat.pool):
            continue
        mine = [used.get((seat.name, time), 0.0) for time in times]
        rows.append(
            SeatWaste(
                tenant=seat.tenant,
                seat=seat.name,
                pool=seat.pool,
                declared_mib=seat.total_mib,
                used_mib=sum(mine) / len(times),
                used_max_mib=max(mine),
                waste_mib=sum(max(seat.total_mib - mib, 0) for mib in mine) / len(times),
                ran=sum(mib > 0 for mib in mine) / len(times),
            )
        )
    return Waste(
        first=rfc3339(datetime.fromtimestamp(min(times), UTC)) if times else None,
        last=rfc3339(datetime.fromtimestamp(max(times), UTC)) if times else None,
        seats=tuple(sorted(rows, key=lambda row: (-row.waste_mib, row.seat))),
        unknown=uses.unknown,
    )


@text_of_lines
def waste_text(report: Waste, paper: Paper) -> Iterator[str]:
    if report.first and report.last:
        yield f"from {report.first} to {report.last}; USED and WASTE are means of that time"
    rows = [
        (
            row.tenant,
            row.seat,
            row.pool,
            str(row.declared_mib),
            f"{row.used_mib:.0f}",
            f"{row.used_max_mib:.0f}",
            f"{row.waste_mib:.0f}",
            f"{row.ran:.0%}",
        )
        for row in report.seats
    ]
    yield from paper.table(("NAMESPACE", "SEAT", "POOL", "DECLARED", "USED", "MAX", "WASTE", "RAN"), rows)
    yield ""
    yield from paper.unknown(report.unknown)
