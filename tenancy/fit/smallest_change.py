"""Defines wanted pods, and the smallest change after which the pods fit.

A change of fewer workloads is smaller than a change of more workloads. If two changes have equally many workloads, the
one that gives up fewer MiB of promises is smaller. Units: whole MiB of GPU memory.
"""

from dataclasses import dataclass
from enum import StrEnum

# The maximum number of steps of a search. A search with this many steps takes about two seconds. The limit is the same
# on every machine.
WORK = 3_000_000


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """The wanted pods: `replicas` pods, each with `mib` on each of `count` devices of one node."""

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

    LOWER = "lower"  # Lowers the budget of a seat.
    MOVE = "move"  # Moves a pod of a seat to another device, which restarts the pod once.
    PARK = "park"  # Stops an on-demand workload until the new pods are placed.


@dataclass(frozen=True, kw_only=True)
class Change:
    """A change of one workload.

    `from_mib` and `to_mib` are the old and the new budget of a seat, on each device of each replica. `source` is the
    pod's old device, and `target` is its new device. Only a move has a `target`.
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
        """Returns the MiB of promises that the change gives up."""
        return ((self.from_mib or 0) - (self.to_mib or 0)) * self.replicas * self.devices_per_pod


@dataclass(frozen=True, kw_only=True)
class SmallestChange:
    """The smallest list of changes after which all pods fit. `changes` is empty if all pods fit now.

    `places` has the devices that each new replica would get. If `proven` is False, the search ran out of steps, and a
    smaller change may exist. `least` is a lower bound: a number of workloads and a number of MiB.
    """

    changes: tuple[Change, ...] = ()
    places: tuple[tuple[str, ...], ...] = ()
    proven: bool = True
    least: tuple[int, int] = (0, 0)

    @property
    def cost(self) -> tuple[int, int]:
        """Returns the number of changed workloads, and the MiB of promises that the changes give up."""
        return len(self.changes), sum(change.mib for change in self.changes)
