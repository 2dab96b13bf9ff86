"""NetworkPolicies: each port of an agent has a list of peers that may connect to the port. The NetworkPolicies deny all
other ingress."""

from collections.abc import Iterable, Mapping

from pydantic import Field

from components.base.manifest import Manifest
from components.base.spec import DnsLabel, Labels, Spec
from tenancy.names import LABEL_NAMESPACE


class PrometheusSpec(Spec):
    """The Prometheus pods that may scrape the agents' metrics."""

    namespace: DnsLabel = Field(
        description="Namespace of Prometheus. An account that may create pods in Prometheus' namespace can also read "
        "the agents' metrics.",
        examples=["monitoring"],
    )
    pod_labels: Labels = Field(
        default_factory=lambda: {"app.kubernetes.io/name": "prometheus"},
        min_length=1,
        description="Labels of the Prometheus pods. Default: the labels that the Prometheus Operator sets.",
        examples=[{"app.kubernetes.io/name": "vmagent"}],
    )

    @property
    def peer(self) -> Manifest:
        return peer(self.namespace, {"matchLabels": self.pod_labels})


def peer(namespace: str, pod_selector: Mapping[str, object]) -> Manifest:
    """Returns the peer of a NetworkPolicy for pods in one namespace."""
    return {
        "namespaceSelector": {"matchLabels": {LABEL_NAMESPACE: namespace}},
        "podSelector": dict(pod_selector),
    }


def ingress(metadata: Manifest, selector: Mapping[str, str], port: int, peers: Iterable[Manifest]) -> Manifest:
    """Returns a NetworkPolicy that allows the peers to connect to this port of the selected pods. The NetworkPolicy
    denies all other ingress to these pods.

    The kubelet's probes come from the pod's node, and Kubernetes always allows traffic from there. Egress is not
    limited, because only the cluster knows the address of its API server.
    """
    sources = list(peers)
    rule = {"from": sources, "ports": [{"protocol": "TCP", "port": port}]}
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": metadata,
        "spec": {
            "podSelector": {"matchLabels": dict(selector)},
            "policyTypes": ["Ingress"],
            # An empty `from` in a NetworkPolicy would allow every peer.
            "ingress": [rule] if sources else [],
        },
    }
