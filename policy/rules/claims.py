"""Rules over claims on seats, where the scheduler's own allocator places them."""

import math
from collections.abc import Iterator, Mapping
from typing import Any

from policy.finding import Finding, each
from policy.graph import Claim, Graph
from policy.objects import Object, text
from tenancy import names, sums
from tenancy.ledger import Ledger, Seat
from tenancy.quantity import parse, whole
from tenancy.units import MIB
from tenancy.workload import at, given, maps_at

_GROUP = names.RESOURCE_API.partition("/")[0]
_TEMPLATE = f"ResourceClaimTemplate.{_GROUP}"


def claims(graph: Graph) -> Iterator[Finding]:
    """A claim on a seat is its tenant's and within the seat's MiB, and a quota holds the tenant to its seats."""
    ledger = graph.ledger
    if ledger is None:
        return
    seats = {ledger.names.device_class(seat.name): seat for seat in ledger.seats}
    for line in sums.whole_devices(ledger):
        yield Finding(line, graph.ledger_objects[0].urn if graph.ledger_objects else None)
    yield from each(graph.of(f"ResourceClaim.{_GROUP}"), lambda o: _claim(ledger, seats, o, at(o.manifest, "spec")))
    templates = graph.of(_TEMPLATE)
    yield from each(templates, lambda o: _claim(ledger, seats, o, at(o.manifest, "spec", "spec")))
    yield from each(graph.of(f"DeviceClass.{_GROUP}"), lambda o: _capped(graph, seats, o))
    for claiming in graph.claims if ledger.claimed is not None else ():
        yield from _on_its_pool(ledger, claiming)


def _claim(ledger: Ledger, seats: Mapping[str, Seat], claim: Object, spec: Mapping[str, Any]) -> Iterator[Finding]:
    """As the policies of components/claims.py judge it when it is made."""
    ours = ledger.names.device_class("")
    for request in maps_at(spec, "devices", "requests"):
        for choice in maps_at(request, "firstAvailable"):
            if text(choice, "deviceClassName").endswith(ours):
                yield Finding(f"{claim}: claims a seat among others under firstAvailable; use exactly", claim.urn)
        exactly = at(request, "exactly")
        for choice in (exactly, *maps_at(request, "firstAvailable")):
            yield from _of_another_driver(ledger, claim, text(choice, "deviceClassName"))
        if text(exactly, "deviceClassName").endswith(ours):
            yield from _exactly(ledger, seats, claim, exactly)


def _of_another_driver(ledger: Ledger, claim: Object, device_class: str) -> Iterator[Finding]:
    """Nobody counts what such a claim gives; where there is no admission nobody says which classes give no GPU."""
    terms = ledger.admission
    if terms is None or not device_class or device_class.endswith(ledger.names.device_class("")):
        return
    if device_class not in terms.device_classes and claim.namespace not in ledger.exempt_namespaces:
        yield Finding(
            f"{claim}: claims {device_class} beside the budgets; claim a seat, or list the class under "
            "admission.device_classes of the platform's stack if it gives no GPU",
            claim.urn,
        )


def _exactly(ledger: Ledger, seats: Mapping[str, Seat], claim: Object, asked: Mapping[str, Any]) -> Iterator[Finding]:
    device_class = text(asked, "deviceClassName")
    mode, count = given(asked, "allocationMode", "ExactCount"), given(asked, "count", 1)
    if (mode, count) != ("ExactCount", 1):
        yield Finding(f"{claim}: claims more of {device_class} than the one device that a seat is on", claim.urn)
    if given(asked, "adminAccess", False) is not False:
        yield Finding(f"{claim}: claims {device_class} without counting; remove adminAccess", claim.urn)
    seat = seats.get(device_class)
    if seat is None or seat.tenant != claim.namespace:
        yield Finding(
            f"{claim}: claims {device_class}, which is no seat of {claim.namespace}; add it to residents", claim.urn
        )
        return
    capacity, most_mib = ledger.claim_capacity, ledger.claim_mib(seat)
    share = at(asked, "capacity", "requests").get(capacity)
    if share is None:
        yield Finding(f"{claim}: claims {device_class} and not how much of it; say {capacity}", claim.urn)
    elif (mib := math.ceil(parse(share) / MIB)) > most_mib:
        has = "" if most_mib == seat.gpumem_mib else f" and {most_mib} with its part of the reserve"
        yield Finding(
            f"{claim}: claims {mib} MiB, the seat has {seat.gpumem_mib}{has}; lower it or raise "
            f"residents.{seat.name}.gpumem_mib",
            claim.urn,
        )
    template = names.seat_claim_template(seat.name)
    if ledger.claimed is not None and (claim.qualified_kind != _TEMPLATE or claim.name != template):
        yield Finding(
            f"{claim}: claims {device_class} beside the template {template}, by which pods are held to the nodes of "
            f"pools.{seat.pool}; name that in the pod (resourceClaimTemplateName)",
            claim.urn,
        )


def _on_its_pool(ledger: Ledger, claiming: Claim) -> Iterator[Finding]:
    """Another driver's devices do not say which pool they are of: the pod's nodes do."""
    pool = ledger.pool(claiming.seat.pool) if claiming.seat else None
    selected = at(claiming.pod_spec, "nodeSelector")
    if pool is None or not maps_at(claiming.pod_spec, "resourceClaims"):
        return
    if lacking := {key: value for key, value in pool.node_selector.items() if selected.get(key) != value}:
        wanted = ", ".join(f"{key}: {value}" for key, value in sorted(lacking.items()))
        yield Finding(
            f"{claiming}: claims a seat of {pool.name} and may run where that pool is not; give it the nodeSelector "
            f"{wanted}",
            claiming.urn,
        )


def _capped(graph: Graph, seats: Mapping[str, Seat], declared: Object) -> Iterator[Finding]:
    """Kubernetes limits the devices of a class only where a quota names it."""
    seat = seats.get(declared.name)
    if seat is None or graph.is_beside:
        return  # of another program's the rule on the platform's own says all
    key = names.devices_quota(declared.name)
    quotas = (q for q in graph.of("ResourceQuota") if q.namespace == seat.tenant)
    allowed = [whole(given(at(q.manifest, "spec", "hard"), key, seat.replicas + 1)) for q in quotas]
    if min(allowed, default=seat.replicas + 1) > seat.replicas:
        yield Finding(
            f"{declared}: no ResourceQuota holds {seat.tenant} to {seat.replicas} of it; set {key}", declared.urn
        )
