"""Defines the pods on devices, and the immutable states of a search for free memory on these devices.

Units: whole MiB.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

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

    `seat` is the seat of the pod. `seat` is None if the budget may not be lowered. With `parks`, the pod belongs to an
    on-demand workload. The search may stop an on-demand workload, but not move its pod. If `movable` and `parks` are
    both False, the pod must stay on its device.
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
    """A seat's budget in MiB, the lowest allowed budget, and the number of replicas."""

    mib: int
    least_mib: int
    replicas: int = 1

    @property
    def gain_mib(self) -> int:
        """Returns the MiB by which the budget may be lowered at most."""
        return self.mib - self.least_mib


@dataclass(frozen=True, kw_only=True)
class Layout:
    """The current pods on the devices, and the wanted pods.

    Values that a search derives from these fields are computed only once.
    """

    devices: Sequence[DeviceRoom]
    pods: Sequence[PlacedPod]
    seats: Mapping[str, Budget]
    wanted: Wanted

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
    def spread(self) -> int:
        """Returns the largest number of pods that a seat has.

        Lowering one seat frees memory on at most this many devices.
        """
        return max(Counter(pod.seat for pod in self.pods if pod.seat).values(), default=1)

    @cached_property
    def fits(self) -> list[int]:
        """Returns, for each node, the number of wanted pods that fit without a change."""
        return [State(self, 0).fit(node) for node in self.nodes]

    @cached_property
    def too_many(self) -> int:
        """Returns the number of wanted pods that fit only after a change.

        A number of 0 or less means that all wanted pods fit now.
        """
        return self.wanted.replicas - sum(self.fits)

    @cached_property
    def by_room(self) -> list[tuple[int, int]]:
        return sorted((self.devices[index].room_mib, index) for index in self.node_of)

    @cached_property
    def by_move(self) -> list[tuple[int, int, int]]:
        """Returns one entry for each pod that may leave its device.

        An entry has the device's free MiB after the pod has left, the device's index, and the MiB of the pod on its new
        device.
        """
        return sorted(
            (self.devices[pod.device].room_mib + pod.mib, pod.device, 0 if pod.parks else pod.mib)
            for pod in self.pods
            if pod.device in self.node_of and pod.leaves
        )

    @cached_property
    def gain_on(self) -> dict[int, int]:
        """Returns, for each device, the MiB that become free if all seats with pods on this device are lowered as far
        as allowed.
        """
        return {index: sum(self.gains[pod] for pod in self.on[index]) for index in self.node_of}

    @cached_property
    def gains(self) -> list[int]:
        """Returns, for each pod, the MiB that become free if the budget of its seat is lowered as far as allowed."""
        return [self.seats[pod.seat].gain_mib if pod.seat is not None else 0 for pod in self.pods]

    @cached_property
    def touchable_mib(self) -> list[int]:
        """Returns the maximum number of MiB that a change of each pod can free.

        The number is 0 for a pod that cannot change.
        """
        return [pod.mib if pod.leaves or pod.seat is not None else 0 for pod in self.pods]

    @cached_property
    def touchable_on(self) -> list[list[int]]:
        """Returns `touchable_mib` for each device, with the largest values first."""
        return [sorted((self.touchable_mib[pod] for pod in pods), reverse=True) for pods in self.on]


class State(NamedTuple):
    """A node of the search tree. `left` is the number of workloads that the search may still change.

    `room` has the free MiB of each device with a change, and `pods` has the pods of each device with a change. `forced`
    has the devices of each new pod that is already placed. Other pods on these devices may have to free memory. `puts`
    is the number of steps in which new pods were placed. `moved` has the new device of each moved pod, or None for a
    pod that is stopped. `settled` has the devices on which lower budgets must free the missing memory. `settled` is
    None while the search still places new pods.
    """

    layout: Layout
    left: int
    room: Mapping[int, int] = {}
    forced: tuple[tuple[int, ...], ...] = ()
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
        return self._replace(room=room, forced=(*self.forced, *[choice] * times), puts=self.puts + 1)

    def remove(self, pod: int) -> "State":
        """Removes a pod from its device. The removal counts as the change of one workload."""
        found = self.layout.pods[pod]
        room = {**self.room, found.device: self.room_on(found.device) + found.mib}
        pods = {**self.pods, found.device: tuple(other for other in self.on(found.device) if other != pod)}
        return self._replace(left=self.left - 1, room=room, pods=pods, moved={**self.moved, pod: None})

    def move(self, pod: int, target: int) -> "State":
        """Places a removed pod on the device `target`. The pods on this device may then hold more memory than it
        offers."""
        room = {**self.room, target: self.room_on(target) - self.layout.pods[pod].mib}
        settled = (self.settled or frozenset()) - {target}
        pods = {**self.pods, target: (*self.on(target), pod)}
        return self._replace(room=room, pods=pods, moved={**self.moved, pod: target}, settled=settled)

    def lower(self, seat: str) -> "State":
        """Marks the budget of a seat as lowered. The MiB of the change are computed at the end of the search."""
        return self._replace(left=self.left - 1, lowered=self.lowered | {seat})

    def settle(self, *devices: int) -> "State":
        """Stops the search from placing more new pods.

        After this, only lower budgets may free the memory that these devices lack.
        """
        return self._replace(settled=(self.settled or frozenset()).union(devices))

    @property
    def full(self) -> list[int]:
        """Returns the devices on which pods hold more memory than the device offers, without the devices in
        `settled`."""
        settled = self.settled or frozenset()
        return sorted(device for device, room in self.room.items() if room < 0 and device not in settled)

    def needs(self, device: int, mib: int = 0) -> int:
        """Returns the minimum number of pods that must change so that the device has `mib` more free."""
        short = mib - self.room_on(device)
        if short <= 0:
            return 0
        layout, pods = self.layout, self.on(device)
        if self.lowered:
            short -= sum([layout.gains[pod] for pod in pods if layout.pods[pod].seat in self.lowered])
            if short <= 0:
                return 0
        if device in self.pods:
            gains = sorted([layout.touchable_mib[pod] for pod in pods], reverse=True)
        else:
            gains = layout.touchable_on[device]
        for count, gain in enumerate(gains, 1):
            short -= gain
            if short <= 0:
                return count
        return len(layout.pods) + 1

    def bound(self) -> int:
        """Returns a lower bound for the number of workloads that must still change.

        The bound takes into account that a lower budget of one seat may free memory on several devices.
        """
        needs = [self.needs(device) for device in self.room]
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

        A pod with several devices gets the devices of a node with the most free memory. So each later pod still finds
        enough devices.
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
