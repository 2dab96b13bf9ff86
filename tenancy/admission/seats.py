"""Seats: a pod's gpumem must equal a seat size of its tenant.

A quota limits only the sum of the pods' gpumem. If a tenant ran one pod of 1 MiB on each device, no device would have
enough memory for a seat. A pod with gpu-count and without gpumem would block devices that the pod does not use.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from tenancy.admission import cel
from tenancy.admission.policy import (
    POD_WRITES,
    Manifest,
    Scope,
    in_namespaces,
    outside_namespaces,
    validating,
)
from tenancy.ledger import Seat
from tenancy.names import GPU, Names
from tenancy.policy_names import GPU_COUNT_USE, SEAT_LABELS, SEAT_NAMED, SEAT_SIZES, WHOLE_DEVICES
from tenancy.reach import PLUGIN_RESOURCES
from tenancy.seat_sizes import SeatSizes


@dataclass(frozen=True, kw_only=True)
class TenantSeatSizes:
    """Lists each tenant's seat sizes."""

    names: Names
    sizes: Mapping[str, SeatSizes] = field(default_factory=dict)

    @property
    def variables(self) -> dict[str, str]:
        """Returns the CEL variables that `is_a_seat` reads."""
        several = {"several": self._by_tenant(self._several_of)} if self._several else {}
        return {
            "taken": cel.most_at_once(lambda container: cel.gpumem_of(container, self.names)),
            "spread": cel.devices_of(self.names),
            "sizes": self._by_tenant(self._sizes_of),
            **several,
        }

    @property
    def is_a_seat(self) -> str:
        share = "variables.taken / variables.spread"
        fits = f"variables.spread <= variables.sizes[?{share}].orValue(0)"
        if self._several:
            fits = f"({fits} || variables.spread in variables.several[?{share}].orValue([]))"
        return f"(variables.taken % variables.spread == 0 && {fits})"

    @property
    def message(self) -> str:
        """Returns CEL for the message of a denial, which names the seat sizes of the namespace."""
        literal = ", ".join(map(self._listed, sorted(self.sizes)))
        ask = f"a pod with {self.names.gpumem} is as large as a seat: ask for "
        by_device = (
            f" MiB, times {self.names.gpu_count} where it is on several devices; residents of the stack has more"
        )
        return f"{cel.quoted(ask)} + {{{literal}}}[?request.namespace].orValue('') + {cel.quoted(by_device)}"

    def of(self, tenants: Iterable[str]) -> "TenantSeatSizes":
        return TenantSeatSizes(
            names=self.names, sizes={name: self.sizes[name] for name in tenants if name in self.sizes}
        )

    @property
    def _several(self) -> bool:
        return any(sizes.several for sizes in self.sizes.values())

    def _by_tenant(self, literal_of: Callable[[str], str]) -> str:
        literals = filter(None, map(literal_of, sorted(self.sizes)))
        return f"{{{', '.join(literals)}}}[?request.namespace].orValue({{}})"

    def _sizes_of(self, tenant: str) -> str:
        sizes = ", ".join(f"{mib}: {devices}" for mib, devices in sorted(self.sizes[tenant].spreads.items()))
        return f"{cel.quoted(tenant)}: {{{sizes}}}"

    def _several_of(self, tenant: str) -> str:
        several = ", ".join(f"{mib}: {[*devices]}" for mib, devices in sorted(self.sizes[tenant].several.items()))
        return f"{cel.quoted(tenant)}: {{{several}}}" if several else ""

    def _listed(self, tenant: str) -> str:
        return f"{cel.quoted(tenant)}: {cel.quoted(' or '.join(self.sizes[tenant].texts))}"


def seat_sizes(seats: TenantSeatSizes, queued: Iterable[str]) -> list[Manifest]:
    """Returns the admission policy for tenants with seats. Other policies judge queue tenants (`queued`)."""
    seated = seats.of(seats.sizes.keys() - set(queued))
    return [_sizes(seated)] if seated.sizes else []


def _sizes(seats: TenantSeatSizes) -> Manifest:
    scope = Scope(in_namespaces(seats.sizes), {"asks-for-gpumem": cel.asks_for_gpumem(seats.names)})
    validations = {seats.is_a_seat: seats.message}
    return validating(SEAT_SIZES, scope, validations, seats.variables, message_key="messageExpression")


def seat_labels(names: Names, seats: Mapping[str, Sequence[Seat]]) -> list[Manifest]:
    """Denies a pod with a seat label, unless the seat belongs to the tenant and has the size of the pod.

    For an update of a pod, the policy judges only a new label. Therefore a pod can still end after its seat has left
    the ledger. `seats` maps each tenant to its seats.
    """
    literals = [f"{cel.quoted(tenant)}: {{{', '.join(map(_literal, seats[tenant]))}}}" for tenant in sorted(seats)]
    return [_labels(names, literals)]


def _literal(seat: Seat) -> str:
    """Returns CEL: the seat's MiB on each device, and the least and the largest number of devices of a pod."""
    least, most = (1, seat.replicas) if seat.devices_per_pod == 1 else (seat.devices_per_pod, seat.devices_per_pod)
    return f"{cel.quoted(seat.name)}: [{seat.gpumem_mib}, {least}, {most}]"


def _labels(names: Names, literals: Sequence[str]) -> Manifest:
    label = f"metadata.?labels[?{cel.quoted(names.seat_label)}]"
    is_new = f"object.{label}.hasValue() && (oldObject == null || object.{label} != oldObject.{label})"
    variables = {
        "taken": cel.most_at_once(lambda container: cel.gpumem_of(container, names)),
        "spread": cel.devices_of(names),
        "label": f"object.{label}.orValue('')",
        "seat": f"{{{', '.join(literals)}}}[?request.namespace].orValue({{}})[?variables.label].orValue([0, 0, 0])",
    }
    is_the_seat = (
        "variables.taken == variables.seat[0] * variables.spread && variables.spread >= variables.seat[1] && "
        "variables.spread <= variables.seat[2]"
    )
    asks = f"' has the size of this pod, which asks for ' + string(variables.taken) + ' {names.gpumem} on '"
    message = (
        f"'no seat of this namespace with the name ' + variables.label + {asks} + string(variables.spread) + "
        f"' devices: copy labels and resources of the resident from the output residents, or remove the label "
        f"{names.seat_label}'"
    )
    scope = Scope(outside_namespaces(), {"names-a-seat": is_new}, POD_WRITES)
    return validating(SEAT_LABELS, scope, {is_the_seat: message}, variables, message_key="messageExpression")


def seat_named(names: Names, tenants: Iterable[str]) -> list[Manifest]:
    """Denies a pod with gpumem and without a seat label, for tenants with seats in several pools. Only the label says
    in which of the pools the pod has its budget."""
    namespaces = sorted(tenants)
    conditions = {"asks-for-gpumem": cel.asks_for_gpumem(names)}
    message = (
        f"the seats of this namespace are in several pools: give the pod the label {names.seat_label} with the name of "
        "its resident, as in the output residents, so that it runs in the resident's pool"
    )
    validations = {f"{cel.seat_label(names)} != ''": message}
    return [validating(SEAT_NAMED, Scope(in_namespaces(namespaces), conditions), validations)] if namespaces else []


def gpu_count_use(names: Names) -> Manifest:
    """Denies a pod with gpu-count and without gpumem, because the pod would block devices that it does not use."""
    counts = cel.asks_for(f"k == {cel.quoted(names.gpu_count)}")
    alone = f"{counts} && !({cel.asks_for_gpumem(names)})"
    message = f"{names.gpu_count} spreads a pod's {names.gpumem} over devices: add {names.gpumem}, or remove it"
    return validating(GPU_COUNT_USE, Scope(outside_namespaces(), {"has-no-gpumem": alone}), {"false": message})


def whole_devices(names: Names) -> Manifest:
    """Denies a pod with gpumem if the pod asks for more whole devices than the number of devices that share its gpumem.
    The device plugin would give the pod's unused whole devices to no other pod.
    """
    asked, spread = cel.most_at_once(cel.whole_devices_of), cel.devices_of(names)
    message = (
        f"a pod with {names.gpumem} is on one device, or on as many as its {names.gpu_count} says: it asks for more "
        f"{GPU} (or {', '.join(f'{prefix}*' for prefix in PLUGIN_RESOURCES)}) than that; lower them"
    )
    scope = Scope(outside_namespaces(), {"asks-for-gpumem": cel.asks_for_gpumem(names)})
    return validating(WHOLE_DEVICES, scope, {f"{asked} <= {spread}": message})
