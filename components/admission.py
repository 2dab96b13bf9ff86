"""Admission: what the API server stamps on pods and what it refuses."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import pulumi
from pydantic import Field

from components import cel
from components.admission_policy import Rule, Scope, binding, mutating, outside, validating, within
from components.manifest import Manifest, component_type, register
from components.spec import DnsLabel, Spec
from tenancy.names import (
    DEVICE_BINDING,
    DEVICE_CHOICE,
    GPU_BUDGET,
    PLACE_QUEUED,
    PRIORITY_USE,
    SCHEDULER_ACCOUNT,
    STAMP_PRIORITY,
    VISIBLE_DEVICES,
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
        default=["kube-system", "gpu-operator", "nvidia", "nvidia-device-plugin"],
        description="Where the driver, the device plugin and their like run: nothing is stamped or refused there.",
    )


@dataclass(frozen=True, kw_only=True)
class Placement:
    """Tenants that queue for whole devices of the same pools, and the labels that the pools' nodes share."""

    name: str
    tenants: Sequence[str]
    node_selector: Mapping[str, str]


@dataclass(frozen=True, kw_only=True)
class AdmissionArgs:
    """`exempt`: namespaces out of every policy. `without_budget`: tenants whose GPU pods carry no gpumem. `device_mib`:
    what the largest device offers. `priority_tenants`: PriorityClass to the tenants that may use it, beyond `spec`."""

    spec: AdmissionSpec
    names: Names
    exempt: Sequence[str]
    without_budget: Sequence[str]
    device_mib: int
    placements: Sequence[Placement]
    priority_tenants: Mapping[str, Iterable[str]]


def policies(args: AdmissionArgs) -> list[Manifest]:
    """Every policy, those that change a pod before those that judge it."""
    return [
        *priority_stamps(args),
        *(queued_placement(args, placement) for placement in args.placements),
        gpu_budget(args),
        device_choice(args),
        device_binding(args),
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
    return mutating(_COMPONENT, name, scope, operations)


def queued_placement(args: AdmissionArgs, placement: Placement) -> Manifest:
    """Whole-device pods of queue tenants go where their queue's devices are.

    A flavor without node labels would else let a queued Job take nvidia.com/gpu of a pool that is shared by budget.
    """
    conditions = {**_reaches_gpu(args), "has-no-budget": f"!{cel.asks_for_gpumem(args.names)}"}
    scope = Scope(within(placement.tenants), conditions)
    operations = [cel.merge_node_selector(placement.node_selector)]
    return mutating(_COMPONENT, f"{PLACE_QUEUED}-{placement.name}", scope, operations)


def gpu_budget(args: AdmissionArgs) -> Manifest:
    """A pod that reaches a GPU has a budget, and one that fits a device."""
    gpumem, most = args.names.gpumem, args.device_mib
    scope = Scope(outside([*args.exempt, *args.without_budget]), _reaches_gpu(args))
    has_budget = (
        f"this pod reaches a GPU without a budget: add {gpumem} (MiB) to the limits of the container that uses it, or "
        "list the workload under residents, on_demand or unbudgeted of the stack"
    )
    fits = f"this pod asks for more {gpumem} than one device offers ({most} MiB): lower its limits"
    validations = {
        cel.asks_for_gpumem(args.names): has_budget,
        f"variables.asked.sum() <= {most} && variables.askedAtStart.all(mib, mib <= {most})": fits,
    }
    variables = {
        "initContainers": "has(object.spec.initContainers) ? object.spec.initContainers : []",
        "asked": cel.gpumem_of("object.spec.containers", args.names),
        "askedAtStart": cel.gpumem_of("variables.initContainers", args.names),
    }
    return validating(_COMPONENT, GPU_BUDGET, scope, validations, variables)


def device_choice(args: AdmissionArgs) -> Manifest:
    """Nobody chooses a device: neither by environment nor by the annotations that the scheduler's Binding writes.

    An update is judged by what it changes, so that a pod from before the policy can still report its status and go.
    """
    prefix = args.names.device_annotation_prefix
    ours = f"k.startsWith({cel.text(prefix)})"
    rules = (
        Rule("CREATE", ("pods",)),
        Rule("UPDATE", ("pods", "pods/status", "pods/ephemeralcontainers", "pods/resize")),
    )
    no_choice = f"!variables.started.exists(c, {cel.chooses_device('c', args.names)})"
    unchanged = (
        f"variables.after.all(k, !{ours} || k in variables.before && variables.before[k] == variables.after[k]) && "
        f"variables.before.all(k, !{ours} || k in variables.after)"
    )
    validations = {
        no_choice: f"this pod chooses its device by {VISIBLE_DEVICES}: remove the variable; the scheduler gives one",
        unchanged: f"annotations under {prefix} are the scheduler's: leave them as they are",
    }
    variables = {
        "started": f"request.operation == 'CREATE' ? {cel.CONTAINERS} : "
        "request.subResource == 'ephemeralcontainers' && has(object.spec.ephemeralContainers) ? "
        "object.spec.ephemeralContainers : []",
        "before": "oldObject != null && has(oldObject.metadata.annotations) ? oldObject.metadata.annotations : {}",
        "after": "has(object.metadata.annotations) ? object.metadata.annotations : {}",
    }
    return validating(_COMPONENT, DEVICE_CHOICE, Scope(outside(args.exempt), {}, rules), validations, variables)


def device_binding(args: AdmissionArgs) -> Manifest:
    """A Binding says which device a pod gets only if it is the scheduler's."""
    prefix = args.names.device_annotation_prefix
    stranger = {"is-not-the-scheduler": f"request.userInfo.username != {cel.text(SCHEDULER_ACCOUNT)}"}
    scope = Scope({}, stranger, (Rule("CREATE", ("pods/binding", "bindings")),))
    ours = f"object.metadata.annotations.exists(k, k.startsWith({cel.text(prefix)}))"
    validations = {
        f"!has(object.metadata.annotations) || !{ours}": f"annotations under {prefix} are the scheduler's: remove them"
    }
    return validating(_COMPONENT, DEVICE_BINDING, scope, validations)


def priority_uses(args: AdmissionArgs) -> list[Manifest]:
    """Who may use which PriorityClass: the GPU class by GPU pods, a tenant's class by that tenant."""
    tenants: dict[str, set[str]] = {args.spec.gpu_priority: set()}
    for tenant, priority in args.spec.tenant_priorities.items():
        tenants.setdefault(priority, set()).add(tenant)
    for priority, more in args.priority_tenants.items():
        tenants.setdefault(priority, set()).update(more)
    return [_priority_use(args, priority, sorted(allowed)) for priority, allowed in sorted(tenants.items())]


def _priority_use(args: AdmissionArgs, priority: str, tenants: Sequence[str]) -> Manifest:
    is_gpu_class = priority == args.spec.gpu_priority
    has_class = f"has(object.spec.priorityClassName) && object.spec.priorityClassName == {cel.text(priority)}"
    scope = Scope(outside([*args.exempt, *tenants]), {"has-the-class": has_class})
    allowed = ", ".join([*(["pods that reach a GPU"] if is_gpu_class else []), *(f"tenant {t}" for t in tenants)])
    message = f"priorityClassName {priority} is only for {allowed}: remove it"
    holds = cel.reaches_gpu(args.names) if is_gpu_class else "false"
    return validating(_COMPONENT, f"{PRIORITY_USE}-{priority}", scope, {holds: message})


def _reaches_gpu(args: AdmissionArgs) -> dict[str, str]:
    return {"reaches-a-gpu": cel.reaches_gpu(args.names)}


class Admission(pulumi.ComponentResource):
    """Declares the policies and puts them into force."""

    policies: pulumi.Output[list[str]]

    def __init__(self, name: str, args: AdmissionArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__(component_type("Admission"), name, {"spec": args.spec.model_dump(mode="json")}, opts)
        declared = {policy["metadata"]["name"]: policy for policy in policies(args)}
        bindings = [self._put_into_force(f"{name}-{key}", policy) for key, policy in declared.items()]
        self.policies = pulumi.Output.all(*(bound.urn for bound in bindings)).apply(lambda _: list(declared))
        self.register_outputs({"policies": self.policies})

    def _put_into_force(self, name: str, policy: Manifest) -> pulumi.Resource:
        declared = register(policy, name, parent=self)
        return register(binding(policy), f"{name}-binding", parent=self, depends_on=[declared])
