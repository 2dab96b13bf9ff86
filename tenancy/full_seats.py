"""Computes the free memory of a pool's fullest device if every seat uses its whole budget.

Units: whole MiB of one device. The computation assumes that all unbudgeted workloads of a pool run on the fullest
device.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from tenancy.ledger import Ledger, Pool


@dataclass(frozen=True, kw_only=True)
class FullSeats:
    """The parts of the memory of a pool's fullest device.

    `promised_mib` is the part that is promised to seats and queues. `unbudgeted_mib` is the part that unbudgeted
    workloads use.
    """

    pool: Pool
    promised_mib: int
    unbudgeted_mib: int

    @property
    def beside_mib(self) -> int:
        """Returns the MiB of the driver and of unbudgeted workloads, which the reserve must cover."""
        return self.pool.driver_reserved_mib + self.unbudgeted_mib

    @property
    def reserve_short_mib(self) -> int:
        """Returns the MiB that the reserve lacks. If the reserve is large enough, the result is at most 0."""
        return self.beside_mib - self.pool.reserve_mib

    @property
    def free_mib(self) -> int:
        """Returns the MiB that stay free while every seat uses its whole budget."""
        return self.pool.memory_mib - self.promised_mib - self.beside_mib

    @property
    def over_mib(self) -> int:
        """Returns the MiB by which the promises and the floor together exceed the device.

        If the promises and the floor fit the device, the result is at most 0.
        """
        return self.promised_mib + self.pool.floor_mib - self.pool.memory_mib


def full_seats(ledger: Ledger, pool: Pool) -> FullSeats:
    """Returns the parts of the memory of the fullest possible device, for a pool that shares GPU memory."""
    return FullSeats(
        pool=pool,
        promised_mib=_fullest_mib(ledger, pool),
        unbudgeted_mib=sum(u.measured_mib for u in ledger.unbudgeted if u.pool == pool.name),
    )


MOST_MIB = 2**24  # 16 TiB; a larger device counts as full, without a computation


def free_spaces(pods: Mapping[int, int], device_mib: int) -> int:
    """Returns the amounts of memory that pods can leave free on a device. In the result, bit n is set if some pods
    leave n MiB free.

    `pods` maps each MiB of a pod to the number of such pods. The search adds equal pods in groups of 1, 2, 4 and so on.
    Any number of equal pods is the sum of some of these group sizes.
    """
    spaces = 1 << device_mib
    for mib, count in pods.items():
        left, step = min(count, device_mib // mib), 1
        while left > 0:
            taken = min(step, left)
            spaces |= spaces >> taken * mib
            left, step = left - taken, step * 2
    return spaces


def _fullest_mib(ledger: Ledger, pool: Pool) -> int:
    """Returns the largest number of MiB that can be promised on one device.

    The promised MiB are a sum of budgets, and of the queues' quota. The quota of queues can be divided freely between
    devices.
    """
    seats = [seat for seat in ledger.seats_in(pool.name) if 0 < seat.gpumem_mib <= pool.device_mib]
    together_mib = sum(seat.gpumem_mib * seat.replicas for seat in seats)  # each pod adds its budget on one device
    if together_mib > pool.device_mib:
        together_mib = pool.device_mib
        if pool.device_mib <= MOST_MIB:
            pods: Counter[int] = Counter()
            for seat in seats:
                pods[seat.gpumem_mib] += seat.replicas
            spaces = free_spaces(pods, pool.device_mib)
            together_mib -= (spaces & -spaces).bit_length() - 1
    return min(together_mib + ledger.quota_mib(pool.name), pool.device_mib)
