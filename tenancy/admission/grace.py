"""Grace: a GPU pod without a seat has a short grace period.

While a GPU pod without a seat terminates, its memory is already promised to another pod. Kueue gives the pod's quota to
another Job, and the demand gate expects that the pod's memory becomes free soon. A pod with a seat may have a longer
grace period, because no other tenant gets the memory of the seat.
"""

from collections.abc import Iterable

from tenancy.admission import cel
from tenancy.admission.policy import POD_CREATION, Manifest, ResourceRule, Scope, in_namespaces, validating
from tenancy.admission.seats import TenantSeatSizes
from tenancy.policy_names import GRACE
from tenancy.reach import MOST_GRACE_SECONDS

_RULES = (*POD_CREATION, ResourceRule("DELETE", ("pods",)), ResourceRule("CREATE", ("pods/eviction",)))
_ASKED = "?gracePeriodSeconds.orValue(0)"
_SPEC_SECONDS = "spec.?terminationGracePeriodSeconds.orValue(30)"
_SOON = f"a pod with a GPU and no seat ends within {MOST_GRACE_SECONDS} s, for others wait for its device: lower "


def grace(seats: TenantSeatSizes, without_budget: Iterable[str]) -> list[Manifest]:
    """Returns the policies for the tenants `without_budget`, if there are any."""
    tenants = sorted(without_budget)
    return [_policy(seats.of(tenants), tenants)] if tenants else []


def _policy(seats: TenantSeatSizes, tenants: Iterable[str]) -> Manifest:
    """Denies a pod without a seat if the grace period in its spec is too long. Denies a deletion or an eviction with a
    grace period that is too long.

    For a deletion without a grace period, the API server uses the grace period of the pod's spec (CheckGracefulDelete
    in pkg/registry/core/pod/strategy.go). A pod that is older than the grace policies may keep the long grace period of
    its spec. An Eviction object does not contain the requests of its pod.
    """
    deleted, evicted = "request.operation == 'DELETE'", "request.?subResource.orValue('') == 'eviction'"
    seconds = (
        f"{deleted} ? request.options.{_ASKED} : {evicted} ? object.?deleteOptions.{_ASKED} : object.{_SPEC_SECONDS}"
    )
    pod = "variables.pod"
    seat_variables = {name: cel.about(pod, expression) for name, expression in seats.variables.items()}
    may = f"!({cel.about(pod, cel.reaches_gpu(seats.names))}) || {seats.is_a_seat}"
    as_its_spec = f"request.options.gracePeriodSeconds <= oldObject.{_SPEC_SECONDS}"
    validations = {
        f"{deleted} || {evicted} || {may}": f"{_SOON}terminationGracePeriodSeconds",
        f"{deleted} ? {as_its_spec} || {may} : !({evicted})": f"{_SOON}gracePeriodSeconds",
    }
    scope = Scope(in_namespaces(tenants), {"is-long": f"({seconds}) > {MOST_GRACE_SECONDS}"}, _RULES)
    variables = {"pod": f"{deleted} ? oldObject : object", **seat_variables}
    return validating(GRACE, scope, validations, variables)
