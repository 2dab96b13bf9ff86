"""Admission: the fields that the API server writes into pods, and the pods that the API server denies."""

from collections.abc import Sequence
from dataclasses import dataclass

import pulumi
from pydantic import Field

from components.admission import caps, cel, placement, routes
from components.admission.device import device_annotations, device_binding, device_choices, device_placed, device_stamps
from components.admission.grace import grace
from components.admission.merge import merged
from components.admission.mirror import mirror_pods
from components.admission.namespaces import counted_gpus, exemption, exemptions, gpu_tenants, pod_security
from components.admission.placement import PoolPlacement
from components.admission.policy import (
    MutatingApi,
    Scope,
    in_namespaces,
    mutating,
    outside_namespaces,
    put_into_force,
    served_as,
    validating,
)
from components.admission.queued import QueueTenants, queue_policies
from components.admission.seats import TenantSeatSizes, gpu_count_use, seat_labels, seat_sizes, whole_devices
from components.base.identity import service_account_user
from components.base.manifest import Manifest, component_type, register
from components.base.spec import DnsLabel, ObjectName, PriorityKey, Spec
from tenancy import policy_names
from tenancy.choices import Mode
from tenancy.frameworks import Framework
from tenancy.ledger import AdmissionTerms, Ledger
from tenancy.names import (
    EXEMPT_BY_NAME,
    SCHEDULER,
    SCHEDULER_ACCOUNT,
    SYSTEM_PRIORITIES,
    Names,
)
from tenancy.policy_names import GPU_BUDGET, PLACE_QUEUED, PLACE_SEATED, PRIORITY_SYSTEM, PRIORITY_USE, STAMP_PRIORITY
from tenancy.seat_sizes import SeatSizes

# The validating policies with `stamped` judge the fields that the mutating policies add. Without the mutating policies,
# the stamped policies would warn about every pod with a GPU.
_AFTER_STAMPS = (policy_names.DEVICE_PLACED, policy_names.DEVICE_CAPPED)


class AdmissionSpec(Spec):
    """Admission policies, with which the API server changes and denies pods. Needs Kubernetes 1.36 or later, or
    mutating_api: v1beta1."""

    mode: Mode | None = Field(
        default=None,
        description="Mode of only this part of the stack: observe or enforce. Default: the stack's mode.",
        examples=["enforce"],
    )
    gpu_priority: PriorityKey = Field(
        description="Key of priorities: the PriorityClass that admission sets on every pod that asks for a device."
    )
    tenant_priorities: dict[DnsLabel, DnsLabel] = Field(
        default_factory=dict,
        description="Maps a key of tenants to a key of priorities: the PriorityClass that admission sets on the "
        "tenant's GPU pods instead of gpu_priority.",
        examples=[{"batch": "gpu-later"}],
    )
    exempt_namespaces: list[DnsLabel] = Field(
        default_factory=list,
        description="Namespaces of the driver, the device plugin and similar programs, such as gpu-operator. The "
        "stack labels exempt namespaces. Our admission policies admit every pod in exempt namespaces without a "
        "change. kube-system is always exempt.",
        examples=[["gpu-operator"]],
    )
    exempt_priorities: list[ObjectName] = Field(
        default_factory=list,
        description="PriorityClasses above gpu_priority that other programs declare, such as a storage system's. "
        "Only pods in exempt namespaces may use an exempt PriorityClass, because such pods preempt pods with a seat.",
        examples=[["storage-critical"]],
    )
    mutating_api: MutatingApi = Field(
        default=MutatingApi.V1,
        description="Version of the API for the policies that change pods: v1 for Kubernetes 1.36 and later; v1beta1 "
        "for Kubernetes 1.34 and 1.35, with the feature gate MutatingAdmissionPolicy.",
    )
    device_classes: list[ObjectName] = Field(
        default_factory=list,
        description="DeviceClasses without GPUs for which pods may have ResourceClaims.",
        examples=[["sriov.example.com"]],
    )


@dataclass(frozen=True, kw_only=True)
class AdmissionArgs:
    """Holds the arguments of the component Admission. `terms` are the settings of admission that are also in the
    ledger. `kueue` is the user name of Kueue's account.

    `frameworks` are the kinds of objects that Kueue queues.
    """

    spec: AdmissionSpec
    ledger: Ledger
    terms: AdmissionTerms
    kueue: str
    frameworks: Sequence[Framework]
    mode: Mode = Mode.ENFORCE

    @property
    def names(self) -> Names:
        return self.ledger.names

    @property
    def without_budget(self) -> list[str]:
        """Returns the tenants that have GPU pods without gpumem."""
        return sorted(self.ledger.tenants_without_budget)

    @property
    def queues(self) -> QueueTenants:
        sizes = {seat.tenant: SeatSizes.of(self.ledger.seats_of(seat.tenant)) for seat in self.ledger.seats}
        seats = TenantSeatSizes(names=self.names, sizes=sizes)
        return QueueTenants(
            seats=seats, tenants=self.ledger.queue_tenants, account=self.kueue, frameworks=self.frameworks
        )


def policies(args: AdmissionArgs) -> list[Manifest]:
    """Returns every policy. Policies that change a pod come before policies that judge a pod."""
    return served_as(args.spec.mutating_api, merged(parts(args)))


def parts(args: AdmissionArgs) -> list[Manifest]:
    """Returns the parts of the policies, each with one purpose."""
    names, ledger, queues, devices = args.names, args.ledger, args.queues, args.terms.devices
    seated = placement.other_tenant_placements(ledger)
    placed = {tenant: each.node_selector for each in seated for tenant in each.tenants}
    scheduler = service_account_user(args.terms.own[0], SCHEDULER)
    return [
        *priority_stamps(args),
        *(queued_placement(args, each) for each in placement.queue_tenant_placements(ledger)),
        *(seated_placement(args, each) for each in seated),
        *device_stamps(names, by_device=bool(devices)),
        gpu_budget(args),
        routes.runtimes(names, args.without_budget),
        *routes.environments(args.without_budget, by_device=bool(devices)),
        routes.claims(args.spec.device_classes),
        *([device_placed(names, devices)] if devices else ()),
        *caps.policies(caps.CapArgs(resources=names, pools=ledger.pools, placed=placed)),
        *device_choices(names),
        device_annotations(names),
        device_binding(names, scheduler if devices else SCHEDULER_ACCOUNT),
        mirror_pods(),
        gpu_tenants(names, [tenant.name for tenant in ledger.tenants]),
        *counted_gpus(set(args.without_budget) - set(queues.tenants)),
        gpu_count_use(names),
        whole_devices(names),
        *seat_labels(names, {seat.tenant: ledger.seats_of(seat.tenant) for seat in ledger.seats}),
        *seat_sizes(queues.seats, queues.tenants),
        *queue_policies(queues),
        *grace(queues.seats, args.without_budget),
        *pod_security(ledger.tenants),
        exemptions(),
        *priority_uses(args),
    ]


def priority_stamps(args: AdmissionArgs) -> list[Manifest]:
    """Sets the PriorityClass of each pod that asks for a device: gpu_priority, or the class in tenant_priorities.

    Some pods reach a GPU without asking for a device, for example with NVIDIA's RuntimeClass. No quota counts pods that
    reach a GPU without asking for a device. With the PriorityClass, an unlimited number of these uncounted pods could
    preempt other pods.
    """
    own: dict[str, list[str]] = {}
    for tenant, priority in args.spec.tenant_priorities.items():
        own.setdefault(priority, []).append(tenant)
    others, asking = (
        outside_namespaces(args.spec.tenant_priorities),
        {"asks-for-a-device": cel.asks_for_device(args.names)},
    )
    return [
        _priority_stamp(STAMP_PRIORITY, args.spec.gpu_priority, Scope(others, asking)),
        *(
            _priority_stamp(f"{STAMP_PRIORITY}-{priority}", priority, Scope(in_namespaces(tenants), asking))
            for priority, tenants in sorted(own.items())
        ),
    ]


def _priority_stamp(name: str, priority: str, scope: Scope) -> Manifest:
    """Sets the PriorityClass, and removes the value and the preemption policy of the old class. The Priority plugin
    then adds the value and the preemption policy of the new PriorityClass.

    If the pod kept the old values, the Priority plugin would refuse the pod
    (plugin/pkg/admission/priority/admission.go).
    """
    operations = [
        cel.set_field("priorityClassName", priority),
        cel.drop_field("priority"),
        cel.drop_field("preemptionPolicy"),
    ]
    # The API server must call this policy only once. A second call would remove the number that the API server's plugin
    # `Priority` has written into the pod.
    return mutating(name, scope, operations, again=False)


def queued_placement(args: AdmissionArgs, placed: PoolPlacement) -> Manifest:
    """Adds the nodeSelector of the queue's pools to queue tenants' pods that ask for whole devices.

    Without the nodeSelector, a queued Job could take nvidia.com/gpu of a pool that shares memory, if the Job's flavor
    has no node labels.
    """
    conditions = {**_reaches_gpu(args), "has-no-budget": f"!{cel.asks_for_gpumem(args.names)}"}
    scope = Scope(in_namespaces(placed.tenants), conditions)
    operations = [cel.override_node_selector(placed.node_selector)]
    return mutating(f"{PLACE_QUEUED}-{placed.name}", scope, operations)


def seated_placement(args: AdmissionArgs, placed: PoolPlacement) -> Manifest:
    """Adds the nodeSelector of the tenant's pools to the tenant's GPU pods.

    On other nodes, the tenant's pods could take GPU memory that is promised to other tenants, or host memory of a
    memory pool.
    """
    operations = [cel.override_node_selector(placed.node_selector)]
    scope = Scope(in_namespaces(placed.tenants), _reaches_gpu(args))
    return mutating(f"{PLACE_SEATED}-{placed.name}", scope, operations)


def gpu_budget(args: AdmissionArgs) -> Manifest:
    """Denies a pod that reaches a GPU and has no budget, or a budget above the memory of the largest device."""
    gpumem, most = args.names.gpumem, max((pool.device_mib for pool in args.ledger.pools), default=0)
    scope = Scope(outside_namespaces(args.without_budget), _reaches_gpu(args))
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
        "devices": cel.devices_of(args.names) if args.terms.devices else "1",
    }
    return validating(GPU_BUDGET, scope, validations, variables)


def priority_uses(args: AdmissionArgs) -> list[Manifest]:
    """Allows only pods that ask for a device to use the class gpu_priority. Allows only the tenants with a class in
    tenant_priorities to use the class."""
    tenants = {**dict.fromkeys(args.terms.exempt_priorities, ()), **args.terms.priorities}
    uses = [_priority_use(args, priority, allowed) for priority, allowed in sorted(tenants.items())]
    return [*uses, _no_system_class(args)]


def _priority_use(args: AdmissionArgs, priority: str, tenants: Sequence[str]) -> Manifest:
    is_gpu_class = priority == args.spec.gpu_priority
    has_class = f"has(object.spec.priorityClassName) && object.spec.priorityClassName == {cel.quoted(priority)}"
    scope = Scope(outside_namespaces(tenants), {"has-the-class": has_class})
    allowed = ", ".join([*(["pods that ask for a device"] if is_gpu_class else []), *(f"tenant {t}" for t in tenants)])
    allowed = allowed or "exempt namespaces"
    message = f"priorityClassName {priority} is only for {allowed}: remove it"
    holds = cel.asks_for_device(args.names) if is_gpu_class else "false"
    return validating(f"{PRIORITY_USE}-{priority}", scope, {holds: message})


def _no_system_class(args: AdmissionArgs) -> Manifest:
    """Allows only the stack's own pods to use Kubernetes' system classes (system-*).

    A pod with a system class could preempt every seat and every agent. If host memory runs out, the kernel would kill a
    pod with a system class last.
    """
    named = f"object.spec.priorityClassName.startsWith({cel.quoted(SYSTEM_PRIORITIES)})"
    has_class = f"has(object.spec.priorityClassName) && {named}"
    scope = Scope(outside_namespaces(args.terms.own), {"has-a-system-class": has_class})
    message = f"priorityClassName {SYSTEM_PRIORITIES}* is for what the cluster cannot do without: remove it"
    return validating(PRIORITY_SYSTEM, scope, {"false": message})


def _reaches_gpu(args: AdmissionArgs) -> dict[str, str]:
    return {"reaches-a-gpu": cel.reaches_gpu(args.names)}


class Admission(pulumi.ComponentResource):
    """Creates the admission policies and their bindings."""

    def __init__(self, name: str, args: AdmissionArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__(component_type("Admission"), name, {"spec": args.spec.model_dump(mode="json")}, opts)
        # The stack sets the labels of exempt namespaces before the policies. If the stack created the policies first, a
        # policy could deny pods of an exempt namespace without its label.
        exempt = [
            register(exemption(namespace), f"{name}-exempt-{namespace}", parent=self, patch=True)
            for namespace in args.spec.exempt_namespaces
            if namespace != EXEMPT_BY_NAME
        ]
        for policy in policies(args):
            own = policy["metadata"]["name"]
            mode = Mode.ENFORCE if own in policy_names.GUARDS else args.mode
            stamped = own in _AFTER_STAMPS
            put_into_force(policy, f"{name}-{own}", parent=self, depends_on=exempt, mode=mode, stamped=stamped)
        self.register_outputs({})
