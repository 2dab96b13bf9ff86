"""Writes the objects of a cluster without gpu-tenancy to a real API server."""

from tests.support.e2e.admitted import await_policies
from tests.support.e2e.server import NAMESPACES, ApiServer
from tests.support.given_clusters import Cluster, Object

PODS = "/api/v1/namespaces/{}/pods"


def write(server: ApiServer, cluster: Cluster) -> None:
    await_policies(server)  # Without this, the API server could judge the pods by policies that are deleted already.
    for found in cluster.priorities:
        server.apply({"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", **found}, "priorityclasses")
    for found in cluster.runtime_classes:
        server.apply({"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", **found}, "runtimeclasses")
    for found in cluster.nodes:
        _node(server, found)
    for name in dict.fromkeys([*cluster.namespaces, *(pod["metadata"]["namespace"] for pod in cluster.pods)]):
        if server.api.get(f"{NAMESPACES}/{name}") is None:
            labels = dict(cluster.namespaces.get(name, {}))
            server.apply(
                {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}}, "namespaces"
            )
    for found in cluster.pods:
        create_pod(server, found)


def create_pod(server: ApiServer, found: Object) -> None:
    path = PODS.format(found["metadata"]["namespace"])
    metadata = {key: value for key, value in found["metadata"].items() if key not in ("uid", "creationTimestamp")}
    server.create(path, {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": found["spec"]})
    server.api.patch(f"{path}/{metadata['name']}/status", {"status": found["status"]})


def _node(server: ApiServer, found: Object) -> None:
    metadata = {key: value for key, value in found["metadata"].items() if key != "uid"}
    server.apply({"apiVersion": "v1", "kind": "Node", "metadata": metadata, "spec": found["spec"]}, "nodes")
    server.api.patch(f"/api/v1/nodes/{metadata['name']}/status", {"status": found["status"]})
