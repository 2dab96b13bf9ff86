"""Queue tenants: a queue tenant's pod reaches a GPU only after Kueue has admitted it.

In the namespaces of queue tenants, Kueue suspends each Job and similar object, and adds a scheduling gate to each pod.
Kueue also suspends an object that names no queue (manageJobsWithoutQueueName). The policies for queue tenants prevent a
tenant from bypassing Kueue. A tenant can write any labels and owners into a pod, but cannot fake the account of a
request. Therefore the policies admit a queue tenant's GPU pod if the pod has Kueue's scheduling gate. Without the gate,
the GPU pod's controller must belong to an object that Kueue can suspend. Only Kueue may remove the scheduling gate and
end the suspension.

Kueue frees a Job's quota as soon as Kueue finds no pod of the Job any more. Therefore a tenant must not change a
running pod's owners, or the labels by which Kueue finds the pod. A tenant may delete the owner of a running pod only
together with the pod.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from tenancy.admission import cel
from tenancy.admission.policy import Manifest, ResourceRule, Scope, in_namespaces, validating
from tenancy.admission.seats import TenantSeatSizes
from tenancy.frameworks import GATES, Framework, FrameworkName, kinds_of
from tenancy.names import GARBAGE_COLLECTOR, JOB_CONTROLLERS, KUEUE_PRIORITY_LABEL, KUEUE_QUEUE_LABEL
from tenancy.policy_names import QUEUED_OWNERS, QUEUED_PODS, QUEUED_PODS_KEPT, QUEUED_PRIORITIES

_ORPHAN = "orphan"  # Source: FinalizerOrphanDependents.
# The API groups of the labels by which Kueue and the controllers find their pods. Older versions of Kubernetes set the
# labels `controller-uid` and `job-name`.
_LABEL_GROUPS = (
    *("kueue.x-k8s.io", "batch.kubernetes.io", "jobset.sigs.k8s.io", "leaderworkerset.sigs.k8s.io"),
    *("ray.io", "trainer.kubeflow.org", "training.kubeflow.org"),
)
_OLD_JOB_LABELS = ("controller-uid", "job-name")


@dataclass(frozen=True, kw_only=True)
class QueueTenants:
    """Names the queue tenants. Pods on the `seats` of `tenants` need no queue. `account` is the user name of Kueue's
    account.

    `frameworks` are the kinds of objects that Kueue queues. `priorities` maps a WorkloadPriorityClass to the tenants
    that may use it. All tenants may use the other classes.
    """

    seats: TenantSeatSizes
    tenants: Sequence[str]
    account: str
    frameworks: Sequence[Framework]
    priorities: Mapping[str, Sequence[str]]

    @property
    def seat_variables(self) -> dict[str, str]:
        return self.seats.of(self.tenants).variables if self._seated else {}

    @property
    def is_a_seat(self) -> str:
        asks = cel.asks_for_gpumem(self.seats.names)
        return f"({asks}) && {self.seats.of(self.tenants).is_a_seat}" if self._seated else "false"

    @property
    def _seated(self) -> bool:
        return not self.seats.sizes.keys().isdisjoint(self.tenants)

    @property
    def uses_a_gpu(self) -> dict[str, str]:
        counts = cel.asks_for(f"k == {cel.quoted(self.seats.names.gpu_count)}")
        return {"uses-a-gpu": f"{cel.reaches_gpu(self.seats.names)} || {counts}"}


def queue_policies(args: QueueTenants) -> list[Manifest]:
    """Returns the policies for queue tenants, if there are any."""
    if not args.tenants:
        return []
    queued = any(each.name is not FrameworkName.POD for each in args.frameworks)
    limited = [_priorities(args)] if args.priorities else []
    return [_pods(args), _kept_pods(args), *([_owners(args)] if queued else []), *limited]


def _pods(args: QueueTenants) -> Manifest:
    makers = [each for each in args.frameworks if each.makes_pods]
    is_made = " || ".join(
        f"request.userInfo.username in {cel.quoted_list(m.accounts)} && {_belongs_to([m])}" for m in makers
    )
    kinds = kinds_of(each.name for each in args.frameworks)
    message = (
        f"GPUs of this namespace are handed out by its queue: make it a {kinds} and give it the label "
        f"{KUEUE_QUEUE_LABEL}"
    )
    validations = {f"{_has_gate('object')} || {is_made or 'false'} || {args.is_a_seat}": message}
    return validating(
        QUEUED_PODS, Scope(in_namespaces(args.tenants), args.uses_a_gpu), validations, args.seat_variables
    )


def _has_gate(pod: str, gate: str = GATES[0]) -> str:
    return f"{pod}.spec.?schedulingGates.orValue([]).exists(g, g.name == {cel.quoted(gate)})"


def _kept_pods(args: QueueTenants) -> Manifest:
    """Denies a change of a GPU pod's owners or of the labels by which Kueue finds the pod. Denies the removal of
    Kueue's scheduling gates. Controllers may change a pod's owners and labels. For example, the garbage collector and
    the Job controller remove owners.
    """
    controllers = {account for each in args.frameworks for account in each.accounts}
    accounts = cel.quoted_list(sorted({*JOB_CONTROLLERS, GARBAGE_COLLECTOR, args.account, *controllers}))
    groups = [f"{group}/" for group in _LABEL_GROUPS]
    counted = f"({cel.quoted_list(groups)}.exists(g, k.startsWith(g)) || k in {cel.quoted_list(_OLD_JOB_LABELS)})"
    variables = {
        **args.seat_variables,
        "before": "oldObject.metadata.?labels.orValue({})",
        "after": "object.metadata.?labels.orValue({})",
    }
    same_owners = "object.metadata.?ownerReferences.orValue([]) == oldObject.metadata.?ownerReferences.orValue([])"
    same_labels = (
        f"variables.before.all(k, !{counted} || k in variables.after && variables.after[k] == variables.before[k]) && "
        f"variables.after.all(k, !{counted} || k in variables.before)"
    )
    same_gates = " && ".join(f"(!{_has_gate('oldObject', gate)} || {_has_gate('object', gate)})" for gate in GATES)
    keep = "this pod has GPUs from its queue: leave its {} as they are; delete its owner, or the pod, to be rid of it"
    validations = {
        f"{same_owners} || {args.is_a_seat}": keep.format("ownerReferences"),
        f"{same_labels} || {args.is_a_seat}": keep.format(
            f"labels under {', '.join(groups)} ({', '.join(_OLD_JOB_LABELS)})"
        ),
        f"{same_gates} || {args.is_a_seat}": f"this pod waits in its queue: only Kueue removes the gate {GATES[0]}",
    }
    conditions = {"is-no-controllers": f"!(request.userInfo.username in {accounts})", **args.uses_a_gpu}
    scope = Scope(in_namespaces(args.tenants), conditions, (ResourceRule("UPDATE", ("pods",)),))
    return validating(QUEUED_PODS_KEPT, scope, validations, variables)


def _owners(args: QueueTenants) -> Manifest:
    """Returns the policy that keeps objects suspended until Kueue starts them.

    A controller may create and start objects that belong to a suspended object, such as the Jobs of a JobSet.
    """
    suspended = [each for each in args.frameworks if each.is_suspended]
    controllers = sorted({account for each in suspended for account in each.accounts})
    is_kueue = f"request.userInfo.username == {cel.quoted(args.account)}"
    is_a_part = f"request.userInfo.username in {cel.quoted_list(controllers)} && {_belongs_to(suspended)}"
    variables = {
        "deleted": "request.operation == 'DELETE'",
        "trusted": f"request.operation != 'DELETE' && ({is_kueue} || {is_a_part})",
        "waits": f"variables.deleted || {_is_suspended('object')}",
        "changed": "request.operation == 'UPDATE'",
        "ran": f"variables.changed && !{_is_suspended('oldObject')}",
        "grown": "object.kind == 'Job' ? dyn(object).spec.?parallelism.orValue(1) > "
        "dyn(oldObject).spec.?parallelism.orValue(1) : object.spec != oldObject.spec",
    }
    submit = (
        f"work of this namespace goes through its queue: give it the label {KUEUE_QUEUE_LABEL}; Kueue suspends it and "
        "starts it in its turn"
    )
    start = "this work waits in its queue: only Kueue starts it; leave its suspend as it is"
    grow = "this work runs with what its queue gave it: its pods may only become fewer; submit another one for more"
    orphan = f"the finalizer {_ORPHAN} would leave the pods their GPUs: remove it from metadata.finalizers"
    select = "the pods of a Job are known by labels that Kubernetes chooses: remove spec.manualSelector"
    takes_its_pods = "its pods would keep the GPUs of its queue: delete it with its pods (propagationPolicy Background)"
    validations = {
        "variables.waits || variables.trusted || request.operation != 'CREATE'": submit,
        "variables.waits || variables.trusted || !variables.changed || variables.ran": start,
        "variables.waits || variables.trusted || !variables.ran || !variables.grown": grow,
        f"variables.deleted || !{_orphans('object')} || variables.changed && {_orphans('oldObject')}": orphan,
        "request.operation != 'CREATE' || !dyn(object).spec.?manualSelector.orValue(false)": select,
        f"!variables.deleted || !({_LEAVES_ITS_PODS})": takes_its_pods,
    }
    rules = [
        ResourceRule(operation, (each.resource,), group=each.group, version="*")
        for each in args.frameworks
        if each.name is not FrameworkName.POD
        for operation in (("CREATE", "UPDATE", "DELETE") if each.is_suspended else ("DELETE",))
    ]
    return validating(QUEUED_OWNERS, Scope(in_namespaces(args.tenants), {}, rules), validations, variables)


def _priorities(args: QueueTenants) -> Manifest:
    """Returns the policy that keeps a WorkloadPriorityClass to its tenants. With a class, work displaces other tenants'
    work of a lower class.

    Work that has the class already may keep it.
    """
    label = f"metadata.?labels[?{cel.quoted(KUEUE_PRIORITY_LABEL)}].orValue('')"
    by_class = sorted(args.priorities.items())
    allowed = ", ".join(f"{cel.quoted(name)}: {cel.quoted_list(tenants)}" for name, tenants in by_class)
    listed = ", ".join(f"{cel.quoted(n)}: {cel.quoted(', '.join(tenants) or 'no tenant')}" for n, tenants in by_class)
    conditions = {
        "names-a-limited-class": f"object.{label} in {cel.quoted_list(sorted(args.priorities))}",
        "changes-its-class": f"oldObject == null || oldObject.{label} != object.{label}",
    }
    variables = {"class": f"object.{label}", "tenants": f"{{{allowed}}}[object.{label}]"}
    message = (
        f"'WorkloadPriorityClass ' + variables.class + ' is for ' + {{{listed}}}[variables.class] + "
        "': name another one in the label "
        f"{KUEUE_PRIORITY_LABEL}, or add the namespace to queues.workload_priorities.' + variables.class + '.tenants "
        "of the stack'"
    )
    rules = [
        ResourceRule(operation, (each.resource,), group=each.group, version="*")
        for each in args.frameworks
        for operation in ("CREATE", "UPDATE")
    ]
    return validating(
        QUEUED_PRIORITIES,
        Scope(in_namespaces(args.tenants), conditions, rules),
        {"request.namespace in variables.tenants": message},
        variables,
        message_key="messageExpression",
    )


# A deletion of a batch/v1 Job without a propagationPolicy leaves the pods running (pkg/registry/batch/job/strategy.go).
_LEAVES_ITS_PODS = (
    "request.options.?orphanDependents.hasValue() ? request.options.orphanDependents : "
    "request.options.?propagationPolicy.orValue(request.resource.resource == 'jobs' ? 'Orphan' : '') == 'Orphan'"
)


def _belongs_to(frameworks: Iterable[Framework]) -> str:
    kinds = " || ".join(
        f"o.kind == {cel.quoted(each.kind)} && o.apiVersion.startsWith({cel.quoted(f'{each.group}/')})"
        for each in frameworks
    )
    return (
        f"object.metadata.?ownerReferences.orValue([]).exists(o, o.?controller.orValue(false) && ({kinds or 'false'}))"
    )


def _is_suspended(owner: str) -> str:
    """Returns CEL: the object is suspended. In an MPIJob, the field suspend is in the runPolicy."""
    spec = f"dyn({owner}).spec"
    return f"{spec}.?suspend.orValue({spec}.?runPolicy.?suspend.orValue(false))"


def _orphans(owner: str) -> str:
    return f"{owner}.metadata.?finalizers.orValue([]).exists(f, f == {cel.quoted(_ORPHAN)})"
