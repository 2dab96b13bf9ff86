"""Finds the minimum number of seats to lower so that all promises of a stack file fit.

A seat may be placed on any device of its pool. Unless the search runs out of steps, the result is exact: first the
fewest seats, then the fewest MiB. If promises fit with a lower budget of a seat, they also fit with a still lower
budget of this seat. Only a pool with a floor above its reserve may be an exception. The code therefore checks the floor
again at the end. The lowest possible budget of a seat is 1 MiB. Units: whole MiB.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import combinations, islice

from tenancy.devices.placement import Impossible, Item, OutOfStepsError, Placement, StepsLeft
from tenancy.devices.spread import AlikeNodes, fits_on_separate_nodes, place_on_nodes
from tenancy.fit.smallest_change import WORK, Change, Kind, SmallestChange, Wanted
from tenancy.full_seats import full_seats
from tenancy.ledger import Ledger, Pool, Seat

_LEAST_MIB = 1
_MOST_SEARCHED = 4000  # The maximum number of seats and wanted seats for which the search tries several orders.
_ORDER_STEPS = 20_000
_GREEDY_WORK = 1_000_000
_MOST_NODES = 2**16
_PARTS = 16
_NOTHING: Mapping[str, int] = {}


def lower_budgets(
    ledger: Ledger,
    pool: Pool,
    wanted: Wanted | None = None,
    used: Mapping[str, int] | None = None,
    work: int = WORK,
) -> SmallestChange | None:
    """Returns the smallest reduction of budgets after which all current and wanted promises fit the pool.

    Returns None if no lower budgets make the promises fit. A seat's budget is never lowered below its measured use in
    `used`.
    """
    room = _Room(ledger, pool, wanted, StepsLeft(work), used or {})
    if room.hopeless:
        return None
    touched = 0
    try:
        while touched <= len(room.seats):
            if found := room.with_seats(touched):
                return found
            touched += 1
    except OutOfStepsError:
        pass
    if room.best is None:
        room.work = StepsLeft(min(_GREEDY_WORK, 10 * work))
        room.best = room.largest_first(touched)
    least = room.least(touched)
    return replace(room.best, proven=room.best.cost == least, least=least) if room.best else None


@dataclass(frozen=True, kw_only=True)
class NodesNeeded:
    """The minimum number of nodes with which all pods fit without other changes.

    If `floor_mib` is set, the pool's floor must also be lowered to `floor_mib`. With the current floor, full seats on
    one device would leave less memory free than the floor.
    """

    nodes: int
    floor_mib: int | None = None


def nodes_needed(ledger: Ledger, pool: Pool, wanted: Wanted | None = None) -> NodesNeeded | None:
    """Returns the number of nodes with which all pods fit. Adding nodes is the last resort.

    Returns None if no number of nodes up to the limit suffices.
    """

    def fits(nodes: int) -> bool:
        more = replace(pool, nodes=nodes)
        return _Room(_with(ledger, more), more, wanted, StepsLeft(WORK)).packs({})

    low, high = pool.nodes, pool.nodes
    try:
        while not fits(high):
            low, high = high + 1, high * 2 + 1
            if high > _MOST_NODES:
                return None
        nodes = _first(fits, low, high)
        more = replace(pool, nodes=nodes)
        room = _Room(_with(ledger, more), more, wanted, StepsLeft(WORK))
        return NodesNeeded(nodes=nodes, floor_mib=None if room.holds({}) else pool.floor_mib - room.pressed_mib({}))
    except OutOfStepsError:
        return None


def obstacle(ledger: Ledger, pool: Pool, wanted: Wanted) -> str:
    """Returns the reason why the wanted pods would not fit even in an empty pool.

    Returns "" if the wanted pods may fit.
    """
    offers = pool.device_mib
    if full_seats(_of(ledger, pool), pool).reserve_short_mib > 0:
        return f"pools.{pool.name}.reserve_mib is too small for what has no seat; make preview says by how much"
    if wanted.mib > offers:
        return f"a device of {pool.name} offers {offers} MiB, less than the {wanted.mib} asked for"
    if wanted.count > pool.device_count:
        return f"a node of {pool.name} has {pool.device_count} devices, fewer than the {wanted.count} asked for"
    return ""


class _Room:
    """A pool, and the seats that must fit in the pool. `unsure` is True if a search ended without a result."""

    def __init__(
        self, ledger: Ledger, pool: Pool, wanted: Wanted | None, work: StepsLeft, used: Mapping[str, int] = _NOTHING
    ) -> None:
        self.ledger, self.pool, self.wanted, self.work = _of(ledger, pool), pool, wanted, work
        self.used = used
        seats = [seat for seat in self.ledger.seats if min(seat.gpumem_mib, seat.replicas) > 0]
        self.seats = sorted(seats, key=lambda seat: (-seat.total_mib, seat.name))
        # the number of pods by their MiB on a device and their number of devices
        self.requests: Counter[tuple[int, int]] = Counter()
        for seat in self.seats:
            self.requests[seat.gpumem_mib, seat.devices_per_pod] += seat.replicas
        if wanted is not None:
            self.requests[wanted.mib, wanted.count] += wanted.replicas
        quota_mib = self.ledger.quota_mib(pool.name)
        offered = pool.device_mib
        if pool.gpus == 1:  # the only device holds all promises and must keep its floor
            offered = min(offered, pool.memory_mib - pool.floor_mib)
        total = sum(mib * devices * count for (mib, devices), count in self.requests.items())
        self.device_mib = offered
        self.over_mib = max(total + quota_mib - offered * pool.gpus, 0)
        self.pressed = pool.gpus > 1 and pool.floor_mib > pool.reserve_mib
        self.best: SmallestChange | None = None
        self.unsure = False

    @property
    def hopeless(self) -> bool:
        """Returns True if lower budgets cannot make the promises fit, because the pool has another problem."""
        if self.pool.gpus < 1 or self.device_mib < 1:
            return True
        short = full_seats(self.ledger, self.pool).reserve_short_mib > 0
        return short or bool(self.wanted and obstacle(self.ledger, self.pool, self.wanted))

    def least(self, touched: int) -> tuple[int, int]:
        """Returns a lower bound of the cost. The search has already tried all changes with fewer seats."""
        fewest = int(self.over_mib > 0) if self.unsure else touched
        return fewest, max(self.over_mib, fewest)

    def gain(self, seat: Seat) -> int:
        """Returns the maximum number of MiB by which the seat may be lowered."""
        return max(seat.gpumem_mib - max(self.used.get(seat.name, 0), _LEAST_MIB), 0)

    def with_seats(self, touched: int) -> SmallestChange | None:
        """Returns the cheapest change that lowers the budgets of exactly `touched` seats. Raises OutOfStepsError."""
        if not touched:
            return self._smallest_change({}) if self.holds({}) else None
        self.work.take(len(self.seats) // 10 + 1)
        gains = sorted((self.gain(seat) * seat.devices for seat in self.seats), reverse=True)
        if sum(islice(gains, touched)) < self.over_mib:
            return None
        seen: set[tuple[tuple[int, int, int, int], ...]] = set()
        for seats in combinations([seat for seat in self.seats if self.gain(seat) > 0], touched):
            self.work.take(touched)
            key = tuple((seat.gpumem_mib, seat.replicas, seat.devices_per_pod, self.gain(seat)) for seat in seats)
            most = sum(self.gain(seat) * seat.devices for seat in seats)
            if most < self.over_mib or key in seen:
                continue
            seen.add(key)
            if self.packs({seat: self.gain(seat) for seat in seats}):
                self._cheapest(seats, {})
            if self.best is not None and self.best.cost[1] <= max(self.over_mib, self._least(seats)):
                break
        if self.best is not None and self.unsure:
            self.best = replace(self.best, proven=False, least=self.least(0))
        return self.best

    def _least(self, seats: Sequence[Seat]) -> int:
        """Returns the lowest possible cost of lower budgets for this many seats."""
        return sum(sorted(seat.devices for seat in self.seats)[: len(seats)])

    def _cheapest(self, seats: Sequence[Seat], lowered: dict[Seat, int]) -> None:
        """Tries every useful number of MiB for each seat except the last.

        Finds the number of MiB for the last seat by bisection.
        """
        seat, *rest = seats
        spent = _cost(lowered)
        below = self.best.cost[1] if self.best else None
        most = self.gain(seat)
        if below is not None:
            most = min(most, (below - 1 - spent - sum(other.devices for other in rest)) // seat.devices)
        others = sum(self.gain(other) * other.devices for other in rest)
        least = max(-(-(self.over_mib - spent - others) // seat.devices), 1)
        if rest:
            for mib in range(most, least - 1, -1):
                self.work.take(1)
                if self.best is None or spent + mib * seat.devices + len(rest) <= self.best.cost[1]:
                    self._cheapest(rest, {**lowered, seat: mib})
                if self.best is not None and self.best.cost[1] <= self.over_mib:
                    return
            return
        if most < least or not self.packs({**lowered, seat: most}):
            return
        mib = _first(partial(self._packs_with, lowered, seat), least, most)
        while mib <= most and not self.holds({**lowered, seat: mib}):
            mib += 1
        if mib <= most:
            self.best = self._smallest_change({**lowered, seat: mib})

    def largest_first(self, touched: int) -> SmallestChange | None:
        """Returns a sufficient change that may not be the smallest.

        The change lowers the largest budgets first, each only as far as needed.
        """
        most = {seat: self.gain(seat) for seat in self.seats}
        steps = self.work.left
        lowered: dict[Seat, int] = {}
        try:
            count = _first(lambda count: self.packs(dict(islice(most.items(), count))), touched, len(self.seats))
            lowered = dict(islice(most.items(), count))
            if not self.packs(lowered):
                return None
            for parts in range(1, _PARTS):
                some = {seat: -(-mib * parts // _PARTS) for seat, mib in lowered.items()}
                if self.packs(some):
                    lowered = some
                    break
            for seat in reversed([*lowered]):
                lowered[seat] = _first(partial(self._packs_with, lowered, seat), 0, lowered[seat])
        except OutOfStepsError:
            self.work = StepsLeft(steps)
        lowered = {seat: mib for seat, mib in lowered.items() if mib}
        try:
            return self._smallest_change(lowered) if lowered and self.holds(lowered) else None
        except OutOfStepsError:
            return None

    def holds(self, lowered: dict[Seat, int]) -> bool:
        """Returns True if the pool's seats satisfy the policy pack after this change."""
        if not self.packs(lowered):
            return False
        return not self.pressed or self.pressed_mib(lowered) <= 0

    def pressed_mib(self, lowered: dict[Seat, int]) -> int:
        """Returns the MiB by which a device may be below its floor while every seat uses its whole budget.

        The result is 0 or negative if no device is below its floor.
        """
        seats = [replace(seat, gpumem_mib=seat.gpumem_mib - lowered.get(seat, 0)) for seat in self.seats]
        if self.wanted:
            seats.append(
                Seat(
                    name="",
                    tenant="",
                    pool=self.pool.name,
                    gpumem_mib=self.wanted.mib,
                    replicas=self.wanted.replicas,
                    devices_per_pod=self.wanted.count,
                )
            )
        self.work.take(len(seats) * 10)
        return full_seats(replace(self.ledger, seats=tuple(seats)), self.pool).over_mib

    def packs(self, lowered: dict[Seat, int]) -> bool:
        """Returns True if each seat finds its devices after this change, and the queues' quota still fits too.

        Raises OutOfStepsError.
        """
        if _cost(lowered) < self.over_mib:
            return False
        requests = Counter(self.requests)
        for seat, mib in lowered.items():
            requests[seat.gpumem_mib, seat.devices_per_pod] -= seat.replicas
            requests[seat.gpumem_mib - mib, seat.devices_per_pod] += seat.replicas
        requests = +requests
        self.work.take(len(requests) * 3 + 10)
        if any(mib > self.device_mib or devices > self.pool.device_count for mib, devices in requests):
            return False
        alike = AlikeNodes(nodes=self.pool.nodes, device_count=self.pool.device_count, device_mib=self.device_mib)
        if fits_on_separate_nodes(requests, alike):
            return True
        large = sum(count * devices for (mib, devices), count in requests.items() if 2 * mib > self.device_mib)
        if large > self.pool.gpus:  # two of these seats do not fit on one device
            return False
        if requests.total() > _MOST_SEARCHED:
            self.unsure = True
            return False
        return self._in_some_order(requests, alike)

    def _packs_with(self, lowered: dict[Seat, int], seat: Seat, mib: int) -> bool:
        return self.packs({**lowered, seat: mib})

    def _in_some_order(self, requests: Counter[tuple[int, int]], alike: AlikeNodes) -> bool:
        items = [Item("", mib, devices) for mib, devices in requests.elements()]
        nodes = alike.needed(items)
        self.work.take(20 * (len(items) + sum(map(len, nodes))))
        outcome = place_on_nodes(items, nodes, steps=_ORDER_STEPS)
        if isinstance(outcome, Placement):
            return True
        self.work.take(_ORDER_STEPS // 10)
        self.unsure |= not isinstance(outcome, Impossible)
        return False

    def _smallest_change(self, lowered: dict[Seat, int]) -> SmallestChange:
        changes = tuple(
            Change(
                kind=Kind.LOWER,
                workload=seat.name,
                from_mib=seat.gpumem_mib,
                to_mib=seat.gpumem_mib - mib,
                replicas=seat.replicas,
                devices_per_pod=seat.devices_per_pod,
            )
            for seat, mib in lowered.items()
        )
        return SmallestChange(changes=changes, least=(len(changes), _cost(lowered)))


def _first(fits: Callable[[int], bool], low: int, high: int) -> int:
    """Returns the smallest number from `low` to `high` for which `fits` is true. `fits` must be true for `high`."""
    return low + bisect_left(range(low, high), True, key=fits)


def _cost(lowered: dict[Seat, int]) -> int:
    return sum(mib * seat.devices for seat, mib in lowered.items())


def _of(ledger: Ledger, pool: Pool) -> Ledger:
    """Returns a ledger with only this pool, its seats and its quotas."""
    return replace(
        ledger,
        pools=(pool,),
        seats=tuple(seat for seat in ledger.seats if seat.pool == pool.name),
        quotas=tuple(quota for quota in ledger.quotas if quota.pool == pool.name),
    )


def _with(ledger: Ledger, pool: Pool) -> Ledger:
    return replace(ledger, pools=tuple(pool if each.name == pool.name else each for each in ledger.pools))
