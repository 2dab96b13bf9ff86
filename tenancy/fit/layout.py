"""Defines pods on devices, and the immutable states of a search for free memory there. Units: whole MiB."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from tenancy.devices.spread import most_pods
from tenancy.fit.smallest_change import Wanted


@dataclass(frozen=True, kw_only=True)
class DeviceRoom:
    """A device. `room_mib` is what its pods leave free, below 0 if it holds too much.

    Only an `open` device takes new pods.
    """

    node: str
    name: str
    room_mib: int
    open: bool = True


@dataclass(frozen=True, kw_only=True)
class PlacedPod:
    """A pod with `mib` on the device of that index. `seat` is the seat that may be lowered, or None.

    A pod that `parks` is an on-demand workload, which is parked and not moved. Any other pod that is not movable stays.
    """

    name: str
    device: int
    mib: int
    seat: str | None = None
    movable: bool = True
    parks: bool = False

    @property
    def leaves(self) -> bool:
        """Returns True if the pod can leave its device."""
        return self.movable or self.parks


@dataclass(frozen=True, kw_only=True)
class Budget:
    """The MiB of a seat, the least MiB to which it may be lowered, and its replicas."""

    mib: int
    least_mib: int
    replicas: int = 1

    @property
    def gain_mib(self) -> int:
        """Returns the most MiB by which the seat may be lowered."""
        return self.mib - self.least_mib


@dataclass(frozen=True, kw_only=True)
class Layout:
    """The pods as they are, and the wanted pods. Everything that a search derives from these is computed once."""

    devices: Sequence[DeviceRoom]
    pods: Sequence[PlacedPod]
    seats: Mapping[str, Budget]
    wanted: Wanted

    @cached_property
    def on(self) -> list[tuple[int, ...]]:
        """Returns the pods of each device."""
        found: list[list[int]] = [[] for _ in self.devices]
        for index, pod in enumerate(self.pods):
            found[pod.device].append(index)
        return [tuple(pods) for pods in found]

    @cached_property
    def nodes(self) -> list[list[int]]:
        """Returns the open devices of each node."""
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
        """Returns the most pods of one seat: lowering the seat may help this many devices."""
        return max(Counter(pod.seat for pod in self.pods if pod.seat).values(), default=1)

    @cached_property
    def fits(self) -> list[int]:
        """Returns the number of wanted pods that fit each node."""
        return [State(self, 0).fit(node) for node in self.nodes]

    @cached_property
    def too_many(self) -> int:
        """Returns the number of wanted pods that need a change to fit; 0 or less if all fit now."""
        return self.wanted.replicas - sum(self.fits)

    @cached_property
    def by_room(self) -> list[tuple[int, int]]:
        return sorted((self.devices[index].room_mib, index) for index in self.node_of)

    @cached_property
    def by_move(self) -> list[tuple[int, int, int]]:
        """Returns the free MiB of a device after one of its pods has left, the device, and the MiB that go
        elsewhere.
        """
        return sorted(
            (self.devices[pod.device].room_mib + pod.mib, pod.device, 0 if pod.parks else pod.mib)
            for pod in self.pods
            if pod.device in self.node_of and pod.leaves
        )

    @cached_property
    def gain_on(self) -> dict[int, int]:
        """Returns the MiB by which the pods of a device may be lowered together."""
        return {index: sum(self.gains[pod] for pod in self.on[index]) for index in self.node_of}

    @cached_property
    def gains(self) -> list[int]:
        """Returns the MiB that each pod gives up if its seat is lowered as far as possible."""
        return [self.seats[pod.seat].gain_mib if pod.seat is not None else 0 for pod in self.pods]

    @cached_property
    def touchable_mib(self) -> list[int]:
        """Returns the MiB of each pod that may be touched, and 0 for the others."""
        return [pod.mib if pod.leaves or pod.seat is not None else 0 for pod in self.pods]

    @cached_property
    def touchable_on(self) -> list[list[int]]:
        """Returns `touchable_mib` by device, the largest first."""
        return [sorted((self.touchable_mib[pod] for pod in pods), reverse=True) for pods in self.on]


class State(NamedTuple):
    """A node of the search. `left` workloads may still be touched.

    `room` has the devices with changed free memory, `pods` the devices with changed pods. `forced` are the devices
    where new pods were put and others must give way, in `puts` placements. `moved` has the new device of a moved pod,
    or None for a parked pod. `settled` are the devices that lowered seats must relieve. It is None while more new pods
    may be put.
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
        """Returns the pods of the device."""
        return self.pods.get(device, self.layout.on[device])

    def put(self, choice: tuple[int, ...], times: int) -> "State":
        """Puts more of the new pods on these devices."""
        mib = self.layout.wanted.mib * times
        room = {**self.room, **{device: self.room_on(device) - mib for device in choice}}
        return self._replace(room=room, forced=(*self.forced, *[choice] * times), puts=self.puts + 1)

    def remove(self, pod: int) -> "State":
        """Touches one pod: the pod has left its device."""
        found = self.layout.pods[pod]
        room = {**self.room, found.device: self.room_on(found.device) + found.mib}
        pods = {**self.pods, found.device: tuple(other for other in self.on(found.device) if other != pod)}
        return self._replace(left=self.left - 1, room=room, pods=pods, moved={**self.moved, pod: None})

    def move(self, pod: int, target: int) -> "State":
        """Puts a removed pod on the target, which may then hold too much."""
        room = {**self.room, target: self.room_on(target) - self.layout.pods[pod].mib}
        settled = (self.settled or frozenset()) - {target}
        pods = {**self.pods, target: (*self.on(target), pod)}
        return self._replace(room=room, pods=pods, moved={**self.moved, pod: target}, settled=settled)

    def lower(self, seat: str) -> "State":
        """Touches one seat by lowering it. The end of the search finds by how much."""
        return self._replace(left=self.left - 1, lowered=self.lowered | {seat})

    def settle(self, *devices: int) -> "State":
        """Ends the placement of new pods. From now on the lowered seats relieve the devices."""
        return self._replace(settled=(self.settled or frozenset()).union(devices))

    @property
    def full(self) -> list[int]:
        """Returns the devices that hold too much and are not settled."""
        settled = self.settled or frozenset()
        return sorted(device for device, room in self.room.items() if room < 0 and device not in settled)

    def needs(self, device: int, mib: int = 0) -> int:
        """Returns the least number of the device's pods to touch for `mib` more."""
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
        """Returns the least number of workloads still to touch. A lowered seat may help several devices."""
        needs = [self.needs(device) for device in self.room]
        return max(max(needs, default=0), -(-sum(needs) // self.layout.spread))

    def free_for(self, device: int) -> int:
        """Returns how many new pods with one device each fit the device."""
        return max(self.room_on(device), 0) // self.layout.wanted.mib

    def fit(self, node: Iterable[int]) -> int:
        """Returns the number of new pods that fit a node."""
        wanted = self.layout.wanted
        each = [max(self.room_on(index), 0) // wanted.mib for index in node]
        if wanted.count == 1:
            return sum(each)
        return most_pods(each, wanted.count)

    def free_places(self, count: int) -> Iterator[tuple[int, ...]]:
        """Yields devices for new pods that need no other change.

        These are the devices of a node with the most free memory left, so that every new pod finds some.
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
