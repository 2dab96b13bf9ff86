"""The rule over placement by device: the scheduler is there, and asks our extender."""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

from policy.finding import Finding, each, unproven
from policy.graph import Graph
from policy.objects import Object, text
from policy.rule import Example, rule
from policy.rules.agents import environment_of
from tenancy import names, policy_names
from tenancy.quantity import whole
from tenancy.workload import ShapeError, at, given, maps_at, pod_template

_ADMISSION = "admissionregistration.k8s.io"
_MUTATING = f"MutatingAdmissionPolicy.{_ADMISSION}"
_VALIDATING = f"ValidatingAdmissionPolicy.{_ADMISSION}"


@rule(
    "scheduler",
    Example(
        "profiles.0.schedulerName",
        "other",
        names.SCHEDULER_NAME,
        of="ConfigMap gpu-tenancy-system/scheduler-config: config.json",
    ),
)
def scheduler(graph: Graph) -> Iterator[Finding]:
    """Pods are sent to the scheduler that places by device if it is declared, and it asks our extender."""
    declared = graph.named("Deployment.apps", names.SCHEDULER)
    stamp = graph.named(_MUTATING, policy_names.DEVICE_STAMP)
    if declared is None:
        if stamp is not None:
            yield Finding(f"{stamp}: sends pods to a scheduler that is not declared; add scheduler", stamp.urn)
        return
    if stamp is None:
        yield Finding(f"{declared}: no policy sends pods to it; add admission", declared.urn)
    yield from each([declared], lambda found: _deployment(graph, found))


def _deployment(graph: Graph, declared: Object) -> Iterator[Finding]:
    account = text(at(pod_template(declared.manifest) or {}, "spec"), "serviceAccountName")
    user = f"system:serviceaccount:{declared.namespace}:{account}"
    binding = graph.named(_VALIDATING, policy_names.DEVICE_BINDING)
    if binding is None:
        yield Finding(f"{declared}: no policy keeps others from writing a device into a Binding", declared.urn)
    elif not _names(binding, user):
        yield Finding(f"{binding}: does not let {account} write the device, and so no pod would be bound", binding.urn)
    config = _configuration(graph, declared)
    if config is None:
        yield unproven(declared, "its configuration is not in the graph")
        return
    profiles = [profile.get("schedulerName") for profile in maps_at(config, "profiles")]
    if names.SCHEDULER_NAME not in profiles:
        yield Finding(f"{declared}: its profiles are {profiles}; pods name {names.SCHEDULER_NAME}", declared.urn)
    if whole(given(at(declared.manifest, "spec"), "replicas", 1)) > 1 and not _elects(config, declared):
        yield Finding(
            f"{declared}: several replicas need leader election by the Lease that the extender follows; without it "
            "they would give the same memory away twice",
            declared.urn,
        )
    extenders = maps_at(config, "extenders")
    yield from (Finding(f"{declared}: {problem}", declared.urn) for problem in _problems(graph, declared, extenders))


def _names(policy: Object, user: str) -> bool:
    """True if a condition of the policy names the user."""
    conditions = maps_at(at(policy.manifest, "spec"), "matchConditions")
    return any(f'"{user}"' in text(condition, "expression") for condition in conditions)


def _configuration(graph: Graph, declared: Object) -> Mapping[str, Any] | None:
    """The kube-scheduler configuration in a ConfigMap that the pod mounts, if the graph has it."""
    for volume in maps_at(pod_template(declared.manifest) or {}, "spec", "volumes"):
        found = graph.named("ConfigMap", text(at(volume, "configMap"), "name"), declared.namespace)
        for content in at(found.manifest, "data").values() if found is not None else ():
            try:
                config = json.loads(content)
            except (TypeError, ValueError, RecursionError):
                raise ShapeError(f"{found} is no JSON") from None
            if isinstance(config, Mapping) and config.get("kind") == "KubeSchedulerConfiguration":
                return config
    return None


def _elects(config: Mapping[str, Any], declared: Object) -> bool:
    election = at(config, "leaderElection")
    lease = f"{election.get('resourceNamespace')}/{election.get('resourceName')}"
    return election.get("leaderElect") is True and environment_of(declared).get("LEASE") == lease


def _problems(graph: Graph, declared: Object, extenders: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Yields each field that lets kube-scheduler place a pod with gpumem without our extender."""
    if len(extenders) != 1:
        yield f"it asks {len(extenders)} extenders; ours binds, and there can be no other"
        return
    (extender,) = extenders
    managed = [resource.get("name") for resource in maps_at(extender, "managedResources")]
    if graph.ledger is not None and managed != [graph.ledger.names.gpumem]:
        yield f"its extender is asked for {managed}; the ledger's resource is {graph.ledger.names.gpumem}"
    if extender.get("ignorable"):
        yield "its extender is ignorable: while it is away, pods would be placed by the node's sum"
    if not extender.get("bindVerb") or not extender.get("filterVerb"):
        yield "its extender must filter and bind, else no device is chosen"
    if not extender.get("preemptVerb"):
        yield "its extender must preempt, else pods are evicted by the node's sum, and no device may become free"
    if extender.get("nodeCacheCapable") is not True:
        yield "its extender reads names of nodes alone (nodeCacheCapable: true), and would place no pod"
    address, port = urlsplit(text(extender, "urlPrefix")), environment_of(declared).get("VERBS_PORT")
    if address.hostname != "127.0.0.1" or str(address.port) != port:
        yield f"it looks for its extender at {address.netloc}, which listens at 127.0.0.1:{port}"
