"""Admission: what the API server stamps on pods, and which pods it denies."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import pulumi
from pydantic import Field

from components.admission import caps, cel, routes
from components.admission.device import device_binding, device_choice, device_placed, device_stamps
from components.admission.grace import grace
from components.admission.mirror import mirror_pods
from components.admission.namespaces import counted_gpus, exemption, exemptions, gpu_tenants, pod_security
from components.admission.policy import Scope, mutating, outside, put_into_force, validating, within
from components.admission.queued import Queued, queued
from components.admission.seats import gpu_count_use, seat_sizes, whole_devices
from components.base.manifest import Manifest, component_type, register
from components.base.spec import DnsLabel, GroupName, ObjectName, PriorityKey, Spec
from tenancy.ledger import Pool, Tenant
from tenancy.names import SCHEDULER_ACCOUNT, SYSTEM_PRIORITIES, Names
from tenancy.policy_names import GPU_BUDGET, PLACE_QUEUED, PLACE_SEATED, PRIORITY_SYSTEM, PRIORITY_USE, STAMP_PRIORITY


class AdmissionSpec(Spec):
    """Admission policies, by which the API server changes and denies pods. Needs Kubernetes 1.36."""

    gpu_priority: PriorityKey = Field(description="Key of priorities: stamped on every pod that reaches a GPU.")
    tenant_priorities: dict[DnsLabel, DnsLabel] = Field(
        default_factory=dict,
        description="Key of tenants to key of priorities: stamped there instead.",
        examples=[{"batch": "gpu-later"}],
    )
    exempt_namespaces: list[DnsLabel] = Field(
        default_factory=list,
        description="Where the driver, the device plugin and their like run, such as gpu-operator: the stack labels "
        "these namespaces, and nothing is stamped or refused there. kube-system is always exempt.",
        examples=[["gpu-operator"]],
    )
    trusted_namespaces: list[DnsLabel] = Field(
        default_factory=list,
        description="Namespaces of programs that may write objects on which budgets rest, such as "
        "node-problem-detector: the policy pack allows their rights. Their pods are judged like any other's.",
        examples=[["node-problem-detector"]],
    )
    trusted_groups: list[GroupName] = Field(
        default_factory=list,
        description="Groups of the identity provider that may have such rights, none of a tenant's.",
        examples=[["platform-admins"]],
    )
    exempt_priorities: list[ObjectName] = Field(
        default_factory=list,
        description="PriorityClasses above gpu_priority that other programs declare, such as a storage system's: only "
        "for pods in exempt namespaces, since they preempt seats.",
        examples=[["storage-critical"]],
    )
    device_classes: list[ObjectName] = Field(
        default_factory=list,
        description="DeviceClasses that give no GPU: ResourceClaims may ask for them, beside seats.",
        examples=[["sriov.example.com"]],
    )


@dataclass(frozen=True, kw_only=True)
class PoolPlacement:
    """Tenants with devices in the same pools, and the labels that all nodes of these pools have."""

    name: str
    tenants: Sequence[str]
    node_selector: Mapping[str, str]


@dataclass(frozen=True, kw_only=True)
class ByDevice:
    """`account`: the user name of the scheduler that places by device; `devices`: the most that a node has."""

    account: str
    devices: int


@dataclass(frozen=True, kw_only=True)
class AdmissionArgs:
    """The parts of the whole stack that the policies depend on."""

    spec: AdmissionSpec
    names: Names
    exempt: Sequence[str]  # by name; `spec` has those that get a label
    without_budget: Sequence[str]  # tenants with GPU pods that carry no gpumem
    device_mib: int  # that the largest device offers
    queued: Sequence[PoolPlacement]  # of queue tenants
    seated: Sequence[PoolPlacement]  # of all other tenants
    priority_tenants: Mapping[str, Iterable[str]]  # by PriorityClass, beyond those in `spec`
    queues: Queued
    by_device: ByDevice | None = None  # None: NVIDIA's device plugin chooses the device
    tenants: Sequence[Tenant] = ()
    own: Sequence[str] = ()  # the stack's namespaces
    pools: Sequence[Pool] = ()


def policies(args: AdmissionArgs) -> list[Manifest]:
    """Returns every policy, those that change a pod before those that judge it."""
    names, exempt, by_device = args.names, args.exempt, args.by_device
    placed = {tenant: placement.node_selector for placement in args.seated for tenant in placement.tenants}
    return [
        *priority_stamps(args),
        *(queued_placement(args, placement) for placement in args.queued),
        *(seated_placement(args, placement) for placement in args.seated),
        *device_stamps(names, exempt, by_device=by_device is not None),
        gpu_budget(args),
        routes.runtimes(names, [*exempt, *args.without_budget]),
        *routes.environments(exempt, args.without_budget, by_device=by_device is not None),
        routes.claims(names, exempt, args.spec.device_classes),
        *([device_placed(names, exempt, by_device.devices)] if by_device else ()),
        *caps.policies(caps.CapArgs(resources=names, exempt=exempt, pools=args.pools, placed=placed)),
        device_choice(names, exempt),
        device_binding(names, by_device.account if by_device else SCHEDULER_ACCOUNT),
        mirror_pods(exempt),
        gpu_tenants(names, exempt, [tenant.name for tenant in args.tenants]),
        *counted_gpus(set(args.without_budget) - set(args.queues.tenants)),
        gpu_count_use(names, exempt),
        whole_devices(names, exempt),
        *seat_sizes(args.queues.seats, args.queues.tenants),
        *queued(args.queues),
        *grace(args.queues.seats, args.without_budget),
        *pod_security(args.tenants),
        exemptions(),
        *priority_uses(args),
    ]


def priority_stamps(args: AdmissionArgs) -> list[Manifest]:
    """Gives each pod that reaches a GPU the GPU class, or its tenant's own class."""
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
    """Sets the class and removes the old class's value and policy, so that the Priority plugin fills them in again.

    With the old ones the plugin would refuse the pod (plugin/pkg/admission/priority/admission.go).
    """
    operations = [
        cel.set_field("priorityClassName", priority),
        cel.drop_field("priority"),
        cel.drop_field("preemptionPolicy"),
    ]
    # A second run would come after the plugin, and leave the pod without a priority.
    return mutating(name, scope, operations, again=False)


def queued_placement(args: AdmissionArgs, placement: PoolPlacement) -> Manifest:
    """Sends whole-device pods of queue tenants to their queue's devices.

    A flavor without node labels would otherwise let a queued Job take nvidia.com/gpu of a shared pool.
    """
    conditions = {**_reaches_gpu(args), "has-no-budget": f"!{cel.asks_for_gpumem(args.names)}"}
    scope = Scope(within(placement.tenants), conditions)
    operations = [cel.merge_node_selector(placement.node_selector)]
    return mutating(f"{PLACE_QUEUED}-{placement.name}", scope, operations)


def seated_placement(args: AdmissionArgs, placement: PoolPlacement) -> Manifest:
    """Sends GPU pods of a tenant to its seats' pool.

    On other nodes they would take what is promised to others, or host memory that a memory pool counts on.
    """
    operations = [cel.merge_node_selector(placement.node_selector)]
    scope = Scope(within(placement.tenants), _reaches_gpu(args))
    return mutating(f"{PLACE_SEATED}-{placement.name}", scope, operations)


def gpu_budget(args: AdmissionArgs) -> Manifest:
    """A pod that reaches a GPU has a budget, which fits one device."""
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
    return validating(GPU_BUDGET, scope, validations, variables)


def priority_uses(args: AdmissionArgs) -> list[Manifest]:
    """Only GPU pods use the GPU class, and only its tenants use a tenant's class."""
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
    return validating(f"{PRIORITY_USE}-{priority}", scope, {holds: message})


def _no_system_class(args: AdmissionArgs) -> Manifest:
    """Only the stack's own pods use the system's classes.

    Such a pod could preempt every seat and every agent. The kernel would also kill it last when host memory runs out.
    """
    named = f"object.spec.priorityClassName.startsWith({cel.text(SYSTEM_PRIORITIES)})"
    has_class = f"has(object.spec.priorityClassName) && {named}"
    scope = Scope(outside([*args.exempt, *args.own]), {"has-a-system-class": has_class})
    message = f"priorityClassName {SYSTEM_PRIORITIES}* is for what the cluster cannot do without: remove it"
    return validating(PRIORITY_SYSTEM, scope, {"false": message})


def _reaches_gpu(args: AdmissionArgs) -> dict[str, str]:
    return {"reaches-a-gpu": cel.reaches_gpu(args.names)}


class Admission(pulumi.ComponentResource):
    """The policies, put into force."""

    def __init__(self, name: str, args: AdmissionArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__(component_type("Admission"), name, {"spec": args.spec.model_dump(mode="json")}, opts)
        # The labels come first, so that no pod of an exempt namespace is denied in between.
        exempt = [
            register(exemption(namespace), f"{name}-exempt-{namespace}", parent=self, patch=True)
            for namespace in args.spec.exempt_namespaces
            if namespace not in args.exempt
        ]
        for policy in policies(args):
            put_into_force(policy, f"{name}-{policy['metadata']['name']}", parent=self, depends_on=exempt)
        self.register_outputs({})
