"""Checks that a cluster has the kinds of work that a stack queues, and their controllers. Pure."""

from collections.abc import Iterator

from gpumem.preflight.declared import Declared
from gpumem.preflight.part import Part, State
from gpumem.survey import Survey
from tenancy.frameworks import Framework
from tenancy.names import AUTOSCALING_GROUP
from tenancy.workload import text_at

_REQUESTS = "provisioningrequests"


def framework_parts(survey: Survey, declared: Declared) -> Iterator[Part]:
    """Yields the frameworks that the cluster lacks. Kubernetes itself has Jobs, pods, Deployments and StatefulSets."""
    for framework in declared.frameworks:
        if "." in framework.group:
            yield from _framework(survey, framework)
    if declared.has_checks and _REQUESTS not in survey.kinds.get(AUTOSCALING_GROUP, ()):
        explained = (
            f"queues.admission_checks needs the kind {_REQUESTS}.{AUTOSCALING_GROUP}; install the cluster autoscaler "
            "with it before Kueue, because Kueue looks for the kind only when Kueue starts"
        )
        yield Part(name="Cluster autoscaler", state=State.MISSING, text=explained, blocks=True)


def _framework(survey: Survey, framework: Framework) -> Iterator[Part]:
    if framework.resource not in survey.kinds.get(framework.group, ()):
        explained = (
            f"queues.frameworks has {framework.name}, but the cluster has no kind {framework.resource}."
            f"{framework.group}; install its controller, or remove the framework"
        )
        yield Part(name=framework.kind, state=State.MISSING, text=explained, blocks=False)
        return
    running = {(pod.namespace, text_at(pod.spec, "serviceAccountName")) for pod in survey.pods}
    accounts = [(namespace, name) for *_, namespace, name in (user.split(":") for user in framework.accounts)]
    if running.isdisjoint(accounts):
        explained = (
            f"no pod has the account {'/'.join(accounts[0])}, so either no controller runs, or admission would deny "
            "its pods; install the controller, or name its account in queues.framework_accounts."
            f"{framework.name}"
        )
        yield Part(name=framework.kind, state=State.MISSING, text=explained, blocks=False)
