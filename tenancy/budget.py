"""What a pod declares of GPU memory, in MiB: in its limits, or by claims on seats."""

from tenancy.ledger import Ledger
from tenancy.names import seat_claim_template
from tenancy.workload import Manifest, given, maps_at, pod_request


def declared_mib(ledger: Ledger, namespace: str, pod_spec: Manifest) -> int:
    """Both together. A claim is made by the template of its seat, which admission holds to the seat's MiB.

    Raises QuantityError and ShapeError.
    """
    templates = {seat_claim_template(seat.name): seat.gpumem_mib for seat in ledger.seats_of(namespace)}
    claims = maps_at(pod_spec, "resourceClaims")
    claimed = (templates.get(given(claim, "resourceClaimTemplateName", ""), 0) for claim in claims)
    return pod_request(pod_spec, ledger.names.gpumem) + sum(claimed)
