"""NetworkPolicies: each port that an agent serves lists its peers, and all other ingress is denied."""

from collections.abc import Iterable, Mapping

from pydantic import Field

from components.base.manifest import Manifest
from components.base.spec import DnsLabel, Labels, Spec
from tenancy.names import LABEL_NAMESPACE


class PrometheusSpec(Spec):
    """The pods that may read what the agents measure."""

    namespace: DnsLabel = Field(
        description="Namespace of Prometheus. Accounts that may create pods there can read the metrics.",
        examples=["monitoring"],
    )
    pod_labels: Labels = Field(
        default_factory=lambda: {"app.kubernetes.io/name": "prometheus"},
        min_length=1,
        description="Labels of its pods. Default: the labels that the Prometheus Operator sets.",
        examples=[{"app.kubernetes.io/name": "vmagent"}],
    )

    @property
    def peer(self) -> Manifest:
        return peer(self.namespace, {"matchLabels": self.pod_labels})


def peer(namespace: str, pod_selector: Mapping[str, object]) -> Manifest:
    """Selects pods of one namespace."""
    return {
        "namespaceSelector": {"matchLabels": {LABEL_NAMESPACE: namespace}},
        "podSelector": dict(pod_selector),
    }


def ingress(metadata: Manifest, selector: Mapping[str, str], port: int, peers: Iterable[Manifest]) -> Manifest:
    """Lets the peers reach that port of the selected pods. Nobody else reaches any port of these pods.

    The kubelet's probes come from the pod's own node, which Kubernetes always lets in. Egress stays open, because only
    the cluster knows the address of its API server.
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
            # An empty `from` would allow everybody.
            "ingress": [rule] if sources else [],
        },
    }
