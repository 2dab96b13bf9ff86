"""Seats: a pod with gpumem of a tenant that has seats is as large as one of them.

A quota alone bounds the sum. Pods of 1 MiB on each device would leave no device whole enough for a seat, and gpu-count
alone would keep pods from devices that nobody uses.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from components.admission import cel
from components.admission.policy import MessageExpression, Scope, outside, validating, within
from components.base.manifest import Manifest
from tenancy.names import GPU_COUNT_USE, SEAT_SIZES, Names

_COMPONENT = "admission"


@dataclass(frozen=True, kw_only=True)
class Seats:
    """Tenant to the sizes of its seats: MiB of a device to the devices that there are of it."""

    names: Names
    sizes: Mapping[str, Mapping[int, int]] = field(default_factory=dict)

    @property
    def variables(self) -> dict[str, str]:
        """CEL: what `is_a_seat` goes by. What a pod takes is reckoned as the scheduler does: containers and sidecars
        together, or an init container next to the sidecars before it (tenancy.workload.at_once)."""
        return {
            "initContainers": cel.INIT_CONTAINERS,
            "running": (
                f"object.spec.containers.map(c, {_amount('c', self.names)}).sum() + "
                f"variables.initContainers.filter(c, {_is_sidecar('c')}).map(c, {_amount('c', self.names)}).sum()"
            ),
            "starting": (
                f"variables.initContainers.transformList(i, c, !{_is_sidecar('c')}, {_amount('c', self.names)} + "
                f"variables.initContainers.transformList(j, s, j < i && {_is_sidecar('s')}, "
                f"{_amount('s', self.names)}).sum())"
            ),
            "taken": "([variables.running] + variables.starting).max()",
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

    @property
    def message(self) -> str:
        """CEL: which sizes the namespace has."""
        told = {tenant: " or ".join(map(str, sorted(sizes))) for tenant, sizes in sorted(self.sizes.items())}
        literal = ", ".join(f"{cel.text(tenant)}: {cel.text(sizes)}" for tenant, sizes in told.items())
        ask = f"a pod with {self.names.gpumem} is as large as a seat: ask for "
        by_device = (
            f" MiB, times {self.names.gpu_count} where it is on several devices; residents of the stack has more"
        )
        return f"{cel.text(ask)} + {{{literal}}}[?request.namespace].orValue('') + {cel.text(by_device)}"


def seat_sizes(seats: Seats, queued: Iterable[str]) -> list[Manifest]:
    """The policy; none where nobody has a seat. The pods of `queued` tenants are judged by whether they queued."""
    tenants = sorted(seats.sizes.keys() - set(queued))
    if not tenants:
        return []
    validations = {seats.is_a_seat: MessageExpression(seats.message)}
    conditions = {"asks-for-gpumem": cel.asks_for_gpumem(seats.names)}
    return [validating(_COMPONENT, SEAT_SIZES, Scope(within(tenants), conditions), validations, seats.variables)]


def gpu_count_use(names: Names, exempt: Iterable[str]) -> Manifest:
    """A pod with gpu-count and no gpumem would take devices out of the scheduler's count and use none of them."""
    alone = f"{cel.asks_for(_is_gpu_count(names))} && !({cel.asks_for_gpumem(names)})"
    message = f"{names.gpu_count} spreads a pod's {names.gpumem} over devices: add {names.gpumem}, or remove it"
    return validating(_COMPONENT, GPU_COUNT_USE, Scope(outside(exempt), {"has-no-gpumem": alone}), {"false": message})


def _is_gpu_count(names: Names) -> str:
    return f"k == {cel.text(names.gpu_count)}"


def _amount(container: str, names: Names) -> str:
    """What the container asks for of gpumem, 0 where it does not say."""
    limits, key = f"{container}.resources.limits", cel.text(names.gpumem)
    says = f"has({container}.resources) && has({limits}) && {key} in {limits}"
    return f"({says} ? quantity({limits}[{key}]).asInteger() : 0)"


def _is_sidecar(container: str) -> str:
    return f"(has({container}.restartPolicy) && {container}.restartPolicy == 'Always')"
