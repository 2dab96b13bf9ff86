"""Seats: a pod with gpumem of a tenant that has seats is as large as one of them.

A quota alone bounds the sum. Pods of 1 MiB on each device would leave no device whole enough for a seat, and gpu-count
alone would keep pods from devices that nobody uses.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from components.admission import cel
from components.admission.policy import MessageExpression, Scope, outside, renamed, validating, within
from components.base.manifest import Manifest
from tenancy.names import GPU, GPU_COUNT_USE, SEAT_SIZES, WHOLE_DEVICES, Names
from tenancy.reach import PLUGIN_RESOURCES

_COMPONENT = "admission"
# Of the 100,000 code points that an expression may have (cel-go's default, ExpressionSizeCodePointLimit).
_LONGEST_LITERAL = 90_000


@dataclass(frozen=True, kw_only=True)
class Seats:
    """Tenant to the sizes of its seats: MiB of a device to the devices that there are of it."""

    names: Names
    sizes: Mapping[str, Mapping[int, int]] = field(default_factory=dict)

    @property
    def variables(self) -> dict[str, str]:
        """CEL: what `is_a_seat` goes by."""
        return {
            "taken": cel.most_at_once(lambda container: cel.gpumem_of(container, self.names)),
            "spread": cel.devices_of(self.names),
            "sizes": f"{{{', '.join(map(self._sizes_of, sorted(self.sizes)))}}}[?request.namespace].orValue({{}})",
        }

    def _sizes_of(self, tenant: str) -> str:
        sizes = ", ".join(f"{mib}: {devices}" for mib, devices in sorted(self.sizes[tenant].items()))
        return f"{cel.text(tenant)}: {{{sizes}}}"

    @property
    def is_a_seat(self) -> str:
        """CEL, with the variables."""
        size = "variables.sizes[?variables.taken / variables.spread].orValue(0)"
        return f"(variables.taken % variables.spread == 0 && variables.spread <= {size})"

    def of(self, tenants: Iterable[str]) -> "Seats":
        """Those of these tenants alone, for a policy that judges no others."""
        return Seats(names=self.names, sizes={name: self.sizes[name] for name in tenants if name in self.sizes})

    def length(self, tenant: str) -> int:
        """The characters that the tenant takes of an expression; none without a seat."""
        if tenant not in self.sizes:
            return 0
        return max(len(self._sizes_of(tenant)), len(self._told_of(tenant))) + len(", ")

    def _told_of(self, tenant: str) -> str:
        return f"{cel.text(tenant)}: {cel.text(' or '.join(map(str, sorted(self.sizes[tenant]))))}"

    @property
    def message(self) -> str:
        """CEL: which sizes the namespace has."""
        literal = ", ".join(map(self._told_of, sorted(self.sizes)))
        ask = f"a pod with {self.names.gpumem} is as large as a seat: ask for "
        by_device = (
            f" MiB, times {self.names.gpu_count} where it is on several devices; residents of the stack has more"
        )
        return f"{cel.text(ask)} + {{{literal}}}[?request.namespace].orValue('') + {cel.text(by_device)}"


def seat_sizes(seats: Seats, queued: Iterable[str]) -> list[Manifest]:
    """The policy; none where nobody has a seat. The pods of `queued` tenants are judged by whether they queued."""
    return in_parts(seats, sorted(seats.sizes.keys() - set(queued)), lambda part, _: [_sizes(part)])


def in_parts(
    seats: Seats, tenants: Iterable[str], policies: Callable[[Seats, Sequence[str]], list[Manifest]]
) -> list[Manifest]:
    """The policies for the tenants, or as many times these as it takes: an expression has a limit. The first have their
    own names, those after them a number behind it."""
    return [
        policy if number == 1 else renamed(policy, f"{policy['metadata']['name']}-{number}")
        for number, part in enumerate(_parts(seats, tenants), 1)
        for policy in policies(seats.of(part), part)
    ]


def _parts(seats: Seats, tenants: Iterable[str]) -> Iterator[list[str]]:
    part: list[str] = []
    length = 0
    for tenant in tenants:
        own = seats.length(tenant)
        if length + own > _LONGEST_LITERAL:
            yield part
            part, length = [], 0
        part.append(tenant)
        length += own
    if part:
        yield part


def _sizes(seats: Seats) -> Manifest:
    validations = {seats.is_a_seat: MessageExpression(seats.message)}
    conditions = {"asks-for-gpumem": cel.asks_for_gpumem(seats.names)}
    return validating(_COMPONENT, SEAT_SIZES, Scope(within(seats.sizes), conditions), validations, seats.variables)


def gpu_count_use(names: Names, exempt: Iterable[str]) -> Manifest:
    """A pod with gpu-count and no gpumem would take devices out of the scheduler's count and use none of them."""
    alone = f"{cel.asks_for(_is_gpu_count(names))} && !({cel.asks_for_gpumem(names)})"
    message = f"{names.gpu_count} spreads a pod's {names.gpumem} over devices: add {names.gpumem}, or remove it"
    return validating(_COMPONENT, GPU_COUNT_USE, Scope(outside(exempt), {"has-no-gpumem": alone}), {"false": message})


def whole_devices(names: Names, exempt: Iterable[str]) -> Manifest:
    """Else a seat would come with every device of its node, which the device plugin gives to nobody else then."""
    asked, spread = cel.most_at_once(cel.whole_devices_of), cel.devices_of(names)
    message = (
        f"a pod with {names.gpumem} is on one device, or on as many as its {names.gpu_count} says: it asks for more "
        f"{GPU} (or {', '.join(f'{prefix}*' for prefix in PLUGIN_RESOURCES)}) than that; lower them"
    )
    scope = Scope(outside(exempt), {"asks-for-gpumem": cel.asks_for_gpumem(names)})
    return validating(_COMPONENT, WHOLE_DEVICES, scope, {f"{asked} <= {spread}": message})


def _is_gpu_count(names: Names) -> str:
    return f"k == {cel.text(names.gpu_count)}"
