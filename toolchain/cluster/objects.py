"""Declares objects that GPU operators and the Prometheus Operator create in a real cluster."""

from collections.abc import Iterator
from typing import Any

from toolchain.cluster import prod, simulated
from toolchain.cluster.control_plane import NODE
from toolchain.cluster.node import TAINT

Manifest = dict[str, Any]

_MONITORING = "monitoring.coreos.com"
_MONITORING_KINDS = {
    "PrometheusRule": "v1",
    "PodMonitor": "v1",
    "ServiceMonitor": "v1",
    "AlertmanagerConfig": "v1alpha1",
}


def objects() -> Iterator[tuple[str, Manifest]]:
    """Yields each object together with the API path of its collection."""
    for plural, manifest in simulated.kwok_rights():
        yield f"/apis/rbac.authorization.k8s.io/v1/{plural}", manifest
    operator = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": prod.OPERATOR_NAMESPACE}}
    yield "/api/v1/namespaces", operator
    yield (
        "/apis/node.k8s.io/v1/runtimeclasses",
        {
            "apiVersion": "node.k8s.io/v1",
            "kind": "RuntimeClass",
            "metadata": {"name": "nvidia"},
            "handler": "nvidia",
        },
    )
    for kind, version in _MONITORING_KINDS.items():
        yield "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", _definition(kind, version)
    for node in simulated.nodes():
        yield "/api/v1/nodes", node
        if node["metadata"]["name"] in simulated.SHARED:
            devices = simulated.devices(node["metadata"]["name"], prod.cluster_settings()["resource_domain"])
            yield "/apis/resource.k8s.io/v1/resourceslices", devices


def _definition(kind: str, version: str) -> Manifest:
    """Returns the CustomResourceDefinition of a kind of the Prometheus Operator, without the operator's schema."""
    plural = f"{kind.lower()}s"
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{_MONITORING}"},
        "spec": {
            "group": _MONITORING,
            "scope": "Namespaced",
            "names": {"kind": kind, "plural": plural, "singular": kind.lower()},
            "versions": [{"name": version, "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}],
        },
    }


_of_a_daemon_set = "object.metadata.?ownerReferences.orValue([]).exists(o, o.kind == 'DaemonSet')"


def real_pod_policy(*images: str) -> Iterator[tuple[str, Manifest]]:
    """Yields an admission policy and its binding.

    The admission policy changes pods with these images so that they run on the real node. The taint of the real node
    keeps all other pods away. The admission policy does not change pods with a RuntimeClass or pods of a DaemonSet.
    """
    api = "admissionregistration.k8s.io/v1"
    metadata = {"name": "gpu-tenancy-real-pods"}
    toleration = f"Object.spec.tolerations{{key: '{TAINT}', operator: 'Exists'}}"
    patches = f"""[
      JSONPatch{{op: 'add', path: '/spec/tolerations', value: object.spec.?tolerations.orValue([]) + [{toleration}]}},
      has(object.spec.nodeSelector)
        ? JSONPatch{{op: 'add', path: '/spec/nodeSelector/kubernetes.io~1hostname', value: '{NODE}'}}
        : JSONPatch{{op: 'add', path: '/spec/nodeSelector', value: {{'kubernetes.io/hostname': '{NODE}'}}}}
    ]"""
    yield (
        f"/apis/{api}/mutatingadmissionpolicies",
        {
            "apiVersion": api,
            "kind": "MutatingAdmissionPolicy",
            "metadata": metadata,
            "spec": {
                "failurePolicy": "Fail",
                "reinvocationPolicy": "Never",
                "matchConstraints": {
                    "resourceRules": [
                        {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}
                    ]
                },
                "matchConditions": [
                    {"name": "image", "expression": f"object.spec.containers.all(c, c.image in {list(images)})"},
                    {"name": "no-gpu", "expression": "!has(object.spec.runtimeClassName)"},
                    {"name": "any-node", "expression": f"!({_of_a_daemon_set})"},
                ],
                "mutations": [{"patchType": "JSONPatch", "jsonPatch": {"expression": patches}}],
            },
        },
    )
    yield (
        f"/apis/{api}/mutatingadmissionpolicybindings",
        {
            "apiVersion": api,
            "kind": "MutatingAdmissionPolicyBinding",
            "metadata": metadata,
            "spec": {"policyName": metadata["name"]},
        },
    )
