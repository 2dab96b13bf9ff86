"""The namespaces of the agents, and the settings and code that all agents share."""

import base64
from collections.abc import Iterable
from dataclasses import dataclass

import pulumi
from pydantic import Field

from components.base.manifest import Manifest, component_type, manifest, register
from components.base.network import PrometheusSpec
from components.base.spec import DnsDomain, DnsLabel, ImageReference, Spec, TolerationSpec
from components.base.zipapp import Zipapp
from tenancy import names

_COMPONENT = "system"
# Larger than the number of agents: one agent for each node, and a few more.
_MOST_PODS = 100_000


class ClusterSpec(Spec):
    """Settings that all parts share."""

    resource_domain: DnsDomain = Field(
        description="Domain of the extended resource: <domain>/gpumem, in whole MiB.", examples=["example.com"]
    )
    system_namespace: DnsLabel = Field(
        default=names.SYSTEM_NAMESPACE,
        description="Namespace of the agents and the ledger; made by the stack.",
        examples=[names.SYSTEM_NAMESPACE],
    )
    agent_image: ImageReference = Field(
        description="Image of every agent: Python 3.11 or later on glibc, since the exporter loads the driver's own "
        "library; the code comes in a ConfigMap.",
        examples=["docker.io/library/python:3.13.9-slim-bookworm"],
    )
    agent_tolerations: list[TolerationSpec] = Field(
        default_factory=list,
        max_length=8,
        description="Taints of nodes on which agents may run: a cluster whose free nodes are all tainted needs them.",
    )
    prometheus: PrometheusSpec | None = Field(
        default=None,
        description="Who may scrape exporter, guard and scheduler. Left out, NetworkPolicies let in nobody but the "
        "stack's own agents.",
    )

    @property
    def scrapers(self) -> list[Manifest]:
        """Returns the peers of NetworkPolicies that may read metrics."""
        return [self.prometheus.peer] if self.prometheus else []


@dataclass(frozen=True, kw_only=True)
class SystemArgs:
    """Holds the arguments. `node_code` is the code of the agents that read the host's processes, or None without such
    agents.

    With `claims_devices` these agents see a node's devices by a claim.
    """

    cluster: ClusterSpec
    code: Zipapp
    node_code: Zipapp | None
    claims_devices: bool = False


def namespace(name: str, pod_security: str) -> Manifest:
    """Returns a namespace that enforces a level of the Pod Security Standards."""
    made = manifest("v1", "Namespace", name, _COMPONENT)
    made["metadata"]["labels"][names.POD_SECURITY_ENFORCE] = pod_security
    return made


def node_namespace(name: str, *, claims_devices: bool = False) -> Manifest:
    """Returns the namespace of the agents that see the host's processes and every device.

    A label exempts it, because a tenant could create the name in a stack that has no such namespace.
    """
    made = namespace(name, "privileged")
    made["metadata"]["labels"][names.EXEMPT] = names.EXEMPT_VALUE
    if claims_devices:
        made["metadata"]["labels"][names.ADMIN_ACCESS] = "true"
    return made


def default_deny_ingress(namespace: str, serving: Iterable[str]) -> Manifest:
    """Denies all ingress to the namespace's pods, except to the agents in `serving`.

    Each serving agent has its own policy, which denies the rest. If this policy covered them too, it would keep
    Prometheus out during an upgrade, because it is there first.
    """
    others = {"key": names.LABEL_NAME, "operator": "NotIn", "values": sorted(serving)}
    spec = {"podSelector": {"matchExpressions": [others]}, "policyTypes": ["Ingress"]}
    return manifest("networking.k8s.io/v1", "NetworkPolicy", "default-deny-ingress", _COMPONENT, namespace, spec=spec)


def critical_pods_quota(namespace: str) -> Manifest:
    """Admits pods of the system's classes in clusters that limit them to namespaces with such a quota.

    https://kubernetes.io/docs/concepts/policy/resource-quotas/#limit-priority-class-consumption-by-default
    """
    classes = [names.NODE_CRITICAL, names.CLUSTER_CRITICAL]
    scope = {"scopeName": "PriorityClass", "operator": "In", "values": classes}
    spec = {"hard": {"pods": str(_MOST_PODS)}, "scopeSelector": {"matchExpressions": [scope]}}
    return manifest("v1", "ResourceQuota", names.CRITICAL_PODS, _COMPONENT, namespace, spec=spec)


def code_config_map(code: Zipapp, namespace: str) -> Manifest:
    """Returns the agents' code as an immutable ConfigMap, named by its hash."""
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
    """The agents' namespaces, with their code in each. It comes before every other part of the platform."""

    def __init__(self, name: str, args: SystemArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        system = args.cluster.system_namespace
        super().__init__(component_type("System"), name, {"namespace": system, "codeDigest": args.code.digest}, opts)
        self._declare(name, namespace(system, "restricted"), args.code, [names.SCHEDULER])
        if args.node_code is not None:
            nodes = node_namespace(names.node_agent_namespace(system), claims_devices=args.claims_devices)
            self._declare(f"{name}-node", nodes, args.node_code, [names.EXPORTER, names.GUARD])
        self.register_outputs({})

    def _declare(self, name: str, home: Manifest, code: Zipapp, serving: list[str]) -> None:
        where = home["metadata"]["name"]
        made = register(home, f"{name}-namespace", parent=self)
        for role, each in {
            "default-deny": default_deny_ingress(where, serving),
            "critical-pods": critical_pods_quota(where),
            "code": code_config_map(code, where),
        }.items():
            register(each, f"{name}-{role}", parent=self, depends_on=[made])
