"""Reads the objects of a cluster that init and preflight judge. It writes nothing.

A survey is impossible without the nodes, the pods, the namespaces and the server's version. If the user may not read
another list, the list counts as empty, and `gaps` has the reason.
"""

import http.client
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

from agents.kube.errors import ApiError, Object
from agents.kube.nodes import NODES
from agents.kube.pods import LIVE, PODS
from agents.kube.slices import SLICES
from agents.runtime.errors import AgentError
from gpumem.pods import WholePod
from tenancy.frameworks import FRAMEWORKS
from tenancy.names import AUTOSCALING_GROUP, KUEUE_API, KUEUE_GROUP, PROMETHEUS_OPERATOR_API
from tenancy.workload import text_at

# The first version of Kubernetes that serves MutatingAdmissionPolicies without a feature gate.
ADMISSION_SINCE = (1, 36)
NAMESPACES = "/api/v1/namespaces"
VERSION = "/version"
GROUPS = "/apis"
PRIORITIES = "/apis/scheduling.k8s.io/v1/priorityclasses"
RUNTIME_CLASSES = "/apis/node.k8s.io/v1/runtimeclasses"
QUOTAS = "/api/v1/resourcequotas"
DEPLOYMENTS = "/apis/apps/v1/deployments"
CLUSTER_QUEUES, LOCAL_QUEUES = (f"/apis/{KUEUE_API}/{plural}" for plural in ("clusterqueues", "localqueues"))
MUTATING_WEBHOOKS = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations"
AUTOSCALERS = "/apis/autoscaling/v2/horizontalpodautoscalers"
SCALED_OBJECTS = "/apis/keda.sh/v1alpha1/scaledobjects"
SERVICES = "/api/v1/services"
PROMETHEUSES = f"/apis/{PROMETHEUS_OPERATOR_API}/prometheuses"
_OF_KUEUE = {
    "clusterqueues": CLUSTER_QUEUES,
    "localqueues": LOCAL_QUEUES,
    "mutatingwebhookconfigurations": MUTATING_WEBHOOKS,
    "services": SERVICES,
}
# Kubernetes itself always serves the kinds of the other frameworks.
_GROUPS_OF_WORK = {each.group for each in FRAMEWORKS.values() if "." in each.group} | {AUTOSCALING_GROUP}
_AT_ONCE = 8
_FROM_A_PROXY = (http.client.BAD_GATEWAY, http.client.SERVICE_UNAVAILABLE, http.client.GATEWAY_TIMEOUT)

Read = TypeVar("Read")


class SurveyError(AgentError):
    """Raised if the cluster cannot be read. The message of the error names the verb and the resource."""


class ApiReader(Protocol):
    """The methods with which the survey reads the API server."""

    def get(self, path: str) -> Object:
        """Returns one object. Raises ApiError."""
        ...

    def items(self, path: str, **parameters: str) -> Iterable[Object]:
        """Returns the objects of a list. Raises ApiError."""
        ...


@dataclass(frozen=True, kw_only=True)
class Survey:
    """The state of a cluster at one time.

    `pods` are the pods that have not ended. Five fields of the state are mappings by name. `namespaces` has metadata,
    `priorities` has PriorityClasses, `handlers` has the handlers of RuntimeClasses, and `groups` has the versions of
    API groups. `kinds` has the plural names of the kinds in the groups of Kueue's frameworks and of the cluster
    autoscaler.
    """

    version: str
    nodes: tuple[Object, ...]
    pods: tuple[WholePod, ...]
    namespaces: Mapping[str, Object]
    groups: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    kinds: Mapping[str, frozenset[str]] = field(default_factory=dict)
    slices: tuple[Object, ...] = ()
    priorities: Mapping[str, Object] = field(default_factory=dict)
    handlers: Mapping[str, str] = field(default_factory=dict)
    quotas: tuple[Object, ...] = ()
    deployments: tuple[Object, ...] = ()
    autoscalers: tuple[Object, ...] = ()
    cluster_queues: tuple[Object, ...] = ()
    local_queues: tuple[Object, ...] = ()
    mutating_webhooks: tuple[Object, ...] = ()
    services: tuple[Object, ...] = ()
    prometheuses: tuple[Object, ...] = ()
    gaps: tuple[str, ...] = ()

    @property
    def minor(self) -> tuple[int, int]:
        """Returns the major and minor version of the API server."""
        major, _, rest = self.version.removeprefix("v").partition(".")
        minor = rest.partition(".")[0]
        return int(major) if major.isdecimal() else 0, int(minor) if minor.isdecimal() else 0


def read(source: ApiReader) -> Survey:
    """Reads the cluster with several requests in parallel. A long list is read in several requests. Raises
    SurveyError."""
    gaps: list[str] = []
    with ThreadPoolExecutor(_AT_ONCE) as threads:
        groups = threads.submit(_must, "get", "the API's groups", lambda: _groups(source.get(GROUPS)))
        version = threads.submit(_must, "get", "the server's version", lambda: source.get(VERSION))
        nodes = threads.submit(_must, "list", "nodes", lambda: [*source.items(NODES)])
        pods = threads.submit(_must, "list", "pods", lambda: [*source.items(PODS, **LIVE)])
        namespaces = threads.submit(_must, "list", "namespaces", lambda: [*source.items(NAMESPACES)])
        known = groups.result()
        optional = {
            "resourceslices": SLICES,
            "priorityclasses": PRIORITIES,
            "runtimeclasses": RUNTIME_CLASSES,
            "resourcequotas": QUOTAS,
            "deployments": DEPLOYMENTS,
            "horizontalpodautoscalers": AUTOSCALERS,
            **({"scaledobjects": SCALED_OBJECTS} if "keda.sh" in known else {}),
            **(_OF_KUEUE if KUEUE_GROUP in known else {}),
            **({"prometheuses": PROMETHEUSES} if PROMETHEUS_OPERATOR_API.partition("/")[0] in known else {}),
        }
        kinds = {
            group: [threads.submit(source.get, f"{GROUPS}/{group}/{version}") for version in known[group]]
            for group in known.keys() & _GROUPS_OF_WORK
        }
        asked = {name: threads.submit(lambda path: [*source.items(path)], path) for name, path in optional.items()}
        found = {name: _may(name, listing.result, gaps) for name, listing in asked.items()}
        return Survey(
            version=text_at(version.result(), "gitVersion"),
            nodes=tuple(nodes.result()),
            pods=tuple(WholePod(item) for item in pods.result()),
            namespaces={each["metadata"]["name"]: each["metadata"] for each in namespaces.result()},
            groups=known,
            kinds={group: _kinds([each.result for each in listings], gaps) for group, listings in kinds.items()},
            slices=tuple(found["resourceslices"]),
            priorities={each["metadata"]["name"]: each for each in found["priorityclasses"]},
            handlers={each["metadata"]["name"]: text_at(each, "handler") for each in found["runtimeclasses"]},
            quotas=tuple(found["resourcequotas"]),
            deployments=tuple(found["deployments"]),
            autoscalers=(*found.get("scaledobjects", ()), *found["horizontalpodautoscalers"]),
            cluster_queues=tuple(found.get("clusterqueues", ())),
            local_queues=tuple(found.get("localqueues", ())),
            services=tuple(found.get("services", ())),
            mutating_webhooks=tuple(found.get("mutatingwebhookconfigurations", ())),
            prometheuses=tuple(found.get("prometheuses", ())),
            gaps=tuple(gaps),
        )


def _groups(found: Object) -> dict[str, tuple[str, ...]]:
    return {
        group["name"]: tuple(version["version"] for version in group.get("versions") or ())
        for group in found.get("groups") or ()
    }


def _kinds(readings: Iterable[Callable[[], Object]], gaps: list[str]) -> frozenset[str]:
    listed = _may("kinds", lambda: [each for reading in readings for each in reading().get("resources") or ()], gaps)
    return frozenset(each["name"] for each in listed)


def _must(verb: str, resource: str, reading: Callable[[], Read]) -> Read:
    """Returns the result of the function `reading`. If the cluster cannot be read, raises SurveyError."""
    try:
        return reading()
    except ApiError as error:
        if _is_away(error):
            raise SurveyError(f"the cluster does not answer, so nothing was read: {error}") from None
        if error.status in (http.client.FORBIDDEN, http.client.UNAUTHORIZED):
            raise SurveyError(
                f"may not {verb} {resource}: {error.message}; use an account that may {verb} nodes, pods and "
                "namespaces of the whole cluster, such as one bound to the ClusterRole cluster-admin"
            ) from None
        raise SurveyError(f"cannot {verb} {resource}: {error}") from None


def _is_away(error: ApiError) -> bool:
    unreached = error.status == http.client.INTERNAL_SERVER_ERROR and "dial tcp" in error.message
    return error.status is None or error.status in _FROM_A_PROXY or unreached


def _may(resource: str, reading: Callable[[], list[Object]], gaps: list[str]) -> list[Object]:
    try:
        return reading()
    except ApiError as error:
        if error.status != http.client.NOT_FOUND:
            gaps.append(f"{resource} are not known: {error}")
        elif resource in ("clusterqueues", "localqueues"):
            gaps.append(f"{resource} are not known: this cluster does not serve {KUEUE_API}")
        return []
