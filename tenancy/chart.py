"""Draws the seating chart: every promise of a ledger, on the devices of its pool.

A bar shows the seats of a device, the quota of queues, free memory and the reserve, all to scale. If a label is too
long for its part of the bar, it is printed below the bar. In a pool with many devices, a bar shows a whole node, and
letters stand for the seats. If some seats do not fit, the chart draws all other seats and lists the names of these
seats.
"""

from collections.abc import Iterator, Sequence
from functools import partial
from string import ascii_letters

from tenancy import node_quotas
from tenancy.bars import EDGE, FREE, RESERVE, SEPARATOR, Segment, apportion, bar, listed, painted, wrapped
from tenancy.choices import Sharing, Source
from tenancy.dispatch import dispatch_quotas, promises
from tenancy.full_seats import FullSeats, full_seats
from tenancy.ledger import Ledger, Pool, QueueQuota
from tenancy.names import GPU
from tenancy.seating import (
    SeatedDevice,
    SeatGroup,
    Seating,
    TooManySeatsError,
    counted,
    is_drawn_by_node,
    kinds,
    seating,
)

NARROWEST = 40
_MOST_BARS = 24
_MOST_PARTS = 16  # If a device has more groups of seats than this number, its bar joins the smallest groups.
_LEAST_COLUMNS = 4  # of one device in the bar of a node
_OTHERS, _QUEUED = "*", "="
_FLOOR = "▲"
_LEGEND = f"{FREE} free   {RESERVE} reserve   {_FLOOR} floor: with less memory free the watchdog acts"
_SHOWN_BY = {Source.SLICES: "ResourceSlices", Source.DECLARED: "labels or ResourceSlices"}


def seating_chart(ledger: Ledger, *, width: int = 100, colour: bool = False) -> str:
    """Returns the seating chart as text of at most `width` columns. `width` must be at least 40.

    With `colour`, the text contains ANSI colours.
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
        yield from self._clusters()
        yield ""
        if self.ledger.queue_tenants:
            yield from self._text(f"queue tenants: {listed(self.ledger.queue_tenants)}", indent="")
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
        try:
            found = seating(self.ledger, pool)
        except TooManySeatsError as error:
            yield from self._text(str(error))
            return
        yield from self._nodes(pool, found) if is_drawn_by_node(pool) else self._devices(pool, found)
        if found.unplaced:
            yield from self._text(f"no room for {counted(found.unplaced)}", alarm=True)
        if found.remark and fits_in_sum:
            yield from self._text(found.remark, alarm=True)

    def _devices(self, pool: Pool, found: Seating) -> Iterator[str]:
        """Yields a bar for each different device."""
        if pool.gpus > 1 and found.seats:
            yield from self._text("a possible seating:")
        for device, count in found.devices[:_MOST_BARS]:
            yield from self._device(pool, device, _times(count, pool.gpus))
        yield from self._more("devices", [((device,), count) for device, count in found.devices[_MOST_BARS:]])
        yield from self._floor(pool)

    def _more(self, what: str, folded: Sequence[tuple[tuple[SeatedDevice, ...], int]]) -> Iterator[str]:
        if folded:
            held_mib = sum(device.seats_mib * count for devices, count in folded for device in devices)
            yield from self._text(f"and {sum(n for _, n in folded)} more {what} with {held_mib} MiB of seats")

    def _device(self, pool: Pool, device: SeatedDevice, times: str) -> Iterator[str]:
        shown = device.seats if len(device.seats) <= _MOST_PARTS else kinds(device.seats)[: _MOST_PARTS - 1]
        joined = [each for each in device.seats if each not in shown]
        joined_mib = sum(each.total_mib for each in joined)
        free_mib = pool.device_mib - device.seats_mib - device.queued_mib
        segments = [
            *(Segment(label=_label(each), amount=each.total_mib, tenant=self.tenants[each.name]) for each in shown),
            Segment(label=f"{len(joined)} more {joined_mib}", amount=joined_mib, tenant=_OTHERS),
            Segment(label=f"queues {device.queued_mib}", amount=device.queued_mib, tenant="queues"),
            Segment(label=f"{free_mib}", amount=free_mib, fill=FREE),
            Segment(label=f"{pool.reserve_mib}", amount=pool.memory_mib - pool.device_mib, fill=RESERVE),
        ]
        yield from self._bar(segments, times, pool.gpus, [_label(each) for each in joined])

    def _nodes(self, pool: Pool, found: Seating) -> Iterator[str]:
        """Yields a bar for each different node, and the letters of the seats."""
        everywhere = found.seats
        letters = {(each.name, each.mib): letter for each, letter in zip(everywhere, ascii_letters, strict=False)}
        node = "node" if pool.device_count == 1 else f"node with {pool.device_count} devices"
        yield from self._text(f"{'a possible seating, ' if found.seats else ''}a line for each {node}:")
        margin = len(f"{pool.nodes} x ")
        for devices, count in found.nodes[:_MOST_BARS]:
            at_once = max((self.width - margin - len(EDGE)) // (_LEAST_COLUMNS + len(SEPARATOR)), 1)
            for start in range(0, len(devices), at_once):
                times = f"{count} x " if start == 0 else ""
                drawn = self._node(pool, devices[start : start + at_once], letters, self.width - margin)
                yield f"{times:>{margin}}{drawn}"
        yield from self._more("nodes", found.nodes[_MOST_BARS:])
        named = [f"{letters[each.name, each.mib]} = {_label(each)}" for each in everywhere[: len(letters)]]
        if others := everywhere[len(letters) :]:
            named.append(f"{_OTHERS} = {len(others)} more {sum(each.total_mib for each in others)}")
        if named:
            yield from self._text(listed(named))

    def _node(
        self, pool: Pool, devices: Sequence[SeatedDevice], letters: dict[tuple[str, int], str], width: int
    ) -> str:
        room = width - 2 * len(EDGE) - len(SEPARATOR) * (len(devices) - 1)
        widths = [room // len(devices) + (number < room % len(devices)) for number in range(len(devices))]
        return f"{EDGE}{SEPARATOR.join(map(partial(self._small, pool, letters), devices, widths))}{EDGE}"

    def _small(self, pool: Pool, letters: dict[tuple[str, int], str], device: SeatedDevice, columns: int) -> str:
        """Returns a device as letters on `columns` columns."""
        named = [each for each in device.seats if (each.name, each.mib) in letters][: max(columns - 3, 1)]
        others_mib = device.seats_mib - sum(each.total_mib for each in named)
        parts = [
            *((letters[each.name, each.mib], each.total_mib, self.tenants[each.name]) for each in named),
            (_OTHERS, others_mib, _OTHERS),
            (_QUEUED, device.queued_mib, "queues"),
            (FREE, pool.device_mib - device.seats_mib - device.queued_mib, ""),
            (RESERVE, pool.memory_mib - pool.device_mib, ""),
        ]
        drawn = [part for part in parts if part[1]]
        cells = zip(drawn, apportion([mib for _, mib, _ in drawn], columns), strict=True)
        return "".join(
            painted(fill * width, tenant) if tenant and self.colour else fill * width
            for (fill, _, tenant), width in cells
        )

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

    def _clusters(self) -> Iterator[str]:
        """For each resource, yields a bar with the promises of all worker clusters and the quotas of all queues."""
        for resource in sorted({each for cluster in self.ledger.clusters for each in cluster.promises}):
            queues = [each for each in dispatch_quotas(self.ledger) if each.resource == resource]
            supply, used = promises(self.ledger, resource), sum(each.nominal for each in queues)
            free = sum(supply.values()) - used
            verdict = f"OVER by {-free}" if free < 0 else f"{free} free"
            clusters = listed(f"{name} {amount}" for name, amount in supply.items())
            text = f"worker clusters: {used} of {used + free} {resource} promised, {verdict} ({clusters})"
            yield ""
            yield from self._text(text, indent="", alarm=free < 0)
            segments = [Segment(label=f"{q.queue} {q.nominal}", amount=q.nominal, tenant=q.queue) for q in queues]
            yield from self._bar([*segments, Segment(label=f"{free}", amount=max(free, 0), fill=FREE)], "", 1)
            for each in queues:
                yield from self._text(f"{each.queue} dispatches to {listed(each.clusters)}")

    def _head(self, pool: Pool, promised: int, available: int, unit: str, size: str) -> Iterator[str]:
        over = promised - available
        verdict = f"OVER by {over} {unit}" if over > 0 else f"{-over} free"
        text = f"{pool.name}: {promised} of {available} {unit} promised, {verdict} ({size})"
        yield from self._text(text, indent="", alarm=over > 0)

    def _beside(self, pool: Pool) -> Iterator[str]:
        several = [s for s in self.ledger.seats_in(pool.name) if s.devices_per_pod > 1]
        if several:
            each = listed(f"{s.name} {s.devices_per_pod}" for s in several)
            yield from self._text(f"devices of one node for each pod: {each}")
        let_in = [f"{o.name} {o.need_mib}{_gpus(o.gpus)}" for o in self.ledger.on_demand if o.pool == pool.name]
        if let_in:
            yield from self._text(f"on demand: {listed(let_in)}")
        queued = [_queued(q) for q in self.ledger.quotas if q.pool == pool.name]
        if queued:
            yield from self._text(f"queues: {listed(queued)}")
        if pool.gpus > 1 and self.ledger.quota_mib(pool.name):
            yield from self._text("drawn in equal parts; Kueue counts the sum, and each pod goes where it has room")
        for text in node_quotas.summary(self.ledger, pool):
            yield from self._text(text)

    def _reserve(self, full: FullSeats) -> Iterator[str]:
        pool, short = full.pool, full.reserve_short_mib
        measured = [f"{u.name} {u.measured_mib}{_gpus(u.gpus)}" for u in self.ledger.unbudgeted if u.pool == pool.name]
        used = listed([f"driver {pool.driver_reserved_mib}", *(f"unbudgeted {each}" for each in measured)])
        rest = f"{short} short" if short > 0 else f"{-short} left"
        yield from self._text(f"reserve {pool.reserve_mib}: {used}; {rest}", alarm=short > 0)

    def _full(self, full: FullSeats) -> Iterator[str]:
        pool = full.pool
        above = full.free_mib - pool.floor_mib
        floor = f", {abs(above)} {'under' if above < 0 else 'above'} the floor of {pool.floor_mib}"
        free = f"{full.free_mib} free" if full.free_mib >= 0 else f"{-full.free_mib} more than the device has"
        where = "every seat full" if pool.gpus == 1 else "every seat full, on the fullest device"
        held = "; the driver lets no seat have more" if pool.caps else ""
        yield from self._text(f"{where}: {free}{floor if pool.floor_mib else ''}{held}", alarm=full.over_mib > 0)

    def _bar(self, segments: Sequence[Segment], times: str, devices: int, joined: Sequence[str] = ()) -> Iterator[str]:
        margin = " " * len(_times(devices, devices))
        drawn, cut = bar(segments, self.width - len(margin), colour=self.colour)
        yield f"{times:>{len(margin)}}{drawn}"
        if cut or joined:
            yield from self._text(listed([*cut, *joined]), indent=f"{margin} ")

    def _floor(self, pool: Pool) -> Iterator[str]:
        """Yields the line of text that marks the floor below the bars.

        If the use of a device goes beyond the mark of the floor, the device is below its floor.
        """
        if not 0 < pool.floor_mib < pool.memory_mib:
            return
        margin = len(_times(pool.gpus, pool.gpus)) + len(EDGE)
        columns = self.width - margin - len(EDGE)
        at = margin + columns * (pool.memory_mib - pool.floor_mib) // pool.memory_mib
        label = f"floor {pool.floor_mib} "
        yield f"{label:>{at}}{_FLOOR}" if at >= len(label) else f"{_FLOOR:>{at + 1}} {label.rstrip()}"

    def _text(self, text: str, *, indent: str = "  ", alarm: bool = False) -> Iterator[str]:
        yield from wrapped(text, self.width, indent, alarm=alarm and self.colour)


def _label(seats: SeatGroup) -> str:
    return f"{seats.name} {seats.mib}{f' x {seats.count}' if seats.count > 1 else ''}"


def _queued(quota: QueueQuota) -> str:
    borrows = f" and borrows {quota.borrowing}" if quota.borrowing else ""
    return f"{quota.holder} {quota.nominal} {quota.resource}{borrows}"


def _gpus(count: int) -> str:
    return "" if count == 1 else f" on {count} GPUs"


def _devices(pool: Pool) -> str:
    devices = f"{pool.device_count} device{'s' if pool.device_count > 1 else ''}"
    return devices if pool.nodes == 1 else f"{pool.nodes} nodes x {devices}"


def _times(count: int, gpus: int) -> str:
    return "" if gpus == 1 else f"{count} x "
