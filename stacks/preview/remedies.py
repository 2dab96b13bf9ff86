"""What a refused preview proposes: the fewest seats to lower so that a pool keeps its promises. Pure."""

from collections.abc import Iterator

from tenancy.fit.lower import lower
from tenancy.fit.plan import Change, Plan
from tenancy.ledger import Ledger

_MOST_LISTED = 3
_WORK = 300_000  # steps: who is refused does not wait long for a remedy


def remedies(ledger: Ledger) -> Iterator[str]:
    """A sentence for each pool whose seats do not fit; none where lowering seats does not help, or
    no such change is found soon."""
    for pool in ledger.shared_pools:
        plan = lower(ledger, pool, work=_WORK)
        if plan is not None and plan.changes:
            yield f"{pool.name}: {_title(plan)} lowers {_listed(plan.changes)}"


def _title(plan: Plan) -> str:
    return "the smallest change that fits" if plan.proven else "a change that fits, perhaps not the smallest,"


def _listed(changes: tuple[Change, ...]) -> str:
    shown = [f"{change.workload} from {change.from_mib} to {change.to_mib}" for change in changes[:_MOST_LISTED]]
    more = len(changes) - len(shown)
    return ", ".join(shown) + (f" and {more} more" if more else "")
