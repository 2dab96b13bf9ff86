"""Computes the free memory of a pool's fullest device while every seat uses its whole budget.

Units: whole MiB of one device. The computation assumes that all unbudgeted workloads of a pool run on this device.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from tenancy.ledger import Ledger, Pool, Seat


@dataclass(frozen=True, kw_only=True)
class FullSeats:
    """The amounts of memory on a pool's fullest device.

    `promised_mib` belongs to seats and queues, and `unbudgeted_mib` is used by workloads without a seat.
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
        """Returns the MiB that the reserve lacks. The result is 0 or negative if the reserve suffices."""
        return self.beside_mib - self.pool.reserve_mib

    @property
    def free_mib(self) -> int:
        """Returns the MiB that stay free while every seat uses its whole budget."""
        return self.pool.memory_mib - self.promised_mib - self.beside_mib

    @property
    def over_mib(self) -> int:
        """Returns the MiB by which the promises and the floor exceed the device.

        The result is 0 or negative if promises and floor fit the device.
        """
        return self.promised_mib + self.pool.floor_mib - self.pool.memory_mib


def full_seats(ledger: Ledger, pool: Pool) -> FullSeats:
    """Returns the amounts of memory on the fullest device that a pool with shared memory may have."""
    return FullSeats(
        pool=pool,
        promised_mib=_fullest_mib(ledger, pool),
        unbudgeted_mib=sum(u.measured_mib for u in ledger.unbudgeted if u.pool == pool.name),
    )


_MOST_MIB = 2**24  # 16 TiB. For a larger device, the code computes no sums and counts the device as full.


def _fullest_sum(seats: Iterable[Seat], most_mib: int) -> int:
    """Returns the largest sum of budgets that is at most `most_mib`.

    Equal seats are added in groups of 1, 2, 4 and so on, because sums of these groups give every number.
    """
    alike: Counter[int] = Counter()
    for seat in seats:
        alike[seat.gpumem_mib] += seat.replicas
    sums, mask = 1, (2 << most_mib) - 1  # bit n is set if a sum of budgets has n MiB
    for mib, count in alike.items():
        left, step = min(count, most_mib // mib), 1
        while left > 0:
            taken = min(step, left)
            sums |= sums << taken * mib & mask
            left, step = left - taken, step * 2
    return sums.bit_length() - 1


def _fullest_mib(ledger: Ledger, pool: Pool) -> int:
    """Returns the largest number of promised MiB that one device may hold.

    The number is a sum of budgets and of the queues' quota. The quota can be divided freely.
    """
    seats = [seat for seat in ledger.seats_in(pool.name) if 0 < seat.gpumem_mib <= pool.device_mib]
    together_mib = sum(seat.gpumem_mib * seat.replicas for seat in seats)  # each pod adds its budget on one device
    if together_mib > pool.device_mib:
        together_mib = _fullest_sum(seats, pool.device_mib) if pool.device_mib <= _MOST_MIB else pool.device_mib
    return min(together_mib + ledger.quota_mib(pool.name), pool.device_mib)
