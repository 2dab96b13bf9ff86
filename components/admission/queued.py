"""Queue tenants: every pod of a queue tenant that reaches a GPU has come through Kueue.

Kueue queues the Jobs that have its label and ignores everything else. Without these policies a bare pod, a Deployment
or a Job without the label would bypass the queue. Anybody can write a pod's labels and owners, but nobody can fake
the account that creates it. So the Job controller must create each GPU pod, and a GPU Job waits suspended until Kueue
starts it (sigs.k8s.io/kueue pkg/controller/jobs/job/job_webhook.go).

Kueue frees a Job's quota once the Job is gone or counts no pod. So a tenant must keep a running pod's owners and
the labels by which it is counted, and delete a Job only together with its pods.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from components.admission import cel
from components.admission.grace import SECONDS, TOO_LONG
from components.admission.policy import ResourceRule, Scope, validating, within
from components.admission.seats import Seats, in_parts
from components.base.manifest import Manifest
from tenancy.names import GARBAGE_COLLECTOR, JOB_CONTROLLERS, KUEUE_QUEUE_LABEL
from tenancy.policy_names import QUEUED_JOBS, QUEUED_JOBS_DELETION, QUEUED_PODS, QUEUED_PODS_KEPT
from tenancy.reach import MOST_GRACE_SECONDS

_ORPHAN = "orphan"  # FinalizerOrphanDependents
# Labels by which Kubernetes and Kueue know the pods of a Job, and two that older versions of Kubernetes set.
_JOB_LABELS = ("batch.kubernetes.io/", "kueue.x-k8s.io/")
_OLD_JOB_LABELS = ("controller-uid", "job-name")
_JOBS = tuple(ResourceRule(operation, ("jobs",), group="batch") for operation in ("CREATE", "UPDATE"))


@dataclass(frozen=True, kw_only=True)
class Queued:
    """Names the queue tenants. `tenants` may use their `seats` without queueing. `account` is Kueue's user name."""

    seats: Seats
    tenants: Sequence[str]
    account: str

    @property
    def seat_variables(self) -> dict[str, str]:
        return self.seats.of(self.tenants).variables if self._seated else {}

    @property
    def is_a_seat(self) -> str:
        asks = cel.asks_for_gpumem(self.seats.names)
        return f"({asks}) && {self.seats.is_a_seat}" if self._seated else "false"

    @property
    def _seated(self) -> bool:
        return not self.seats.sizes.keys().isdisjoint(self.tenants)


def queue_policies(args: Queued) -> list[Manifest]:
    """Returns the policies for queue tenants, if there are any."""
    return in_parts(
        args.seats, sorted(args.tenants), lambda seats, tenants: _of(replace(args, seats=seats, tenants=tenants))
    )


def _of(args: Queued) -> list[Manifest]:
    return [_pods(args), _kept_pods(args), _jobs(args), _deletion(args)]


def _pods(args: Queued) -> Manifest:
    is_a_jobs = (
        f"request.userInfo.username in {cel.texts(JOB_CONTROLLERS)} && object.metadata.?ownerReferences.orValue([])"
        ".exists(o, o.kind == 'Job' && o.apiVersion == 'batch/v1' && o.?controller.orValue(false))"
    )
    message = (
        f"GPUs of this namespace are handed out by its queue: make it a Job with the label {KUEUE_QUEUE_LABEL} (pods "
        "of their own, Deployments and the like are not queued)"
    )
    scope = Scope(within(args.tenants), {"uses-a-gpu": _uses_a_gpu(args)})
    return validating(QUEUED_PODS, scope, {f"{is_a_jobs} || {args.is_a_seat}": message}, args.seat_variables)


def _kept_pods(args: Queued) -> Manifest:
    """Controllers may change both: the garbage collector removes owners, and the Job controller releases pods."""
    accounts = cel.texts((*JOB_CONTROLLERS, GARBAGE_COLLECTOR, args.account))
    begins = " || ".join(f"k.startsWith({cel.text(prefix)})" for prefix in _JOB_LABELS)
    counted = f"({begins} || k in {cel.texts(_OLD_JOB_LABELS)})"
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
    keep = "this pod has GPUs that its queue gave to its Job: leave its {} as they are; delete the Job to be rid of it"
    validations = {
        f"{same_owners} || {args.is_a_seat}": keep.format("ownerReferences"),
        f"{same_labels} || {args.is_a_seat}": keep.format(
            f"labels under {' and '.join(_JOB_LABELS)} ({', '.join(_OLD_JOB_LABELS)})"
        ),
    }
    conditions = {"is-no-controllers": f"!(request.userInfo.username in {accounts})", "uses-a-gpu": _uses_a_gpu(args)}
    scope = Scope(within(args.tenants), conditions, (ResourceRule("UPDATE", ("pods",)),))
    return validating(QUEUED_PODS_KEPT, scope, validations, variables)


def _deletion(args: Queued) -> Manifest:
    """A Job is deleted with its pods.

    A deletion of a Job of batch/v1 that names no policy leaves the pods (pkg/registry/batch/job/strategy.go). `_jobs`
    denies the finalizer that does the same.
    """
    takes_them = (
        "request.options.?orphanDependents.hasValue() ? !request.options.orphanDependents : "
        "request.options.?propagationPolicy.orValue('') in ['Background', 'Foreground']"
    )
    message = (
        "this Job has GPUs that its queue gave it, and its pods would keep them: delete it with its pods "
        "(propagationPolicy Background, as kubectl does, or Foreground)"
    )
    conditions = {"leaves-its-pods": f"!({takes_them})", "used-a-gpu": _of_template(_uses_a_gpu(args), "oldObject")}
    scope = Scope(within(args.tenants), conditions, (ResourceRule("DELETE", ("jobs",), group="batch"),))
    variables = {name: _of_template(expression, "oldObject") for name, expression in args.seat_variables.items()}
    seat = _of_template(args.is_a_seat, "oldObject")
    return validating(QUEUED_JOBS_DELETION, scope, {seat: message}, variables)


def _jobs(args: Queued) -> Manifest:
    """An update is judged by its changes: a running Job may be labelled, shrunk and ended."""
    uses_gpu = _uses_a_gpu(args)
    kueue = f"request.userInfo.username == {cel.text(args.account)}"
    waits = "variables.waits"
    variables = {
        "waits": "object.spec.?suspend.orValue(false)",
        "used": f"oldObject != null && ({_of_template(uses_gpu, 'oldObject')})",
        "ran": "variables.used && !oldObject.spec.?suspend.orValue(false)",
        **{name: _of_template(expression) for name, expression in args.seat_variables.items()},
        "seat": _of_template(args.is_a_seat),
    }
    submit = (
        f"GPUs of this namespace are handed out by its queue: give the Job the label {KUEUE_QUEUE_LABEL}; Kueue "
        "suspends it and starts it in its turn"
    )
    start = "this Job waits in its queue: only Kueue starts it; leave spec.suspend as it is"
    grow = "this Job runs with what its queue gave it: spec.parallelism may only shrink; submit another Job for more"
    orphan = (
        f"the finalizer {_ORPHAN} would leave this Job's pods their GPUs when it is gone: remove it from "
        "metadata.finalizers"
    )
    select = "the pods of a Job with GPUs are known by labels that Kubernetes chooses: remove spec.manualSelector"
    orphans = f"metadata.?finalizers.orValue([]).exists(f, f == {cel.text(_ORPHAN)})"
    selects = "spec.?manualSelector.orValue(false)"
    grace, granted = _of_template(SECONDS), _of_template(SECONDS, "oldObject")
    parallelism = "spec.?parallelism.orValue(1)"
    validations = {
        f"variables.seat || request.operation != 'CREATE' || {waits}": submit,
        f"variables.seat || request.operation != 'UPDATE' || {waits} || variables.ran || {kueue}": start,
        f"variables.seat || !variables.ran || {waits} || {kueue} || "
        f"object.{parallelism} <= oldObject.{parallelism}": grow,
        f"variables.seat || {grace} <= {MOST_GRACE_SECONDS} || variables.used && {grace} <= {granted}": TOO_LONG,
        **{
            f"variables.seat || !object.{given} || variables.used && oldObject.{given}": message
            for given, message in {orphans: orphan, selects: select}.items()
        },
    }
    scope = Scope(within(args.tenants), {"uses-a-gpu": _of_template(uses_gpu)}, _JOBS)
    return validating(QUEUED_JOBS, scope, validations, variables)


def _uses_a_gpu(args: Queued) -> str:
    counts = cel.asks_for(f"k == {cel.text(args.seats.names.gpu_count)}")
    return f"{cel.reaches_gpu(args.seats.names)} || {counts}"


def _of_template(expression: str, job: str = "object") -> str:
    """Returns the same expression about the pod template of a Job instead of a pod."""
    return expression.replace("object.spec.", f"{job}.spec.template.spec.")
