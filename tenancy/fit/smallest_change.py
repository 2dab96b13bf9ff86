"""Defines wanted pods, and the smallest change after which the pods fit.

A change of fewer workloads is smaller than a change of more workloads. Of two changes of equally many workloads, the
change that lowers promises by fewer MiB is smaller. Units: whole MiB of GPU memory.
"""

from dataclasses import dataclass
from enum import StrEnum

# The maximum number of steps of a search. A search with the maximum number of steps takes about one second. The limit
# of steps is the same on every machine.
WORK = 1_000_000
GRID_MIB = 100  # Proposed budgets are multiples of this.


def least_mib(mib: int, used_mib: int | None) -> int:
    """Returns the lowest budget that a proposal may give to a seat of `mib`.

    The lowest budget of a seat with a measured use is this use. A seat without a measured use keeps at least half of
    its budget.
    """
    return min(used_mib, mib) if used_mib else mib - mib // 2


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
    MOVE = "move"  # Creates a pod of a seat again on another device.
    PARK = "park"  # Stops an on-demand workload until the new pods are placed.


@dataclass(frozen=True, kw_only=True)
class Change:
    """The change of one workload.

    `from_mib` and `to_mib` are a seat's old and new budget on each device of each replica. `source` is the old device
    of the pod, and `target` is its new device. Only a change that moves a pod has a `target`.
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
    """The smallest list of changes after which all pods fit. `changes` is empty if all pods fit now, and None if the
    search found no change.

    `places` has the devices that each new replica would get. If `proven` is False, the search ran out of steps, and a
    smaller change may exist. `least` is a lower bound for the number of workloads and for the number of MiB.
    """

    changes: tuple[Change, ...] | None = ()
    places: tuple[tuple[str, ...], ...] = ()
    proven: bool = True
    least: tuple[int, int] = (0, 0)

    @property
    def cost(self) -> tuple[int, int]:
        """Returns the number of changed workloads, and the MiB of promises that the changes give up."""
        changes = self.changes or ()
        return len(changes), sum(change.mib for change in changes)
