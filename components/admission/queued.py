"""Queue tenants: what reaches a GPU there has come through Kueue.

Kueue queues the Jobs that have its label and knows of nothing else, so that a bare pod, a Deployment or a Job without
the label would run beside the queue. Labels and owners of a pod can be written by anybody; who made it cannot. So a GPU
pod is the Job controller's, and a GPU Job waits suspended until Kueue, and nobody else, starts it
(sigs.k8s.io/kueue pkg/controller/jobs/job/job_webhook.go: it suspends what has its label).

Kueue hands a Job's quota on once the Job is gone or counts no pod. So a pod stays its Job's for as long as it runs: its
owners and the labels by which it is counted are not the tenant's to change, and no Job goes without its pods.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from components.admission import cel
from components.admission.grace import MOST_SECONDS, SECONDS, TOO_LONG
from components.admission.policy import ResourceRule, Scope, validating, within
from components.admission.seats import Seats, in_parts
from components.base.manifest import Manifest
from tenancy.names import (
    GARBAGE_COLLECTOR,
    JOB_CONTROLLERS,
    KUEUE_QUEUE_LABEL,
    QUEUED_JOBS,
    QUEUED_JOBS_DELETION,
    QUEUED_PODS,
    QUEUED_PODS_KEPT,
)

_COMPONENT = "admission"
_ORPHAN = "orphan"  # FinalizerOrphanDependents
# Labels by which Kubernetes and Kueue know the pods of a Job, and two that older versions of Kubernetes set.
_JOB_LABELS = ("batch.kubernetes.io/", "kueue.x-k8s.io/")
_OLD_JOB_LABELS = ("controller-uid", "job-name")
_JOBS = tuple(ResourceRule(operation, ("jobs",), group="batch") for operation in ("CREATE", "UPDATE"))


@dataclass(frozen=True, kw_only=True)
class Queued:
    """`tenants` queue; `account` is Kueue's user name. A tenant that has `seats` too may use these without queueing."""

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


def queued(args: Queued) -> list[Manifest]:
    """The policies; none where nobody queues."""
    return in_parts(
        args.seats, sorted(args.tenants), lambda seats, tenants: _of(replace(args, seats=seats, tenants=tenants))
    )


def _of(args: Queued) -> list[Manifest]:
    return [_pods(args), _kept_pods(args), _jobs(args), _deletion(args)]


def _pods(args: Queued) -> Manifest:
    controllers = ", ".join(map(cel.text, JOB_CONTROLLERS))
    is_a_jobs = (
        f"request.userInfo.username in [{controllers}] && object.metadata.?ownerReferences.orValue([])"
        ".exists(o, o.kind == 'Job' && o.apiVersion == 'batch/v1' && o.?controller.orValue(false))"
    )
    message = (
        f"GPUs of this namespace are handed out by its queue: make it a Job with the label {KUEUE_QUEUE_LABEL} (pods "
        "of their own, Deployments and the like are not queued)"
    )
    scope = Scope(within(args.tenants), _uses_gpu(args))
    return validating(
        _COMPONENT, QUEUED_PODS, scope, {f"{is_a_jobs} || {args.is_a_seat}": message}, args.seat_variables
    )


def _kept_pods(args: Queued) -> Manifest:
    """The garbage collector takes owners off that are gone, and the Job controller lets go what it does not count."""
    accounts = ", ".join(map(cel.text, (*JOB_CONTROLLERS, GARBAGE_COLLECTOR, args.account)))
    begins = " || ".join(f"k.startsWith({cel.text(prefix)})" for prefix in _JOB_LABELS)
    counted = f"({begins} || k in [{', '.join(map(cel.text, _OLD_JOB_LABELS))}])"
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
    conditions = {"is-no-controllers": f"!(request.userInfo.username in [{accounts}])", **_uses_gpu(args)}
    scope = Scope(within(args.tenants), conditions, (ResourceRule("UPDATE", ("pods",)),))
    return validating(_COMPONENT, QUEUED_PODS_KEPT, scope, validations, variables)


def _deletion(args: Queued) -> Manifest:
    """A Job goes with its pods. Who says nothing would leave them: so it is for Jobs of batch/v1, and for no other kind
    (pkg/registry/batch/job/strategy.go). A finalizer says it as well, which is `_jobs`'."""
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
    return validating(_COMPONENT, QUEUED_JOBS_DELETION, scope, {seat: message}, variables)


def _jobs(args: Queued) -> Manifest:
    """An update is judged by what it changes: a Job that runs may be labelled, shrunk and ended."""
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
        f"variables.seat || {grace} <= {MOST_SECONDS} || variables.used && {grace} <= {granted}": TOO_LONG,
        **{
            f"variables.seat || !object.{given} || variables.used && oldObject.{given}": message
            for given, message in {orphans: orphan, selects: select}.items()
        },
    }
    scope = Scope(within(args.tenants), {"uses-a-gpu": _of_template(uses_gpu)}, _JOBS)
    return validating(_COMPONENT, QUEUED_JOBS, scope, validations, variables)


def _uses_gpu(args: Queued) -> dict[str, str]:
    return {"uses-a-gpu": _uses_a_gpu(args)}


def _uses_a_gpu(args: Queued) -> str:
    counts = cel.asks_for(f"k == {cel.text(args.seats.names.gpu_count)}")
    return f"{cel.reaches_gpu(args.seats.names)} || {counts}"


def _of_template(expression: str, job: str = "object") -> str:
    """What is said of a pod, of the pods that a Job makes."""
    return expression.replace("object.spec.", f"{job}.spec.template.spec.")
