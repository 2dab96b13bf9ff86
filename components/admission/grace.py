"""Grace: a GPU pod without a seat goes soon after it has to.

Whoever comes next was promised what it holds: Kueue hands its quota on, the gate counts its memory as coming. A seat is
its tenant's own for as long as its pod takes to end.
"""

from collections.abc import Iterable

from components.admission import cel
from components.admission.policy import ResourceRule, Scope, validating, within
from components.admission.seats import Seats, in_parts
from components.base.manifest import Manifest
from tenancy.names import GRACE, GRACE_DELETION
from tenancy.reach import MOST_GRACE_SECONDS

_COMPONENT = "admission"
MOST_SECONDS = MOST_GRACE_SECONDS
SECONDS = "object.spec.?terminationGracePeriodSeconds.orValue(30)"
_SOON = f"a pod with a GPU and no seat ends within {MOST_SECONDS} s, for others wait for its device: lower "
TOO_LONG = f"{_SOON}terminationGracePeriodSeconds"
_DELETION = (ResourceRule("DELETE", ("pods",)), ResourceRule("CREATE", ("pods/eviction",)))


def grace(seats: Seats, without_budget: Iterable[str]) -> list[Manifest]:
    """The policies, for the tenants whose GPU pods need no seat; none where there are none."""
    return in_parts(
        seats, sorted(without_budget), lambda part, tenants: [_asked(part, tenants), _deletion(part, tenants)]
    )


def _asked(seats: Seats, tenants: Iterable[str]) -> Manifest:
    """What the pod's own spec says counts for whoever deletes it without saying more."""
    conditions = {"is-long": f"{SECONDS} > {MOST_SECONDS}", "reaches-a-gpu": cel.reaches_gpu(seats.names)}
    return validating(
        _COMPONENT, GRACE, Scope(within(tenants), conditions), {seats.is_a_seat: TOO_LONG}, seats.variables
    )


def _deletion(seats: Seats, tenants: Iterable[str]) -> Manifest:
    """Who deletes a pod may give it more than its spec. What the API server asks us about is what the pod would get,
    its spec's where nobody says (CheckGracefulDelete in pkg/registry/core/pod/strategy.go): a long one from before the
    policies may stay. An eviction does not tell what its pod asks for."""
    asked = "options.?gracePeriodSeconds.orValue(0)"
    is_long = (
        f"(request.operation == 'DELETE' ? request.{asked} : "
        f"object.?deleteOptions.?gracePeriodSeconds.orValue(0)) > {MOST_SECONDS}"
    )
    old = {name: cel.of_old(expression) for name, expression in seats.variables.items()}
    as_its_spec = f"request.options.gracePeriodSeconds <= {cel.of_old(SECONDS)}"
    no_gpu = f"!({cel.of_old(cel.reaches_gpu(seats.names))})"
    holds = f"request.operation == 'DELETE' && ({as_its_spec} || {no_gpu} || {seats.is_a_seat})"
    scope = Scope(within(tenants), {"is-long": is_long}, _DELETION)
    return validating(_COMPONENT, GRACE_DELETION, scope, {holds: f"{_SOON}gracePeriodSeconds"}, old)
