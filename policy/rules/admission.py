"""The rule on admission: a preview refuses the pods that the cluster's admission policies would deny."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from policy.admitted import PodJudge, pods_of
from policy.finding import Finding, judge_each
from policy.graph import Graph, is_queued
from policy.objects import Object, text_at
from policy.rule import A_RESIDENT, MAIN, Example, rule
from policy.rules.workloads import judges_the_size
from policy.unknown import is_unknown
from tenancy import names, policy_names
from tenancy.ledger import Ledger
from tenancy.policy_names import Refusal
from tenancy.reach import DEVICE_PATHS
from tenancy.workload import map_at, maps_at

# For pods that ask for gpumem, the rules `seats` and `device` report these, and name the workload's seat.
_SAID_BY_SEATS: tuple[str, ...] = (
    *(policy_names.GPU_TENANTS, policy_names.QUEUED_PODS, policy_names.GPU_BUDGET, policy_names.DEVICE_SPREAD),
)
_SIZES = (policy_names.SEAT_SIZES, policy_names.SEAT_LABELS)


@rule("admission", Example(f"{MAIN}.securityContext", {"privileged": True}, {"privileged": False}, of=A_RESIDENT))
def admitted(graph: Graph) -> Iterator[Finding]:
    """The admission policies would accept every pod that the program declares. No object that the program declares
    bypasses admission."""
    ledger = graph.ledger
    if ledger is None:
        return  # The rule `ledger` reports a missing ledger.
    if "admission" in ledger.observes and graph.is_beside:
        return  # While admission observes, the cluster accepts every pod, and only warns.
    handlers, unread = _handlers(graph), {finding.urn for finding in graph.unread_requests}
    readable = (workload for workload in graph.workloads if workload.urn not in unread)
    yield from judge_each(readable, lambda workload: _judge(graph, ledger, handlers, workload))
    yield from judge_each(graph.of("ConfigMap", "Secret"), lambda found: _environment(ledger, found))
    yield from judge_each(graph.of("PersistentVolume"), lambda found: _volume(ledger, found))
    claims = graph.of(f"ResourceClaim.{names.RESOURCE_GROUP}")
    yield from judge_each(claims, lambda found: _claim(ledger, found, map_at(found.manifest, "spec")))
    templates = graph.of(f"ResourceClaimTemplate.{names.RESOURCE_GROUP}")
    yield from judge_each(templates, lambda found: _claim(ledger, found, map_at(found.manifest, "spec", "spec")))


def _handlers(graph: Graph) -> Mapping[str, str]:
    return {o.name: _handler(o) for o in graph.of("RuntimeClass.node.k8s.io")}


def _handler(found: Object) -> Any:
    """Returns the handler, which can be unknown. An unknown handler affects only the pods of its RuntimeClass."""
    handler = found.manifest.get("handler")
    return handler if is_unknown(handler) else text_at(found.manifest, "handler")


def _judge(graph: Graph, ledger: Ledger, handlers: Mapping[str, str], workload: Object) -> Iterator[Finding]:
    template = pods_of(workload)
    asking = [request for request in graph.requests if request.workload is workload]
    said_by_seats = _SAID_BY_SEATS if asking else ()
    if any(judges_the_size(graph, request) for request in asking):
        said_by_seats += _SIZES

    def said(refusal: Refusal) -> bool:
        if refusal.part == policy_names.QUEUED_PRIORITIES:
            return True  # The rule `preemption` reports it, and names the classes of the tenant.
        return refusal.part.startswith(said_by_seats) or _is_ours(graph, workload, refusal)

    queued = is_queued(ledger, workload)
    yield from PodJudge(ledger, workload.namespace, template, queued=queued, handlers=handlers).findings(workload, said)


def _is_ours(graph: Graph, workload: Object, refusal: Refusal) -> bool:
    """Returns True for a system PriorityClass in the agents' namespace. The ledger does not need to list a system
    class."""
    return refusal.part == policy_names.PRIORITY_SYSTEM and workload.namespace in {
        o.namespace for o in graph.ledger_objects
    }


def _environment(ledger: Ledger, found: Object) -> Iterator[Finding]:
    """Reports a ConfigMap or Secret with the key NVIDIA_VISIBLE_DEVICES. By envFrom, the key NVIDIA_VISIBLE_DEVICES
    would override the device plugin's variable."""
    keys = {key for part in ("data", "stringData") for key in _keys(found.manifest.get(part))}
    if names.VISIBLE_DEVICES not in keys or found.namespace in ledger.exempt_namespaces:
        return
    by_device = ledger.admission is not None and ledger.admission.devices
    if not by_device or found.namespace in ledger.tenants_without_budget:
        message = f"{found}: the key {names.VISIBLE_DEVICES} would choose devices by envFrom; remove it"
        yield Finding(message, found.urn)


def _volume(ledger: Ledger, found: Object) -> Iterator[Finding]:
    """Reports a PersistentVolume with a host path that gives access to a GPU. Pod Security judges the volumes in a
    pod's spec only, not the volumes of its PersistentVolumeClaims."""
    spec = map_at(found.manifest, "spec")
    path = text_at(map_at(spec, "hostPath"), "path") or text_at(map_at(spec, "local"), "path")
    is_everything = bool(path) and not path.strip("/.")
    exempt = (names.EXEMPT_BY_NAME, *ledger.exempt_namespaces)
    if (is_everything or re.fullmatch(DEVICE_PATHS, path)) and text_at(
        map_at(spec, "claimRef"), "namespace"
    ) not in exempt:
        message = f"{found}: gives who claims it the host's {path}, and so a GPU without a budget; name a path below"
        yield Finding(message, found.urn)


def _claim(ledger: Ledger, found: Object, spec: Mapping[str, Any]) -> Iterator[Finding]:
    """Reports a claim on devices of another driver, because the ledger does not count such a claim. Classes in
    admission.device_classes are allowed, because they give no GPU."""
    terms = ledger.admission
    if terms is None or found.namespace in ledger.exempt_namespaces:
        return
    for request in maps_at(spec, "devices", "requests"):
        for choice in (map_at(request, "exactly"), *maps_at(request, "firstAvailable")):
            device_class = text_at(choice, "deviceClassName")
            if device_class and device_class not in terms.device_classes:
                yield Finding(
                    f"{found}: claims {device_class} beside the budgets; remove it, or list the class under "
                    "admission.device_classes of the platform's stack if it gives no GPU",
                    found.urn,
                )


def _keys(data: Any) -> list[str]:
    """Returns the known keys. If all data of a Secret is unknown, admission judges the Secret at its creation."""
    return [] if is_unknown(data) or not isinstance(data, Mapping) else list(data)
