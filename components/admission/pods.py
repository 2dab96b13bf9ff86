"""Admission: what the API server stamps on pods and what it refuses."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import pulumi
from pydantic import Field

from components.admission import caps, cel, routes
from components.admission.device import (
    ByDevice,
    DeviceArgs,
    device_binding,
    device_choice,
    device_placed,
    device_stamps,
)
from components.admission.exemptions import exemption, exemptions
from components.admission.grace import grace
from components.admission.mirror import mirror_pods
from components.admission.pod_security import pod_security
from components.admission.policy import Scope, binding, mutating, outside, validating, within
from components.admission.queued import Queued, queued
from components.admission.seats import gpu_count_use, seat_sizes, whole_devices
from components.admission.tenants import counted_gpus, gpu_tenants
from components.base.manifest import Manifest, component_type, register
from components.base.spec import DnsLabel, GroupName, ObjectName, Spec
from tenancy.ledger import Pool, Tenant
from tenancy.names import (
    GPU_BUDGET,
    PLACE_QUEUED,
    PLACE_SEATED,
    PRIORITY_SYSTEM,
    PRIORITY_USE,
    STAMP_PRIORITY,
    SYSTEM_PRIORITIES,
    Names,
)

_COMPONENT = "admission"


class AdmissionSpec(Spec):
    """What the API server stamps and refuses. Needs Kubernetes 1.36."""

    gpu_priority: DnsLabel = Field(description="Key of priorities: stamped on every pod that reaches a GPU.")
    tenant_priorities: dict[DnsLabel, DnsLabel] = Field(
        default_factory=dict, description="Key of tenants to key of priorities: stamped there instead."
    )
    exempt_namespaces: list[DnsLabel] = Field(
        default_factory=list,
        description="Where the driver, the device plugin and their like run, such as gpu-operator: the stack labels "
        "these namespaces, and nothing is stamped or refused there. kube-system is always exempt.",
    )
    trusted_namespaces: list[DnsLabel] = Field(
        default_factory=list,
        description="Whose accounts may have rights past the budgets, such as those of an operator that makes pods "
        "everywhere: the policy pack lets programs bind them. Their pods are judged like any other's.",
    )
    trusted_groups: list[GroupName] = Field(
        default_factory=list,
        description="People who may have such rights: groups of the identity provider, none of a tenant's.",
    )
    exempt_priorities: list[ObjectName] = Field(
        default_factory=list,
        description="PriorityClasses above gpu_priority that other programs declare, such as a storage system's: only "
        "for pods in exempt namespaces, since they preempt seats.",
    )
    device_classes: list[ObjectName] = Field(
        default_factory=list,
        description="DeviceClasses that give no GPU: ResourceClaims may ask for them, beside seats.",
    )


@dataclass(frozen=True, kw_only=True)
class PoolPlacement:
    """Tenants whose devices are in the same pools, and the labels that the pools' nodes share."""

    name: str
    tenants: Sequence[str]
    node_selector: Mapping[str, str]


@dataclass(frozen=True, kw_only=True)
class AdmissionArgs:
    """`exempt`: namespaces out of every policy by name; others are by label, and the stack labels those of `spec` here.
    `without_budget`: tenants whose GPU pods carry no gpumem. `device_mib`: the largest device's
    offer. `queued`: where tenants queue for whole devices; `seated`: where the others have their seats, or are on
    record without one. `priority_tenants`: PriorityClass to the tenants that may use it, beyond `spec`. `queues`: who
    queues, and who has which seats. `by_device` is None where the device plugin chooses the device. `tenants` are all
    of them. `own`: the stack's own namespaces. `pools`: all of them."""

    spec: AdmissionSpec
    names: Names
    exempt: Sequence[str]
    without_budget: Sequence[str]
    device_mib: int
    queued: Sequence[PoolPlacement]
    seated: Sequence[PoolPlacement]
    priority_tenants: Mapping[str, Iterable[str]]
    queues: Queued
    by_device: ByDevice | None = None
    tenants: Sequence[Tenant] = ()
    own: Sequence[str] = ()
    pools: Sequence[Pool] = ()

    @property
    def caps(self) -> caps.CapArgs:
        placed = {tenant: placement.node_selector for placement in self.seated for tenant in placement.tenants}
        return caps.CapArgs(names=self.names, exempt=self.exempt, pools=self.pools, placed=placed)

    @property
    def routes(self) -> routes.RoutesArgs:
        return routes.RoutesArgs(
            names=self.names,
            exempt=self.exempt,
            without_budget=self.without_budget,
            device_classes=self.spec.device_classes,
            by_device=self.by_device is not None,
        )

    @property
    def device(self) -> DeviceArgs:
        return DeviceArgs(names=self.names, exempt=self.exempt, by_device=self.by_device)


def policies(args: AdmissionArgs) -> list[Manifest]:
    """Every policy, those that change a pod before those that judge it."""
    return [
        *priority_stamps(args),
        *(queued_placement(args, placement) for placement in args.queued),
        *(seated_placement(args, placement) for placement in args.seated),
        *device_stamps(args.device),
        gpu_budget(args),
        *routes.policies(args.routes),
        *([device_placed(args.device, args.by_device)] if args.by_device else ()),
        *caps.policies(args.caps),
        device_choice(args.device),
        device_binding(args.device),
        mirror_pods(args.exempt),
        gpu_tenants(args.names, args.exempt, [tenant.name for tenant in args.tenants]),
        *counted_gpus(set(args.without_budget) - set(args.queues.tenants)),
        gpu_count_use(args.names, args.exempt),
        whole_devices(args.names, args.exempt),
        *seat_sizes(args.queues.seats, args.queues.tenants),
        *queued(args.queues),
        *grace(args.queues.seats, args.without_budget),
        *pod_security(args.tenants),
        exemptions(),
        *priority_uses(args),
    ]


def priority_stamps(args: AdmissionArgs) -> list[Manifest]:
    """The GPU class for every pod that reaches a GPU, another class for the tenants that have one."""
    own: dict[str, list[str]] = {}
    for tenant, priority in args.spec.tenant_priorities.items():
        own.setdefault(priority, []).append(tenant)
    others = outside([*args.exempt, *args.spec.tenant_priorities])
    return [
        _priority_stamp(STAMP_PRIORITY, args.spec.gpu_priority, Scope(others, _reaches_gpu(args))),
        *(
            _priority_stamp(f"{STAMP_PRIORITY}-{priority}", priority, Scope(within(tenants), _reaches_gpu(args)))
            for priority, tenants in sorted(own.items())
        ),
    ]


def _priority_stamp(name: str, priority: str, scope: Scope) -> Manifest:
    """The Priority plugin ran before, has filled in the old class's value and policy, and would refuse the mismatch;
    without them it looks the new class up (plugin/pkg/admission/priority/admission.go)."""
    operations = [
        cel.set_field("priorityClassName", priority),
        cel.drop_field("priority"),
        cel.drop_field("preemptionPolicy"),
    ]
    # Not again: what would fill the value in is past then, and the pod would have none.
    return mutating(_COMPONENT, name, scope, operations, again=False)


def queued_placement(args: AdmissionArgs, placement: PoolPlacement) -> Manifest:
    """Whole-device pods of queue tenants go where their queue's devices are.

    A flavor without node labels would else let a queued Job take nvidia.com/gpu of a pool that is shared by budget.
    """
    conditions = {**_reaches_gpu(args), "has-no-budget": f"!{cel.asks_for_gpumem(args.names)}"}
    scope = Scope(within(placement.tenants), conditions)
    operations = [cel.merge_node_selector(placement.node_selector)]
    return mutating(_COMPONENT, f"{PLACE_QUEUED}-{placement.name}", scope, operations)


def seated_placement(args: AdmissionArgs, placement: PoolPlacement) -> Manifest:
    """GPU pods of a tenant go to the nodes of its seats' pool: on another they would take what is promised to others,
    or end next to a memory pool's workloads that nobody reckons them with."""
    operations = [cel.merge_node_selector(placement.node_selector)]
    scope = Scope(within(placement.tenants), _reaches_gpu(args))
    return mutating(_COMPONENT, f"{PLACE_SEATED}-{placement.name}", scope, operations)


def gpu_budget(args: AdmissionArgs) -> Manifest:
    """A pod that reaches a GPU has a budget, and one that fits a device."""
    gpumem, most = args.names.gpumem, args.device_mib
    scope = Scope(outside([*args.exempt, *args.without_budget]), _reaches_gpu(args))
    has_budget = (
        f"this pod reaches a GPU without a budget: add {gpumem} (MiB) to the limits of the container that uses it, or "
        "list the workload under residents, on_demand or unbudgeted of the stack"
    )
    fits = f"this pod asks for more {gpumem} than one device offers ({most} MiB): lower its limits"
    offered = f"{most} * variables.devices"
    validations = {
        cel.asks_for_gpumem(args.names): has_budget,
        f"variables.asked.sum() <= {offered} && variables.askedAtStart.all(mib, mib <= {offered})": fits,
    }
    variables = {
        "asked": cel.amounts_of("object.spec.containers", gpumem),
        "askedAtStart": cel.amounts_of(cel.INIT_CONTAINERS, gpumem),
        "devices": cel.devices_of(args.names) if args.by_device else "1",
    }
    return validating(_COMPONENT, GPU_BUDGET, scope, validations, variables)


def priority_uses(args: AdmissionArgs) -> list[Manifest]:
    """Who may use which PriorityClass: the GPU class by GPU pods, a tenant's class by that tenant."""
    tenants: dict[str, set[str]] = {args.spec.gpu_priority: set()}
    for tenant, priority in args.spec.tenant_priorities.items():
        tenants.setdefault(priority, set()).add(tenant)
    for priority, more in args.priority_tenants.items():
        tenants.setdefault(priority, set()).update(more)
    for priority in args.spec.exempt_priorities:
        tenants.setdefault(priority, set())
    uses = [_priority_use(args, priority, sorted(allowed)) for priority, allowed in sorted(tenants.items())]
    return [*uses, _no_system_class(args)]


def _priority_use(args: AdmissionArgs, priority: str, tenants: Sequence[str]) -> Manifest:
    is_gpu_class = priority == args.spec.gpu_priority
    has_class = f"has(object.spec.priorityClassName) && object.spec.priorityClassName == {cel.text(priority)}"
    scope = Scope(outside([*args.exempt, *tenants]), {"has-the-class": has_class})
    allowed = ", ".join([*(["pods that reach a GPU"] if is_gpu_class else []), *(f"tenant {t}" for t in tenants)])
    allowed = allowed or "exempt namespaces"
    message = f"priorityClassName {priority} is only for {allowed}: remove it"
    holds = cel.reaches_gpu(args.names) if is_gpu_class else "false"
    return validating(_COMPONENT, f"{PRIORITY_USE}-{priority}", scope, {holds: message})


def _no_system_class(args: AdmissionArgs) -> Manifest:
    """A pod of the system's class would preempt every seat, and the agents with it; and where host memory runs out, the
    kernel would kill all others first."""
    named = f"object.spec.priorityClassName.startsWith({cel.text(SYSTEM_PRIORITIES)})"
    has_class = f"has(object.spec.priorityClassName) && {named}"
    scope = Scope(outside([*args.exempt, *args.own]), {"has-a-system-class": has_class})
    message = f"priorityClassName {SYSTEM_PRIORITIES}* is for what the cluster cannot do without: remove it"
    return validating(_COMPONENT, PRIORITY_SYSTEM, scope, {"false": message})


def _reaches_gpu(args: AdmissionArgs) -> dict[str, str]:
    return {"reaches-a-gpu": cel.reaches_gpu(args.names)}


class Admission(pulumi.ComponentResource):
    """Declares the policies and puts them into force."""

    policies: pulumi.Output[list[str]]

    def __init__(self, name: str, args: AdmissionArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__(component_type("Admission"), name, {"spec": args.spec.model_dump(mode="json")}, opts)
        declared = {policy["metadata"]["name"]: policy for policy in policies(args)}
        labelled = (namespace for namespace in args.spec.exempt_namespaces if namespace not in args.exempt)
        exempt = [self._exempt(name, namespace) for namespace in labelled]
        bindings = [self._put_into_force(f"{name}-{key}", policy, exempt) for key, policy in declared.items()]
        self.policies = pulumi.Output.all(*(bound.urn for bound in bindings)).apply(lambda _: list(declared))
        self.register_outputs({"policies": self.policies})

    def _exempt(self, name: str, namespace: str) -> pulumi.Resource:
        """The label on a namespace that is somebody else's. It is there before anything would be refused."""
        return register(exemption(namespace), f"{name}-exempt-{namespace}", parent=self, patch=True)

    def _put_into_force(self, name: str, policy: Manifest, exempt: Sequence[pulumi.Resource]) -> pulumi.Resource:
        declared = register(policy, name, parent=self, depends_on=exempt)
        return register(binding(policy), f"{name}-binding", parent=self, depends_on=[declared])
