"""Computes the sizes of a tenant's seats. Admission compares the tenant's pods with these sizes.

Units: whole MiB of one device.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from tenancy.ledger import Seat


@dataclass(frozen=True, kw_only=True)
class SeatSizes:
    """The sizes that a tenant's pods may have.

    For seats of one device, `spreads` maps each size to the number of devices that a pod may use. For seats of several
    devices, `several` maps each size to the numbers of devices. `spreads` also contains each size in `several`. The
    value in `spreads` is 0 if no seat of one device has the size.
    """

    spreads: Mapping[int, int] = field(default_factory=dict)
    several: Mapping[int, tuple[int, ...]] = field(default_factory=dict)

    @staticmethod
    def of(seats: Iterable[Seat]) -> "SeatSizes":
        """Returns the sizes of these seats, which all belong to one tenant."""
        spreads: dict[int, int] = {}
        several: dict[int, set[int]] = {}
        for seat in seats:
            alone = seat.replicas if seat.devices_per_pod == 1 else 0
            spreads[seat.gpumem_mib] = spreads.get(seat.gpumem_mib, 0) + alone
            if seat.devices_per_pod > 1:
                several.setdefault(seat.gpumem_mib, set()).add(seat.devices_per_pod)
        return SeatSizes(spreads=spreads, several={mib: tuple(sorted(found)) for mib, found in several.items()})

    @property
    def texts(self) -> list[str]:
        """Returns the sizes for messages, such as `1536` and `20000 (2 devices)`."""
        found = []
        for mib, spread in sorted(self.spreads.items()):
            found += [str(mib)] if spread or mib not in self.several else []
            found += [f"{mib} ({devices} devices)" for devices in self.several.get(mib, ())]
        return found
