"""The seating chart: every promise of a ledger, on the devices of its pools.

If some seats do not fit, the chart has all other seats, and the names of these seats.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from tenancy.choices import Sharing, Source
from tenancy.dispatch import dispatch_quotas, promises
from tenancy.drawing.model import Bar, DrawnPool, Fact, Kind, Part
from tenancy.drawing.seating import Seats, counted, seating
from tenancy.drawing.text import LEGEND, listed, pool_lines, wrapped
from tenancy.full_seats import full_seats
from tenancy.ledger import Ledger, Pool, QueueQuota
from tenancy.names import GPU

_SHOWN_BY = {Source.SLICES: "ResourceSlices", Source.DECLARED: "labels or ResourceSlices"}


def seating_chart(ledger: Ledger, *, width: int = 100, colour: bool = False) -> str:
    """Returns the seating chart as text of `width` columns. With `colour`, the text contains ANSI colours."""
    lines = [f"{ledger.names.gpumem} in MiB", ""]
    for pool in drawn_pools(ledger):
        lines += [*pool_lines(pool, width, colour=colour), ""]
    for fact in _beside_the_pools(ledger):
        lines += wrapped(fact.text, width, "", alarm=fact.alarm and colour)
    return "\n".join([*lines, LEGEND, ""])


def drawn_pools(ledger: Ledger) -> list[DrawnPool]:
    """Returns each pool of the ledger, and each resource that worker clusters promise."""
    pools = sorted(ledger.pools, key=lambda pool: pool.sharing is not Sharing.MEMORY)
    drawn = [_shared(ledger, pool) if pool.sharing is Sharing.MEMORY else _whole(ledger, pool) for pool in pools]
    resources = sorted({each for cluster in ledger.clusters for each in cluster.promises})
    return [*drawn, *(_clusters(ledger, resource) for resource in resources)]


def sums(ledger: Ledger, pool: Pool) -> Fact:
    """Returns what is promised of a pool and what is free, with the size of the pool."""
    size = f"{pool.device_count} device{'s' if pool.device_count > 1 else ''}"
    size = size if pool.nodes == 1 else f"{pool.nodes} nodes x {size}"
    if pool.sharing is Sharing.WHOLE:
        return _promised(ledger.quota_gpus(pool.name), pool.gpus, "GPU", listed([size, "whole"]))
    sizes = [f"{size} of {pool.memory_mib} MiB", f"{pool.memory_mib - pool.device_mib} reserved"]
    if pool.floor_mib:
        sizes.append(f"floor {pool.floor_mib}")
    if pool.source in _SHOWN_BY:
        sizes.append(f"shown by {_SHOWN_BY[pool.source]}")
    return _promised(ledger.promised_mib(pool.name), pool.advertised_mib, "MiB", listed(sizes))


def _promised(promised: int, available: int, unit: str, size: str) -> Fact:
    over = promised - available
    verdict = f"OVER by {over} {unit}" if over > 0 else f"{-over} free"
    return Fact(f"{promised} of {available} {unit} promised, {verdict} ({size})", over > 0)


def _shared(ledger: Ledger, pool: Pool) -> DrawnPool:
    found = seating(ledger, pool)
    facts, more = [sums(ledger, pool)], []
    if pool.assumed:
        facts.append(Fact("its numbers are assumed: the watchdog only reports there", alarm=True))
    if pool.gpus > 1 and ledger.seats_in(pool.name):
        facts.append(Fact("a possible seating:"))
    if found.unplaced:
        more.append(Fact(f"no room for {counted(found.unplaced)}", alarm=True))
    if found.remark and not facts[0].alarm:
        more.append(Fact(found.remark, alarm=True))
    bars = tuple(_bars(ledger, pool, found.devices))
    more += [*_beside(ledger, pool), *_full(ledger, pool, over=facts[0].alarm)]
    return DrawnPool(name=pool.name, facts=tuple(facts), bars=bars, more=tuple(more))


def _bars(ledger: Ledger, pool: Pool, devices: Iterable[tuple[Seats, int]]) -> Iterator[Bar]:
    """Yields a bar for each different device. The quota of queues takes the room on the fullest devices first."""
    tenants = {seat.name: seat.tenant for seat in ledger.seats}
    left_mib = ledger.quota_mib(pool.name)
    for seats, count in devices:
        room_mib = pool.device_mib - sum(each.mib for each in seats)
        queued_mib = min(room_mib, -(-left_mib // count))
        left_mib = max(left_mib - queued_mib * count, 0)
        parts = (
            *(Part(name=i.name, amount=i.mib, count=n, owner=tenants[i.name]) for i, n in Counter(seats).items()),
            Part(name="queues", amount=queued_mib, kind=Kind.QUEUES),
            Part(name="free", amount=room_mib - queued_mib, kind=Kind.FREE),
            Part(name="reserve", amount=pool.memory_mib - pool.device_mib, kind=Kind.RESERVE),
        )
        yield Bar(parts=parts, title=f"{count} x " if pool.gpus > 1 else "")


def _whole(ledger: Ledger, pool: Pool) -> DrawnPool:
    quotas = [quota for quota in ledger.quotas if (quota.pool, quota.resource) == (pool.name, GPU)]
    more = [*_beside(ledger, pool)]
    if pool.least_nodes is not None:
        there = pool.least_nodes * pool.device_count
        text = f"{there} GPU always there; the autoscaler makes {pool.gpus - there} more on demand"
        more.insert(0, Fact(text))
    handed_out = [(quota.holder, quota.nominal) for quota in quotas]
    return DrawnPool(
        name=pool.name, facts=(sums(ledger, pool),), bars=(_quotas(handed_out, pool.gpus),), more=tuple(more)
    )


def _clusters(ledger: Ledger, resource: str) -> DrawnPool:
    """Returns what all worker clusters promise of a resource, and the quotas of the queues that dispatch to them."""
    queues = [each for each in dispatch_quotas(ledger) if each.resource == resource]
    supply = promises(ledger, resource)
    clusters = listed(f"{name} {amount}" for name, amount in supply.items())
    return DrawnPool(
        name="worker clusters",
        facts=(_promised(sum(each.nominal for each in queues), sum(supply.values()), resource, clusters),),
        bars=(_quotas([(each.queue, each.nominal) for each in queues], sum(supply.values())),),
        more=tuple(Fact(f"{each.queue} dispatches to {listed(each.clusters)}") for each in queues),
    )


def _quotas(quotas: Sequence[tuple[str, int]], available: int) -> Bar:
    free = max(available - sum(amount for _, amount in quotas), 0)
    handed_out = (Part(name=name, amount=amount, owner=name) for name, amount in quotas)
    return Bar(parts=(*handed_out, Part(name="free", amount=free, kind=Kind.FREE)))


def _beside(ledger: Ledger, pool: Pool) -> Iterator[Fact]:
    if several := [s for s in ledger.seats_in(pool.name) if s.devices_per_pod > 1]:
        yield Fact(f"devices of one node for each pod: {listed(f'{s.name} {s.devices_per_pod}' for s in several)}")
    if let_in := [f"{o.name} {o.need_mib}{_gpus(o.gpus)}" for o in ledger.on_demand if o.pool == pool.name]:
        yield Fact(f"on demand: {listed(let_in)}")
    if queued := [_queued(quota) for quota in ledger.quotas if quota.pool == pool.name]:
        yield Fact(f"queues: {listed(queued)}")
    if pool.gpus > 1 and ledger.quota_mib(pool.name):
        yield Fact("drawn in equal parts; Kueue counts the sum, and each pod goes where it has room")


def _full(ledger: Ledger, pool: Pool, *, over: bool) -> Iterator[Fact]:
    """Yields what the reserve holds and, if the promises fit, what is free while every seat uses its whole budget."""
    full = full_seats(ledger, pool)
    short, above = full.reserve_short_mib, full.free_mib - pool.floor_mib
    measured = [f"{u.name} {u.measured_mib}{_gpus(u.gpus)}" for u in ledger.unbudgeted if u.pool == pool.name]
    used = listed([f"driver {pool.driver_reserved_mib}", *(f"unbudgeted {each}" for each in measured)])
    yield Fact(f"reserve {pool.reserve_mib}: {used}; {f'{short} short' if short > 0 else f'{-short} left'}", short > 0)
    if over:
        return
    where = "every seat full" if pool.gpus == 1 else "every seat full, on the fullest device"
    free = f"{full.free_mib} free" if full.free_mib >= 0 else f"{-full.free_mib} more than the device has"
    floor = (
        f", {abs(above)} {'under' if above < 0 else 'above'} the floor of {pool.floor_mib}" if pool.floor_mib else ""
    )
    held = "; the driver lets no seat have more" if pool.caps else ""
    yield Fact(f"{where}: {free}{floor}{held}", full.over_mib > 0)


def _queued(quota: QueueQuota) -> str:
    borrows = f" and borrows {quota.borrowing}" if quota.borrowing else ""
    return f"{quota.holder} {quota.nominal} {quota.resource}{borrows}"


def _gpus(count: int) -> str:
    return "" if count == 1 else f" on {count} GPUs"


def _beside_the_pools(ledger: Ledger) -> Iterator[Fact]:
    if ledger.queue_tenants:
        yield Fact(f"queue tenants: {listed(ledger.queue_tenants)}")
    for tenant in ledger.tenants:
        if not tenant.is_held:
            yield Fact(f"privileged: {tenant.name}", alarm=True)
    if ledger.exempt_namespaces:
        yield Fact(f"exempt from admission: {', '.join(ledger.exempt_namespaces)}")
    if ledger.observes:
        yield Fact(ledger.observed, alarm=True)
