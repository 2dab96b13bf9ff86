"""The wanted pods, the changes that make them fit, and a proof that no smaller ones do.

They are compared by the number of workloads touched, then by the MiB of promises given up. Units: whole MiB of GPU
memory.
"""

from dataclasses import dataclass
from enum import StrEnum

# Steps of a search: about two seconds, the same on every machine.
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
    """The kind of a change."""

    LOWER = "lower"  # a seat's budget
    MOVE = "move"  # a pod of a seat, to another device: one restart
    PARK = "park"  # an on-demand workload, until the new pods are placed


@dataclass(frozen=True, kw_only=True)
class Change:
    """One workload touched. `from_mib` and `to_mib` are of each of a lowered seat's replicas; `source` and `target` are
    devices, of a move both, of a park the first."""

    kind: Kind
    workload: str
    from_mib: int | None = None
    to_mib: int | None = None
    replicas: int = 1
    source: str | None = None
    target: str | None = None

    @property
    def mib(self) -> int:
        """The MiB of promises given up."""
        return ((self.from_mib or 0) - (self.to_mib or 0)) * self.replicas


@dataclass(frozen=True, kw_only=True)
class SmallestChange:
    """Changes after which everything fits; none where it fits now. `places` are the devices that each new replica would
    get. Not `proven`: the search ran out of steps, and less than `least` (workloads, then MiB) cannot do."""

    changes: tuple[Change, ...] = ()
    places: tuple[tuple[str, ...], ...] = ()
    proven: bool = True
    least: tuple[int, int] = (0, 0)

    @property
    def cost(self) -> tuple[int, int]:
        """Workloads touched, and MiB promised less."""
        return len(self.changes), sum(change.mib for change in self.changes)
