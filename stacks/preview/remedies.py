"""Proposes a change after a refused preview: the fewest budgets to lower so that all promises of a pool fit. Pure."""

from collections.abc import Callable, Iterator

from tenancy.fit.lower import lower_budgets
from tenancy.fit.smallest_change import Change, SmallestChange
from tenancy.ledger import Ledger

_MOST_LISTED = 3
# These limits keep the search short, so that the operator soon sees the refusal. `_WORK` is the number of steps for all
# pools. `_MOST_PODS` and `_MOST_DEVICES` are limits for each pool.
_WORK = 100_000
_MOST_PODS, _MOST_DEVICES = 40, 64


def remedies(ledger: Ledger, file_of: Callable[[str], str] = lambda _: "") -> Iterator[str]:
    """Yields a sentence for each pool in which a short search finds lower budgets with which all promises fit.

    `file_of` returns the file with a seat, or "" for the stack file. `kubectl gpumem fit` searches longer.
    """
    for pool in ledger.shared_pools:
        pods = sum(seat.devices for seat in ledger.seats if seat.pool == pool.name)
        if pods > _MOST_PODS or pool.nodes * pool.device_count > _MOST_DEVICES:
            continue
        smallest = lower_budgets(ledger, pool, work=_WORK // len(ledger.shared_pools))
        if smallest is not None and smallest.changes:
            yield f"{pool.name}: {_title(smallest)} lowers {_listed(smallest.changes, file_of)}"


def _title(smallest: SmallestChange) -> str:
    return "the smallest change that fits" if smallest.proven else "a change that fits, perhaps not the smallest,"


def _listed(changes: tuple[Change, ...], file_of: Callable[[str], str]) -> str:
    shown = [
        f"{change.workload}{file and f' ({file})'} from {change.from_mib} to {change.to_mib}"
        for change in changes[:_MOST_LISTED]
        for file in [file_of(change.workload)]
    ]
    more = len(changes) - len(shown)
    return ", ".join(shown) + (f" and {more} more" if more else "")
