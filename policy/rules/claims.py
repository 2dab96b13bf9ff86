"""The rule on claims."""

import math
from collections.abc import Iterator, Mapping
from typing import Any

from policy.finding import Finding, judge_each
from policy.graph import Graph, PodRequest
from policy.objects import Object, text_at
from policy.rule import Example, an_object, rule
from tenancy import names, sums
from tenancy.ledger import Ledger, Seat
from tenancy.quantity import parse
from tenancy.units import MIB
from tenancy.workload import map_at, maps_at, value_or

_GROUP = names.RESOURCE_API.partition("/")[0]
_TEMPLATE = f"ResourceClaimTemplate.{_GROUP}"


_REQUEST = {"name": "gpumem", "exactly": {"deviceClassName": "frigate.gpumem.viktorbarzin.me"}}


@rule(
    "claims",
    Example(
        "spec.spec.devices.requests",
        [_REQUEST],
        [],
        of=an_object(names.RESOURCE_API, "ResourceClaimTemplate", "frigate-gpumem", "frigate"),
        instead="Declare a claim for a seat only in a stack with `scheduler.placement: dra`.",
    ),
)
def claims(graph: Graph) -> Iterator[Finding]:
    """A claim for a seat is in the namespace of the seat's tenant, and asks for at most the MiB of the seat."""
    ledger = graph.ledger
    if ledger is None:
        return
    claimed = ledger.seats if ledger.claimed is not None else ()
    seats = {ledger.names.device_class(seat.name): seat for seat in claimed}
    for line in sums.whole_devices(ledger):
        yield Finding(line, graph.ledger_objects[0].urn if graph.ledger_objects else None)
    yield from judge_each(
        graph.of(f"ResourceClaim.{_GROUP}"), lambda o: _claim(ledger, seats, o, map_at(o.manifest, "spec"))
    )
    templates = graph.of(_TEMPLATE)
    yield from judge_each(templates, lambda o: _claim(ledger, seats, o, map_at(o.manifest, "spec", "spec")))
    for request in graph.requests if claimed else ():
        yield from _on_its_pool(ledger, request)


def _claim(ledger: Ledger, seats: Mapping[str, Seat], claim: Object, spec: Mapping[str, Any]) -> Iterator[Finding]:
    """Judges a claim like the admission policies of components/claims.py."""
    ours = ledger.names.device_class("")
    for request in maps_at(spec, "devices", "requests"):
        for choice in maps_at(request, "firstAvailable"):
            if text_at(choice, "deviceClassName").endswith(ours):
                yield Finding(f"{claim}: claims a seat among others under firstAvailable; use exactly", claim.urn)
        exactly = map_at(request, "exactly")
        for choice in (exactly, *maps_at(request, "firstAvailable")):
            yield from _of_another_driver(ledger, claim, text_at(choice, "deviceClassName"))
        if text_at(exactly, "deviceClassName").endswith(ours):
            yield from _exactly(ledger, seats, claim, exactly)


def _of_another_driver(ledger: Ledger, claim: Object, device_class: str) -> Iterator[Finding]:
    """Reports a claim on devices of another driver, because the ledger does not count such a claim. Classes in
    admission.device_classes are allowed, because they give no GPU."""
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
    device_class = text_at(asked, "deviceClassName")
    mode, count = value_or(asked, "allocationMode", "ExactCount"), value_or(asked, "count", 1)
    if (mode, count) != ("ExactCount", 1):
        yield Finding(f"{claim}: claims more of {device_class} than the one device that a seat is on", claim.urn)
    if value_or(asked, "adminAccess", False) is not False:
        yield Finding(f"{claim}: claims {device_class} without counting; remove adminAccess", claim.urn)
    seat = seats.get(device_class)
    if seat is None or seat.tenant != claim.namespace:
        yield Finding(
            f"{claim}: claims {device_class}, which is no seat of {claim.namespace}; add it to residents", claim.urn
        )
        return
    most_mib = ledger.claim_mib(seat)
    share = map_at(asked, "capacity", "requests").get(names.DEVICE_MEMORY)
    if share is None:
        yield Finding(f"{claim}: claims {device_class} and not how much of it; say {names.DEVICE_MEMORY}", claim.urn)
    elif (mib := math.ceil(parse(share) / MIB)) > most_mib:
        yield Finding(
            f"{claim}: claims {mib} MiB, the seat has {seat.gpumem_mib} and {most_mib} with its part of the reserve; "
            f"lower it or raise residents.{seat.name}.gpumem_mib",
            claim.urn,
        )
    template = names.seat_claim_template(seat.name)
    if claim.qualified_kind != _TEMPLATE or claim.name != template:
        yield Finding(
            f"{claim}: claims {device_class} beside the template {template}, by which pods are held to the nodes of "
            f"pools.{seat.pool}; name that in the pod (resourceClaimTemplateName)",
            claim.urn,
        )


def _on_its_pool(ledger: Ledger, request: PodRequest) -> Iterator[Finding]:
    """Reports a pod without the pool's nodeSelector. A claim does not name its pool, so the pod's nodeSelector must
    select the pool."""
    pool = ledger.pool(request.seat.pool) if request.seat else None
    selected = map_at(request.pod_spec, "nodeSelector")
    if pool is None or not maps_at(request.pod_spec, "resourceClaims"):
        return
    if lacking := {key: value for key, value in pool.node_selector.items() if selected.get(key) != value}:
        wanted = ", ".join(f"{key}: {value}" for key, value in sorted(lacking.items()))
        yield Finding(
            f"{request}: claims a seat of {pool.name} and may run where that pool is not; give it the nodeSelector "
            f"{wanted}",
            request.urn,
        )
