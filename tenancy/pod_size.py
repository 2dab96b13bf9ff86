"""Compares the gpumem of a pod with the seats of its tenant."""

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

from tenancy.ledger import Ledger, Seat
from tenancy.quantity import parse
from tenancy.seat_sizes import SeatSizes
from tenancy.workload import Manifest, containers_of, largest_at_once, map_at, text_at, value_or


@dataclass(frozen=True)
class PodSize:
    """The size of a pod in the namespace `namespace`, with the metadata and the spec of `template`. Every property may
    raise QuantityError and ShapeError."""

    ledger: Ledger
    namespace: str
    template: Manifest

    @property
    def is_a_seat(self) -> bool:
        """Returns True if the pod's memory on each device equals a seat of its tenant."""
        return self._is_among(SeatSizes.of(self.ledger.seats_of(self.namespace)))

    @property
    def is_unlike_its_label(self) -> bool:
        """Returns True if the pod's label names a seat of its tenant, and the pod has not the size of this seat."""
        return self._named is not None and not self._is_among(SeatSizes.of((self._named,)))

    @property
    def _named(self) -> Seat | None:
        labels = map_at(self.template, "metadata", "labels")
        return self.ledger.seat_named(self.namespace, text_at(labels, self.ledger.names.seat_label))

    @cached_property
    def _spread(self) -> int:
        counted = containers_of(map_at(self.template, "spec"), "containers")
        return max(1, sum(amount(each, self.ledger.names.gpu_count) for each in counted))

    def _is_among(self, sizes: SeatSizes) -> bool:
        gpumem = self.ledger.names.gpumem
        taken = int(largest_at_once(map_at(self.template, "spec"), lambda c: Fraction(amount(c, gpumem))))
        share, rest = divmod(taken, self._spread)
        return not rest and sizes.have(share, self._spread)


def amount(container: Manifest, resource: str) -> int:
    """Returns a container's limit on an extended resource, in whole units.

    The request of the container must equal its limit.
    """
    resources = map_at(container, "resources")
    return math.ceil(
        parse(value_or(map_at(resources, "limits"), resource, value_or(map_at(resources, "requests"), resource, 0)))
    )
