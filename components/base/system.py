"""The namespaces of the agents, and the settings and code that all agents share."""

import base64
import re
from collections.abc import Iterable
from dataclasses import dataclass

import pulumi
from pydantic import Field, ValidationInfo, field_validator

from components.admission.one_stack import one_stack
from components.admission.policy import put_into_force
from components.base.manifest import Manifest, component_type, identify_cluster, manifest, namespace_labels, register
from components.base.network import PrometheusSpec
from components.base.spec import DnsDomain, DnsLabel, ImageReference, Spec, TolerationSpec
from components.base.zipapp import Zipapp
from tenancy import names
from tenancy.image import has_digest

_COMPONENT = "system"
# The agents' pods never reach the number that the ResourceQuota allows.
_MOST_PODS = 100_000
_LEAST_PYTHON = (3, 11)


class ClusterSpec(Spec):
    """Settings that all parts share."""

    resource_domain: DnsDomain = Field(
        description="Domain of the extended resource <domain>/gpumem, which counts GPU memory in whole MiB.",
        examples=["example.com"],
    )
    system_namespace: DnsLabel = Field(
        default=names.SYSTEM_NAMESPACE,
        description="Namespace of the agents and the ledger.",
        examples=[names.SYSTEM_NAMESPACE],
    )
    agent_image: ImageReference = Field(
        description="Image of every agent, with Python 3.11 or later and glibc. The exporter needs glibc to load "
        "the driver's library. A preview prints a warning about an image without a digest.",
        examples=["docker.io/library/python:3.13.9-slim-bookworm"],
    )
    agent_image_has_code: bool = Field(
        default=False,
        description="True if `agent_image` is the agents' image of this release, which contains the agents' code and "
        "its bytecode. Then no ConfigMap contains code, an image of another release does not start, and `agent_image` "
        "needs a digest. Without this key, the code is in ConfigMaps, and `agent_image` needs only Python.",
    )
    agent_tolerations: list[TolerationSpec] = Field(
        default_factory=list,
        max_length=8,
        description="Taints that the agents tolerate. They are needed in a cluster in which all nodes for the "
        "agents have taints.",
    )
    prometheus: PrometheusSpec | None = Field(
        default=None,
        description="The Prometheus that may scrape exporter, guard and scheduler. Without this key, "
        "NetworkPolicies allow connections only from the stack's agents.",
    )

    @field_validator("agent_image")
    @classmethod
    def _runs_the_agents(cls, image: str) -> str:
        """Refuses an image whose tag says that it has another C library, or an older Python. The message of another
        tag comes from the pods."""
        repository, _, tag = image.partition("@")[0].rpartition(":")
        if musl := re.search(r"alpine|musl", tag):
            raise ValueError(
                f"has {musl[0]} in its tag, and the exporter needs glibc for the driver's library; write an image with "
                f"glibc, such as one with -slim-bookworm (got {image!r})"
            )
        version = re.match(r"(\d+)\.(\d+)", tag) if repository.rpartition("/")[2] == "python" else None
        if version and (int(version[1]), int(version[2])) < _LEAST_PYTHON:
            raise ValueError(f"is Python {version[0]}, and the agents need 3.11; write a later one (got {image!r})")
        return image

    @field_validator("agent_image_has_code")
    @classmethod
    def _has_a_digest(cls, has_code: bool, given: ValidationInfo) -> bool:
        if has_code and not has_digest(given.data.get("agent_image", "")):
            raise ValueError("needs agent_image with a digest (NAME@sha256:…), because a tag can get other code")
        return has_code

    def shipped(self, code: Zipapp) -> list[Zipapp]:
        """Returns the code that a ConfigMap brings to the pods: nothing, if the image contains the code."""
        return [] if self.agent_image_has_code else [code]

    @property
    def scrapers(self) -> list[Manifest]:
        """Returns the peers of NetworkPolicies that may read metrics."""
        return [self.prometheus.peer] if self.prometheus else []


@dataclass(frozen=True, kw_only=True)
class SystemArgs:
    """Holds the arguments. `node_code` is the code of the agents that see the host's processes, or None if the stack
    has no such agents.

    With `has_board`, the stack has the board.
    """

    cluster: ClusterSpec
    code: Zipapp
    node_code: Zipapp | None
    has_board: bool = False


def namespace(name: str, pod_security: str) -> Manifest:
    """Returns the labels of a namespace that enforces a level of the Pod Security Standards."""
    return namespace_labels(name, {**names.labels(_COMPONENT), names.POD_SECURITY_ENFORCE: pod_security})


def node_namespace(name: str) -> Manifest:
    """Returns the labels of the namespace of the agents that see the host's processes and every device.

    A label exempts the namespace of the node agents from admission. An exemption by the namespace's name would be
    unsafe. In a cluster without this namespace, a tenant could create a namespace with its name.
    """
    made = namespace(name, "privileged")
    made["metadata"]["labels"][names.EXEMPT] = names.EXEMPT_VALUE
    return made


def default_deny_ingress(namespace: str, serving: Iterable[str]) -> Manifest:
    """Returns a NetworkPolicy that denies all ingress to the namespace's pods. The policy that denies all ingress does
    not select the agents in `serving`.

    Each agent in `serving` has its own NetworkPolicy, which the stack creates later. If the denying policy selected
    these agents too, Prometheus could not scrape an agent until the agent's own NetworkPolicy exists.
    """
    others = {"key": names.LABEL_NAME, "operator": "NotIn", "values": sorted(serving)}
    spec = {"podSelector": {"matchExpressions": [others]}, "policyTypes": ["Ingress"]}
    return manifest("networking.k8s.io/v1", "NetworkPolicy", "default-deny-ingress", _COMPONENT, namespace, spec=spec)


def critical_pods_quota(namespace: str) -> Manifest:
    """Returns a ResourceQuota that allows pods with system PriorityClasses. Some clusters admit pods with system
    PriorityClasses only in namespaces with a quota for these classes.

    https://kubernetes.io/docs/concepts/policy/resource-quotas/#limit-priority-class-consumption-by-default
    """
    classes = [names.NODE_CRITICAL, names.CLUSTER_CRITICAL]
    scope = {"scopeName": "PriorityClass", "operator": "In", "values": classes}
    spec = {"hard": {"pods": str(_MOST_PODS)}, "scopeSelector": {"matchExpressions": [scope]}}
    return manifest("v1", "ResourceQuota", names.CRITICAL_PODS, _COMPONENT, namespace, spec=spec)


def code_config_map(code: Zipapp, namespace: str) -> Manifest:
    """Returns an immutable ConfigMap with the agents' code. The ConfigMap's name contains the hash of the code."""
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {
            "name": code.config_map,
            "namespace": namespace,
            "labels": names.labels(_COMPONENT, names.AGENTS),
            "annotations": {names.AGENTS_DIGEST: code.digest},
        },
        "binaryData": {names.AGENTS_KEY: base64.b64encode(code.content).decode()},
        "immutable": True,
    }


class System(pulumi.ComponentResource):
    """The agents' namespaces, with the agents' code in each, unless the image contains the code. The namespaces come
    before all other parts of the platform."""

    def __init__(self, name: str, args: SystemArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        system, code, node_code = args.cluster.system_namespace, args.code, args.node_code
        super().__init__(component_type("System"), name, {"namespace": system, "codeDigest": code.digest}, opts)
        identify_cluster(f"{name}-cluster", parent=self)
        put_into_force(one_stack(), f"{name}-one-stack", parent=self)
        serving = [names.SCHEDULER, *([names.BOARD] if args.has_board else [])]
        self._declare(name, namespace(system, "restricted"), args.cluster.shipped(code), serving)
        if node_code is not None:
            nodes = node_namespace(names.node_agent_namespace(system))
            self._declare(f"{name}-node", nodes, args.cluster.shipped(node_code), [names.EXPORTER, names.GUARD])
        self.register_outputs({})

    def _declare(self, name: str, home: Manifest, code: list[Zipapp], serving: list[str]) -> None:
        where = home["metadata"]["name"]
        made = register(home, f"{name}-namespace", parent=self)
        for role, each in (
            ("default-deny", default_deny_ingress(where, serving)),
            ("critical-pods", critical_pods_quota(where)),
            *(("code", code_config_map(each, where)) for each in code),
        ):
            register(each, f"{name}-{role}", parent=self, depends_on=[made])
