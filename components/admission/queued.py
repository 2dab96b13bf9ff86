"""Queue tenants: what reaches a GPU there has come through Kueue.

Kueue queues the Jobs that have its label and knows of nothing else, so that a bare pod, a Deployment or a Job without
the label would run beside the queue. Labels and owners of a pod can be written by anybody; who made it cannot. So a GPU
pod is the Job controller's, and a GPU Job waits suspended until Kueue, and nobody else, starts it
(sigs.k8s.io/kueue pkg/controller/jobs/job/job_webhook.go: it suspends what has its label).
"""

from collections.abc import Sequence
from dataclasses import dataclass

from components.admission import cel
from components.admission.policy import ResourceRule, Scope, validating, within
from components.admission.seats import Seats
from components.base.manifest import Manifest
from tenancy.names import JOB_CONTROLLERS, KUEUE_QUEUE_LABEL, QUEUED_JOBS, QUEUED_PODS

_COMPONENT = "admission"
_JOBS = tuple(ResourceRule(operation, ("jobs",), group="batch") for operation in ("CREATE", "UPDATE"))


@dataclass(frozen=True, kw_only=True)
class Queued:
    """`tenants` queue; `account` is Kueue's user name. A tenant that has `seats` too may use these without queueing."""

    seats: Seats
    tenants: Sequence[str]
    account: str

    @property
    def seat_variables(self) -> dict[str, str]:
        return self.seats.variables if self._seated else {}

    @property
    def is_a_seat(self) -> str:
        asks = cel.asks_for_gpumem(self.seats.names)
        return f"({asks}) && {self.seats.is_a_seat}" if self._seated else "false"

    @property
    def _seated(self) -> bool:
        return not self.seats.sizes.keys().isdisjoint(self.tenants)


def queued(args: Queued) -> list[Manifest]:
    """The policies; none where nobody queues."""
    return [_pods(args), _jobs(args)] if args.tenants else []


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


def _jobs(args: Queued) -> Manifest:
    """An update is judged by what it changes: a Job that runs may be labelled, shrunk and ended."""
    uses_gpu = " || ".join(_uses_gpu(args).values())
    kueue = f"request.userInfo.username == {cel.text(args.account)}"
    waits = "variables.waits"
    variables = {
        "waits": "object.spec.?suspend.orValue(false)",
        "ran": "oldObject != null && !oldObject.spec.?suspend.orValue(false) && "
        f"({_of_template(uses_gpu, 'oldObject')})",
        **{name: _of_template(expression) for name, expression in args.seat_variables.items()},
        "seat": _of_template(args.is_a_seat),
    }
    submit = (
        f"GPUs of this namespace are handed out by its queue: give the Job the label {KUEUE_QUEUE_LABEL}; Kueue "
        "suspends it and starts it in its turn"
    )
    start = "this Job waits in its queue: only Kueue starts it; leave spec.suspend as it is"
    grow = "this Job runs with what its queue gave it: spec.parallelism may only shrink; submit another Job for more"
    parallelism = "spec.?parallelism.orValue(1)"
    validations = {
        f"variables.seat || request.operation != 'CREATE' || {waits}": submit,
        f"variables.seat || request.operation != 'UPDATE' || {waits} || variables.ran || {kueue}": start,
        f"variables.seat || !variables.ran || {waits} || {kueue} || "
        f"object.{parallelism} <= oldObject.{parallelism}": grow,
    }
    scope = Scope(within(args.tenants), {"uses-a-gpu": _of_template(uses_gpu)}, _JOBS)
    return validating(_COMPONENT, QUEUED_JOBS, scope, validations, variables)


def _uses_gpu(args: Queued) -> dict[str, str]:
    counts = cel.asks_for(f"k == {cel.text(args.seats.names.gpu_count)}")
    return {"uses-a-gpu": f"{cel.reaches_gpu(args.seats.names)} || {counts}"}


def _of_template(expression: str, job: str = "object") -> str:
    """What is said of a pod, of the pods that a Job makes."""
    return expression.replace("object.spec.", f"{job}.spec.template.spec.")
