"""Implements `kubectl gpumem advise`.

Proposes budgets from a history of use, with a patch of the stack file that the policy pack accepts.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from gpumem import checkout
from gpumem.checkout import AcceptedStack
from gpumem.history import SeatUses
from gpumem.paper import Paper, text_of_lines
from gpumem.proposal import Advice, Verdict, advise
from gpumem.report import rfc3339
from tenancy import sums
from tenancy.ledger import Ledger

_CHANGES = (Verdict.RAISE, Verdict.LOWER)


@dataclass(frozen=True, kw_only=True)
class SeatAdvice(Advice):
    """The advice on one seat, with the tenant and the pool of the seat."""

    tenant: str
    pool: str


@dataclass(frozen=True, kw_only=True)
class Advised:
    """The report. `first` and `last` are the times of the first and the last sample in the history, in UTC.

    `patch` is None if nothing changes. If the policy pack refuses the change, `patch` is None, and `refused` has the
    reasons. `judged` names the checks that judged the change.
    """

    first: str | None
    last: str | None
    seats: tuple[SeatAdvice, ...]
    judged: str
    refused: tuple[str, ...]
    patch: str | None
    unknown: tuple[str, ...]

    @property
    def fine(self) -> bool:
        """Returns True if no budget is too small and the policy pack accepts the proposal."""
        return not self.refused and all(seat.verdict is not Verdict.RAISE for seat in self.seats)


def advised(uses: SeatUses, ledger: Ledger, *, stack: AcceptedStack | None, namespace: str | None = None) -> Advised:
    """Returns the report on the seats of a stack file.

    Without a stack file, the report covers the seats of the cluster's ledger. Raises CheckoutError.
    """
    shown = [seat for seat in ledger.seats if namespace in (None, seat.tenant)]
    found = advise({seat.name: seat.gpumem_mib for seat in shown}, uses.samples)
    times = [sample.time for sample in uses.samples]
    rows = tuple(
        SeatAdvice(tenant=seat.tenant, pool=seat.pool, **vars(each)) for seat, each in zip(shown, found, strict=True)
    )
    budgets = {row.seat: row.proposed_mib for row in rows if row.verdict in _CHANGES and row.proposed_mib is not None}
    judged, refused, patch = _judged(ledger, stack, budgets)
    return Advised(
        first=rfc3339(datetime.fromtimestamp(min(times), UTC)) if times else None,
        last=rfc3339(datetime.fromtimestamp(max(times), UTC)) if times else None,
        seats=tuple(sorted(rows, key=lambda row: (row.pool, -row.declared_mib, row.seat))),
        judged=judged,
        refused=tuple(refused),
        patch=None if refused or not budgets else patch,
        unknown=uses.unknown,
    )


def _judged(ledger: Ledger, stack: AcceptedStack | None, budgets: dict[str, int]) -> tuple[str, Sequence[str], str]:
    if stack is None:
        lines = "".join(f"    {name}: {{gpumem_mib: {mib}}}\n" for name, mib in budgets.items())
        refused = [f"{rule}: {line}" for rule, line in sums.contradictions(ledger.with_budgets(budgets))]
        return "the ledger's sums; make preview judges the rest", refused, f"config:\n  gpu-tenancy:residents:\n{lines}"
    change = checkout.with_numbers(stack, {("residents", name, "gpumem_mib"): mib for name, mib in budgets.items()})
    return "settings and policy pack", change.refusals, checkout.patch(stack, change)


@text_of_lines
def advised_text(report: Advised, paper: Paper) -> Iterator[str]:
    if report.first and report.last:
        yield f"history from {report.first} to {report.last}"
        yield ""
    for pool in dict.fromkeys(seat.pool for seat in report.seats):
        rows = [seat for seat in report.seats if seat.pool == pool]
        yield pool
        yield from paper.table(_HEADER, [_cells(row) for row in rows])
        for row in rows:
            yield from paper.wrapped(_sentence(row), "  ", alarm=row.verdict is Verdict.RAISE)
        yield ""
    if not report.seats:
        yield "there is no seat"
        yield ""
    yield from _verdict(report, paper)
    yield from paper.unknown(report.unknown)


_HEADER = ("SEAT", "DECLARED", "P50", "P95", "P99", "MAX", "STARTS", "LOAD", "GROWTH", "DAYS", "PROPOSED")


def _cells(row: SeatAdvice) -> tuple[str, ...]:
    used = (row.used_p50_mib, row.used_p95_mib, row.used_p99_mib, row.used_max_mib)
    return (
        row.seat,
        str(row.declared_mib),
        *(f"{mib:.0f}" if row.proposed_mib else "-" for mib in used),
        str(row.starts or "-"),
        "-" if row.cold_max_mib is None else f"{row.cold_max_mib:.0f}",
        f"{row.growth_mib_per_day:+.1f}" if row.growth_mib_per_day else "-",
        f"{row.days:.0f}",
        "-" if row.proposed_mib is None or row.verdict is Verdict.GROWS else str(row.proposed_mib),
    )


def _sentence(row: SeatAdvice) -> str:
    most = max(row.used_max_mib, row.cold_max_mib or 0)
    match row.verdict:
        case Verdict.UNKNOWN:
            return f"{row.seat}: nothing is known of its use"
        case Verdict.UNUSED:
            return f"{row.seat}: nothing of it was used on {row.days:.0f} days; is it needed?"
        case Verdict.SHORT:
            why = "its device was under its floor then" if row.pressed else row.no_risk
            return f"{row.seat}: used {most:.0f} of {row.declared_mib} at most; not lowered: {why}"
        case Verdict.KEEP | Verdict.GROWS:
            what = f"{row.seat}: keep {row.declared_mib}"
        case Verdict.LOWER:
            what = f"{row.seat}: lower it to {row.proposed_mib}, {row.declared_mib - (row.proposed_mib or 0)} less"
        case Verdict.RAISE if row.days_above:
            days = f"{row.days_above} day{'s' if row.days_above > 1 else ''}"
            what = (
                f"! {row.seat}: raise it to {row.proposed_mib}: above {row.declared_mib} on {days} and {row.above:.1%} "
                f"of the time that it ran, at most {most:.0f}"
            )
        case _:
            what = f"! {row.seat}: raise it to {row.proposed_mib}: it grows beyond {row.declared_mib}"
    return "; ".join([what, *_risks(row)])


def _risks(row: SeatAdvice) -> Iterator[str]:
    budget_mib = _budget_mib(row)
    if row.growth_mib_per_day:
        when = f"about {row.reaches}" if row.reaches else "not within a year"
        yield f"it grows by {row.growth_mib_per_day:.1f} MiB a day, and reaches {budget_mib} {when}"
    elif row.risk is None:
        yield f"no risk can be stated: {row.no_risk}"
    else:
        yield (
            f"the risk that the next {row.horizon_days} days go above {budget_mib} is at most "
            f"{math.ceil(row.risk * 100)}%, if they are like the {row.days:.0f} days measured"
        )
    if row.since:
        yield f"only the days since {row.since} count, because its use rose then"
    if row.verdict is Verdict.LOWER and not row.starts:
        yield "no start of a pod was seen, and a start may need more"
    if row.pressed:
        yield "its device was under its floor at that peak: it may want more"


def _verdict(report: Advised, paper: Paper) -> Iterator[str]:
    if report.refused:
        yield from paper.wrapped(f"these budgets do not fit together, by {report.judged}:", alarm=True)
        for line in report.refused:
            yield from paper.wrapped(line, "  ")
        yield from _together(report.seats, paper)
    elif report.patch is None:
        yield "nothing to change"
    else:
        yield from paper.wrapped(f"they fit together, by {report.judged}:")
        yield ""
        yield from report.patch.splitlines()
    yield ""


def _together(seats: Sequence[SeatAdvice], paper: Paper) -> Iterator[str]:
    for pool in dict.fromkeys(seat.pool for seat in seats if seat.verdict in _CHANGES):
        asked = [(_budget_mib(seat), seat.seat) for seat in seats if seat.pool == pool]
        parts = ", ".join(f"{name} {mib}" for mib, name in sorted(asked, key=lambda each: (-each[0], each[1])))
        yield from paper.wrapped(f"the seats of {pool} would be: {parts}", "  ")


def _budget_mib(seat: SeatAdvice) -> int:
    return seat.proposed_mib if seat.verdict in _CHANGES and seat.proposed_mib else seat.declared_mib
