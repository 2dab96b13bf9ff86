"""Pods that lie on devices: the fewest to touch so that new ones fit. Exact, as far as its steps reach.

Deepening by the number of workloads touched: new pods are put on devices that are too full for them, and whoever lies
there is lowered, moved on, or parked, until none is too full. Those that need nobody touched come last, by count: what
is free on each node says how many. Units: whole MiB.
"""

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations, islice
from math import ceil

from tenancy.fit.amounts import Lowerable, cheapest
from tenancy.fit.plan import WORK, Change, Kind, OutOfWorkError, Plan, Wanted, Work

_NARROW = 3  # ways that are tried at each turn, where there are no steps for all
_NARROW_WORK = 200_000
_DEEPER = 12
_DEEPEST = 100  # so many are touched at most, and so many new pods are put where others must give way


@dataclass(frozen=True, kw_only=True)
class DeviceRoom:
    """`room_mib` is what is left beside its pods; below 0 where it holds too much. Not `open`: it takes no new pod."""

    node: str
    name: str
    room_mib: int
    open: bool = True


@dataclass(frozen=True, kw_only=True)
class Lying:
    """A pod with `mib` on the device of that index. `seat` is what it may be lowered with, None for nothing; `parks`:
    it is an on-demand workload, which is parked and not moved. Who is neither movable nor any of these stays."""

    name: str
    device: int
    mib: int
    seat: str | None = None
    movable: bool = True
    parks: bool = False


@dataclass(frozen=True, kw_only=True)
class Budget:
    """A seat's MiB, what it is not to be lowered below, and its replicas."""

    mib: int
    least_mib: int
    replicas: int = 1


def rearrange(
    devices: Sequence[DeviceRoom], pods: Sequence[Lying], seats: dict[str, Budget], wanted: Wanted, work: int = WORK
) -> Plan | None:
    """The least change after which the wanted pods fit as well; None where no change of these makes them fit, or none
    was found."""
    try:
        search = _Search(devices, pods, seats, wanted, work=Work(work))
        for touched in range(search.fewest(), min(len(pods) + len(seats), _DEEPEST) + 1):
            if plan := search.at(touched):
                return plan
    except OutOfWorkError:
        return _as_far(devices, pods, seats, wanted, search)
    return None


def _as_far(
    devices: Sequence[DeviceRoom], pods: Sequence[Lying], seats: dict[str, Budget], wanted: Wanted, search: "_Search"
) -> Plan | None:
    """The best that the search had, else the first of a narrow one."""
    if search.plan is not None:
        return search.bounded(search.plan)
    for touched in range(search.most, search.most + _DEEPER):
        narrow = _Search(devices, pods, seats, wanted, work=Work(_NARROW_WORK), width=_NARROW)
        try:
            found = narrow.at(touched)
        except OutOfWorkError:
            found = narrow.plan
        if found is not None:
            return search.bounded(found)
    return None


class _Search:
    """The state of a search: what is put somewhere is taken away again on the way back."""

    def __init__(
        self,
        devices: Sequence[DeviceRoom],
        pods: Sequence[Lying],
        seats: dict[str, Budget],
        wanted: Wanted,
        *,
        work: Work,
        width: int | None = None,
    ) -> None:
        self.devices, self.pods, self.seats, self.wanted = devices, pods, seats, wanted
        self.work, self.width = work, width
        self.room = [device.room_mib for device in devices]
        self.on: list[list[int]] = [[] for _ in devices]
        for index, pod in enumerate(pods):
            self.on[pod.device].append(index)
        by_node: dict[str, list[int]] = defaultdict(list)
        for index, device in enumerate(devices):
            if device.open:
                by_node[device.node].append(index)
        self.nodes = [*by_node.values()]
        self.node_of = {index: number for number, node in enumerate(self.nodes) for index in node}
        self.spread = max(Counter(pod.seat for pod in pods if pod.seat).values(), default=1)
        self.fits = [self._fit(node) for node in self.nodes]
        self.fits_in_all = sum(self.fits)
        self.by_room = sorted((self.room[index], index) for index in self.node_of)
        self.most_room = self.by_room[-1][0] if self.by_room else 0
        # What a device has room for once one of its pods is gone.
        self.by_move = sorted(
            (self.room[pod.device] + pod.mib, pod.device, 0 if pod.parks else pod.mib)
            for pod in pods
            if pod.device in self.node_of and (pod.parks or pod.movable)
        )
        self.gain_on = Counter({index: sum(map(self._gain, self.on[index])) for index in self.node_of})
        self.most = 0
        self.left = 0
        self.forced: list[tuple[int, ...]] = []
        self.depth = 0
        self.moved: dict[int, int] = {}
        self.lowered: set[str] = set()
        self.parked: list[int] = []
        self.touched: Counter[int] = Counter()  # devices on which something was put or taken away
        self.plan: Plan | None = None
        self.mib: int | None = None

    def at(self, touched: int) -> Plan | None:
        """The cheapest with so many workloads touched. Raises OutOfWorkError."""
        self.most = self.left = touched
        self.seen: set[tuple[tuple[int, ...], ...]] = set()
        self.plan, self.mib = None, None
        self._put_new()
        return self.plan

    def fewest(self) -> int:
        """A bound by count: how many must be touched for each new pod that finds no room as it is."""
        beyond = self.wanted.replicas - self.fits_in_all
        if beyond <= 0 or self.wanted.count > 1:
            return int(beyond > 0)
        ratio = 1.0 * len(self.pods)
        for index in self.node_of:
            free = max(self.room[index], 0) // self.wanted.mib
            for more in range(1, self.wanted.replicas + 1):
                needs = self._needs(index, (free + more) * self.wanted.mib)
                if needs > len(self.pods):
                    break
                ratio = min(ratio, needs / more)
        return max(1, ceil(beyond * ratio / self.spread - 1e-9))

    def bounded(self, plan: Plan) -> Plan:
        return Plan(changes=plan.changes, places=plan.places, proven=False, least=(self.most, 0))

    @property
    def _done(self) -> bool:
        """Nothing is cheaper than moves alone; and a narrow search takes the first."""
        return self.mib == 0 or (self.width is not None and self.plan is not None)

    def _put_new(self) -> None:
        """One more of the new pods on devices that are too full for it; the rest is counted in the end."""
        more = len(self.forced) < self.wanted.replicas and self.left > 0
        enough = self.depth >= self.wanted.replicas - self.fits_in_all
        if enough:
            self._repair(frozenset())
        if more and not self._done:
            self._put_one_more(full=True)
        if not enough and not self._done:
            self._repair(frozenset())
        if more and not self._done and (self.most > 1 or self.wanted.replicas > 1):
            self._put_one_more(full=False)  # where there is room, which a moved pod then lacks

    def _put_one_more(self, *, full: bool) -> None:
        if self.depth == _DEEPEST:
            raise OutOfWorkError
        for choice in self._narrowed(self._ways(full=full)):
            if self._done:
                return
            before = len(self.forced)
            times = 1 + (self._free_on(choice) if full else 0)
            if before + times > self.wanted.replicas:
                continue
            self.forced += [choice] * times
            key = tuple(sorted(self.forced))
            if key not in self.seen:
                self.seen.add(key)
                self._put(choice, times)
            del self.forced[before:]

    def _put(self, choice: tuple[int, ...], times: int) -> None:
        for device in choice:
            self._change(device, -self.wanted.mib * times)
        self.depth += 1
        if self._bound() <= self.left:
            self._put_new()
        self.depth -= 1
        for device in choice:
            self._change(device, self.wanted.mib * times, undo=True)

    def _free_on(self, choice: tuple[int, ...]) -> int:
        """Of new pods with one device each: how many it has room for, beside one that is too many."""
        return max(self.room[choice[0]], 0) // self.wanted.mib if self.wanted.count == 1 else 0

    def _ways(self, *, full: bool) -> Iterator[tuple[int, ...]]:
        """Devices of one node for a new pod, too full for it or not; those that need the fewest touched first."""
        found = []
        for node in self.nodes:
            self.work.take(4 * len(node))
            cost = {
                index: self._needs(index, self.wanted.mib * (1 + (self._free_on((index,)) if full else 0)))
                for index in node
            }
            near = [index for index in node if cost[index] <= self.left]
            for choice in combinations(near, self.wanted.count):
                needs = sum(cost[index] for index in choice)
                if (needs > 0) is full and needs <= self.left * self.spread:
                    short = sum(self.wanted.mib - self.room[index] % self.wanted.mib for index in choice)
                    found.append((needs, short, choice))
        return (choice for *_, choice in sorted(found))

    def _needs(self, device: int, mib: int = 0) -> int:
        """How many pods there must be touched at least for so much more."""
        short = mib - self.room[device]
        if short <= 0:
            return 0
        if self.lowered:
            short -= sum(self._gain(pod) for pod in self.on[device] if self.pods[pod].seat in self.lowered)
        gains = sorted((self.pods[p].mib for p in self.on[device] if self._is_touchable(p)), reverse=True)
        for count, gain in enumerate([0, *gains]):
            short -= gain
            if short <= 0:
                return count
        return len(self.pods) + 1

    def _is_touchable(self, pod: int) -> bool:
        found = self.pods[pod]
        return found.movable or found.parks or found.seat is not None

    def _gain(self, pod: int) -> int:
        """What the pod gives up if its seat is lowered as far as it goes."""
        seat = self.pods[pod].seat
        return self.seats[seat].mib - self.seats[seat].least_mib if seat is not None else 0

    def _bound(self) -> int:
        """How many must still be touched at least: one that is lowered may serve several devices."""
        needs = [self._needs(device) for device in self.touched]
        return max(max(needs, default=0), -(-sum(needs) // self.spread))

    def _repair(self, settled: frozenset[int]) -> None:
        """The first device that holds too much: leave it to the seats that are lowered, or touch one there."""
        self.work.take(10 + 10 * len(self.touched))
        if self._done or self._bound() > self.left:
            return
        full = next(
            (device for device in sorted(self.touched) if self.room[device] < 0 and device not in settled), None
        )
        if full is None:
            self._count()
            return
        if not self._needs(full):
            self._repair(settled | {full})
        if not self.left:
            return
        for pod in sorted(self.on[full], key=lambda pod: (-self.pods[pod].mib, self.pods[pod].name)):
            self._touch(pod, full, settled)

    def _touch(self, pod: int, device: int, settled: frozenset[int]) -> None:
        """Every way in which a pod can make room on its device."""
        found = self.pods[pod]
        self.left -= 1
        if (found.parks or found.movable) and pod not in self.moved:
            self.on[device].remove(pod)
            self._change(device, found.mib)
            if found.parks:
                self.parked.append(pod)
                self._repair(settled)
                self.parked.pop()
            else:
                self._move(pod, device, settled)
            self._change(device, -found.mib, undo=True)
            self.on[device].append(pod)
        if found.seat is not None and found.seat not in self.lowered and self._gain(pod) > 0:
            self.lowered.add(found.seat)
            self._repair(settled)
            self.lowered.remove(found.seat)
        self.left += 1

    def _move(self, pod: int, source: int, settled: frozenset[int]) -> None:
        for target in self._narrowed(self._targets(pod, source, settled)):
            if self._done:
                return
            self.moved[pod] = target
            self.on[target].append(pod)
            self._change(target, -self.pods[pod].mib)
            self._repair(settled - {target})
            self._change(target, self.pods[pod].mib, undo=True)
            self.on[target].remove(pod)
            del self.moved[pod]

    def _targets(self, pod: int, source: int, settled: frozenset[int]) -> Iterator[int]:
        """Where a pod may go: the fullest that has room first, then those that need others touched."""
        mib, most = self.pods[pod].mib, self._gain(pod)
        is_lowered = self.pods[pod].seat in self.lowered
        gain = most if is_lowered else 0
        found = []
        for index in self._near(mib, gain, most):
            room = self.room[index]
            if index == source or (room + gain < mib and not self.left):
                continue
            needs = 0 if room + gain >= mib else self._needs(index, mib - gain)
            if needs > 1 and not is_lowered and most:  # its own seat may be lowered as well
                needs = min(needs, 1 + self._needs(index, mib - most))
            if needs <= self.left:
                found.append((needs, room if room >= mib else mib - room + 2**40, index))
        self.work.take(len(found) + 10)
        found.sort()
        is_last = not any(self.room[device] < 0 and device not in settled for device in self.touched)
        if found and found[0][0] == 0 and self.room[found[0][2]] >= mib and is_last:
            if len(self.forced) == self.wanted.replicas:
                found = found[:1]
            elif not self.left:  # only what is free on each counts from here on
                found = [
                    *{
                        (self.room[i], self.wanted.count > 1 and self.node_of[i]): (n, s, i)
                        for n, s, i in reversed(found)
                    }.values()
                ][::-1]
        return (index for *_, index in found)

    def _near(self, mib: int, gain: int, most: int) -> Iterable[int]:
        """Devices to look at for a pod; with one more to touch at most, those where that may do."""
        if self.left > 1 or (self.left and most):
            self.work.take(2 * len(self.devices))
            return self.node_of
        near = {index for index in self.touched if index in self.node_of}
        near.update(index for _, index in self.by_room[bisect_left(self.by_room, (mib - gain,)) :])
        if self.left:
            most_room = max([self.most_room, *(self.room[index] for index in self.touched)])
            movable = self.by_move[bisect_left(self.by_move, (mib - gain,)) :]
            near.update(index for _, index, moved_mib in movable if moved_mib <= most_room)
            for room, index in reversed(self.by_room):
                short = mib - gain - room
                if self.mib is not None and short >= self.mib:
                    break
                if self.gain_on[index] >= short:
                    near.add(index)
        self.work.take(len(near))
        return near

    def _narrowed(self, ways: Iterator[object]) -> Iterator:  # type: ignore[type-arg]
        return ways if self.width is None else islice(ways, self.width)

    def _change(self, device: int, mib: int, *, undo: bool = False) -> None:
        self.room[device] += mib
        self.touched[device] += -1 if undo else 1
        if not self.touched[device]:
            del self.touched[device]

    def _count(self) -> None:
        """Whether those that are left fit, and what lowering costs."""
        rest = self.wanted.replicas - len(self.forced)
        if rest:
            changed = {self.node_of[device] for device in self.touched if device in self.node_of}
            self.work.take(len(changed) + 1)
            fit = self.fits_in_all + sum(self._fit(self.nodes[n], rest) - self.fits[n] for n in changed)
            if fit < rest:
                return
        needs = {device: -self.room[device] for device in self.touched if self.room[device] < 0}
        amounts: dict[str, int] = {}
        if needs:
            amounts = cheapest(needs, self._lowerable(), self.work, self.mib)
            if not amounts:
                return
        mib = sum(self.seats[name].replicas * amount for name, amount in amounts.items())
        if self.mib is None or mib < self.mib:
            self.mib, self.plan = mib, self._planned(amounts, rest, mib)

    def _fit(self, node: Iterable[int], most: int | None = None) -> int:
        """How many of the new pods a node has room for: the most for which its devices have room for as many each, at
        least, as they must have together (Gale, Ryser)."""
        each = [max(self.room[index], 0) // self.wanted.mib for index in node]
        if self.wanted.count == 1:
            return sum(each)
        low, high = 0, sum(each) // self.wanted.count
        while low < high:
            middle = (low + high + 1) // 2
            if sum(min(count, middle) for count in each) >= middle * self.wanted.count:
                low = middle
            else:
                high = middle - 1
        return low

    def _lowerable(self) -> dict[str, Lowerable]:
        pods: dict[str, Counter[int]] = {name: Counter() for name in self.lowered}
        for index in self.touched:
            for pod in self.on[index]:
                seat = self.pods[pod].seat
                if seat in pods:
                    pods[seat][index] += 1
        return {
            name: Lowerable(
                most_mib=self.seats[name].mib - self.seats[name].least_mib,
                price=self.seats[name].replicas,
                pods=on,
            )
            for name, on in pods.items()
        }

    def _planned(self, amounts: dict[str, int], rest: int, mib: int) -> Plan:
        changes = [
            Change(
                kind=Kind.LOWER,
                workload=name,
                from_mib=self.seats[name].mib,
                to_mib=self.seats[name].mib - amount,
                replicas=self.seats[name].replicas,
            )
            for name, amount in sorted(amounts.items())
            if amount
        ]
        changes += [
            Change(
                kind=Kind.MOVE,
                workload=self.pods[pod].name,
                source=self.devices[self.pods[pod].device].name,
                target=self.devices[target].name,
            )
            for pod, target in sorted(self.moved.items())
        ]
        changes += [
            Change(
                kind=Kind.PARK,
                workload=self.pods[pod].name,
                source=self.devices[self.pods[pod].device].name,
            )
            for pod in sorted(self.parked)
        ]
        places = [*self.forced, *self._free_places(rest)]
        named = tuple(tuple(self.devices[index].name for index in place) for place in places)
        return Plan(changes=tuple(changes), places=named, least=(len(changes), mib))

    def _free_places(self, rest: int) -> Iterator[tuple[int, ...]]:
        """Of those that need nobody touched: the devices of a node with the most room left, so that all find some."""
        room = {index: self.room[index] for node in self.nodes for index in node}
        order = sorted(self.nodes, key=lambda node: (sum(room[index] for index in node), node))
        for node in order:
            for _ in range(min(self._fit(node), rest)):
                if self.wanted.count == 1:
                    fitting = sorted((i for i in node if room[i] >= self.wanted.mib), key=lambda i: (room[i], i))
                else:
                    fitting = sorted(node, key=lambda i: (-(room[i] // self.wanted.mib), i))
                choice = tuple(sorted(fitting[: self.wanted.count]))
                for index in choice:
                    room[index] -= self.wanted.mib
                rest -= 1
                yield choice
