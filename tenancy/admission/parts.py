"""Renders the admission policies from the ledger: the fields that the API server writes into pods, and the pods that
the API server denies.

The policy pack and preflight evaluate the same policies (policy/admitted.py), so they cannot judge a pod differently.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from tenancy.admission import caps, cel, placement, routes
from tenancy.admission.device import (
    device_annotations,
    device_binding,
    device_choices,
    device_placed,
    device_spread,
    device_stamps,
)
from tenancy.admission.gated import gated
from tenancy.admission.grace import grace
from tenancy.admission.merge import merged
from tenancy.admission.mirror import mirror_pods
from tenancy.admission.namespaces import counted_gpus, exemptions, gpu_tenants, pod_security
from tenancy.admission.placement import PoolPlacement
from tenancy.admission.policy import Manifest, Scope, in_namespaces, mutating, outside_namespaces, validating
from tenancy.admission.queued import QueueTenants, queue_policies
from tenancy.admission.seats import TenantSeatSizes, gpu_count_use, seat_labels, seat_named, seat_sizes, whole_devices
from tenancy.admission.shares import node_shares
from tenancy.frameworks import Framework
from tenancy.ledger import AdmissionTerms, Ledger
from tenancy.names import (
    GPU_POD,
    GPU_POD_VALUE,
    SCHEDULER,
    SCHEDULER_ACCOUNT,
    SYSTEM_PRIORITIES,
    Names,
    service_account_user,
)
from tenancy.policy_names import (
    GPU_BUDGET,
    GPU_POD_STAMP,
    PLACE_QUEUED,
    PLACE_SEATED,
    PRIORITY_SYSTEM,
    PRIORITY_USE,
    STAMP_PRIORITY,
)
from tenancy.seat_sizes import SeatSizes
from tenancy.shares import seat_shares, shares


@dataclass(frozen=True, kw_only=True)
class AdmissionRules:
    """Holds what the admission policies enforce. `kueue` is the user name of Kueue's account.

    `frameworks` are the kinds of objects that Kueue queues.
    """

    ledger: Ledger
    terms: AdmissionTerms
    kueue: str = ""
    frameworks: Sequence[Framework] = ()

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
            seats=seats,
            tenants=self.ledger.queue_tenants,
            account=self.kueue,
            frameworks=self.frameworks,
            priorities=self.ledger.priority_tenants,
        )


def policies(rules: AdmissionRules) -> list[Manifest]:
    """Returns every policy. Policies that change a pod come before policies that judge a pod."""
    return merged(parts(rules))


def parts(rules: AdmissionRules) -> list[Manifest]:
    """Returns the parts of the policies, each with one purpose."""
    names, ledger, queues, devices = rules.names, rules.ledger, rules.queues, rules.terms.devices
    seated = [*placement.other_tenant_placements(ledger), *placement.seat_placements(ledger)]
    scheduler = service_account_user(rules.terms.own[0], SCHEDULER)
    return [
        *priority_stamps(rules),
        *(queued_placement(rules, each) for each in placement.queue_tenant_placements(ledger)),
        *(seated_placement(rules, each) for each in seated),
        gpu_pod_stamp(rules),
        *device_stamps(names, by_device=bool(devices)),
        gpu_budget(rules),
        routes.runtimes(names, rules.without_budget),
        *routes.environments(rules.without_budget, by_device=bool(devices)),
        routes.claims(rules.terms.device_classes),
        *([device_placed(names), device_spread(names, devices)] if devices else ()),
        *caps.policies(caps.CapArgs(resources=names, pools=ledger.pools, placed=seated)),
        *device_choices(names),
        device_annotations(names),
        device_binding(names, scheduler if devices else SCHEDULER_ACCOUNT),
        mirror_pods(),
        gpu_tenants(names, ledger.tenants_by_name),
        *counted_gpus(set(rules.without_budget) - set(queues.tenants)),
        *gated(names, ledger.gated_deployments),
        gpu_count_use(names),
        whole_devices(names),
        *node_shares(names, shares(ledger), seat_shares(ledger)),
        *seat_labels(names, {seat.tenant: ledger.seats_of(seat.tenant) for seat in ledger.seats}),
        *seat_sizes(queues.seats, queues.tenants),
        *seat_named(names, filter(ledger.pool_by_label, ledger.tenants_by_name.keys() - set(queues.tenants))),
        *queue_policies(queues),
        *grace(queues.seats, rules.without_budget),
        *pod_security(ledger.tenants),
        exemptions(),
        *priority_uses(rules),
    ]


def priority_stamps(rules: AdmissionRules) -> list[Manifest]:
    """Sets the PriorityClass of each pod that asks for a device: gpu_priority, or the class in tenant_priorities.

    Some pods reach a GPU without asking for a device, for example with NVIDIA's RuntimeClass. No quota counts pods that
    reach a GPU without asking for a device. With the PriorityClass, an unlimited number of these uncounted pods could
    preempt other pods.
    """
    own: dict[str, list[str]] = {}
    for tenant, priority in rules.terms.tenant_priorities.items():
        own.setdefault(priority, []).append(tenant)
    others, asking = (
        outside_namespaces(rules.terms.tenant_priorities),
        {"asks-for-a-device": cel.asks_for_device(rules.names)},
    )
    return [
        _priority_stamp(STAMP_PRIORITY, rules.terms.gpu_priority, Scope(others, asking)),
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


def gpu_pod_stamp(rules: AdmissionRules) -> Manifest:
    """Labels each pod that reaches a GPU."""
    return mutating(
        GPU_POD_STAMP, Scope(outside_namespaces(), _reaches_gpu(rules)), [cel.set_label(GPU_POD, GPU_POD_VALUE)]
    )


def queued_placement(rules: AdmissionRules, placed: PoolPlacement) -> Manifest:
    """Adds the nodeSelector of the queue's pools to queue tenants' pods that ask for whole devices.

    Without the nodeSelector, a queued Job could take nvidia.com/gpu of a pool that shares memory, if the Job's flavor
    has no node labels.
    """
    conditions = {**_reaches_gpu(rules), "has-no-budget": f"!{cel.asks_for_gpumem(rules.names)}"}
    scope = Scope(in_namespaces(placed.tenants), conditions)
    operations = [cel.override_node_selector(placed.node_selector)]
    return mutating(f"{PLACE_QUEUED}-{placed.name}", scope, operations)


def seated_placement(rules: AdmissionRules, placed: PoolPlacement) -> Manifest:
    """Adds the nodeSelector of the tenant's pools to the tenant's GPU pods. If the tenant has seats in several pools,
    the seat in the pod's label decides.

    On other nodes, the tenant's pods could take GPU memory that is promised to other tenants, or host memory of a
    memory pool.
    """
    operations = [cel.override_node_selector(placed.node_selector)]
    conditions = _reaches_gpu(rules)
    if placed.seats:
        listed = ", ".join(f"{cel.quoted(tenant)}: {cel.quoted_list(own)}" for tenant, own in placed.seats.items())
        of_pool = f"{cel.seat_label(rules.names)} in {{{listed}}}[?request.namespace].orValue([])"
        conditions = {**conditions, f"has-a-seat-of-{placed.name}": of_pool}
    scope = Scope(in_namespaces(placed.tenants), conditions)
    return mutating(f"{PLACE_SEATED}-{placed.name}", scope, operations)


def gpu_budget(rules: AdmissionRules) -> Manifest:
    """Denies a pod that reaches a GPU and has no budget, or a budget above the memory of the largest device."""
    gpumem, most = rules.names.gpumem, max((pool.device_mib for pool in rules.ledger.pools), default=0)
    scope = Scope(outside_namespaces(rules.without_budget), _reaches_gpu(rules))
    has_budget = (
        f"this pod reaches a GPU without a budget: add {gpumem} (MiB) to the limits of the container that uses it, or "
        "list the workload under residents, on_demand or unbudgeted of the stack"
    )
    fits = f"this pod asks for more {gpumem} than one device offers ({most} MiB): lower its limits"
    offered = f"{most} * variables.devices"
    validations = {
        cel.asks_for_gpumem(rules.names): has_budget,
        f"variables.asked.sum() <= {offered} && variables.askedAtStart.all(mib, mib <= {offered})": fits,
    }
    variables = {
        "asked": cel.amounts_of("object.spec.containers", gpumem),
        "askedAtStart": cel.amounts_of(cel.INIT_CONTAINERS, gpumem),
        "devices": cel.devices_of(rules.names) if rules.terms.devices else "1",
    }
    return validating(GPU_BUDGET, scope, validations, variables)


def priority_uses(rules: AdmissionRules) -> list[Manifest]:
    """Allows only pods that ask for a device to use the class gpu_priority. Allows only the tenants with a class in
    tenant_priorities to use the class."""
    tenants = {**dict.fromkeys(rules.terms.exempt_priorities, ()), **rules.terms.priorities}
    uses = [_priority_use(rules, priority, allowed) for priority, allowed in sorted(tenants.items())]
    return [*uses, _no_system_class(rules)]


def _priority_use(rules: AdmissionRules, priority: str, tenants: Sequence[str]) -> Manifest:
    is_gpu_class = priority == rules.terms.gpu_priority
    has_class = f"has(object.spec.priorityClassName) && object.spec.priorityClassName == {cel.quoted(priority)}"
    scope = Scope(outside_namespaces(tenants), {"has-the-class": has_class})
    allowed = ", ".join([*(["pods that ask for a device"] if is_gpu_class else []), *(f"tenant {t}" for t in tenants)])
    allowed = allowed or "exempt namespaces"
    message = f"priorityClassName {priority} is only for {allowed}: remove it"
    holds = cel.asks_for_device(rules.names) if is_gpu_class else "false"
    return validating(f"{PRIORITY_USE}-{priority}", scope, {holds: message})


def _no_system_class(rules: AdmissionRules) -> Manifest:
    """Allows only the stack's own pods to use Kubernetes' system classes (system-*).

    A pod with a system class could preempt every seat and every agent. If host memory runs out, the kernel would kill a
    pod with a system class last.
    """
    named = f"object.spec.priorityClassName.startsWith({cel.quoted(SYSTEM_PRIORITIES)})"
    has_class = f"has(object.spec.priorityClassName) && {named}"
    scope = Scope(outside_namespaces(rules.terms.own), {"has-a-system-class": has_class})
    message = f"priorityClassName {SYSTEM_PRIORITIES}* is for what the cluster cannot do without: remove it"
    return validating(PRIORITY_SYSTEM, scope, {"false": message})


def _reaches_gpu(rules: AdmissionRules) -> dict[str, str]:
    return {"reaches-a-gpu": cel.reaches_gpu(rules.names)}
