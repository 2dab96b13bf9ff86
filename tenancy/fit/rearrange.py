"""Finds the minimum number of pods on devices to change so that new pods fit.

The result is exact unless the search runs out of steps. The search first tries changes of one workload, then of two
workloads, and so on. Each search places new pods on full devices. Then the search lowers budgets, moves pods or stops
on-demand workloads until the pods fit on every device. New pods that fit without a change are only counted, and get no
device. Units: whole MiB.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import combinations, islice
from math import ceil

from tenancy.devices.placement import OutOfStepsError, StepsLeft
from tenancy.fit.amounts import Lowerable, cheapest_reductions
from tenancy.fit.layout import Budget, DeviceRoom, Layout, PlacedPod, State
from tenancy.fit.smallest_change import WORK, Change, Kind, SmallestChange, Wanted

_NARROW = 3  # the maximum number of choices at each step of a narrow search
_NARROW_WORK = 200_000
_DEEPER = 12
_DEEPEST = 100  # the maximum number of changed workloads, and of steps that place new pods


def rearrange(
    devices: Sequence[DeviceRoom], pods: Sequence[PlacedPod], seats: dict[str, Budget], wanted: Wanted, work: int = WORK
) -> SmallestChange | None:
    """Returns the smallest change after which the wanted pods fit, or None if the search found none."""
    layout, steps = Layout(devices=devices, pods=pods, seats=seats, wanted=wanted), StepsLeft(work)
    for touched in range(_fewest(layout), min(len(pods) + len(seats), _DEEPEST) + 1):
        search = _Search(layout, touched, steps)
        try:
            search.run()
        except OutOfStepsError:
            found = search.best or _narrow(layout, touched)
            return found and SmallestChange(
                changes=found.changes, places=found.places, proven=False, least=(touched, 0)
            )
        if search.best is not None:
            return search.best
    return None


def _narrow(layout: Layout, fewest: int) -> SmallestChange | None:
    """Returns the first change that is found by trying only a few choices at each step."""
    for touched in range(fewest, fewest + _DEEPER):
        search = _Search(layout, touched, StepsLeft(_NARROW_WORK), width=_NARROW)
        with suppress(OutOfStepsError):
            search.run()
        if search.best is not None:
            return search.best
    return None


def _fewest(layout: Layout) -> int:
    """Returns a lower bound for the number of workloads that must change, without a search."""
    wanted, now = layout.wanted, State(layout, 0)
    if layout.too_many <= 0 or wanted.count > 1:
        return int(layout.too_many > 0)
    ratio = 1.0 * len(layout.pods)
    for index in layout.node_of:
        free = now.free_for(index)
        for more in range(1, wanted.replicas + 1):
            needs = now.needs(index, (free + more) * wanted.mib)
            if needs > len(layout.pods):
                break
            ratio = min(ratio, needs / more)
    return max(1, ceil(layout.too_many * ratio / layout.spread - 1e-9))


class _Search:
    """Searches depth-first for the cheapest change of at most `touched` workloads.

    With `width`, the search tries at most `width` choices at each step and ends with the first change that it finds.
    """

    def __init__(self, layout: Layout, touched: int, work: StepsLeft, width: int | None = None) -> None:
        self.layout, self.most, self.work, self.width = layout, touched, work, width
        self.seen: set[tuple[tuple[int, ...], ...]] = set()
        self.best: SmallestChange | None = None
        self.mib: int | None = None

    def run(self) -> None:
        """Runs the search until it ends or has used all its steps.

        Raises OutOfStepsError; `best` is then the best change so far.
        """
        turns = [iter((State(self.layout, self.most),))]
        while turns:
            state = next(turns[-1], None)
            if state is None:
                turns.pop()
            else:
                turns.append(self._put_new(state) if state.settled is None else self._repair(state))
            if self.mib == 0 or (self.width is not None and self.best is not None):
                return  # a change that only moves pods costs 0 MiB, so no other change is cheaper

    def _put_new(self, state: State) -> Iterator[State]:
        """Yields the states in which one more new pod is placed, and the state in which no more new pods are placed."""
        wanted = self.layout.wanted
        more = len(state.forced) < wanted.replicas and state.left > 0
        enough = state.puts >= self.layout.too_many
        if enough:
            yield state.settle()
        if more:
            yield from self._put_one_more(state, full=True)
        if not enough:
            yield state.settle()
        if more and (self.most > 1 or wanted.replicas > 1):
            # a new pod that fits now may use free memory that a moved pod could have used
            yield from self._put_one_more(state, full=False)

    def _put_one_more(self, state: State, *, full: bool) -> Iterator[State]:
        if state.puts == _DEEPEST:
            raise OutOfStepsError
        by_count = full and self.layout.wanted.count == 1
        for choice in islice(self._ways(state, full=full), self.width):
            after = state.put(choice, 1 + (state.free_for(choice[0]) if by_count else 0))
            key = tuple(sorted(after.forced))
            if len(key) > self.layout.wanted.replicas or key in self.seen:
                continue
            self.seen.add(key)
            if after.bound() <= after.left:
                yield after

    def _ways(self, state: State, *, full: bool) -> Iterator[tuple[int, ...]]:
        """Yields the possible devices for a new pod.

        All devices of one choice are on one node. Other pods may first have to free memory on these devices. The choice
        for which the fewest pods must change comes first.
        """
        found, wanted = [], self.layout.wanted
        by_count = full and wanted.count == 1
        for node in self.layout.nodes:
            self.work.take(4 * len(node))
            times = {index: 1 + (state.free_for(index) if by_count else 0) for index in node}
            cost = {index: state.needs(index, wanted.mib * times[index]) for index in node}
            near = [index for index in node if cost[index] <= state.left]
            for choice in combinations(near, wanted.count):
                needs = sum(cost[index] for index in choice)
                if (needs > 0) is full and needs <= state.left * self.layout.spread:
                    short = sum(wanted.mib - state.room_on(index) % wanted.mib for index in choice)
                    found.append((needs, short, choice))
        return (choice for *_, choice in sorted(found))

    def _repair(self, state: State) -> Iterator[State]:
        """Yields the ways to free memory on the first device on which pods hold more than the device offers.

        Either lower budgets free the memory later, or one pod on the device changes.
        """
        self.work.take(10 + 10 * len(state.room))
        if state.bound() > state.left:
            return
        full = next(iter(state.full), None)
        if full is None:
            self._judge(state)
            return
        if not state.needs(full):
            yield state.settle(full)
        if state.left:
            pods = self.layout.pods
            for pod in sorted(state.on(full), key=lambda pod: (-pods[pod].mib, pods[pod].name)):
                yield from self._touch(state, pod)

    def _touch(self, state: State, pod: int) -> Iterator[State]:
        """Yields the states in which this pod has freed memory on its device."""
        found = self.layout.pods[pod]
        if found.leaves and pod not in state.moved:
            removed = state.remove(pod)
            if found.parks:
                yield removed
            else:
                for target in islice(self._targets(removed, pod), self.width):
                    yield removed.move(pod, target)
        if found.seat is not None and found.seat not in state.lowered and self.layout.gains[pod] > 0:
            yield state.lower(found.seat)

    def _targets(self, state: State, pod: int) -> Iterator[int]:
        """Yields the devices to which a removed pod may move.

        The devices with enough free memory come first, and the fullest of these is the very first. The devices on which
        another change is needed come last.
        """
        found, most = self.layout.pods[pod], self.layout.gains[pod]
        mib, is_lowered = found.mib, found.seat in state.lowered
        gain = most if is_lowered else 0
        ways = []
        for index in self._near(state, mib, gain, most):
            room = state.room_on(index)
            if index == found.device or (room + gain < mib and not state.left):
                continue
            needs = 0 if room + gain >= mib else state.needs(index, mib - gain)
            if needs > 1 and not is_lowered and most:  # lowering the seat of this pod can free memory too
                needs = min(needs, 1 + state.needs(index, mib - most))
            if needs <= state.left:
                ways.append((needs, room if room >= mib else mib - room + 2**40, index))
        self.work.take(len(ways) + 10)
        ways.sort()
        targets = [index for *_, index in ways]
        if ways and ways[0][0] == 0 and state.room_on(targets[0]) >= mib and not state.full:
            if len(state.forced) == self.layout.wanted.replicas:
                return iter(targets[:1])
            if not state.left:  # no further change is allowed, so only the free memory of each device matters
                return iter(self._unlike(state, targets))
        return iter(targets)

    def _unlike(self, state: State, devices: Iterable[int]) -> Iterable[int]:
        """Returns one device of each group of devices with equal free memory.

        If the wanted pods need several devices, a group has only devices of one node.
        """
        several = self.layout.wanted.count > 1
        first: dict[tuple[int, int], int] = {}
        for index in devices:
            first.setdefault((state.room_on(index), self.layout.node_of[index] if several else 0), index)
        return first.values()

    def _near(self, state: State, mib: int, gain: int, most: int) -> Iterable[int]:
        """Returns the devices to which a pod may move. Devices that cannot lead to a better result are left out."""
        layout = self.layout
        if state.left > 1 or (state.left and most):
            self.work.take(2 * len(layout.devices))
            return layout.node_of
        near = {index for index in state.room if index in layout.node_of}
        near.update(index for _, index in layout.by_room[bisect_left(layout.by_room, (mib - gain,)) :])
        if state.left:
            most_room = max([room for room, _ in layout.by_room[-1:]] + [*state.room.values()])
            movable = layout.by_move[bisect_left(layout.by_move, (mib - gain,)) :]
            near.update(index for _, index, moved_mib in movable if moved_mib <= most_room)
            for room, index in reversed(layout.by_room):
                short = mib - gain - room
                if self.mib is not None and short >= self.mib:
                    break
                if layout.gain_on[index] >= short:
                    near.add(index)
        self.work.take(len(near))
        return near

    def _judge(self, state: State) -> None:
        """Remembers the state as the best change, if the remaining new pods fit and no earlier change has the same or a
        lower cost."""
        layout = self.layout
        rest = layout.wanted.replicas - len(state.forced)
        if rest:
            changed = {layout.node_of[device] for device in state.room if device in layout.node_of}
            self.work.take(len(changed) + 1)
            if sum(state.fit(layout.nodes[node]) - layout.fits[node] for node in changed) + sum(layout.fits) < rest:
                return
        needs = {device: -room for device, room in state.room.items() if room < 0}
        amounts: dict[str, int] = {}
        if needs:
            amounts = cheapest_reductions(needs, _lowerable(state), self.work, self.mib)
            if not amounts:
                return
        mib = sum(layout.seats[name].replicas * amount for name, amount in amounts.items())
        if self.mib is None or mib < self.mib:
            self.mib, self.best = mib, _smallest_change(state, amounts, rest, mib)


def _lowerable(state: State) -> dict[str, Lowerable]:
    seats, pods = state.layout.seats, state.layout.pods
    on: dict[str, Counter[int]] = {name: Counter() for name in state.lowered}
    for device in state.room:
        on_device = Counter(pods[pod].seat for pod in state.on(device))
        for name in state.lowered & on_device.keys():
            on[name][device] = on_device[name]
    return {
        name: Lowerable(most_mib=seats[name].gain_mib, price=seats[name].replicas, pods=devices)
        for name, devices in on.items()
    }


def _smallest_change(state: State, amounts: dict[str, int], rest: int, mib: int) -> SmallestChange:
    devices, pods, seats = state.layout.devices, state.layout.pods, state.layout.seats
    lowered = [
        Change(
            kind=Kind.LOWER,
            workload=name,
            from_mib=seats[name].mib,
            to_mib=seats[name].mib - amount,
            replicas=seats[name].replicas,
        )
        for name, amount in sorted(amounts.items())
        if amount
    ]
    left = sorted((target is None, pod, target) for pod, target in state.moved.items())
    removed = [
        Change(
            kind=Kind.MOVE if target is not None else Kind.PARK,
            workload=pods[pod].name,
            source=devices[pods[pod].device].name,
            target=devices[target].name if target is not None else None,
        )
        for _, pod, target in left
    ]
    places = [*state.forced, *state.free_places(rest)]
    named = tuple(tuple(devices[index].name for index in place) for place in places)
    changes = (*lowered, *removed)
    return SmallestChange(changes=changes, places=named, least=(len(changes), mib))
