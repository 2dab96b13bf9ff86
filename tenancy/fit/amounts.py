"""Computes by how many MiB several budgets must be lowered so that the pods fit on every device.

The result is the exact minimum in whole MiB.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from tenancy.devices.placement import StepsLeft


@dataclass(frozen=True, kw_only=True)
class Lowerable:
    """A seat. The budget of the seat may be lowered by at most `most_mib`.

    `price` is the cost of lowering the budget by one MiB. `pods` has the number of the seat's pods on each device.
    """

    most_mib: int
    price: int
    pods: Mapping[int, int]


def cheapest_reductions(
    needs: Mapping[int, int], seats: Mapping[str, Lowerable], work: StepsLeft, below: int | None
) -> dict[str, int]:
    """Returns by how many MiB each seat's budget is lowered. Every device then gets the MiB that it needs.

    Returns an empty result if no solution costs less than `below`. The method is branch and bound. The lower bound is
    the highest cost of a single device. The cost of a device is computed as if fractions of a MiB were allowed. Each
    step makes two branches for the cheapest seat with pods on the device with the highest cost. In the first branch,
    the seat gives up all MiB that the device still needs. In the second branch, the seat gives up fewer MiB. Raises
    OutOfStepsError.
    """
    best: dict[str, int] = {}
    stack = [(dict.fromkeys(seats, 0), {name: seat.most_mib for name, seat in seats.items()})]
    while stack:
        work.take(len(seats) * (len(needs) + 1))
        low, high = stack.pop()
        cost = sum(seats[name].price * mib for name, mib in low.items())
        left = {device: need - _given(device, low, seats) for device, need in needs.items()}
        bounds = {device: _bound(device, need, low, high, seats) for device, need in left.items() if need > 0}
        if any(bound is None for bound in bounds.values()):
            continue
        if below is not None and cost + max((bound or 0 for bound in bounds.values()), default=0) >= below:
            continue
        if not bounds:
            best, below = low, cost
            continue
        worst = max(bounds, key=lambda device: bounds[device] or 0)
        name = min(
            (name for name, seat in seats.items() if seat.pods.get(worst) and high[name] > low[name]),
            key=lambda name: (seats[name].price / seats[name].pods[worst], name),
        )
        split = min(high[name], low[name] - (-left[worst] // seats[name].pods[worst]))
        stack += [(low, {**high, name: split - 1}), ({**low, name: split}, high)]
    return best


def _given(device: int, mib: Mapping[str, int], seats: Mapping[str, Lowerable]) -> int:
    return sum(seat.pods.get(device, 0) * mib[name] for name, seat in seats.items())


def _bound(
    device: int, need: int, low: Mapping[str, int], high: Mapping[str, int], seats: Mapping[str, Lowerable]
) -> int | None:
    """Returns the lowest cost of the MiB that this device needs, or None if lowering all seats is not enough."""
    offers = [(seat.price, seat.pods[device], high[n] - low[n]) for n, seat in seats.items() if seat.pods.get(device)]
    cost = 0
    for price, pods, most in sorted(offers, key=lambda offer: offer[0] / offer[1]):
        if pods * most >= need:
            return cost - (-need * price // pods)
        cost, need = cost + most * price, need - pods * most
    return None
