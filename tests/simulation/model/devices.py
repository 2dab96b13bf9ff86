"""Simulates nodes with GPUs, and the GPU memory that processes use. Units: MiB."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from agents.node.cgroup import Container
from agents.telemetry.device import Device, Occupancy, Process, Scan
from tenancy.names import LABEL_GPU_COUNT, LABEL_GPU_MEMORY, LABEL_GPU_REPLICAS
from tenancy.units import MIB

T4_MIB = 15360
# The MiB that the driver and its contexts use, measured on a T4 (docs/records/0000).
DRIVER_MIB = 450
TIME_SLICES = 100  # The device plugin advertises this number of GPUs for each device.


@dataclass(eq=False)
class Card:
    """A GPU. `uses` maps the UID of each pod to the MiB that the pod uses.

    The driver and processes outside pods use `outside_mib`.
    """

    node: str
    index: int
    uuid: str
    total_mib: int = T4_MIB
    outside_mib: int = DRIVER_MIB
    uses: dict[str, int] = field(default_factory=dict)
    pids: dict[str, int] = field(default_factory=dict)

    @property
    def used_mib(self) -> int:
        return self.outside_mib + sum(self.uses.values())

    @property
    def free_mib(self) -> int:
        return self.total_mib - self.used_mib

    def take(self, uid: str, pid: int, wanted_mib: int) -> int:
        """Gives a process `wanted_mib` in total, or less if the device has less free memory.

        Returns the MiB that the process has after the call.
        """
        had_mib = self.uses.get(uid, 0)
        got_mib = min(wanted_mib, had_mib + max(self.free_mib, 0))
        if got_mib > 0:
            self.uses[uid], self.pids[uid] = got_mib, pid
        else:
            self.release(uid)
        return max(got_mib, 0)

    def release(self, uid: str) -> int:
        self.pids.pop(uid, None)
        return self.uses.pop(uid, 0)


@dataclass
class Machine:
    """A node's hardware. `labels` are the node's labels, including those of GPU feature discovery.

    `unknown` is the number of processes with memory that NVML does not report. While `hangs` is True, NVML does not
    answer. `lost` has the indexes of devices that NVML cannot read.
    """

    name: str
    cards: tuple[Card, ...]
    labels: Mapping[str, str]
    alive: bool = True
    ready: bool = True
    ahead: float = 0.0
    unknown: int = 0
    failing: str = ""
    hangs: bool = False
    lost: frozenset[int] = frozenset()
    containers: dict[int, Container] = field(default_factory=dict)

    def card(self, uuid: str) -> Card | None:
        return next((card for card in self.cards if card.uuid == uuid), None)

    def scan(self) -> Scan:
        """Returns the devices and their processes as NVML reports them."""
        found = tuple(self._occupancy(card) for card in self.cards if card.index not in self.lost)
        return Scan(found, dict.fromkeys(sorted(self.lost), "NVML: GPU is lost"))

    def _occupancy(self, card: Card) -> Occupancy:
        used_mib = min(card.used_mib, card.total_mib)
        device = Device(
            gpu=card.index,
            uuid=card.uuid,
            total_bytes=card.total_mib * MIB,
            used_bytes=used_mib * MIB,
            free_bytes=(card.total_mib - used_mib) * MIB,
        )
        processes = [Process(card.pids[uid], mib * MIB) for uid, mib in card.uses.items()]
        processes += [Process(-1 - number, None) for number in range(self.unknown if card.index == 0 else 0)]
        return Occupancy(device, tuple(processes))


def machine(
    name: str, cards: int, labels: Mapping[str, str], outside_mib: int = DRIVER_MIB, total_mib: int = T4_MIB
) -> Machine:
    """Returns a node with this number of devices, by default of the type T4."""
    found = {
        **labels,
        LABEL_GPU_MEMORY: str(total_mib),
        LABEL_GPU_COUNT: str(cards),
        LABEL_GPU_REPLICAS: str(TIME_SLICES),
    }
    made = (Card(name, index, f"GPU-{name}-{index}", total_mib, outside_mib) for index in range(cards))
    return Machine(name=name, cards=tuple(made), labels=found)


@dataclass
class Hardware:
    """Holds all nodes with devices. The simulation calls `freed` with each device that has more free memory than
    before."""

    machines: dict[str, Machine] = field(default_factory=dict)
    freed: Callable[[Card], None] = lambda card: None

    def cards(self) -> list[Card]:
        return [card for each in self.machines.values() for card in each.cards]

    def release(self, uid: str) -> None:
        for card in self.cards():
            if card.release(uid):
                self.freed(card)
