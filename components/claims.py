"""Seats as claims on devices: for the scheduler's own allocator instead of our extender (docs/adr/0015).

A ResourceQuota counts the devices that claims ask for, by DeviceClass, and never a capacity such as MiB. So each seat
is a class of its own: its tenant's quota is the seat's replicas, and a policy holds each claim on it to the seat's MiB
and to the tenant. Together that is the budget, to the MiB.

NVIDIA's devices say neither which pool they are of nor what is reserved. There a claim asks for the seat's part of the
reserve as well (Ledger.claim_mib), is made by the resident's template alone, and its pod is held to the pool's nodes
(docs/adr/0027).

Sources: KEP-4381 (claims), KEP-5075 (consumable capacity), pkg/quota/v1/evaluator/core/resource_claims.go.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import pulumi

from components.admission import cel
from components.admission.policy import ResourceRule, Scope, binding, validating
from components.base.manifest import Manifest, component_type, register
from tenancy import names
from tenancy.ledger import ClaimedDevices, Ledger, Pool, Seat
from tenancy.names import Names
from tenancy.quantity import canonical, canonical_mib

_COMPONENT = "claims"
_GROUP = names.RESOURCE_API.partition("/")[0]


@dataclass(frozen=True, kw_only=True)
class ClaimsArgs:
    """Its seats are what there is to claim; the namespaces of their tenants are there already."""

    ledger: Ledger


def device_class(seat: Seat, ledger: Ledger) -> Manifest:
    """The devices that the seat may be on: those of its pool that offer memory. It names no extended resource: a pod
    that asks for 8192 of that would be given 8192 devices (KEP-5004)."""
    resources = ledger.names
    expression = _ours(seat, resources) if ledger.claimed is None else _of(ledger.claimed, ledger.pool(seat.pool))
    return {
        "apiVersion": names.RESOURCE_API,
        "kind": "DeviceClass",
        "metadata": {"name": resources.device_class(seat.name), "labels": names.labels(_COMPONENT)},
        "spec": {"selectors": [{"cel": {"expression": expression}}]},
    }


def _ours(seat: Seat, resources: Names) -> str:
    driver = cel.text(resources.device_driver)
    attribute = f"device.attributes[{driver}].{names.DEVICE_POOL}"
    return (
        f"device.driver == {driver} && {cel.text(names.DEVICE_OFFERED)} in device.capacity[{driver}] && "
        f"has({attribute}) && {attribute} == {cel.text(seat.pool)}"
    )


def _of(claimed: ClaimedDevices, pool: Pool | None) -> str:
    """Whole GPUs with no less memory than the pool declares: on a smaller one the reserve would be smaller, too."""
    driver, least_mib = cel.text(claimed.driver), pool.memory_mib if pool else 0
    memory = f"device.capacity[{driver}].{names.DEVICE_MEMORY}"
    shared = " && device.allowMultipleAllocations" if claimed.shared else ""
    return (
        f"device.driver == {driver} && device.attributes[{driver}].{names.NVIDIA_DEVICE_TYPE} == "
        f"{cel.text(names.NVIDIA_WHOLE_GPU)} && has({memory}) && "
        f"{memory}.compareTo(quantity({cel.text(canonical_mib(least_mib))})) >= 0{shared}"
    )


def claim_template(seat: Seat, ledger: Ledger) -> Manifest:
    """What each of the resident's pods gets a claim by: its MiB on one device."""
    request = {
        "name": names.SEAT_CLAIM,
        "exactly": {
            "deviceClassName": ledger.names.device_class(seat.name),
            "allocationMode": "ExactCount",
            "count": 1,
            "capacity": {"requests": {ledger.claim_capacity: canonical_mib(ledger.claim_mib(seat))}},
        },
    }
    return {
        "apiVersion": names.RESOURCE_API,
        "kind": "ResourceClaimTemplate",
        "metadata": {
            "name": names.seat_claim_template(seat.name),
            "namespace": seat.tenant,
            "labels": names.labels(_COMPONENT),
        },
        "spec": {"spec": {"devices": {"requests": [request]}}},
    }


def quota(tenant: str, seats: Iterable[Seat], resources: Names) -> Manifest:
    """One device for each replica of each of the tenant's seats."""
    hard = {names.devices_quota(resources.device_class(seat.name)): canonical(seat.replicas) for seat in seats}
    return {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": names.SEAT_CLAIM_QUOTA, "namespace": tenant, "labels": names.labels(_COMPONENT)},
        "spec": {"hard": hard},
    }


def claim_policies(ledger: Ledger) -> list[Manifest]:
    """Policies: who claims a seat has it, and claims no more than it holds. The templates are judged as well, so that
    it is shown to who writes one, and not only to the controller that makes claims by it."""
    by_template = {} if ledger.claimed is None else _BY_TEMPLATE
    of_resident = {} if ledger.claimed is None else _OF_RESIDENT
    return [
        _policy(names.SEAT_CLAIMS, "resourceclaims", "object.spec", ledger, by_template),
        _policy(names.SEAT_CLAIM_TEMPLATES, "resourceclaimtemplates", "object.spec.spec", ledger, of_resident),
        *([] if ledger.claimed is None else [_pods(ledger)]),
    ]


_CONTROLLERS = ", ".join(map(cel.text, names.CLAIM_CONTROLLERS))
_BY_TEMPLATE = {
    f"variables.asked.size() == 0 || request.userInfo.username in [{_CONTROLLERS}]": (
        "a seat is claimed by the template of its resident: name that in the pod (resourceClaimTemplateName), see "
        "residents in the outputs of the stack"
    )
}
_OF_RESIDENT = {
    "variables.asked.all(r, variables.templates[?r.deviceClassName].orValue('') == object.metadata.name)": (
        "a seat has one template, which the stack declares: name that in the pod (resourceClaimTemplateName), see "
        "residents in the outputs of the stack"
    )
}


def _policy(name: str, resource: str, spec: str, ledger: Ledger, more: Mapping[str, str]) -> Manifest:
    suffix, capacity_name = cel.text(ledger.names.device_class("")), cel.text(ledger.claim_capacity)
    is_ours = f"deviceClassName.endsWith({suffix})"
    capacity = "r.capacity.requests"
    share = f"quantity({capacity}[{capacity_name}])"
    says_how_much = f"has(r.capacity) && has({capacity}) && {capacity_name} in {capacity}"
    within = f"{share}.compareTo(quantity(variables.sizes[r.deviceClassName])) <= 0"
    templates = {seat.name: names.seat_claim_template(seat.name) for seat in ledger.seats}
    return validating(
        _COMPONENT,
        name,
        Scope(namespaces={}, conditions={}, rules=(ResourceRule("CREATE", (resource,), group=_GROUP),)),
        {
            f"variables.requests.all(r, !has(r.firstAvailable) || !r.firstAvailable.exists(s, s.{is_ours}))": (
                "this claim asks for a seat among others under firstAvailable: ask for it under exactly"
            ),
            "variables.asked.all(r, variables.tenants[?r.deviceClassName].orValue('') == request.namespace)": (
                "this claim asks for a seat that its namespace does not have: residents of the stack says who has which"
            ),
            "variables.asked.all(r, r.allocationMode == 'ExactCount' && r.count == 1)": (
                "this claim asks for more than one device: a seat is on one"
            ),
            "variables.asked.all(r, !has(r.adminAccess) || !r.adminAccess)": (
                "this claim asks for a seat without counting (adminAccess): remove that"
            ),
            f"variables.asked.all(r, !(r.deviceClassName in variables.sizes) || ({says_how_much} && {within}))": (
                f"this claim asks for more {ledger.claim_capacity} than its seat holds, or does not say how much: "
                "see residents of the stack"
            ),
            **more,
        },
        {
            "requests": cel.requests_of(spec),
            "asked": f"variables.requests.filter(r, has(r.exactly) && r.exactly.{is_ours}).map(r, r.exactly)",
            "tenants": _by_class({seat.name: seat.tenant for seat in ledger.seats}, ledger.names),
            "sizes": _by_class({s.name: canonical_mib(ledger.claim_mib(s)) for s in ledger.seats}, ledger.names),
            **({"templates": _by_class(templates, ledger.names)} if more is _OF_RESIDENT else {}),
        },
    )


def _pods(ledger: Ledger) -> Manifest:
    """A pod that claims a seat runs where its pool is: NVIDIA's devices do not say which pool they are of."""
    pools = {pool.name: pool for pool in ledger.pools}
    selectors = {
        f"{seat.tenant}/{names.seat_claim_template(seat.name)}": dict(pools[seat.pool].node_selector)
        for seat in ledger.seats
    }
    claimed = (
        "object.spec.resourceClaims.filter(c, has(c.resourceClaimTemplateName))"
        ".map(c, request.namespace + '/' + c.resourceClaimTemplateName).filter(t, t in variables.selectors)"
    )
    held = (
        "variables.claimed.all(t, variables.selectors[t].all(k, "
        "object.spec.?nodeSelector[?k].orValue('') == variables.selectors[t][k]))"
    )
    message = (
        "this pod claims a seat and may run where the seat's pool is not: give it the nodeSelector that residents in "
        "the outputs of the stack has"
    )
    scope = Scope(namespaces={}, conditions={"claims-devices": "has(object.spec.resourceClaims)"})
    variables = {"selectors": json.dumps(selectors), "claimed": claimed}
    return validating(_COMPONENT, names.SEAT_PODS, scope, {held: message}, variables)


def _by_class(values: Mapping[str, str], resources: Names) -> str:
    """CEL: a map of texts by the seat's class."""
    return f"{{{', '.join(f'{cel.text(resources.device_class(s))}: {cel.text(v)}' for s, v in values.items())}}}"


def resident_stanzas(ledger: Ledger) -> dict[str, dict[str, Any]]:
    """What the pods of each resident must carry: `resourceClaims` in the pod, `resources` in the container that uses
    the device."""
    pools = {pool.name: pool for pool in ledger.pools}
    return {
        seat.name: {
            "namespace": seat.tenant,
            "pool": seat.pool,
            "nodeSelector": dict(pools[seat.pool].node_selector),
            "resourceClaims": [
                {"name": names.SEAT_CLAIM, "resourceClaimTemplateName": names.seat_claim_template(seat.name)}
            ],
            "resources": {"claims": [{"name": names.SEAT_CLAIM}]},
        }
        for seat in ledger.seats
    }


class Claims(pulumi.ComponentResource):
    """The seats as classes, quotas and templates, and the policies that hold claims to them. First what limits, then
    what there is to claim."""

    templates: pulumi.Output[list[str]]

    def __init__(self, name: str, args: ClaimsArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        ledger, resources = args.ledger, args.ledger.names
        super().__init__(component_type("Claims"), name, {"seats": [seat.name for seat in ledger.seats]}, opts)
        limits: list[pulumi.Resource] = []
        for policy in claim_policies(ledger):
            key = f"{name}-{policy['metadata']['name']}"
            declared = register(policy, key, parent=self)
            limits.append(register(binding(policy), f"{key}-binding", parent=self, depends_on=[declared]))
        limits += [
            register(quota(tenant, ledger.seats_of(tenant), resources), f"{name}-{tenant}-quota", parent=self)
            for tenant in sorted({seat.tenant for seat in ledger.seats})
        ]
        templates = []
        for seat in ledger.seats:
            declared = register(device_class(seat, ledger), f"{name}-{seat.name}-class", parent=self, depends_on=limits)
            templates.append(
                register(
                    claim_template(seat, ledger),
                    f"{name}-{seat.name}-template",
                    parent=self,
                    depends_on=[declared],
                    replace_on_changes=["spec"],  # immutable
                )
            )
        written = [names.seat_claim_template(seat.name) for seat in ledger.seats]
        self.templates = pulumi.Output.all(*(each.urn for each in templates)).apply(lambda _: written)
        self.register_outputs({"templates": self.templates})
