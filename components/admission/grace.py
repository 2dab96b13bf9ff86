"""Grace: a GPU pod without a seat has a short grace period.

While a GPU pod without a seat terminates, its memory is already promised to another pod. Kueue gives the pod's quota to
another Job, and the demand gate expects that the pod's memory becomes free soon. A pod with a seat may have a longer
grace period, because no other tenant gets the memory of the seat.
"""

from collections.abc import Iterable

from components.admission import cel
from components.admission.policy import ResourceRule, Scope, in_namespaces, validating
from components.admission.seats import TenantSeatSizes, split_by_length
from components.base.manifest import Manifest
from tenancy.policy_names import GRACE, GRACE_DELETION
from tenancy.reach import MOST_GRACE_SECONDS

SECONDS = "object.spec.?terminationGracePeriodSeconds.orValue(30)"
_SOON = f"a pod with a GPU and no seat ends within {MOST_GRACE_SECONDS} s, for others wait for its device: lower "
TOO_LONG = f"{_SOON}terminationGracePeriodSeconds"
_DELETION = (ResourceRule("DELETE", ("pods",)), ResourceRule("CREATE", ("pods/eviction",)))


def grace(seats: TenantSeatSizes, without_budget: Iterable[str]) -> list[Manifest]:
    """Returns the policies for the tenants `without_budget`, if there are any."""
    return split_by_length(
        seats, sorted(without_budget), lambda part, tenants: [_asked(part, tenants), _deletion(part, tenants)]
    )


def _asked(seats: TenantSeatSizes, tenants: Iterable[str]) -> Manifest:
    """Denies a pod without a seat if the grace period in its spec is too long."""
    conditions = {"is-long": f"{SECONDS} > {MOST_GRACE_SECONDS}", "reaches-a-gpu": cel.reaches_gpu(seats.names)}
    return validating(GRACE, Scope(in_namespaces(tenants), conditions), {seats.is_a_seat: TOO_LONG}, seats.variables)


def _deletion(seats: TenantSeatSizes, tenants: Iterable[str]) -> Manifest:
    """Denies a deletion or an eviction with a grace period that is too long.

    For a deletion without a grace period, the API server uses the grace period of the pod's spec (CheckGracefulDelete
    in pkg/registry/core/pod/strategy.go). A pod that is older than the grace policies may keep the long grace period of
    its spec. An Eviction object does not contain the requests of its pod.
    """
    asked = "options.?gracePeriodSeconds.orValue(0)"
    is_long = (
        f"(request.operation == 'DELETE' ? request.{asked} : "
        f"object.?deleteOptions.?gracePeriodSeconds.orValue(0)) > {MOST_GRACE_SECONDS}"
    )
    old = {name: cel.on_old_object(expression) for name, expression in seats.variables.items()}
    as_its_spec = f"request.options.gracePeriodSeconds <= {cel.on_old_object(SECONDS)}"
    no_gpu = f"!({cel.on_old_object(cel.reaches_gpu(seats.names))})"
    holds = f"request.operation == 'DELETE' && ({as_its_spec} || {no_gpu} || {seats.is_a_seat})"
    scope = Scope(in_namespaces(tenants), {"is-long": is_long}, _DELETION)
    return validating(GRACE_DELETION, scope, {holds: f"{_SOON}gracePeriodSeconds"}, old)
