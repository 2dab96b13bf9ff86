"""The namespaces of the agents and what every agent shares."""

import base64
from collections.abc import Iterable
from dataclasses import dataclass

import pulumi
from pydantic import Field

from components.base.manifest import Manifest, component_type, register
from components.base.network import PrometheusSpec
from components.base.spec import DnsDomain, DnsLabel, ImageReference, Spec, TolerationSpec
from components.base.zipapp import Zipapp
from tenancy import names

_COMPONENT = "system"
# More than there are agents: one a node, and a few.
_MOST_PODS = 100_000


class ClusterSpec(Spec):
    """What all parts share."""

    resource_domain: DnsDomain = Field(description="Domain of the extended resource: <domain>/gpumem, in whole MiB.")
    system_namespace: DnsLabel = Field(
        default="gpu-tenancy-system", description="Namespace of the agents and the ledger; made by the stack."
    )
    agent_image: ImageReference = Field(
        description="Image of every agent: Python 3.11 or later on glibc, since the exporter loads the driver's own "
        "library; the code comes in a ConfigMap."
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
        """The peers of NetworkPolicies that may read metrics."""
        return [self.prometheus.peer] if self.prometheus else []


@dataclass(frozen=True, kw_only=True)
class SystemArgs:
    """`node_code` is what agents run that need the host's process table, and with it a namespace of their own; None
    where there are none. `claims_devices`: they see a node's devices by a claim."""

    cluster: ClusterSpec
    code: Zipapp
    node_code: Zipapp | None
    claims_devices: bool = False


def namespace(name: str, pod_security: str) -> Manifest:
    """A namespace whose pods are held to a level of the Pod Security Standards."""
    return {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {"name": name, "labels": {**names.labels(_COMPONENT), names.POD_SECURITY_ENFORCE: pod_security}},
    }


def node_namespace(name: str, *, claims_devices: bool = False) -> Manifest:
    """That of the agents that see the host's processes, and every device: exempt from admission by its label, since
    somebody else could make a namespace of the name where the stack has none. `claims_devices`: they see them by a
    claim that takes nothing of them."""
    made = namespace(name, "privileged")
    made["metadata"]["labels"][names.EXEMPT] = names.EXEMPT_VALUE
    if claims_devices:
        made["metadata"]["labels"][names.ADMIN_ACCESS] = "true"
    return made


def default_deny_ingress(namespace: str, serving: Iterable[str]) -> Manifest:
    """Nothing in the namespace may be reached. An agent that is serving has a policy of its own, which denies the rest
    as well: this one passes over it, since it is there first and would keep Prometheus out on an upgrade."""
    others = {"key": names.LABEL_NAME, "operator": "NotIn", "values": sorted(serving)}
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": {"name": "default-deny-ingress", "namespace": namespace, "labels": names.labels(_COMPONENT)},
        "spec": {"podSelector": {"matchExpressions": [others]}, "policyTypes": ["Ingress"]},
    }


def critical_pods_quota(namespace: str) -> Manifest:
    """Lets pods of the system's classes into the namespace where a cluster limits them to those that say so
    (https://kubernetes.io/docs/concepts/policy/resource-quotas/#limit-priority-class-consumption-by-default)."""
    classes = [names.NODE_CRITICAL, names.CLUSTER_CRITICAL]
    return {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": names.CRITICAL_PODS, "namespace": namespace, "labels": names.labels(_COMPONENT)},
        "spec": {
            "hard": {"pods": str(_MOST_PODS)},
            "scopeSelector": {
                "matchExpressions": [{"scopeName": "PriorityClass", "operator": "In", "values": classes}]
            },
        },
    }


def code_config_map(code: Zipapp, namespace: str) -> Manifest:
    """The agents' code, immutable: what runs is what the name says."""
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
    """The agents' namespaces, with their code in each. Every other part of the platform depends on it."""

    namespace: pulumi.Output[str]

    def __init__(self, name: str, args: SystemArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        system = args.cluster.system_namespace
        super().__init__(component_type("System"), name, {"namespace": system, "codeDigest": args.code.digest}, opts)
        made = register(namespace(system, "restricted"), f"{name}-namespace", parent=self)
        denied = default_deny_ingress(system, [names.SCHEDULER])
        register(denied, f"{name}-default-deny", parent=self, depends_on=[made])
        register(critical_pods_quota(system), f"{name}-critical-pods", parent=self, depends_on=[made])
        code = register(code_config_map(args.code, system), f"{name}-code", parent=self, depends_on=[made])
        if args.node_code is not None:
            self._declare_node_namespace(name, args, args.node_code)
        self.namespace = code.urn.apply(lambda _: system)
        self.register_outputs({"namespace": self.namespace})

    def _declare_node_namespace(self, name: str, args: SystemArgs, code: Zipapp) -> None:
        nodes = names.node_agent_namespace(args.cluster.system_namespace)
        declared = node_namespace(nodes, claims_devices=args.claims_devices)
        made = register(declared, f"{name}-node-namespace", parent=self)
        denied = default_deny_ingress(nodes, [names.EXPORTER, names.GUARD])
        register(denied, f"{name}-node-default-deny", parent=self, depends_on=[made])
        register(critical_pods_quota(nodes), f"{name}-node-critical-pods", parent=self, depends_on=[made])
        register(code_config_map(code, nodes), f"{name}-node-code", parent=self, depends_on=[made])
