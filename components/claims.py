"""Seats as claims for devices of NVIDIA's DRA driver. The scheduler allocates the claims without our extender.

For each DeviceClass, a ResourceQuota counts the devices that claims ask for. A ResourceQuota cannot count a capacity
such as MiB. Therefore each seat has its own DeviceClass. The tenant's quota limits the number of claims to the seat's
replicas. A policy limits each claim to the seat's tenant and MiB. Quota and policy together enforce the budget.

A ResourceSlice does not show the pool and the reserve of a device. Therefore a claim also asks for a part of the
reserve, in proportion to the seat (Ledger.claim_mib). Only the resident's template may create the claim. The pod must
select the pool's nodes (docs/adr/0027).

Sources: KEP-4381 (claims), KEP-5075 (consumable capacity), pkg/quota/v1/evaluator/core/resource_claims.go.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import pulumi

from components.admission import cel
from components.admission.policy import ResourceRule, Scope, put_into_force, validating
from components.base.manifest import Manifest, component_type, manifest, register
from tenancy import names, policy_names
from tenancy.choices import ConsumableShares
from tenancy.ledger import Ledger, Seat
from tenancy.names import Names
from tenancy.quantity import canonical, canonical_mib

_COMPONENT = "claims"


@dataclass(frozen=True, kw_only=True)
class ClaimsArgs:
    """Holds the arguments. Each seat of `ledger` becomes a DeviceClass and a ResourceClaimTemplate. The tenants'
    namespaces must exist before the claims."""

    ledger: Ledger


def device_class(seat: Seat, ledger: Ledger) -> Manifest:
    """Returns the seat's DeviceClass, which selects whole GPUs with at least the memory that the pool declares.

    On a device with less memory than declared, seats would leave a smaller reserve. The DeviceClass of a seat has no
    extendedResourceName. With an extendedResourceName, a pod that requests 8192 of the resource would get 8192 devices
    (KEP-5004).
    """
    driver, pool = cel.quoted(names.NVIDIA_DEVICE_DRIVER), ledger.pool(seat.pool)
    memory = f"device.capacity[{driver}].{names.DEVICE_MEMORY}"
    least = cel.quoted(canonical_mib(pool.memory_mib if pool else 0))
    shared = " && device.allowMultipleAllocations" if ledger.claimed is ConsumableShares.MEMORY else ""
    expression = (
        f"device.driver == {driver} && device.attributes[{driver}].{names.NVIDIA_DEVICE_TYPE} == "
        f"{cel.quoted(names.NVIDIA_WHOLE_GPU)} && has({memory}) && {memory}.compareTo(quantity({least})) >= 0{shared}"
    )
    spec = {"selectors": [{"cel": {"expression": expression}}]}
    return manifest(names.RESOURCE_API, "DeviceClass", ledger.names.device_class(seat.name), _COMPONENT, spec=spec)


def claim_template(seat: Seat, ledger: Ledger) -> Manifest:
    """Returns the template of the claims of the resident's pods. Each claim asks for the seat's MiB on one device."""
    request = {
        "name": names.SEAT_CLAIM,
        "exactly": {
            "deviceClassName": ledger.names.device_class(seat.name),
            "allocationMode": "ExactCount",
            "count": 1,
            "capacity": {"requests": {names.DEVICE_MEMORY: canonical_mib(ledger.claim_mib(seat))}},
        },
    }
    return manifest(
        names.RESOURCE_API,
        "ResourceClaimTemplate",
        names.seat_claim_template(seat.name),
        _COMPONENT,
        seat.tenant,
        spec={"spec": {"devices": {"requests": [request]}}},
    )


def quota(tenant: str, seats: Iterable[Seat], resources: Names) -> Manifest:
    """Returns the tenant's quota, with one device for each replica of each seat."""
    hard = {names.devices_quota(resources.device_class(seat.name)): canonical(seat.replicas) for seat in seats}
    return manifest("v1", "ResourceQuota", names.SEAT_CLAIM_QUOTA, _COMPONENT, tenant, spec={"hard": hard})


def claim_policies(ledger: Ledger) -> list[Manifest]:
    """Returns the policies for claims of a seat. Only the seat's tenant may claim the seat, and at most the seat's MiB.

    The policies also judge templates, so that the template's author sees the denial. Without a policy for templates,
    only the controller that creates the claim would get the denial.
    """
    return [
        _policy(policy_names.SEAT_CLAIMS, "resourceclaims", "object.spec", ledger, _BY_TEMPLATE),
        _policy(policy_names.SEAT_CLAIM_TEMPLATES, "resourceclaimtemplates", "object.spec.spec", ledger, _OF_RESIDENT),
        _pods(ledger),
    ]


_BY_TEMPLATE = {
    f"variables.asked.size() == 0 || request.userInfo.username in {cel.quoted_list(names.CLAIM_CONTROLLERS)}": (
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
    suffix, capacity_name = cel.quoted(ledger.names.device_class("")), cel.quoted(names.DEVICE_MEMORY)
    is_ours = f"deviceClassName.endsWith({suffix})"
    capacity = "r.capacity.requests"
    share = f"quantity({capacity}[{capacity_name}])"
    says_how_much = f"has(r.capacity) && has({capacity}) && {capacity_name} in {capacity}"
    within = f"{share}.compareTo(quantity(variables.sizes[r.deviceClassName])) <= 0"
    templates = {seat.name: names.seat_claim_template(seat.name) for seat in ledger.seats}
    return validating(
        name,
        Scope(namespaces={}, conditions={}, rules=(ResourceRule("CREATE", (resource,), group=names.RESOURCE_GROUP),)),
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
                f"this claim asks for more {names.DEVICE_MEMORY} than its seat holds, or does not say how much: "
                "see residents of the stack"
            ),
            **more,
        },
        {
            "requests": cel.claim_requests(spec),
            "asked": f"variables.requests.filter(r, has(r.exactly) && r.exactly.{is_ours}).map(r, r.exactly)",
            "tenants": _by_class({seat.name: seat.tenant for seat in ledger.seats}, ledger.names),
            "sizes": _by_class({s.name: canonical_mib(ledger.claim_mib(s)) for s in ledger.seats}, ledger.names),
            **({"templates": _by_class(templates, ledger.names)} if more is _OF_RESIDENT else {}),
        },
        component=_COMPONENT,
    )


def _pods(ledger: Ledger) -> Manifest:
    """Denies a pod that claims a seat and does not select the nodes of the seat's pool. A device in a ResourceSlice
    does not name its pool, so the pod's nodeSelector must select the pool's nodes.
    """
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
    return validating(policy_names.SEAT_PODS, scope, {held: message}, variables, component=_COMPONENT)


def _by_class(values: Mapping[str, str], resources: Names) -> str:
    return f"{{{', '.join(f'{cel.quoted(resources.device_class(s))}: {cel.quoted(v)}' for s, v in values.items())}}}"


def resident_stanzas(ledger: Ledger) -> dict[str, dict[str, Any]]:
    """Returns the fields that the pods of each resident need. `resources` belongs to the container that uses the
    device."""
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
    """Declares first the quotas and policies that limit the claims, and then the DeviceClass and the template of each
    seat.
    """

    templates: pulumi.Output[list[str]]

    def __init__(self, name: str, args: ClaimsArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        ledger, resources = args.ledger, args.ledger.names
        super().__init__(component_type("Claims"), name, {"seats": [seat.name for seat in ledger.seats]}, opts)
        limits = [
            put_into_force(policy, f"{name}-{policy['metadata']['name']}", parent=self)
            for policy in claim_policies(ledger)
        ] + [
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
                    replace_on_changes=["spec"],  # The API server refuses changes of the resources of a template.
                )
            )
        written = [names.seat_claim_template(seat.name) for seat in ledger.seats]
        self.templates = pulumi.Output.all(*(each.urn for each in templates)).apply(lambda _: written)
        self.register_outputs({"templates": self.templates})
