"""Draws the seats of a stack as one HTML file that loads nothing, below a table of the seats and pools that change."""

from collections.abc import Mapping

from tenancy.drawing import html
from tenancy.drawing.chart import drawn_pools, sums
from tenancy.ledger import Ledger, Seat


def picture(stack: str, after: Ledger, before: Ledger | None, compared: str) -> str:
    """Returns the picture as an HTML file.

    `compared` is a text about the origin of `before`, or about the reason why there is no ledger before the change.
    """
    title = html.text(f"{stack}: seats")
    intro = html.line(f"{compared} All amounts are MiB of GPU memory.", "dim")
    seats = _changes(_seats(before), _seats(after)) if before else []
    pools = _changes(_pools(before), _pools(after)) if before else []
    changed = html.table(("SEAT OR POOL", "BEFORE", "AFTER"), [*seats, *pools]) or html.line("No seat changes.")
    changes = html.section("Changes", changed) if before else ""
    drawn = [html.pool(pool, {name for name, *_ in seats}) for pool in drawn_pools(after)]
    body = "\n".join([f"<h1>{title}</h1>{intro}", changes, *drawn])
    return html.document(title, html.STYLE, f"<main>\n{body}\n</main>")


def _seats(ledger: Ledger) -> dict[str, str]:
    return {seat.name: _amount(seat) for seat in ledger.seats}


def _amount(seat: Seat) -> str:
    each = f" on each of {seat.devices_per_pod} devices" if seat.devices_per_pod > 1 else ""
    return f"{seat.gpumem_mib} MiB{each}{f' x {seat.replicas}' if seat.replicas > 1 else ''} in {seat.pool}"


def _pools(ledger: Ledger) -> dict[str, str]:
    return {pool.name: sums(ledger, pool).text for pool in ledger.pools}


def _changes(old: Mapping[str, str], new: Mapping[str, str]) -> list[tuple[str, str, str]]:
    both = ((name, old.get(name, "none"), new.get(name, "none")) for name in sorted(old.keys() | new.keys()))
    return [(name, before, after) for name, before, after in both if before != after]
