"""Defines wanted pods, the changes that make them fit, and the proof that no smaller changes suffice.

Changes are compared by the number of workloads touched, then by the MiB of promises given up. Units: whole MiB of GPU
memory.
"""

from dataclasses import dataclass
from enum import StrEnum

# The steps of a search. They take about two seconds, and their number is the same on every machine.
WORK = 3_000_000


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """`replicas` pods, each with `mib` on each of `count` devices of one node."""

    mib: int
    count: int = 1
    replicas: int = 1

    def __post_init__(self) -> None:
        if min(self.mib, self.count, self.replicas) < 1:
            raise ValueError(f"at least 1 MiB, one device and one replica (got {self})")

    @property
    def total_mib(self) -> int:
        return self.mib * self.count * self.replicas


class Kind(StrEnum):
    """The kinds of a change."""

    LOWER = "lower"  # lowers a seat's budget
    MOVE = "move"  # moves a pod of a seat to another device, which costs one restart
    PARK = "park"  # stops an on-demand workload until the new pods are placed


@dataclass(frozen=True, kw_only=True)
class Change:
    """A change of one workload. `from_mib` and `to_mib` concern each device of each replica of a lowered seat.

    `source` and `target` are devices. A move has both, and a park only has `source`.
    """

    kind: Kind
    workload: str
    from_mib: int | None = None
    to_mib: int | None = None
    replicas: int = 1
    devices_per_pod: int = 1
    source: str | None = None
    target: str | None = None

    @property
    def mib(self) -> int:
        """Returns the MiB of promises given up."""
        return ((self.from_mib or 0) - (self.to_mib or 0)) * self.replicas * self.devices_per_pod


@dataclass(frozen=True, kw_only=True)
class SmallestChange:
    """The changes after which everything fits; none if everything fits now.

    `places` are the devices that each new replica would get. If not `proven`, the search ran out of steps: less than
    `least` (workloads, then MiB) is impossible.
    """

    changes: tuple[Change, ...] = ()
    places: tuple[tuple[str, ...], ...] = ()
    proven: bool = True
    least: tuple[int, int] = (0, 0)

    @property
    def cost(self) -> tuple[int, int]:
        """Returns the number of workloads touched, and the MiB of promises given up."""
        return len(self.changes), sum(change.mib for change in self.changes)
