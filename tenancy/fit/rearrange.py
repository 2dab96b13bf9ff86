"""Finds the minimum number of pods on devices to change so that new pods fit.

The result is exact, unless the search runs out of steps. The search first tries changes of one workload, then of two
workloads, and so on. Each search places new pods on full devices. After placing new pods, the search changes workloads
until the pods fit on every device. A change lowers a budget, moves a pod or stops an on-demand workload. The search
only counts new pods that fit without a change, and chooses no devices for these pods. Units: whole MiB.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import combinations, islice
from math import ceil

from tenancy.devices.placement import OutOfStepsError, StepsLeft
from tenancy.fit.amounts import Lowerable, cheapest_reductions
from tenancy.fit.layout import Budget, DeviceRoom, Layout, PlacedPod, State
from tenancy.fit.smallest_change import WORK, Change, Kind, SmallestChange, Wanted

_NARROW = 3  # the maximum number of choices at each step of a narrow search
_DEEPER = 6
_DEEPEST = 100  # the maximum number of changed workloads, and of steps that place new pods


def rearrange(
    devices: Sequence[DeviceRoom],
    pods: Sequence[PlacedPod],
    seats: Mapping[str, Budget],
    wanted: Wanted,
    work: int = WORK,
) -> SmallestChange:
    """Returns the smallest change after which the wanted pods fit."""
    steps = StepsLeft(work)
    layout = Layout(devices=devices, pods=pods, seats=seats, wanted=wanted, work=steps)
    if layout.impossible:
        return SmallestChange(changes=None)
    touched = int(layout.too_many > 0)
    best: SmallestChange | None = None
    try:
        for touched in range(_fewest(layout), min(layout.workloads, _DEEPEST) + 1):
            search = _Search(layout, touched, steps)
            try:
                search.run()
            finally:
                best = search.best
            if best is not None:
                return best
    except OutOfStepsError:
        found = best or _narrow(layout, touched, work)
        changes, places = (found.changes, found.places) if found else (None, ())
        return SmallestChange(changes=changes, places=places, proven=False, least=(touched, 0))
    return SmallestChange(changes=None, proven=layout.workloads <= _DEEPEST)


def _narrow(layout: Layout, fewest: int, work: int) -> SmallestChange | None:
    for more in range(_DEEPER):
        layout.work.left = work // _DEEPER
        search = _Search(layout, fewest + 2**more - 1, layout.work, width=_NARROW)
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
        self.repaired: set[tuple[object, ...]] = set()
        self.best: SmallestChange | None = None
        self.mib: int | None = None

    def run(self) -> None:
        """Runs the search until it ends or has used all its steps.

        Raises OutOfStepsError; `best` is the best change that the search has found so far.
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
        """Yields the next states of the search. In each next state except one, one more new pod is placed. In this
        exception, no more new pods are placed.
        """
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
            # after a new pod is placed, its memory is no longer free for moved pods
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

        All devices of one choice are on one node. Other pods may first have to free memory on the chosen devices. The
        choice for which the fewest pods must change comes first.
        """
        found, wanted = [], self.layout.wanted
        by_count = full and wanted.count == 1
        for node in self.layout.nodes:
            self.work.take(4 * len(node))
            times = {index: 1 + (state.free_for(index) if by_count else 0) for index in node}
            cost = {index: state.needs(index, wanted.mib * times[index]) for index in node}
            near = [index for index in node if cost[index] <= state.left]
            if self.width is not None:
                near = sorted(near, key=lambda index: (cost[index], -state.room_on(index)))[: wanted.count]
            for choice in combinations(near, wanted.count):
                self.work.take(3 + wanted.count)
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
        key = (state.forced, frozenset(state.moved.items()), state.lowered, state.settled)
        if key in self.repaired or state.bound() > state.left:
            return
        self.repaired.add(key)
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

    def _targets(self, state: State, pod: int) -> list[int]:
        """Returns the devices to which a removed pod may move.

        The devices with enough free memory come first, and the fullest of them is the very first. The devices on which
        another change is necessary come last.
        """
        layout, found = self.layout, self.layout.pods[pod]
        gain = layout.gains[pod] if found.seat in state.lowered else 0
        ways = []
        for index in self._near(state, pod):
            room = state.room_on(index)
            needs = 0 if room + gain >= found.mib else state.move(pod, index).needs(index)
            if index != found.device and needs <= state.left:
                ways.append((needs, room if room >= found.mib else found.mib - room + 2**40, index))
        targets = [index for *_, index in sorted(ways)]
        is_last = len(state.forced) == layout.wanted.replicas and not state.full
        return targets[:1] if is_last and targets and state.room_on(targets[0]) >= found.mib else targets

    def _near(self, state: State, pod: int) -> Iterable[int]:
        """Returns the devices to which a pod may move. The result leaves out devices on which too much memory is
        missing.
        """
        layout, found = self.layout, self.layout.pods[pod]
        if state.left > 1 and self.width is None:
            self.work.take(4 * len(layout.node_of))
            return layout.node_of
        lowered = [layout.pods[other].device for seat in state.lowered for other in layout.of[f"seat {seat}"]]
        near = {index: None for index in [*state.room, *lowered] if index in layout.node_of}
        several, alike = layout.wanted.count > 1, set()
        least = found.mib - (layout.gains[pod] if found.seat in state.lowered else 0)
        start = bisect_left(layout.by_room, (least,))
        for room, index in islice(layout.by_room, start, self.width and start + 10 * self.width):
            # if no further change is allowed, only the free memory of each further device matters
            key = room, layout.node_of[index] if several else 0
            if index not in near and (state.left or key not in alike):
                near[index] = None
                alike.add(key)
            self.work.take(1)
        if state.left:
            start = bisect_left(layout.by_reach, (found.mib - layout.gains[pod],))
            reached = islice(layout.by_reach, start, self.width and start + 10 * self.width)
            near.update((index, None) for _, index in reached)
        self.work.take(4 * len(near))
        return near

    def _judge(self, state: State) -> None:
        layout = self.layout
        rest = layout.wanted.replicas - len(state.forced)
        if rest:
            changed = {layout.node_of[device] for device in state.room if device in layout.node_of}
            self.work.take(len(changed) + 1)
            if sum(state.fit(layout.nodes[node]) - layout.fits[node] for node in changed) + sum(layout.fits) < rest:
                return
        needs = {device: -state.room[device] for device in state.received if state.room[device] < 0}
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
    removed = [
        Change(
            kind=Kind.MOVE, workload=pods[pod].name, source=devices[pods[pod].device].name, target=devices[target].name
        )
        for pod, target in sorted(state.moved.items())
        if target is not None
    ]
    parked: dict[str, list[str]] = {}
    for pod in sorted(pod for pod, target in state.moved.items() if target is None):
        parked.setdefault(pods[pod].name, []).append(devices[pods[pod].device].name)
    removed += [
        Change(kind=Kind.PARK, workload=name, source=" and ".join(dict.fromkeys(on))) for name, on in parked.items()
    ]
    places = [*state.forced, *state.free_places(rest)]
    named = tuple(tuple(devices[index].name for index in place) for place in places)
    changes = (*lowered, *removed)
    return SmallestChange(changes=changes, places=named, least=(len(changes), mib))
