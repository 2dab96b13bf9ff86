"""Draws the seating chart: every promise of a ledger, on the devices of its pool.

The bar of each device shows seats, the quota of queues, free memory and the reserve, all to scale. A label that is too
long for its part of the bar is printed below the bar. If some seats do not fit, the chart draws all other seats and
lists the names of the seats that do not fit.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from tenancy.bars import EDGE, FREE, RESERVE, Segment, bar, wrapped
from tenancy.choices import Sharing, Source
from tenancy.devices.placement import Bin, Impossible, Item, Placement, Undecided
from tenancy.devices.spread import AlikeNodes, place_on_nodes
from tenancy.full_seats import FullSeats, full_seats
from tenancy.ledger import Ledger, Pool, QueueQuota
from tenancy.names import GPU

NARROWEST = 40
# The maximum number of steps of the search. The policy pack allows 100 times as many steps, but drawing a chart must be
# fast.
_STEPS = 10_000
# The maximum number of seats and of bars that the chart draws. Above these limits, the chart prints only the number of
# seats or bars.
_MOST_SEATS, _MOST_BARS = 2000, 32
_FLOOR = "▲"
_LEGEND = f"{FREE} free   {RESERVE} reserve   {_FLOOR} floor: with less memory free the watchdog acts"
_TIE = "\N{NO-BREAK SPACE}"
_SHOWN_BY = {Source.SLICES: "ResourceSlices", Source.DECLARED: "labels or ResourceSlices"}


@dataclass(frozen=True, kw_only=True)
class _Seating:
    """`devices` has each combination of seats on one device, with the number of devices that have this combination."""

    devices: tuple[tuple[tuple[Item, ...], int], ...]
    unplaced: tuple[Item, ...] = ()
    remark: str = ""


def seating_chart(ledger: Ledger, *, width: int = 100, colour: bool = False) -> str:
    """Returns the chart as text of at most `width` columns (40 or more).

    With `colour`, the text has ANSI colours.
    """
    chart = _Chart(ledger, max(width, NARROWEST), colour)
    return "\n".join(chart.lines()) + "\n"


class _Chart:
    def __init__(self, ledger: Ledger, width: int, colour: bool) -> None:
        self.ledger = ledger
        self.width = width
        self.colour = colour
        self.tenants = {seat.name: seat.tenant for seat in ledger.seats}

    def lines(self) -> Iterator[str]:
        yield from self._text(f"{self.ledger.names.gpumem} in MiB", indent="")
        pools = sorted(self.ledger.pools, key=lambda pool: pool.sharing is not Sharing.MEMORY)
        for pool in pools:
            yield ""
            yield from self._shared_pool(pool) if pool.sharing is Sharing.MEMORY else self._whole_pool(pool)
        yield ""
        if self.ledger.queue_tenants:
            yield from self._text(f"queue tenants: {_listed(self.ledger.queue_tenants)}", indent="")
        for tenant in self.ledger.tenants:
            if not tenant.is_held:
                yield from self._text(f"privileged: {tenant.name}: {tenant.pod_security_reason}", indent="", alarm=True)
        if self.ledger.exempt_namespaces:
            yield from self._text(f"exempt from admission: {', '.join(self.ledger.exempt_namespaces)}", indent="")
        if trusted := (*self.ledger.trusted_namespaces, *(f"group {each}" for each in self.ledger.trusted_groups)):
            yield from self._text(f"trusted with any right: {', '.join(trusted)}", indent="")
        if self.ledger.observes:
            yield from self._text(self.ledger.observed, indent="", alarm=True)
        yield from self._text(_LEGEND, indent="")

    def _shared_pool(self, pool: Pool) -> Iterator[str]:
        yield from self._shared_head(pool)
        promised, advertised = self.ledger.promised_mib(pool.name), pool.advertised_mib
        yield from self._bars(pool, promised <= advertised)
        yield from self._beside(pool)
        full = full_seats(self.ledger, pool)
        yield from self._reserve(full)
        if promised <= advertised:
            yield from self._full(full)

    def _shared_head(self, pool: Pool) -> Iterator[str]:
        size = f"{_devices(pool)} of {pool.memory_mib} MiB, {pool.memory_mib - pool.device_mib} reserved"
        shown = "" if pool.source is Source.LABELS else f", shown by {_SHOWN_BY[pool.source]}"
        yield from self._head(pool, self.ledger.promised_mib(pool.name), pool.advertised_mib, "MiB", size + shown)
        if pool.assumed:
            yield from self._text("its numbers are assumed: the watchdog only reports there", alarm=True)

    def _bars(self, pool: Pool, fits_in_sum: bool) -> Iterator[str]:
        seats = sum(seat.replicas for seat in self.ledger.seats_in(pool.name))
        if seats > _MOST_SEATS:
            yield from self._text(f"{seats} seats: {_MOST_SEATS} at most are drawn; the policy pack places them")
            return
        seated = self.ledger.seats_in(pool.name)
        items = [Item(s.name, s.gpumem_mib, s.devices_per_pod) for s in seated for _ in range(s.replicas)]
        seating = _seat(items, pool)
        quota_mib = self.ledger.quota_mib(pool.name)
        for held, count in seating.devices[:_MOST_BARS]:
            free_mib = pool.device_mib - sum(item.mib for item in held)
            queued_mib = min(free_mib, -(-quota_mib // count))
            quota_mib = max(quota_mib - queued_mib * count, 0)
            segments = [
                *(Segment(label=f"{i.name} {i.mib}", amount=i.mib, tenant=self.tenants[i.name]) for i in held),
                Segment(label=f"queues {queued_mib}", amount=queued_mib, tenant="queues"),
                Segment(label=f"{free_mib - queued_mib}", amount=free_mib - queued_mib, fill=FREE),
                Segment(label=f"{pool.reserve_mib}", amount=pool.memory_mib - pool.device_mib, fill=RESERVE),
            ]
            yield from self._bar(segments, _times(count, pool.gpus), pool.gpus)
        if folded := seating.devices[_MOST_BARS:]:
            more = sum(count for _, count in folded)
            held_mib = sum(item.mib * count for held, count in folded for item in held)
            yield from self._text(f"and {more} more devices with {held_mib} MiB of seats")
        yield from self._floor(pool)
        if seating.unplaced:
            yield from self._text(f"no room for {_counted(seating.unplaced)}", alarm=True)
        if seating.remark and fits_in_sum:
            yield from self._text(seating.remark, alarm=True)

    def _whole_pool(self, pool: Pool) -> Iterator[str]:
        yield from self._whole_head(pool)
        segments = [
            Segment(label=f"{quota.holder} {quota.nominal}", amount=quota.nominal, tenant=quota.holder)
            for quota in self.ledger.quotas
            if quota.pool == pool.name and quota.resource == GPU
        ]
        free = max(pool.gpus - self.ledger.quota_gpus(pool.name), 0)
        yield from self._bar([*segments, Segment(label=f"{free}", amount=free, fill=FREE)], "", 1)
        if pool.least_nodes is not None:
            there = pool.least_nodes * pool.device_count
            yield from self._text(f"{there} GPU always there; the autoscaler makes {pool.gpus - there} more on demand")
        yield from self._beside(pool)

    def _whole_head(self, pool: Pool) -> Iterator[str]:
        yield from self._head(pool, self.ledger.quota_gpus(pool.name), pool.gpus, "GPU", f"{_devices(pool)}, whole")

    def _head(self, pool: Pool, promised: int, available: int, unit: str, size: str) -> Iterator[str]:
        over = promised - available
        verdict = f"OVER by {over} {unit}" if over > 0 else f"{-over} free"
        text = f"{pool.name}: {promised} of {available} {unit} promised, {verdict} ({size})"
        yield from self._text(text, indent="", alarm=over > 0)

    def _beside(self, pool: Pool) -> Iterator[str]:
        """Yields lines of text about seats with several devices, on-demand workloads and queues."""
        several = [s for s in self.ledger.seats_in(pool.name) if s.devices_per_pod > 1]
        if several:
            each = _listed(f"{s.name} {s.devices_per_pod}" for s in several)
            yield from self._text(f"devices of one node for each pod: {each}")
        let_in = [f"{o.name} {o.need_mib}{_gpus(o.gpus)}" for o in self.ledger.on_demand if o.pool == pool.name]
        if let_in:
            yield from self._text(f"on demand: {_listed(let_in)}")
        queued = [_queued(q) for q in self.ledger.quotas if q.pool == pool.name]
        if queued:
            yield from self._text(f"queues: {_listed(queued)}")

    def _reserve(self, full: FullSeats) -> Iterator[str]:
        """Yields a line of text about the use of the reserve by the driver and by unbudgeted workloads."""
        pool, short = full.pool, full.reserve_short_mib
        measured = [f"{u.name} {u.measured_mib}{_gpus(u.gpus)}" for u in self.ledger.unbudgeted if u.pool == pool.name]
        used = _listed([f"driver {pool.driver_reserved_mib}", *(f"unbudgeted {each}" for each in measured)])
        rest = f"{short} short" if short > 0 else f"{-short} left"
        yield from self._text(f"reserve {pool.reserve_mib}: {used}; {rest}", alarm=short > 0)

    def _full(self, full: FullSeats) -> Iterator[str]:
        """Yields a line of text about the free memory of the fullest device while every seat uses its whole budget."""
        pool = full.pool
        above = full.free_mib - pool.floor_mib
        floor = f", {abs(above)} {'under' if above < 0 else 'above'} the floor of {pool.floor_mib}"
        free = f"{full.free_mib} free" if full.free_mib >= 0 else f"{-full.free_mib} more than the device has"
        where = "every seat full" if pool.gpus == 1 else "every seat full, on the fullest device"
        held = "; the driver lets no seat have more" if pool.caps else ""
        yield from self._text(f"{where}: {free}{floor if pool.floor_mib else ''}{held}", alarm=full.over_mib > 0)

    def _bar(self, segments: Sequence[Segment], times: str, devices: int) -> Iterator[str]:
        margin = " " * len(_times(devices, devices))
        drawn, cut = bar(segments, self.width - len(margin), colour=self.colour)
        yield f"{times:>{len(margin)}}{drawn}"
        if cut:
            yield from self._text(_listed(cut), indent=f"{margin} ")

    def _floor(self, pool: Pool) -> Iterator[str]:
        """Yields a line of text that marks the floor below the bars.

        If the use of a device goes beyond the mark, the device is below its floor.
        """
        if not 0 < pool.floor_mib < pool.memory_mib:
            return
        margin = len(_times(pool.gpus, pool.gpus)) + len(EDGE)
        columns = self.width - margin - len(EDGE)
        at = margin + columns * (pool.memory_mib - pool.floor_mib) // pool.memory_mib
        label = f"floor {pool.floor_mib} "
        yield f"{label:>{at}}{_FLOOR}" if at >= len(label) else f"{_FLOOR:>{at + 1}} {label.rstrip()}"

    def _text(self, text: str, *, indent: str = "  ", alarm: bool = False) -> Iterator[str]:
        lines = wrapped(text, self.width, indent, alarm=alarm and self.colour)
        yield from (line.replace(_TIE, " ") for line in lines)


def _seat(items: Sequence[Item], pool: Pool) -> _Seating:
    """Places the seats on the pool's devices.

    All devices are equal, so the search uses no more devices than the seats need. All other devices stay empty.
    """
    nodes = AlikeNodes(nodes=pool.nodes, device_count=pool.device_count, device_mib=pool.device_mib).needed(items)
    outcome = place_on_nodes(items, nodes, steps=_STEPS)
    if isinstance(outcome, Placement):
        return _Seating(devices=_folded([held for _, held in outcome.assignments], pool.gpus))
    rows, unplaced = _crammed(items, nodes)
    return _Seating(devices=_folded(rows, pool.gpus), unplaced=unplaced, remark=_remark(outcome))


def _remark(outcome: Impossible | Undecided) -> str:
    if isinstance(outcome, Impossible):
        return f"no seating: {_counted(outcome.items)}: {outcome.reason}"
    return f"no seating found in {outcome.steps} steps; the policy pack looks longer"


def _crammed(items: Sequence[Item], nodes: Sequence[Sequence[Bin]]) -> tuple[list[tuple[Item, ...]], tuple[Item, ...]]:
    """Places the largest seats first, each on the fullest devices that have enough free memory."""
    free = [[device.mib for device in node] for node in nodes]
    rows: list[list[tuple[Item, ...]]] = [[()] * len(node) for node in nodes]
    unplaced = []
    for item in sorted(items, key=lambda item: (-item.mib * item.devices, item.name)):
        choices = {}  # by node: the fullest devices with enough free memory
        for number, node in enumerate(free):
            roomy = sorted((mib, index) for index, mib in enumerate(node) if mib >= item.mib)
            if len(roomy) >= item.devices:
                choices[number] = roomy[: item.devices]
        if not choices:
            unplaced.append(item)
            continue
        tightest = min(choices, key=lambda number: sum(mib for mib, _ in choices[number]))
        for _, index in choices[tightest]:
            free[tightest][index] -= item.mib
            rows[tightest][index] += (item,)
    return [row for node in rows for row in node], tuple(unplaced)


def _folded(rows: Sequence[tuple[Item, ...]], gpus: int) -> tuple[tuple[tuple[Item, ...], int], ...]:
    """Groups the devices that have the same seats, with the fullest devices first and the empty devices last."""
    counts = Counter(tuple(sorted(row, key=lambda item: (-item.mib, item.name))) for row in rows)
    counts[()] += gpus - len(rows)
    used = [(row, count) for row, count in counts.items() if count]
    return tuple(sorted(used, key=lambda pair: (-sum(item.mib for item in pair[0]), pair[0] and pair[0][0].name)))


def _listed(labels: Iterable[str]) -> str:
    """Joins the labels with commas. A line may break between two labels, never within a label."""
    return ", ".join(label.replace(" ", _TIE) for label in labels)


def _counted(items: Sequence[Item]) -> str:
    """Returns the name, the MiB and the number of equal items, for instance `llama-swap 7000, frigate 2000 x 3`."""
    counts = Counter(items)
    return _listed(f"{i.name} {i.amount}{f' x {count}' if count > 1 else ''}" for i, count in counts.items())


def _queued(quota: QueueQuota) -> str:
    borrows = f" and borrows {quota.borrowing}" if quota.borrowing else ""
    return f"{quota.holder} {quota.nominal} {quota.resource}{borrows}"


def _gpus(count: int) -> str:
    return "" if count == 1 else f" on {count} GPUs"


def _devices(pool: Pool) -> str:
    devices = f"{pool.device_count} device{'s' if pool.device_count > 1 else ''}"
    return devices if pool.nodes == 1 else f"{pool.nodes} nodes x {devices}"


def _times(count: int, gpus: int) -> str:
    """Returns the number of devices that one bar represents, as text. Returns "" for a pool with one device."""
    return "" if gpus == 1 else f"{count} x "
