"""Makes random small cases for the searches of tenancy/fit, and solves each case by trying every change. Units: whole
MiB.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import combinations, product
from random import Random

from tenancy.fit.layout import Budget, DeviceRoom, PlacedPod
from tenancy.fit.smallest_change import Change, Kind, SmallestChange, Wanted
from tenancy.ledger import Ledger, Pool, QueueQuota, Seat, Unbudgeted

Cost = tuple[int, int]


# --- lower -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Promises:
    ledger: Ledger
    pool: Pool
    wanted: Wanted | None
    least: Mapping[str, int]

    @property
    def seats(self) -> tuple[Seat, ...]:
        return tuple(seat for seat in self.ledger.seats if seat.pool == self.pool.name)


def promises(dice: Random) -> Promises:
    memory = dice.randint(4, 40)
    reserve = dice.choice((0, 0, 1, 2, memory // 8, memory // 4))
    unbudgeted = dice.choice((0, 0, 0, 1, 2))
    offered = memory - reserve
    floor = dice.choice((0, reserve, dice.randint(0, offered - 1), min(reserve + dice.randint(0, 6), offered)))
    pool = Pool(
        name="p",
        node_selector={"a": "b"},
        nodes=dice.randint(1, 3),
        device_count=dice.randint(1, 3),
        memory_mib=memory,
        reserve_mib=reserve,
        driver_reserved_mib=max(reserve - unbudgeted - dice.randint(-1, 2), 0) if dice.random() < 0.3 else 0,
        floor_mib=floor,
    )
    seats = tuple(
        Seat(
            name=name,
            tenant="t",
            pool="p" if dice.random() < 0.96 else "other",
            gpumem_mib=dice.randint(1, dice.choice((offered + 1, offered // 2 + 1, offered // 2 + 1))),
            replicas=dice.choice((1, 1, 1, 2, 3)),
            devices_per_pod=dice.choice((1, 1, 1, dice.randint(1, pool.device_count + (dice.random() < 0.05)))),
        )
        for name in "abcd"[: dice.choice((0, 1, 2, 2, 3, 3, 3, 4))]
    )
    quotas = [
        QueueQuota(
            queue=f"q{n}", flavor="f", pool="p", resource="x.y/gpumem", nominal=dice.randint(1, 9), borrowing=n * 50
        )
        for n in range(dice.choice((0, 0, 0, 0, 0, 1, 2)))
    ]
    wanted = Wanted(
        mib=dice.randint(1, dice.choice((offered, offered // 2 + 1))),
        count=dice.choice((1, 1, dice.randint(1, pool.device_count))),
        replicas=dice.choice((1, 1, 1, 2, 3)),
    )
    ledger = Ledger(
        domain="x.y",
        pools=(pool, replace(pool, name="other", node_selector={"a": "c"}, floor_mib=0)),
        seats=seats,
        quotas=tuple(quotas),
        unbudgeted=(Unbudgeted(name="u", tenant="u", pool="p", measured_mib=unbudgeted),) if unbudgeted else (),
    )
    least = {
        seat.name: dice.choice((1, (seat.gpumem_mib + 1) // 2, dice.randint(1, seat.gpumem_mib)))
        for seat in seats
        if dice.random() < 0.9
    }
    return Promises(ledger=ledger, pool=pool, wanted=dice.choice((wanted, wanted, None)), least=least)


def cheapest_budgets(case: Promises) -> Cost | None:
    seats = case.seats
    for count in range(len(seats) + 1):
        costs = [
            sum((seat.gpumem_mib - mib) * seat.replicas * seat.devices_per_pod for seat, mib in chosen)
            for chosen in _fitting(case, seats, count)
        ]
        if costs:
            return count, min(costs)
    return None


def _fitting(case: Promises, seats: Sequence[Seat], count: int) -> Iterator[list[tuple[Seat, int]]]:
    for names in combinations(seats, count):
        for amounts in product(*(range(case.least.get(seat.name, seat.gpumem_mib), seat.gpumem_mib) for seat in names)):
            chosen = [*zip(names, amounts, strict=True)]
            if budgets_fit(case, {seat.name: mib for seat, mib in chosen}):
                yield chosen


def budgets_fit(case: Promises, changed: Mapping[str, int]) -> bool:
    pool, ledger = case.pool, case.ledger
    offered = pool.memory_mib - pool.reserve_mib
    pods = [(changed.get(s.name, s.gpumem_mib), s.devices_per_pod) for s in case.seats for _ in range(s.replicas)]
    if case.wanted:
        pods += [(case.wanted.mib, case.wanted.count)] * case.wanted.replicas
    quota = sum(q.nominal for q in ledger.quotas if q.pool == pool.name and q.resource.endswith("/gpumem"))
    beside = pool.driver_reserved_mib + sum(u.measured_mib for u in ledger.unbudgeted if u.pool == pool.name)
    if offered < 1 or pool.floor_mib >= offered or beside > pool.reserve_mib:
        return False
    if any(mib > offered or devices > pool.device_count for mib, devices in pods):
        return False
    if sum(mib * devices for mib, devices in pods) + quota > offered * pool.device_count * pool.nodes:
        return False
    fullest = max(mib for mib in _sums(tuple(sorted(mib for mib, _ in pods))) if mib <= offered)
    if min(fullest + quota, offered) + pool.floor_mib > pool.memory_mib:
        return False
    return all_fit(tuple(sorted(pods, reverse=True)), ((offered,) * pool.device_count,) * pool.nodes)


@lru_cache(4096)
def _sums(sizes: tuple[int, ...]) -> frozenset[int]:
    if not sizes:
        return frozenset({0})
    others = _sums(sizes[1:])
    return others | {sizes[0] + mib for mib in others}


@lru_cache(4096)
def all_fit(pods: tuple[tuple[int, int], ...], nodes: tuple[tuple[int, ...], ...]) -> bool:
    if not pods:
        return True
    (mib, count), rest = pods[0], pods[1:]
    tried = set()
    for at, node in enumerate(nodes):
        for chosen in combinations(range(len(node)), count):
            if all(node[index] >= mib for index in chosen):
                left = tuple(sorted(free - mib * (index in chosen) for index, free in enumerate(node)))
                tried.add(tuple(sorted((*nodes[:at], left, *nodes[at + 1 :]))))
    return any(all_fit(rest, after) for after in tried)


def wrong_budgets(case: Promises, found: SmallestChange) -> str:
    seats = {seat.name: seat for seat in case.seats}
    for change in found.changes or ():
        seat = seats.get(change.workload)
        if change.kind is not Kind.LOWER or seat is None or change.from_mib != seat.gpumem_mib:
            return f"no such seat: {change}"
        if change.to_mib is None or not case.least.get(seat.name, seat.gpumem_mib) <= change.to_mib < seat.gpumem_mib:
            return f"not between the least and the old budget: {change}"
        if (change.replicas, change.devices_per_pod) != (seat.replicas, seat.devices_per_pod):
            return f"another number of pods: {change}"
    to = {change.workload: change.to_mib for change in found.changes or () if change.to_mib is not None}
    if len(to) != len(found.changes or ()):
        return "a seat is lowered twice"
    return "" if budgets_fit(case, to) else "the promises do not fit after the change"


# --- rearrange -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Devices:
    devices: tuple[DeviceRoom, ...]
    pods: tuple[PlacedPod, ...]
    seats: Mapping[str, Budget]
    wanted: Wanted


def devices(dice: Random) -> Devices:
    counts = [dice.randint(1, 3) for _ in range(dice.randint(1, 3))][: dice.choice((1, 2, 3, 3))]
    node_of = [f"n{node}" for node, count in enumerate(counts) for _ in range(count)][:5]
    size = dice.randint(4, 40)
    seats = {
        name: Budget(mib=mib, least_mib=dice.choice((1, dice.randint(1, mib))), replicas=1)
        for name in "abc"[: dice.choice((0, 1, 2, 2, 3))]
        for mib in [dice.randint(1, size)]
    }
    room = [dice.choice((size, dice.randint(4, 40))) for _ in node_of]
    pods: list[PlacedPod] = []
    for number in range(dice.choice((0, 1, 2, 3, 3, 4, 4, 5, 6))):
        device = dice.randrange(len(node_of))
        kind = dice.choice(("seat", "seat", "seat", "seat", "fixed", "loose", "park"))
        if kind == "seat" and seats:
            seat = dice.choice([*seats])
            pods.append(
                PlacedPod(
                    name=f"t/{number}", device=device, mib=seats[seat].mib, seat=seat, movable=dice.random() < 0.85
                )
            )
        elif kind == "park":
            name = dice.choice(("on-demand", f"on-demand-{number}"))
            pods.append(PlacedPod(name=name, device=device, mib=dice.randint(1, size // 2), movable=False, parks=True))
        else:
            pods.append(
                PlacedPod(name=f"t/{number}", device=device, mib=dice.randint(1, size), movable=kind == "loose")
            )
    overfull = dice.random() < 0.15
    kept: list[PlacedPod] = []
    for pod in pods:
        if overfull or room[pod.device] >= pod.mib:
            room[pod.device] -= pod.mib
            kept.append(pod)
    if dice.random() < 0.7:  # a change is often necessary, because little memory is free
        room = [min(mib, dice.randint(0, size // 3)) for mib in room]
    replicas = Counter(pod.seat for pod in kept)
    seats = {
        name: replace(seat, replicas=max(replicas[name] + dice.choice((0, 0, 1)), 1)) for name, seat in seats.items()
    }
    found = tuple(
        DeviceRoom(node=node, name=f"{node}, gpu {index}", room_mib=mib, open=dice.random() < 0.92)
        for index, (node, mib) in enumerate(zip(node_of, room, strict=True))
    )
    wanted = Wanted(
        mib=dice.randint(1, dice.choice((size, size // 2 + 1))),
        count=dice.choice((1, 1, 1, dice.randint(1, max(counts)))),
        replicas=dice.choice((1, 1, 1, 2, 3)),
    )
    return Devices(devices=found, pods=tuple(kept), seats=seats, wanted=wanted)


def cheapest_change(case: Devices) -> Cost | None:
    room = [device.room_mib for device in case.devices]
    movable = [index for index, pod in enumerate(case.pods) if pod.movable]
    parked = sorted({pod.name for pod in case.pods if pod.parks})
    loads = sorted(set(_loads(case)))
    for touched in range(len(movable) + len(parked) + len(case.seats) + 1):
        best: int | None = None
        for lowered, moved, stopped in _touched([*case.seats], movable, parked, touched):
            for targets in product(*(_targets(case, pod) for pod in moved)):
                on, receives = [*(pod.device for pod in case.pods)], set(targets)
                free = [*room]
                for pod, target in zip(moved, targets, strict=True):
                    free[on[pod]] += case.pods[pod].mib
                    free[target] -= case.pods[pod].mib
                    on[pod] = target
                for pod in (pod for pod in case.pods if pod.parks and pod.name in stopped):
                    free[pod.device] += pod.mib
                needs = (_needs(case, load, free, receives) for load in loads)
                best = _amount(case, lowered, on, needs, best)
        if best is not None:
            return touched, best
    return None


def _touched(
    seats: Sequence[str], movable: Sequence[int], parked: Sequence[str], touched: int
) -> Iterator[tuple[tuple[str, ...], tuple[int, ...], tuple[str, ...]]]:
    for stops in range(min(touched, len(parked)) + 1):
        for moves in range(min(touched - stops, len(movable)) + 1):
            if (lowers := touched - stops - moves) <= len(seats):
                yield from product(
                    combinations(seats, lowers), combinations(movable, moves), combinations(parked, stops)
                )


def _targets(case: Devices, pod: int) -> list[int]:
    return [at for at, device in enumerate(case.devices) if device.open and at != case.pods[pod].device]


def _loads(case: Devices) -> Iterator[tuple[int, ...]]:
    ways = [
        chosen
        for node in {device.node for device in case.devices}
        for chosen in combinations(
            [at for at, device in enumerate(case.devices) if device.open and device.node == node], case.wanted.count
        )
    ]
    found: set[tuple[int, ...]] = {(0,) * len(case.devices)}
    for _ in range(case.wanted.replicas):
        found = {tuple(n + (at in way) for at, n in enumerate(load)) for load in found for way in ways}
    yield from found


def _needs(case: Devices, load: Sequence[int], free: Sequence[int], receives: Collection[int]) -> dict[int, int]:
    lacks = {at: number * case.wanted.mib - mib for at, (number, mib) in enumerate(zip(load, free, strict=True))}
    return {at: mib for at, mib in lacks.items() if mib > 0 and (load[at] or at in receives)}


def _amount(
    case: Devices, lowered: Sequence[str], on: Sequence[int], needs: Iterable[Mapping[int, int]], below: int | None
) -> int | None:
    pods = [[0] * len(case.devices) for _ in lowered]
    for pod, device in zip(case.pods, on, strict=True):
        if pod.seat in lowered:
            pods[lowered.index(pod.seat)][device] += 1
    seats = [case.seats[name] for name in lowered]
    gains = [seat.mib - seat.least_mib for seat in seats]
    best = below
    for need in needs:
        if not lowered:
            best = best if need else 0
        elif all(
            mib <= sum(gain * each[at] for gain, each in zip(gains, pods, strict=True)) for at, mib in need.items()
        ):
            for first in product(*(range(1, gain + 1) for gain in gains[:-1])):
                last = max([1, *(_last(at, mib, first, pods, gains) for at, mib in need.items())])
                if last <= gains[-1]:
                    cost = sum(n * seat.replicas for n, seat in zip((*first, last), seats, strict=True))
                    best = cost if best is None else min(best, cost)
    return best


def _last(at: int, mib: int, first: Sequence[int], pods: Sequence[Sequence[int]], gains: Sequence[int]) -> int:
    short = mib - sum(n * each[at] for n, each in zip(first, pods[:-1], strict=True))
    if short <= 0:
        return 0
    return -(-short // pods[-1][at]) if pods[-1][at] else gains[-1] + 1


def wrong_change(case: Devices, found: SmallestChange) -> str:
    return next(_Changed(case).problems(found), "") if found.changes is not None else ""


class _Changed:
    def __init__(self, case: Devices) -> None:
        self.case = case
        self.index = {device.name: at for at, device in enumerate(case.devices)}
        self.free = [device.room_mib for device in case.devices]
        self.on = [pod.device for pod in case.pods]
        self.receives: set[int] = set()

    def problems(self, found: SmallestChange) -> Iterator[str]:
        changes = found.changes or ()
        make = {Kind.LOWER: self._lower, Kind.MOVE: self._move, Kind.PARK: self._park}
        for change in sorted(changes, key=lambda change: change.kind is Kind.LOWER):
            yield from make[change.kind](change)
        if len({(change.kind, change.workload) for change in changes}) < len(changes):
            yield "a workload is changed twice"
        if len(found.places) != self.case.wanted.replicas:
            yield f"{len(found.places)} places for {self.case.wanted.replicas} pods"
        for place in found.places:
            yield from self._place(place)
        if over := [self.case.devices[at].name for at in sorted(self.receives) if self.free[at] < 0]:
            yield f"too full: {over}"

    def _lower(self, change: Change) -> Iterator[str]:
        seat = self.case.seats[change.workload]
        if (change.from_mib, change.replicas) != (seat.mib, seat.replicas):
            yield f"another seat: {change}"
        if change.to_mib is None or not seat.least_mib <= change.to_mib < seat.mib:
            yield f"not between the least and the old budget: {change}"
        for pod, device in zip(self.case.pods, self.on, strict=True):
            if pod.seat == change.workload:
                self.free[device] += seat.mib - (change.to_mib or 0)

    def _move(self, change: Change) -> Iterator[str]:
        (pod,) = (at for at, each in enumerate(self.case.pods) if each.name == change.workload and each.movable)
        source, target = self.on[pod], self.index[change.target or ""]
        if self.index[change.source or ""] != source or target == source or not self.case.devices[target].open:
            yield f"no such move: {change}"
        self.free[source] += self.case.pods[pod].mib
        self.free[target] -= self.case.pods[pod].mib
        self.on[pod] = target
        self.receives.add(target)

    def _park(self, change: Change) -> Iterator[str]:
        mine = [each for each in self.case.pods if each.parks and each.name == change.workload]
        if not mine:
            yield f"nothing to park: {change}"
        for each in mine:
            self.free[each.device] += each.mib

    def _place(self, place: Sequence[str]) -> Iterator[str]:
        devices = [self.case.devices[self.index[name]] for name in place]
        one_node = len({device.node for device in devices}) == 1
        if len({*place}) != self.case.wanted.count or not one_node or not all(device.open for device in devices):
            yield f"not {self.case.wanted.count} open devices of one node: {place}"
        for name in place:
            self.free[self.index[name]] -= self.case.wanted.mib
            self.receives.add(self.index[name])


# --- both ------------------------------------------------------------------------------------------------------------


def verdict(found: SmallestChange | None, wrong: str, best: Cost | None) -> str:
    if found is None or found.changes is None:
        if best is not None:
            return "missed"
        return "" if found is None or found.proven else "unknown"
    if wrong or best is None:
        return "invalid"
    if found.cost < best:
        return "oracle"
    if not found.proven:
        return "bound" if found.least > best else "unknown"
    return "" if found.cost == best else "wrong proven"
