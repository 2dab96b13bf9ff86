"""Draws the report of `kubectl gpumem fit` as text. Pure."""

from collections.abc import Iterator

from gpumem.checkout import file_name, is_path
from gpumem.fit import Fit, FitChange, FitPart, FitPool
from gpumem.paper import Paper, text_of_lines

NEW_TENANT = "new-tenant"  # The name of the tenant in a patch, if the flag --tenant is missing.


@text_of_lines
def fit_text(found: Fit, paper: Paper) -> Iterator[str]:
    each = f"{found.mib} MiB" + (f" on each of {found.gpu_count} devices of a node" if found.gpu_count > 1 else "")
    asked = each + (f", {found.replicas} replicas" if found.replicas > 1 else "")
    if not found.pools:
        yield "no pool shares memory"
    for pool in found.pools:
        yield from paper.wrapped(f"{pool.pool}: {_verdict(pool, asked)}", alarm=not pool.fits)
        yield from _pool(pool, f"promise {asked} to {found.tenant or NEW_TENANT}", paper)
        yield ""
    stack = found.stack or ""
    file = file_name(stack)
    if found.patch:
        into = file + ("" if is_path(stack) else ", under config:")
        yield f"into {into} (settings and the gate's rules on the ledger pass it)"
        yield from (f"  {line}" for line in found.patch.splitlines())
        if found.tenant is None:
            yield from paper.wrapped(f"({NEW_TENANT} stands for the tenant: name it with --tenant)", "  ")
        yield ""
    if found.refusals:
        yield from paper.wrapped(f"no change to {file} is shown, because it would be refused:")
        for line in found.refusals:
            yield from paper.wrapped(f"- {line}", "  ")
        yield ""
    yield from paper.unknown(found.unknown)


def _verdict(pool: FitPool, asked: str) -> str:
    if pool.never:
        return f"{asked} never fit: {pool.never}"
    return f"{asked} fit now" if pool.fits else f"{asked} do not fit now"


def _pool(pool: FitPool, new: str, paper: Paper) -> Iterator[str]:
    if pool.seat:
        yield from paper.wrapped(f"promised already: seat {pool.seat}", "  ")
    if pool.taken:
        yield from paper.wrapped(f"{pool.taken}: the pods need a new promise", "  ")
    if pool.promises is not None:
        yield from _part("to promise it", pool.promises, paper, new)
    if pool.devices is not None:
        yield from _part("on the devices, as they are held now", pool.devices, paper)
    stuck = pool.promises is not None and pool.promises.changes is None
    if stuck and pool.nodes is None:
        yield "  fit knows no number of nodes of this pool with which they fit"
    if pool.nodes is not None and not pool.fits:
        yield from paper.wrapped(
            f"{_missing(pool)}: raise pools.{pool.pool}.nodes to {pool.nodes}, and add the nodes"
            if pool.promises is None or not pool.promises.fits
            else f"or, with nobody touched: add a node to pools.{pool.pool}",
            "  ",
        )


def _missing(pool: FitPool) -> str:
    devices = "1 device is" if pool.missing == 1 else f"{pool.missing} devices are"
    if pool.promises is not None and pool.promises.changes is None:
        return f"{devices} missing"
    return "or, with nobody touched"


def _part(title: str, part: FitPart, paper: Paper, new: str = "") -> Iterator[str]:
    """Yields the result of a search. `new` is the new promise, which stands before the changes of other seats."""
    if part.fits:
        places = "; ".join(" and ".join(place) for place in part.places)
        yield from paper.wrapped(f"{title}: nothing has to change{f' ({places})' if places else ''}", "  ")
        return
    if part.changes is None:
        none = "no change makes room" if part.proven else "fit does not know a change that makes room"
        if part.touched:
            yield from paper.wrapped(
                f"{title}: no sensible change, because {part.touched} workloads would change", "  "
            )
            return
        kept = "each seat keeps what it uses, or half of its budget"
        yield from paper.wrapped(f"{title}: {none}, where {kept}", "  ")
        return
    yield from paper.wrapped(f"{title}, {_proof(part)}:", "  ")
    for change in [new, *map(_change, part.changes)] if new else map(_change, part.changes):
        yield from paper.wrapped(f"- {change}", "    ")


def _proof(part: FitPart) -> str:
    what = f"{_workloads(part.touched)}, {part.mib} MiB less promised"
    if part.proven:
        return f"the smallest change there is ({what})"
    if not part.least_touched:
        return f"the smallest change found ({what}); not proven minimal: perhaps all fit as they are"
    less = f", and {part.least_mib} MiB less promised if no more are" if part.least_mib else ""
    least = f"at least {_workloads(part.least_touched, 'must be touched')}{less}"
    return f"the smallest change found ({what}); not proven minimal: {least}"


def _workloads(count: int, done: str = "touched") -> str:
    return f"{count} workload{'' if count == 1 else 's'} {done}"


def _change(change: FitChange) -> str:
    if change.kind == "move":
        return f"move {change.workload} from {change.source} to {change.target} (one restart)"
    if change.kind == "park":
        return f"park {change.workload} (on demand, {change.source}) until the new pods are placed"
    replicas = f" in each of {change.replicas} replicas" if change.replicas > 1 else ""
    replicas += f" on each of {change.devices_per_pod} devices" if change.devices_per_pod > 1 else ""
    known = f"it uses {change.used_mib} now" if change.used_mib is not None else "a guess: what it needs is not known"
    less = (change.from_mib or 0) - (change.to_mib or 0)
    return f"lower {change.workload} by {less} MiB, from {change.from_mib} to {change.to_mib}{replicas} ({known})"
