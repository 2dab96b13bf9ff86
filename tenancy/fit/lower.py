"""Finds the minimum number of seats with budgets that must be lowered so that all promises of a stack file fit.

A seat may be placed on any device of its pool. The result lowers the budgets of as few seats as possible. Among
solutions with equally many seats, the result lowers the budgets by the fewest MiB. If pods fit on the devices with some
budgets, they also fit with smaller budgets. The floor is different, because with smaller budgets, more pods can share a
device and leave less memory free. Units: whole MiB.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import combinations, islice, product

from tenancy.devices.placement import Item, OutOfStepsError, StepsLeft
from tenancy.devices.spread import AlikeNodes, fits_on_nodes, fits_on_separate_nodes
from tenancy.fit.smallest_change import WORK, Change, Kind, SmallestChange, Wanted, least_mib
from tenancy.full_seats import MOST_MIB, free_spaces, full_seats
from tenancy.ledger import Ledger, Pool, Seat

# The maximum number of steps for placing one set of budgets: in the complete search, and in the quick search.
_ORDER_STEPS, _FEW_STEPS = 20_000, 1000
_MOST_NODES = 2**16
_PARTS = 16


def lower_budgets(
    ledger: Ledger,
    pool: Pool,
    wanted: Wanted | None = None,
    least: Mapping[str, int] | None = None,
    work: int = WORK,
) -> SmallestChange:
    """Returns the smallest reduction of budgets after which all current and wanted promises fit the pool.

    `least` has the lowest allowed budget of each seat that may be lowered. By default, the lowest allowed budget of a
    seat is half of its budget.
    """
    if least is None:
        least = {seat.name: least_mib(seat.gpumem_mib, None) for seat in ledger.seats}
    return _Search(ledger, pool, wanted, least, work).run()


def largest_seat(ledger: Ledger, pool: Pool, work: int = WORK // 20) -> int | None:
    """Returns the largest budget of one new seat on one device with which all promises still fit, or 0.

    If the search ended without a result, returns None.
    """
    search = _Search(ledger, pool, None, {}, work)
    if search.hopeless() or not pool.device_mib:
        return 0
    new = Seat(name="", tenant="", pool=pool.name, gpumem_mib=pool.device_mib)
    search = _Search(replace(ledger, seats=(*ledger.seats, new)), pool, None, {}, work)
    try:
        found = search.highest({search.seats.index(new): pool.device_mib}, search.seats.index(new), 1)
    except OutOfStepsError:
        return None
    return None if found is None and search.unsure else found or 0


def nodes_needed(ledger: Ledger, pool: Pool, wanted: Wanted | None = None, work: int = WORK) -> int | None:
    """Returns the number of nodes with which all pods fit without other changes.

    If no number of nodes up to the limit is enough, returns None. The number does not help a pool whose selector names
    one node, or whose devices would be below their floor if the seats use their whole budgets.
    """
    promises = _Promises(ledger, pool, wanted, StepsLeft(work))

    def fits(nodes: int) -> bool:
        promises.judge(replace(pool, nodes=nodes))
        return promises.packs({})

    low, high = pool.nodes, pool.nodes
    try:
        while not fits(high):
            low, high = high + 1, high * 2 + 1
            if high > _MOST_NODES:
                return None
        nodes = _first(fits, low, high)
        if nodes > pool.nodes and not pool.has_room_for_nodes:
            return None
        promises.judge(replace(pool, nodes=nodes))
        return nodes if promises.keeps_floor({})(1) else None
    except OutOfStepsError:
        return None


def obstacle(ledger: Ledger, pool: Pool, wanted: Wanted) -> str:
    """Returns the reason why the wanted pods would not fit even in an empty pool.

    If the wanted pods may fit in an empty pool, returns "".
    """
    offers = pool.device_mib
    if full_seats(_of(ledger, pool), pool).reserve_short_mib > 0:
        return f"pools.{pool.name}.reserve_mib is too small for what has no seat; make preview says by how much"
    if wanted.mib > offers:
        return f"a device of {pool.name} offers {offers} MiB, less than the {wanted.mib} asked for"
    if wanted.count > pool.device_count:
        return f"a node of {pool.name} has {pool.device_count} devices, fewer than the {wanted.count} asked for"
    return ""


class _Promises:
    """A pool, and the seats that must fit in the pool. `unsure` is True if a search ended without a result.

    The methods take new budgets as `to`, which maps the index of a seat to its new budget.
    """

    def __init__(self, ledger: Ledger, pool: Pool, wanted: Wanted | None, work: StepsLeft) -> None:
        self.ledger, self.wanted, self.work = _of(ledger, pool), wanted, work
        seats = [seat for seat in self.ledger.seats if min(seat.gpumem_mib, seat.replicas) > 0]
        self.seats = sorted(seats, key=lambda seat: (-seat.total_mib, seat.name))
        # maps each pair of MiB on each device and number of devices to the number of pods
        self.requests: Counter[tuple[int, int]] = Counter()
        for seat in self.seats:
            self.requests[seat.gpumem_mib, seat.devices_per_pod] += seat.replicas
        if wanted is not None:
            self.requests[wanted.mib, wanted.count] += wanted.replicas
        self.total_mib = sum(mib * devices * count for (mib, devices), count in self.requests.items())
        self.total_mib += self.ledger.quota_mib(pool.name)
        self.unsure, self.order_steps = False, _ORDER_STEPS
        self.judge(pool)

    def judge(self, pool: Pool) -> None:
        self.pool = pool
        self.device_mib = self.offered_mib = pool.device_mib
        if pool.gpus == 1:  # the only device holds all promises and must keep its floor
            self.offered_mib = min(self.offered_mib, pool.memory_mib - pool.floor_mib)
        self.over_mib = max(self.total_mib - self.offered_mib * pool.gpus, 0)
        # If all budgets are in use, each device must have this many of its MiB free, for the floor and the queues.
        self.keep_mib = 0
        if pool.gpus > 1 and pool.floor_mib > pool.reserve_mib:
            self.keep_mib = pool.floor_mib - pool.reserve_mib + self.ledger.quota_mib(pool.name)

    def given_mib(self, to: Mapping[int, int]) -> int:
        return sum((self.seats[index].gpumem_mib - mib) * self.seats[index].devices for index, mib in to.items())

    def packs(self, to: Mapping[int, int]) -> bool:
        """Returns True if each seat finds its devices and the quota of the queues still fits too. Raises
        OutOfStepsError.
        """
        pool, requests = self.pool, self._requests(to)
        self.work.take(len(to) + 6 + len(requests) * 3)
        too_large = any(mib > self.offered_mib or devices > pool.device_count for mib, devices in requests)
        if too_large or self.given_mib(to) < self.over_mib:
            return False
        alike = AlikeNodes(nodes=pool.nodes, device_count=pool.device_count, device_mib=self.offered_mib)
        if fits_on_separate_nodes(requests, alike):
            return True
        large = sum(count * devices for (mib, devices), count in requests.items() if 2 * mib > self.offered_mib)
        if large > pool.gpus:  # two of these pods do not fit on one device
            return False
        return self._fits_in_some_order(requests, alike)

    def _fits_in_some_order(self, requests: Counter[tuple[int, int]], alike: AlikeNodes) -> bool:
        self.work.take(2 * requests.total())
        items = [Item("", mib, devices) for mib, devices in requests.elements()]
        nodes = alike.needed(items)
        self.work.take(sum(map(len, nodes)))
        part = StepsLeft(min(self.order_steps + 2 * len(items) + 2 * self.pool.gpus, self.work.left // 2))
        before = part.left
        try:
            return fits_on_nodes(items, nodes, part)
        except OutOfStepsError:
            self.unsure = True
            return False
        finally:
            self.work.take(2 * (before - max(part.left, 0)))

    def keeps_floor(self, to: Mapping[int, int], but: int | None = None) -> Callable[[int], bool]:
        """Returns a function that judges new budgets of the seat `but`, while all other seats have the budgets in `to`.

        The returned function is true for a budget with which each device keeps its floor while every seat uses its
        whole budget. Without `but`, the returned function judges all other seats.
        """
        if not self.keep_mib:
            return lambda _: True
        spaces = self._spaces(to, but)
        self.work.take(6 + (10 + len(bin(self.keep_mib))) * (1 + (self.device_mib >> 15)))
        wrong, width = spaces, 1  # bit n is set if n more MiB on some device leave too few MiB free
        while width < self.keep_mib:
            step = min(width, self.keep_mib - width)
            wrong, width = wrong | wrong >> step, width + step
        replicas = 0 if but is None else self.seats[but].replicas
        bits = f"{wrong:b}"[::-1]
        return lambda mib: "1" not in bits[: replicas * mib + 1 : mib]

    def _requests(self, to: Mapping[int, int]) -> Counter[tuple[int, int]]:
        requests = Counter(self.requests)
        for index, mib in to.items():
            seat = self.seats[index]
            requests[seat.gpumem_mib, seat.devices_per_pod] -= seat.replicas
            requests[mib, seat.devices_per_pod] += seat.replicas
        return +requests

    def _spaces(self, to: Mapping[int, int], but: int | None = None) -> int:
        pods: Counter[int] = Counter()
        for (mib, _), count in self._requests(to).items():
            pods[mib] += count
        if but is not None:
            pods[to.get(but, self.seats[but].gpumem_mib)] -= self.seats[but].replicas
        pods = +pods
        shifts = sum(count.bit_length() for count in pods.values())
        self.work.take(6 + 2 * len(pods) + shifts * (1 + (self.device_mib >> 15)))
        if self.device_mib > MOST_MIB:
            raise OutOfStepsError
        return free_spaces({mib: count for mib, count in pods.items() if mib <= self.device_mib}, self.device_mib)


class _Search(_Promises):
    """Tries all sets of seats, with the smallest sets first. `fewest` is a lower bound for the number of
    lowered seats.
    """

    def __init__(self, ledger: Ledger, pool: Pool, wanted: Wanted | None, least: Mapping[str, int], work: int) -> None:
        super().__init__(ledger, pool, wanted, StepsLeft(work))
        self.least = [max(min(least.get(seat.name, seat.gpumem_mib), seat.gpumem_mib), 1) for seat in self.seats]
        self.lowerable = [index for index, seat in enumerate(self.seats) if self.gain_mib(index)]
        self.best: dict[int, int] | None = None
        self.fewest = 0

    def gain_mib(self, index: int) -> int:
        return self.seats[index].gpumem_mib - self.least[index]

    def run(self) -> SmallestChange:
        steps = self.work.left
        try:
            if self.hopeless() or not self.packs({index: self.least[index] for index in self.lowerable}):
                return SmallestChange(changes=None, proven=not self.unsure)
            for touched in range(len(self.lowerable) + 1):
                self._try_sets(touched)
                if self.best is not None:
                    break
                self.fewest += not self.unsure
        except OutOfStepsError:
            self.unsure = True
        if self.best is None and self.unsure:
            self.work, self.order_steps = StepsLeft(steps // 2), _FEW_STEPS
            with suppress(OutOfStepsError):
                self._try_largest()
        fewest = max(self.fewest, int(self.over_mib > 0))
        least = fewest, max(self.over_mib, fewest)
        if self.best is None:
            return SmallestChange(changes=None, proven=not self.unsure, least=least)
        cost = len(self.best), self.given_mib(self.best)
        changes = tuple(self._change(index, mib) for index, mib in self.best.items())
        return SmallestChange(
            changes=changes, proven=not self.unsure or cost == least, least=cost if not self.unsure else least
        )

    def hopeless(self) -> bool:
        """Returns True if lower budgets cannot make the promises fit, because the pool has another problem."""
        pool = self.pool
        if pool.gpus < 1 or not 0 <= pool.floor_mib < pool.device_mib or self.keep_mib > pool.device_mib:
            return True
        short = full_seats(self.ledger, pool).reserve_short_mib > 0
        return short or bool(self.wanted and obstacle(self.ledger, pool, self.wanted))

    def _try_sets(self, touched: int) -> None:
        """Finds the cheapest change that lowers the budgets of exactly `touched` seats. Raises OutOfStepsError."""
        self.work.take(len(self.lowerable) + 1)
        gains = sorted((self.gain_mib(index) * self.seats[index].devices for index in self.lowerable), reverse=True)
        if sum(gains[:touched]) < self.over_mib:
            return
        kinds: Counter[tuple[int, ...]] = Counter()
        candidates = []  # of equal seats, only as many as may be lowered
        for index in self.lowerable:
            kinds[self._kind(index)] += 1
            if kinds[self._kind(index)] <= touched:
                candidates.append(index)
        seen: set[tuple[tuple[int, ...], ...]] = set()
        for chosen in combinations(candidates, touched):
            self.work.take(2 * touched + 1)
            key = tuple(self._kind(index) for index in chosen)
            if key in seen:
                continue
            seen.add(key)
            self._try_budgets(chosen)
            if self.best is not None and self.given_mib(self.best) <= self.over_mib:
                return

    def _kind(self, index: int) -> tuple[int, ...]:
        seat = self.seats[index]
        return seat.gpumem_mib, seat.replicas, seat.devices_per_pod, self.least[index]

    def _try_budgets(self, chosen: Sequence[int]) -> None:
        """Finds the cheapest budgets of the chosen seats, each lowered by at least 1 MiB.

        Each entry of the search's stack is a range of budgets for each seat. The search divides a range until the range
        has only one budget. The search skips a range if its highest budgets cost too much, or if its lowest budgets do
        not fit.
        """
        if not chosen:
            if self.packs({}) and self.keeps_floor({})(1):
                self.best = {}
            return
        others = dict.fromkeys(chosen, self.device_mib + 1)  # without the chosen seats, which fit on no device
        if self.keep_mib and not self.keeps_floor(others)(1):
            return
        spaces = self._spaces(others) if self.keep_mib else 0
        stack = [({i: self.least[i] for i in chosen}, {i: self.seats[i].gpumem_mib - 1 for i in chosen})]
        while stack:
            self.work.take(4 * len(chosen))
            low, high = stack.pop()
            if self.best is not None:
                spare = self.given_mib(self.best) - 1 - self.given_mib(high)
                if spare < 0:
                    continue
                low = {i: max(mib, high[i] - spare // self.seats[i].devices) for i, mib in low.items()}
            wide = max(chosen, key=lambda i: (high[i] - low[i]) * self.seats[i].devices)
            if all(low[i] == high[i] for i in chosen if i != wide):
                mib = self.highest(high, wide, low[wide])
                if mib is not None:
                    self.best = {**high, wide: mib}
            elif not self._breaks_floor(spaces, low, high) and self.packs(low):
                middle = (low[wide] + high[wide]) // 2
                stack += [(low, {**high, wide: middle}), ({**low, wide: middle + 1}, high)]

    def _breaks_floor(self, spaces: int, low: Mapping[int, int], high: Mapping[int, int]) -> bool:
        """Returns True if some device is below its floor with all budgets from `low` to `high`.

        `spaces` has the amounts of memory that all other seats can leave free on a device.
        """
        counts = product(*(range(self.seats[index].replicas + 1) for index in low))
        for each in islice(counts, _PARTS * _PARTS if self.keep_mib else 0):
            self.work.take(1 + (self.device_mib >> 15))
            most = sum(count * high[index] for count, index in zip(each, low, strict=True))
            width = self.keep_mib - sum(count * (high[i] - low[i]) for count, i in zip(each, low, strict=True))
            if width > 0 and spaces >> most & (1 << width) - 1:
                return True
        return False

    def highest(self, to: Mapping[int, int], index: int, low: int) -> int | None:
        """Returns the highest budget of one seat with which all pods fit. The budget is at least `low`, and at most
        that in `to`.

        If no budget in this range fits, returns None.
        """
        if not self.packs({**to, index: low}):
            return None
        less = _first(lambda less: self.packs({**to, index: to[index] - less}), 0, to[index] - low)
        keeps_floor = self.keeps_floor(to, index)
        self.work.take((to[index] - less - low) // 4)
        return next((mib for mib in range(to[index] - less, low - 1, -1) if keeps_floor(mib)), None)

    def _try_largest(self) -> None:
        """Finds a change after which the promises fit. A smaller change than the result may exist.

        The change lowers the seats with the most MiB to give first, each only as far as necessary.
        """
        order = sorted(self.lowerable, key=lambda i: (-self.gain_mib(i) * self.seats[i].devices, i))
        fewest = _first(lambda count: self.packs({i: self.least[i] for i in order[:count]}), self.fewest, len(order))
        for count in range(max(fewest, 1), len(order) + 1):
            for parts in range(_PARTS if self.keep_mib else 1):
                to = {i: self.least[i] + self.gain_mib(i) * parts // _PARTS for i in order[:count]}
                for index in order[:count]:
                    mib = self.highest({**to, index: self.seats[index].gpumem_mib}, index, self.least[index])
                    if mib is not None:
                        self._raise_all({**to, index: mib})
                        return

    def _raise_all(self, to: dict[int, int]) -> None:
        """Raises the new budgets one after the other as far as possible."""
        self.best = to
        for index in reversed([*to]):
            full = {**to, index: self.seats[index].gpumem_mib}
            to[index] = self.highest(full, index, to[index]) or to[index]
            self.best = {i: mib for i, mib in to.items() if mib < self.seats[i].gpumem_mib}

    def _change(self, index: int, mib: int) -> Change:
        seat = self.seats[index]
        return Change(
            kind=Kind.LOWER,
            workload=seat.name,
            from_mib=seat.gpumem_mib,
            to_mib=mib,
            replicas=seat.replicas,
            devices_per_pod=seat.devices_per_pod,
        )


def _first(fits: Callable[[int], bool], low: int, high: int) -> int:
    """Returns the smallest number from `low` to `high` for which `fits` is true. The condition `fits` must be true for
    `high`.
    """
    return low + bisect_left(range(low, high), True, key=fits)


def _of(ledger: Ledger, pool: Pool) -> Ledger:
    return replace(
        ledger,
        pools=(pool,),
        seats=tuple(seat for seat in ledger.seats if seat.pool == pool.name),
        quotas=tuple(quota for quota in ledger.quotas if quota.pool == pool.name),
    )
