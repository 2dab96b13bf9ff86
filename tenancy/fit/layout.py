"""Defines the pods on devices, and the immutable states of the search that frees memory on the devices.

Units: whole MiB.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from tenancy.devices.placement import StepsLeft
from tenancy.devices.spread import most_pods
from tenancy.fit.smallest_change import Wanted


@dataclass(frozen=True, kw_only=True)
class DeviceRoom:
    """A device with its free memory.

    `room_mib` is the MiB that the pods on the device leave free. `room_mib` is negative if the pods hold more than the
    device offers. If `open` is False, no new pod may be placed on the device.
    """

    node: str
    name: str
    room_mib: int
    open: bool = True


@dataclass(frozen=True, kw_only=True)
class PlacedPod:
    """A pod that holds `mib` on the device with the index `device`.

    `seat` is the seat of the pod, or None if the budget may not be lowered. With `parks`, the pod belongs to the
    on-demand workload `name`. The search may stop an on-demand workload, which removes all its pods. The search may not
    move these pods. If `movable` and `parks` are both False, the pod must stay on its device.
    """

    name: str
    device: int
    mib: int
    seat: str | None = None
    movable: bool = True
    parks: bool = False

    @property
    def leaves(self) -> bool:
        """Returns True if the search may remove the pod from its device."""
        return self.movable or self.parks


@dataclass(frozen=True, kw_only=True)
class Budget:
    """A seat's budget in MiB, its lowest allowed budget, and the number of its replicas."""

    mib: int
    least_mib: int
    replicas: int = 1

    @property
    def gain_mib(self) -> int:
        """Returns by how many MiB the budget of the seat may be lowered."""
        return self.mib - self.least_mib


@dataclass(frozen=True, kw_only=True)
class Layout:
    """The pods that are on the devices now, and the wanted pods.

    Values that a search computes from these fields are computed only once. `work` is the number of steps that the
    search may still use.
    """

    devices: Sequence[DeviceRoom]
    pods: Sequence[PlacedPod]
    seats: Mapping[str, Budget]
    wanted: Wanted
    work: StepsLeft

    @cached_property
    def on(self) -> list[tuple[int, ...]]:
        """Returns the indexes of the pods on each device."""
        found: list[list[int]] = [[] for _ in self.devices]
        for index, pod in enumerate(self.pods):
            found[pod.device].append(index)
        return [tuple(pods) for pods in found]

    @cached_property
    def nodes(self) -> list[list[int]]:
        """Returns the indexes of the open devices of each node."""
        by_node: dict[str, list[int]] = defaultdict(list)
        for index, device in enumerate(self.devices):
            if device.open:
                by_node[device.node].append(index)
        return [*by_node.values()]

    @cached_property
    def node_of(self) -> dict[int, int]:
        return {index: number for number, node in enumerate(self.nodes) for index in node}

    @cached_property
    def of(self) -> dict[str, list[int]]:
        """Returns the indexes of the pods of each seat, and of the pods of each on-demand workload."""
        found: dict[str, list[int]] = defaultdict(list)
        for index, pod in enumerate(self.pods):
            found[_workload(pod)].append(index)
        return found

    @cached_property
    def workloads(self) -> int:
        """Returns the maximum number of workloads that a change can have."""
        changed = {_workload(pod) for pod, gain in zip(self.pods, self.gains, strict=True) if pod.parks or gain}
        return len(changed) + sum(pod.movable for pod in self.pods)

    @cached_property
    def spread(self) -> int:
        """Returns the largest number of pods on which one change frees memory."""
        return max([len(pods) for pods in self.of.values()], default=1)

    @cached_property
    def fits(self) -> list[int]:
        """Returns, for each node, the number of wanted pods that fit without a change."""
        return [State(self, 0).fit(node) for node in self.nodes]

    @cached_property
    def too_many(self) -> int:
        """Returns the number of wanted pods that fit only after a change.

        If this number is at most 0, all wanted pods fit now.
        """
        return self.wanted.replicas - sum(self.fits)

    @property
    def impossible(self) -> bool:
        """Returns True if the devices have too little memory even if all budgets are lowered and all on-demand
        workloads stop.
        """
        most = [device.room_mib for device in self.devices]
        for pod, gain in zip(self.pods, self.gains, strict=True):
            most[pod.device] += pod.mib if pod.parks else gain
        wanted = self.wanted
        return sum(max(most[index], 0) for index in self.node_of) < wanted.mib * wanted.count * wanted.replicas

    @cached_property
    def by_room(self) -> list[tuple[int, int]]:
        return sorted((self.devices[index].room_mib, index) for index in self.node_of)

    @cached_property
    def by_reach(self) -> list[tuple[int, int]]:
        """Returns the open devices, sorted by the free memory of each device after the best change of one workload."""
        return sorted((mib + max(self.touchable_on[index], default=0), index) for mib, index in self.by_room)

    @cached_property
    def gains(self) -> list[int]:
        """Returns, for each pod, the MiB that become free if the budget of its seat is lowered as far as allowed."""
        return [self.seats[pod.seat].gain_mib if pod.seat is not None else 0 for pod in self.pods]

    @cached_property
    def touchable_on(self) -> list[list[int]]:
        """Returns, for each device, the MiB that the change of each workload frees, with the largest values first."""
        return [self.touchable(pods) for pods in self.on]

    def touchable(self, pods: Iterable[int], moved: Collection[int] = ()) -> list[int]:
        """Returns the most MiB that the change of each workload can free, with the largest first.

        All `pods` are on one device. The pods in `moved` cannot move again.
        """
        found: dict[str, int] = defaultdict(int)
        alone = []
        for index in pods:
            pod = self.pods[index]
            if pod.parks:
                found[_workload(pod)] += pod.mib
            else:
                found[_workload(pod)] += self.gains[index]
                if pod.movable and index not in moved:
                    alone.append(pod.mib)
        return sorted([*alone, *filter(None, found.values())], reverse=True)


def _workload(pod: PlacedPod) -> str:
    """Returns a key. Two pods have the same key if one change frees the memory of both pods."""
    return f"on demand {pod.name}" if pod.parks else f"seat {pod.seat}" if pod.seat is not None else pod.name


class State(NamedTuple):
    """A node of the search tree. `left` is the number of workloads that the search may still change.

    `room` has the free MiB of each device with a change, and `pods` has the pods of each device with a change. `forced`
    has the devices of each new pod that is already placed. Other pods on the devices in `forced` may still have to
    release memory. `received` has the devices with a new or a moved pod. Only these devices must have enough memory.
    `puts` is the number of steps in which new pods were placed. `moved` has the new device of each moved pod, or None
    for a pod that is stopped. `settled` has the devices on which the missing memory must come from lower budgets, or
    None while new pods are placed.
    """

    layout: Layout
    left: int
    room: Mapping[int, int] = {}
    forced: tuple[tuple[int, ...], ...] = ()
    received: frozenset[int] = frozenset()
    puts: int = 0
    moved: Mapping[int, int | None] = {}
    pods: Mapping[int, tuple[int, ...]] = {}
    lowered: frozenset[str] = frozenset()
    settled: frozenset[int] | None = None

    def room_on(self, device: int) -> int:
        found = self.room.get(device)
        return self.layout.devices[device].room_mib if found is None else found

    def on(self, device: int) -> tuple[int, ...]:
        """Returns the indexes of the pods that are on the device in this state."""
        return self.pods.get(device, self.layout.on[device])

    def put(self, choice: tuple[int, ...], times: int) -> "State":
        """Places `times` new pods on these devices."""
        mib = self.layout.wanted.mib * times
        room = {**self.room, **{device: self.room_on(device) - mib for device in choice}}
        forced, received = (*self.forced, *[choice] * times), self.received.union(choice)
        return self._replace(room=room, forced=forced, received=received, puts=self.puts + 1)

    def remove(self, pod: int) -> "State":
        """Removes a pod from its device, or all pods of an on-demand workload. The removal counts as the change of one
        workload.
        """
        found, room, pods, moved = self.layout.pods[pod], {**self.room}, {**self.pods}, {**self.moved}
        for index in self.layout.of[_workload(found)] if found.parks else [pod]:
            device = self.layout.pods[index].device
            room[device] = room.get(device, self.layout.devices[device].room_mib) + self.layout.pods[index].mib
            pods[device] = tuple(other for other in pods.get(device, self.layout.on[device]) if other != index)
            moved[index] = None
        return self._replace(left=self.left - 1, room=room, pods=pods, moved=moved)

    def move(self, pod: int, target: int) -> "State":
        """Places a removed pod on the device `target`. The pods on `target` may then hold more memory than the device
        offers.
        """
        room = {**self.room, target: self.room_on(target) - self.layout.pods[pod].mib}
        settled = (self.settled or frozenset()) - {target}
        pods = {**self.pods, target: (*self.on(target), pod)}
        moved, received = {**self.moved, pod: target}, self.received | {target}
        return self._replace(room=room, pods=pods, moved=moved, received=received, settled=settled)

    def lower(self, seat: str) -> "State":
        """Marks the budget of a seat as lowered. The MiB of the change are computed at the end of the search."""
        return self._replace(left=self.left - 1, lowered=self.lowered | {seat})

    def settle(self, *devices: int) -> "State":
        """Stops the search from placing more new pods.

        After this call, the memory that `devices` need must come from lower budgets.
        """
        return self._replace(settled=(self.settled or frozenset()).union(devices))

    @property
    def full(self) -> list[int]:
        """Returns the devices on which pods hold more memory than the device offers, without the devices in
        `settled`."""
        settled = self.settled or frozenset()
        return sorted(device for device in self.received - settled if self.room[device] < 0)

    def needs(self, device: int, mib: int = 0) -> int:
        """Returns the minimum number of workloads that must change so that `mib` more MiB of the device are free."""
        short = mib - self.room_on(device)
        if short <= 0:
            return 0
        layout, pods = self.layout, self.on(device)
        layout.work.take(1 + (len(pods) if self.lowered or device in self.pods else 0))
        if self.lowered:
            short -= sum([layout.gains[pod] for pod in pods if layout.pods[pod].seat in self.lowered])
            if short <= 0:
                return 0
        gains = layout.touchable(pods, self.moved) if device in self.pods else layout.touchable_on[device]
        for count, gain in enumerate(gains, 1):
            short -= gain
            if short <= 0:
                return count
        return len(layout.pods) + len(layout.seats) + 1

    def bound(self) -> int:
        """Returns a lower bound for the number of workloads that must still change.

        The lower bound takes into account that one change can free memory on several devices.
        """
        needs = [self.needs(device) for device in self.received]
        return max(max(needs, default=0), -(-sum(needs) // self.layout.spread))

    def free_for(self, device: int) -> int:
        """Returns the number of new pods, with one device each, that fit the device."""
        return max(self.room_on(device), 0) // self.layout.wanted.mib

    def fit(self, node: Iterable[int]) -> int:
        """Returns the number of new pods that fit a node."""
        wanted = self.layout.wanted
        each = [max(self.room_on(index), 0) // wanted.mib for index in node]
        if wanted.count == 1:
            return sum(each)
        return most_pods(each, wanted.count)

    def free_places(self, count: int) -> Iterator[tuple[int, ...]]:
        """Yields the devices of each new pod that fits without a further change.

        A pod with several devices gets those devices of a node that have the most free memory. The choice leaves enough
        devices for the next pods.
        """
        wanted = self.layout.wanted
        room = {index: self.room_on(index) for index in self.layout.node_of}
        for node in sorted(self.layout.nodes, key=lambda node: (sum(room[index] for index in node), node)):
            for _ in range(min(self.fit(node), count)):
                if wanted.count == 1:
                    fitting = sorted((i for i in node if room[i] >= wanted.mib), key=lambda i: (room[i], i))
                else:
                    fitting = sorted(node, key=lambda i: (-(room[i] // wanted.mib), i))
                choice = tuple(sorted(fitting[: wanted.count]))
                for index in choice:
                    room[index] -= wanted.mib
                count -= 1
                yield choice
