"""Checks the Kueue that a stack with queues finds in a cluster. Pure."""

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from agents.kube.errors import Object
from gpumem.pods import WholePod
from gpumem.preflight.declared import Declared, InstalledKueue
from gpumem.preflight.part import Part, State
from gpumem.survey import Survey
from tenancy.kueue_version import QUOTAS_HOLD_SINCE, enforces_quotas
from tenancy.names import KUEUE_API, LABEL_NAMESPACE, node_agent_namespace
from tenancy.workload import containers_of, map_at, maps_at, text_at, texts_at

_NAME = "Kueue"
_IMAGE = re.compile(r"kueue[^/:@]*(?:[:@]|$)")
_VERSION = re.compile(r"(?:^|[:-])v?([0-9]+\.[0-9]+\.[0-9]+)(?![0-9.])")
_LABEL = "app.kubernetes.io/name"
# Labels of Kueue's chart that have its version.
_VERSION_LABELS = ("app.kubernetes.io/version", "helm.sh/chart")
_FROM = "queues.installed_kueue"


def kueue_parts(survey: Survey, declared: Declared) -> Iterator[Part]:
    """Yields the problems of a stack that declares queues or Kueue."""
    controller = _controller(survey)
    version = _version(controller) if controller else None
    if declared.kueue_version is not None:
        if version is not None and version != declared.kueue_version:
            explained = (
                f"{version} runs, kueue.version is {declared.kueue_version}; leave kueue out, or upgrade it first"
            )
            yield Part(name=_NAME, state=State.OTHER, text=explained, blocks=True)
    elif declared.has_queues:
        yield from _api(survey)
        yield from _unknown(survey, controller, version)
        if version is not None and not enforces_quotas(version):
            explained = f"{version} has quotas that can be bypassed (docs/adr/0002); upgrade it to {QUOTAS_HOLD_SINCE}"
            yield Part(name=_NAME, state=State.OTHER, text=explained, blocks=False)
        if declared.installed_kueue is not None:
            yield from _account(controller, declared.installed_kueue)
            yield from _webhooks(survey, declared, declared.installed_kueue)


def _controller(survey: Survey) -> WholePod | None:
    """Returns a pod of Kueue's controller: one behind the Service of its webhooks, or else one with its label, or with
    its image, which a mirror or a digest may rename."""
    services = {
        (service.get("namespace"), service.get("name"))
        for configuration in survey.mutating_webhooks
        for webhook in maps_at(configuration, "webhooks")
        if "kueue" in str(service := map_at(webhook, "clientConfig", "service"))
    }
    selectors = [
        (each["metadata"]["namespace"], map_at(each, "spec", "selector"))
        for each in survey.services
        if (each["metadata"]["namespace"], each["metadata"]["name"]) in services
    ]
    ways: tuple[Callable[[WholePod], bool], ...] = (
        lambda pod: any(ns == pod.namespace and s and s.items() <= pod.labels.items() for ns, s in selectors),
        lambda pod: pod.labels.get(_LABEL) == "kueue" and "controller" in str(pod.labels.get("control-plane", "")),
        lambda pod: any(_IMAGE.search(text_at(c, "image").partition("@")[0]) for c in containers_of(pod.spec)),
    )
    return next((pod for way in ways for pod in survey.pods if way(pod)), None)


def _version(pod: WholePod) -> str | None:
    named = [text_at(c, "image").partition("@")[0] for c in containers_of(pod.spec) if "kueue" in text_at(c, "image")]
    named += [str(pod.labels[key]) for key in _VERSION_LABELS if key in pod.labels]
    found = (_VERSION.search(each) for each in named)
    return next((match[1] for match in found if match), None)


def _unknown(survey: Survey, controller: WholePod | None, version: str | None) -> Iterator[Part]:
    if version is not None or KUEUE_API.partition("/")[0] not in survey.groups:
        return
    if controller is None:
        explained = "no pod of its controller was found, so its version and its account are not known; look at both"
    else:
        explained = (
            f"the image of {controller} names no version; quotas hold since {QUOTAS_HOLD_SINCE} (docs/adr/0002), so "
            "look it up"
        )
    yield Part(name=_NAME, state=State.UNKNOWN, text=explained, blocks=False)


def _api(survey: Survey) -> Iterator[Part]:
    group, _, version = KUEUE_API.partition("/")
    served = survey.groups.get(group, ())
    if not served:
        explained = "queues needs it; declare kueue, or install it"
        yield Part(name=_NAME, state=State.MISSING, text=explained, blocks=True)
    elif version not in served:
        explained = (
            f"queues needs {KUEUE_API}, the cluster serves {', '.join(served)}; upgrade it to {QUOTAS_HOLD_SINCE}"
        )
        yield Part(name=_NAME, state=State.OTHER, text=explained, blocks=True)


def _account(controller: WholePod | None, kueue: InstalledKueue) -> Iterator[Part]:
    if controller is None:
        return
    runs = (controller.namespace, text_at(controller.spec, "serviceAccountName"))
    if runs != (kueue.namespace, kueue.service_account):
        explained = (
            f"its controller runs in {runs[0]} as {runs[1]}, and only {kueue.service_account} of {kueue.namespace} may "
            f"start Jobs of queue tenants; change namespace and service_account of {_FROM}"
        )
        yield Part(name=_NAME, state=State.OTHER, text=explained, blocks=True)


def _webhooks(survey: Survey, declared: Declared, kueue: InstalledKueue) -> Iterator[Part]:
    """Yields problems of Kueue's webhook for Jobs.

    The webhook must select the queue tenants, and should not select the agents.
    """
    if not survey.mutating_webhooks:
        return  # the webhooks of the cluster could not be read
    selectors = [
        map_at(webhook, "namespaceSelector")
        for configuration in survey.mutating_webhooks
        for webhook in maps_at(configuration, "webhooks")
        if map_at(webhook, "clientConfig", "service").get("namespace") == kueue.namespace and _judges_jobs(webhook)
    ]
    tenants = [name for name in declared.ledger.queue_tenants if not _seen(selectors, name, _labels(survey, declared))]
    if tenants:
        explained = (
            f"no webhook of namespace {kueue.namespace} judges Jobs in {', '.join(tenants)}, so their Jobs would not "
            f"queue; compare {_FROM}.namespace and namespace_labels with its managedJobsNamespaceSelector"
        )
        yield Part(name=_NAME, state=State.MISSING, text=explained, blocks=True)
    if agents := [name for name in _agents(declared) if _seen(selectors, name, _labels(survey, declared))]:
        explained = (
            f"its webhook judges the Jobs of {', '.join(agents)}, so the agents do not run while it is down; exclude "
            "the namespace in its managedJobsNamespaceSelector"
        )
        yield Part(name="Kueue and the agents", state=State.OTHER, text=explained, blocks=False)


def _judges_jobs(webhook: Mapping[str, Any]) -> bool:
    return any(
        "batch" in texts_at(rule, "apiGroups") and "jobs" in texts_at(rule, "resources")
        for rule in maps_at(webhook, "rules")
    )


def _agents(declared: Declared) -> tuple[str, ...]:
    system = declared.ledger.admission.own[0] if declared.ledger.admission else None
    return (system, node_agent_namespace(system)) if system else ()


def _labels(survey: Survey, declared: Declared) -> Mapping[str, Mapping[str, str]]:
    made = declared.namespace_labels
    return {
        name: {**map_at(survey.namespaces.get(name, {}), "labels"), **made.get(name, {}), LABEL_NAMESPACE: name}
        for name in (*declared.ledger.queue_tenants, *_agents(declared))
    }


def _seen(selectors: list[Object], namespace: str, labels: Mapping[str, Mapping[str, str]]) -> bool:
    return any(_selects(selector, labels[namespace]) for selector in selectors)


def _selects(selector: Object, labels: Mapping[str, str]) -> bool:
    """Source: Requirement.Matches in k8s.io/apimachinery/pkg/labels/selector.go."""
    exact = all(labels.get(key) == value for key, value in map_at(selector, "matchLabels").items())
    return exact and all(_meets(labels, each) for each in maps_at(selector, "matchExpressions"))


def _meets(labels: Mapping[str, str], requirement: Object) -> bool:
    key, values = requirement["key"], requirement.get("values") or ()
    match requirement["operator"]:
        case "In":
            return labels.get(key) in values
        case "NotIn":
            return labels.get(key) not in values
        case "Exists":
            return key in labels
    return key not in labels
