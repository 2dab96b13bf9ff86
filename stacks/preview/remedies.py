"""Proposes a change after a refused preview: lower budgets with which all promises fit, or more devices. Pure."""

import json
from collections.abc import Iterable, Iterator, Sequence

from stacks.preview.events import Resource
from tenancy.decode import DecodeError
from tenancy.fit.lower import lower_budgets, nodes_needed
from tenancy.fit.smallest_change import WORK, Change, SmallestChange, least_mib
from tenancy.full_seats import full_seats
from tenancy.ledger import Ledger, Pool, Seat
from tenancy.names import LEDGER, LEDGER_KEY

_MOST_LISTED = 3


def ledger_before(resources: Iterable[Resource]) -> Ledger | None:
    """Returns the ledger in Pulumi's state, or None if the state has no ledger that this version can read."""
    for resource in resources:
        if (
            resource.type == "kubernetes:core/v1:ConfigMap"
            and (resource.before.get("metadata") or {}).get("name") == LEDGER
        ):
            try:
                return Ledger.from_data(json.loads(resource.before["data"][LEDGER_KEY]), ignored=[])
            except (DecodeError, ValueError, KeyError, TypeError):
                return None
    return None


def remedies(ledger: Ledger, before: Ledger | None = None) -> Iterator[str]:
    """Yields a sentence for each pool with promises that do not fit.

    The sentence names the seats that this change adds or raises, and lower budgets with which all promises fit. If
    possible, the sentence lowers only the seats of this change. If no sensible budgets fit, the sentence has the number
    of missing devices. `before` is the ledger before this change.
    """
    for pool in ledger.shared_pools:
        work = WORK // (3 * len(ledger.shared_pools))
        old = {seat.name: seat.gpumem_mib for seat in (before or ledger).seats if seat.pool == pool.name}
        seats = ledger.seats_in(pool.name)
        edited = [seat for seat in seats if seat.gpumem_mib > old.get(seat.name, 0)]
        half = {seat.name: least_mib(seat.gpumem_mib, None) for seat in seats}
        least = {seat.name: old.get(seat.name) or half[seat.name] for seat in edited}
        smallest = lower_budgets(ledger, pool, least=least, work=work)
        if smallest.changes is None:
            # A raised seat may go back to its budget before this change, even if that is less than half.
            lowest = {name: min(mib, least.get(name, mib)) for name, mib in half.items()}
            smallest = lower_budgets(ledger, pool, least=lowest, work=work)
        if smallest.changes != ():
            edit = f"this change {_edited(edited, old)}; " if edited else ""
            yield f"{pool.name}: {edit}{_remedy(ledger, pool, smallest, work)}"


def _edited(seats: Iterable[Seat], old: dict[str, int]) -> str:
    texts = [
        f"raises {seat.name} from {old[seat.name]} to {seat.gpumem_mib} MiB"
        if seat.name in old
        else f"adds {seat.name} with {seat.gpumem_mib} MiB"
        for seat in seats
    ]
    return _shortened(texts)


def _remedy(ledger: Ledger, pool: Pool, smallest: SmallestChange, work: int) -> str:
    if smallest.changes:
        title = "the smallest change that fits" if smallest.proven else "a change that fits, perhaps not the smallest,"
        return f"{title} lowers {_listed(smallest.changes)}{_reason(ledger, pool, smallest.changes)}"
    needed = nodes_needed(ledger, pool, work=work)
    sure = "no budgets fit that keep half of each seat" if smallest.proven else "no lower budgets are known that fit"
    if needed is None or needed.nodes <= pool.nodes:
        return sure
    devices = (needed.nodes - pool.nodes) * pool.device_count
    are = "device is" if devices == 1 else "devices are"
    floor = "" if needed.floor_mib is None else f" and floor_mib to {needed.floor_mib}"
    return f"{sure}: {devices} {are} missing; raise pools.{pool.name}.nodes to {needed.nodes}{floor}"


def _reason(ledger: Ledger, pool: Pool, changes: Sequence[Change]) -> str:
    """Returns the limit that the lower budgets just reach."""
    after = ledger.with_budgets({each.workload: each.to_mib for each in changes if each.to_mib is not None})
    full = full_seats(after, pool)
    if after.promised_mib(pool.name) == pool.advertised_mib:
        return f": then {pool.advertised_mib} MiB are promised, all that {pool.name} advertises"
    if full.over_mib == 0 and pool.floor_mib:
        return f": every seat full, a device of {pool.memory_mib} MiB then keeps its floor of {pool.floor_mib} free"
    return f": then every seat fits on a device of {pool.device_mib} MiB"


def _listed(changes: Iterable[Change]) -> str:
    return _shortened([f"{change.workload} from {change.from_mib} to {change.to_mib}" for change in changes])


def _shortened(texts: list[str]) -> str:
    more = len(texts) - _MOST_LISTED
    return ", ".join(texts[:_MOST_LISTED]) + (f" and {more} more" if more > 0 else "")
