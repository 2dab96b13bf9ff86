"""Draws the seats of a stack before and after a change, as one HTML file that loads nothing.

Each pool has two pictures. The seats of the change have an outline. A pool with many devices has a line for each node.
The browser distributes the width, so the picture fits narrow and wide windows, and light and dark backgrounds.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from html import escape

from tenancy import page
from tenancy.choices import Sharing
from tenancy.ledger import Ledger, Pool, Seat
from tenancy.names import GPU
from tenancy.seating import SeatedDevice, Seating, TooManySeatsError, aligned_seatings, counted, is_drawn_by_node, kinds

_MOST_LINES = 24
_MOST_CHANGES = 40
_MOST_KINDS = 60
_MOST_NAMED = 12  # in the text of a picture for screen readers
_MOST_PARTS, _MOST_PARTS_IN_A_NODE = 16, 6  # groups of seats on one device
_QUEUES = "queues"
# The settings of a pool that change its picture.
_OF_A_POOL = ("nodes", "device_count", "memory_mib", "reserve_mib", "floor_mib")

_STYLE = """
th:first-child { width: 34%; }
.pictures { display: grid; grid-template-columns: minmax(0, 1fr); gap: 14px 28px; margin-top: 10px; }
@media (min-width: 1200px) { .pictures.two { grid-template-columns: repeat(2, minmax(0, 1fr)); } }
figure { margin: 0; min-width: 0; }
figcaption { margin-bottom: 6px; overflow-wrap: anywhere; }
figcaption b { font-size: 16px; }
.line { display: flex; gap: 10px; margin-top: 5px; }
.times { flex: none; min-width: 5ch; text-align: right; color: var(--dim); font-size: 14px; line-height: 26px;
  white-space: nowrap; }
.tall .times { line-height: 44px; }
.node { flex: 1; min-width: 0; display: grid; grid-template-columns: repeat(var(--devices), minmax(0, 1fr)); gap: 4px; }
.device { position: relative; display: flex; min-width: 0; height: 26px; background: var(--free);
  border: 1px solid var(--line); border-radius: 4px; overflow: hidden; }
.tall .device { height: 44px; }
.part { flex: var(--mib) 0 0; min-width: 0; height: 100%; overflow: hidden; container-type: inline-size;
  box-shadow: inset -1px 0 var(--page); }
.seat { background: hsl(var(--hue) var(--seat-tone)); }
.many { background: var(--stripe); }
.queues { background: repeating-linear-gradient(135deg, var(--card) 0 5px, var(--line) 5px 7px); }
.reserve { background: repeating-linear-gradient(45deg, var(--reserve) 0 4px, var(--stripe) 4px 8px); }
.part.free, .part.reserve { box-shadow: none; }
.name, .amount { height: 24px; line-height: 24px; padding: 0 4px; overflow: hidden; text-align: center; }
.name { font-size: 13px; white-space: nowrap; text-overflow: ellipsis; }
.queues .name { margin: 0 auto; width: fit-content; max-width: 100%; }
.queues .name, .queues .amount span { background: var(--card); }
/* An amount that is too wide wraps below the edge of its part, and so disappears. */
.amount { display: flex; flex-wrap: wrap; justify-content: center; font-size: 12px; }
.amount::before { content: ""; width: 0; height: 24px; }
.amount span { white-space: nowrap; }
.tall .name, .tall .amount, .tall .amount::before { height: 20px; line-height: 20px; }
.tall .name { margin-top: 2px; }
@container (max-width: 43px) { .part .name, .part .amount { display: none; } }
.before { outline: 3px dashed var(--mark); outline-offset: -3px; }
.after { outline: 3px solid var(--mark); outline-offset: -3px; border-radius: 3px; }
.floor { position: absolute; top: 0; bottom: 0; width: 0; border-left: 2px dotted var(--bad); }
ul { list-style: none; margin: 12px 0 0; padding: 0; display: flex; flex-wrap: wrap; gap: 4px 18px; font-size: 14px; }
li { display: flex; align-items: center; gap: 6px; min-width: 0; overflow-wrap: anywhere; }
.swatch { flex: none; width: 24px; height: 15px; border: 1px solid var(--line); border-radius: 3px; }
.swatch.free { background: var(--free); }
.swatch.floor { position: static; width: 0; border: 0; border-left: 2px dotted var(--bad);
  border-radius: 0; margin: 0 4px; }
"""


_OUTLINES = {"before": "changed, before", "after": "changed, after"}
_FILLS = {
    "queues": "queues",
    "free": "free",
    "reserve": "reserve",
    "floor": "floor: with less memory free the watchdog acts",
}
_Key = tuple[str, str]  # the names of a pool and of a seat


class _Side:
    """One of the two sides of the picture. `changed` has the pools and names of the changed seats."""

    def __init__(self, name: str, ledger: Ledger, changed: Iterable[_Key], hues: Mapping[str, int]) -> None:
        self.name = name
        self.ledger = ledger
        self.hues = hues
        self.tenants = {seat.name: seat.tenant for seat in ledger.seats}
        self._changed = frozenset(changed)

    def style(self, pool: str, seat: str) -> str:
        """Returns the CSS classes of a seat. A changed seat has the class `before` or `after`, and so an outline."""
        return f"seat {self.name}" if (pool, seat) in self._changed else "seat"


def picture(stack: str, after: Ledger, before: Ledger | None, compared: str) -> str:
    """Returns the picture as an HTML file.

    `compared` is a text about the origin of `before`, or about the reason why there is no ledger before the change.
    """
    title = f"{stack}: seats before and after" if before else f"{stack}: seats"
    body = "\n".join(_body(title, after, before, compared))
    return page.document(title, page.STYLE + _STYLE.lstrip(), f"<main>\n{body}\n</main>")


def _body(title: str, after: Ledger, before: Ledger | None, compared: str) -> Iterator[str]:
    old, new = _seats(before) if before else {}, _seats(after)
    changed = sorted({key for key in old.keys() | new.keys() if old.get(key) != new.get(key)}) if before else []
    yield f"<h1>{escape(title)}</h1>"
    yield f'<p class="dim">{escape(compared)} All amounts are MiB of GPU memory.</p>'
    explained = {**(_OUTLINES if before else {}), **_FILLS}
    yield _list(_entry(style, text) for style, text in explained.items())
    if before:
        yield from _changes(changed, old, new, [*_pool_changes(before, after)])
    hues = page.hues(name for _, name in old.keys() | new.keys())
    sides = [_Side("before", before, changed, hues)] if before else []
    sides.append(_Side("after", after, changed, hues))
    pools = dict.fromkeys(pool.name for side in reversed(sides) for pool in side.ledger.pools)
    for name in sorted(pools, key=lambda name: _is_same(name, sides)):  # the pools with a change come first
        yield from _pool(name, sides)


def _seats(ledger: Ledger) -> dict[_Key, Seat]:
    return {(seat.pool, seat.name): seat for seat in ledger.seats}


def _amount(seat: Seat | None) -> str:
    if seat is None:
        return "none"
    each = f" on each of {seat.devices_per_pod} devices" if seat.devices_per_pod > 1 else ""
    return f"{seat.gpumem_mib} MiB{each}{_times(seat.replicas)}"


def _changes(
    changed: Sequence[_Key],
    old: Mapping[_Key, Seat],
    new: Mapping[_Key, Seat],
    of_pools: Sequence[Sequence[str]],
) -> Iterator[str]:
    """Yields the table of the changed seats and pools."""
    rows = [
        (f"{name} ({pool})", _amount(old.get((pool, name))), _amount(new.get((pool, name))))
        for pool, name in changed[:_MOST_CHANGES]
    ]
    seats = f"{len(changed)} changed seat{'' if len(changed) == 1 else 's'}" if changed else "No seat changes"
    yield f'<section aria-label="changes"><h2>{seats}</h2>'
    if rows or of_pools:
        yield "<table><tr><th>seat (pool)</th><th>before</th><th>after</th></tr>"
        for row in (*rows, *of_pools):
            yield f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>"
        yield "</table>"
    if len(changed) > _MOST_CHANGES:
        yield f"<p>and {len(changed) - _MOST_CHANGES} more changed seats</p>"
    yield "</section>"


def _pool_changes(before: Ledger, after: Ledger) -> Iterator[tuple[str, str, str]]:
    for pool in after.pools:
        old = before.pool(pool.name)
        for key in _OF_A_POOL:
            if old is not None and getattr(old, key) != getattr(pool, key):
                yield f"pools.{pool.name}.{key}", str(getattr(old, key)), str(getattr(pool, key))


def _pool(name: str, sides: Sequence[_Side]) -> Iterator[str]:
    same = _is_same(name, sides)
    drawn = sides[1:] if same else sides
    yield f'<section aria-label="pool {escape(name)}"><h2>{escape(name)}</h2>'
    yield f'<div class="pictures{" two" if len(drawn) > 1 else ""}">'
    shared = [(side, pool) for side in drawn if (pool := side.ledger.pool(name)) and pool.sharing is Sharing.MEMORY]
    try:
        seatings = aligned_seatings([(side.ledger, pool) for side, pool in shared])
        problem = ""
    except TooManySeatsError as error:
        seatings, problem = [], str(error)
    found = {side.name: seating for (side, _), seating in zip(shared, seatings, strict=False)}
    for side in drawn:
        heading = "before and after" if same else side.name
        yield from _figure(heading, side, side.ledger.pool(name), found.get(side.name), problem)
    yield "</div>"
    yield from _legend(name, sides)
    yield "</section>"


def _is_same(pool: str, sides: Sequence[_Side]) -> bool:
    """Returns True if the change leaves the pool, its seats and its queues as they were."""
    both = [
        (ledger.pool(pool), ledger.seats_in(pool), [quota for quota in ledger.quotas if quota.pool == pool])
        for ledger in (side.ledger for side in sides)
    ]
    return len(both) == 2 and both[0] == both[1]


def _figure(heading: str, side: _Side, pool: Pool | None, found: Seating | None, problem: str) -> Iterator[str]:
    if pool is None:
        yield f"<figure><figcaption><b>{heading}</b> no such pool</figcaption></figure>"
        return
    whole = pool.sharing is Sharing.WHOLE
    unit = "GPU" if whole else "MiB"
    offered = pool.gpus if whole else pool.advertised_mib
    promised = side.ledger.quota_gpus(pool.name) if whole else side.ledger.promised_mib(pool.name)
    over = promised - offered
    verdict = f'<em class="bad">{over} {unit} too many</em>' if over > 0 else f"{-over} free"
    possible = "a possible seating on " if found and found.seats and pool.gpus > 1 else ""
    yield f"<figure><figcaption><b>{heading}</b> {promised} of {offered} {unit} promised, {verdict}"
    yield f"<br/><span>{possible}{escape(_size(pool))}</span></figcaption>"
    if found:
        yield from _seating(heading, side, pool, found)
    elif whole:
        yield from _whole(heading, side, pool)
    else:
        yield f'<p class="dim">{escape(problem)}</p>'
    yield "</figure>"


def _size(pool: Pool) -> str:
    devices = f"{pool.device_count} device{'s' if pool.device_count > 1 else ''}"
    size = devices if pool.nodes == 1 else f"{pool.nodes} nodes x {devices}"
    if pool.sharing is Sharing.WHOLE:
        return f"{size}, whole"
    floor = f", floor {pool.floor_mib}" if pool.floor_mib else ""
    return f"{size} of {pool.memory_mib}, {pool.memory_mib - pool.device_mib} reserved{floor}"


def _seating(heading: str, side: _Side, pool: Pool, found: Seating) -> Iterator[str]:
    many = is_drawn_by_node(pool)
    most = _MOST_PARTS_IN_A_NODE if many else _MOST_PARTS
    lines = found.nodes if many else [((device,), count) for device, count in found.devices]
    yield f'<div class="{"" if many else "tall"}" role="img" aria-label="{escape(_spoken(heading, pool, found))}">'
    for devices, count in lines[:_MOST_LINES]:
        times = f'<div class="times">{count} x</div>' if pool.gpus > 1 else ""
        yield f'<div class="line">{times}<div class="node" style="--devices:{len(devices)}">'
        yield from (_device(side, pool, device, most) for device in devices)
        yield "</div></div>"
    yield "</div>"
    if folded := lines[_MOST_LINES:]:
        more = sum(count for _, count in folded)
        held_mib = sum(device.seats_mib * count for devices, count in folded for device in devices)
        yield f'<p class="dim">and {more} more {"nodes" if many else "devices"} with {held_mib} MiB of seats</p>'
    if found.unplaced:
        yield f'<p class="bad">no room for {escape(counted(found.unplaced))}</p>'
    if found.remark:
        yield f'<p class="bad">{escape(found.remark)}</p>'


def _spoken(heading: str, pool: Pool, found: Seating) -> str:
    """Returns the seats of a picture for screen readers."""
    seats = found.seats
    named = ", ".join(f"{each.name} {each.mib}{_times(each.count)}" for each in seats[:_MOST_NAMED])
    more = f" and {len(seats) - _MOST_NAMED} more kinds of seats" if len(seats) > _MOST_NAMED else ""
    what = "a possible seating" if pool.gpus > 1 else "the seats"
    return f"{pool.name} {heading}: {what} on {pool.gpus} device{'s' if pool.gpus > 1 else ''}: {named or 'none'}{more}"


def _times(count: int) -> str:
    return f" x {count}" if count > 1 else ""


def _device(side: _Side, pool: Pool, device: SeatedDevice, most: int) -> str:
    """Returns a device with at most `most` parts for seats. Joins the smallest seats, and changed seats at the last."""
    styles = {each: side.style(pool.name, each.name) for each in device.seats}
    shown = sorted(kinds(device.seats), key=lambda each: styles[each] == "seat")
    shown, joined = shown[:most], shown[most:]
    others = " ".join(["many", *{side.name for each in joined if styles[each] != "seat"}])
    parts = [
        _part(
            styles[each],
            each.total_mib,
            (each.name, f"{each.mib}{_times(each.count)}"),
            f"{each.name} of {side.tenants[each.name]}: {each.mib} MiB{_times(each.count)}",
            f"--hue:{side.hues[each.name]};",
        )
        for each in device.seats
        if each in shown
    ]
    joined_mib = sum(each.total_mib for each in joined)
    free_mib = pool.device_mib - device.seats_mib - device.queued_mib
    parts += [
        _part(others, joined_mib, (f"{len(joined)} more", str(joined_mib)), f"{len(joined)} more: {joined_mib} MiB"),
        _part("queues", device.queued_mib, ("queues", str(device.queued_mib)), f"queues: {device.queued_mib} MiB"),
        _part("free", free_mib, ("free", str(free_mib)), f"free: {free_mib} MiB"),
        _part("reserve", pool.memory_mib - pool.device_mib, ("", ""), f"reserve: {pool.reserve_mib} MiB"),
    ]
    floor = ""
    if 0 < pool.floor_mib < pool.memory_mib:
        at = 100 * (pool.memory_mib - pool.floor_mib) / pool.memory_mib
        floor = f'<div class="floor" style="left:{at:.2f}%" title="floor: {pool.floor_mib} MiB"></div>'
    return f'<div class="device">{"".join(parts)}{floor}</div>'


def _whole(heading: str, side: _Side, pool: Pool) -> Iterator[str]:
    quotas = [quota for quota in side.ledger.quotas if quota.pool == pool.name and quota.resource == GPU]
    named = ", ".join(f"{each.holder} {each.nominal}" for each in quotas) or "none"
    free = max(pool.gpus - sum(each.nominal for each in quotas), 0)
    spoken = escape(f"{pool.name} {heading}: the GPUs of queues: {named}")
    yield f'<div class="tall" role="img" aria-label="{spoken}"><div class="line"><div class="node" style="--devices:1">'
    parts = [_part("queues", q.nominal, (q.holder, str(q.nominal)), f"{q.holder}: {_gpus(q.nominal)}") for q in quotas]
    parts.append(_part("free", free, ("free", str(free)), f"free: {_gpus(free)}"))
    yield f'<div class="device">{"".join(parts)}</div>'
    yield "</div></div></div>"


def _gpus(count: int) -> str:
    return f"{count} GPU{'' if count == 1 else 's'}"


def _part(style: str, amount: int, labels: tuple[str, str], title: str, more: str = "") -> str:
    if not amount:
        return ""
    name, label = labels
    text = f'<div class="name">{escape(name)}</div>' if name else ""
    text += f'<div class="amount"><span>{escape(label)}</span></div>' if label else ""
    return f'<div class="part {style}" style="{more}--mib:{amount}" title="{escape(title)}">{text}</div>'


def _legend(pool: str, sides: Sequence[_Side]) -> Iterator[str]:
    """Yields the seats of the pool in both pictures. The changed seats come first."""
    budgets = [{seat.name: seat for seat in side.ledger.seats_in(pool)} for side in sides]
    names = [*dict.fromkeys(name for each in reversed(budgets) for name in each)]
    names.sort(key=lambda name: sides[-1].style(pool, name) == "seat")
    entries = []
    for name in names[:_MOST_KINDS]:
        both = [each.get(name) for each in budgets]
        side, seat = next((side, found) for side, found in zip(sides[::-1], both[::-1], strict=True) if found)
        style = side.style(pool, name)
        amounts = _amount(seat) if style == "seat" else " → ".join(map(_amount, both))
        entries.append(_entry(style, f"{name} {amounts}", side.hues[name]))
    if len(names) > _MOST_KINDS:
        entries.append(f"<li>and {len(names) - _MOST_KINDS} more</li>")
    yield _list(entries)


def _list(entries: Iterable[str]) -> str:
    text = "".join(entries)
    return f"<ul>{text}</ul>" if text else ""


def _entry(style: str, text: str, hue: int = 0) -> str:
    return f'<li><div class="swatch {style}" style="--hue:{hue}"></div><div>{escape(text)}</div></li>'
