"""Tests that the check of a removal lists what the removal leaves."""

from typing import Any

from stacks.existing.check import Verdict
from stacks.existing.removal import empty, of_state
from tenancy import names
from tests.support.cluster_objects import Objects, namespace

KUEUE = "kueue.x-k8s.io/v1beta2"


def queue(home: str) -> dict[str, Any]:
    manifest = {"apiVersion": KUEUE, "kind": "LocalQueue", "metadata": {"namespace": home, "name": "gpu"}}
    return {"type": f"kubernetes:{KUEUE}:LocalQueue", "inputs": manifest}


def removal(*resources: dict[str, Any], objects: Objects | None = None) -> Verdict:
    return of_state({"deployment": {"resources": list(resources)}}, objects or Objects())


def patch(name: str) -> dict[str, Any]:
    return {"type": "kubernetes:core/v1:NamespacePatch", "inputs": namespace(name)}


def workload(home: str, name: str, local_queue: str = "gpu", **status: Any) -> dict[str, Any]:
    return {"metadata": {"namespace": home, "name": name}, "spec": {"queueName": local_queue}, "status": status}


FINISHED = {"conditions": [{"type": "Finished", "status": "True"}]}


def test_jobs_that_stay_without_their_queue_are_to_end_first() -> None:
    """Kueue keeps a deleted queue while a Workload holds quota of the queue."""
    workloads = [
        workload("team-a", "train"),
        workload("team-a", "done", **FINISHED),
        workload("team-a", "others", "of-others"),
        workload("team-b", "in-no-queue-of-the-stack"),
    ]
    found = removal(
        patch("team-a"),
        queue("team-a"),
        objects=Objects({f"/apis/{KUEUE}/workloads": workloads}),
    )
    (line,) = found.problems
    assert line.startswith("Kueue's queues go, and 1 Workload (team-a/train) would keep them from it; let their Jobs")


def test_namespaces_are_listed_that_only_lose_labels() -> None:
    found = removal(patch("tts"), patch("immich"), patch("kube-system"))
    assert [*found.notes] == ["leaves namespaces immich, tts, and removes its labels from them"]


def test_a_namespace_is_empty_if_it_has_nothing_but_kubernetes_own() -> None:
    homes = ("bare", "claimed", "custom", "gone")

    def named(home: str, name: str) -> dict[str, Any]:
        return {"metadata": {"namespace": home, "name": name}}

    world = Objects(
        {
            "/api/v1/namespaces": [*map(namespace, homes[:3])],
            "/api/v1/configmaps": [named(home, "kube-root-ca.crt") for home in homes],
            "/api/v1/resourcequotas": [named("claimed", "mine")],
            "/apis/rbac.authorization.k8s.io/v1/rolebindings": [named("custom", "mine")],
        }
    )
    assert empty(world, homes) == ["bare"]


def test_running_pods_that_ask_for_what_no_node_will_offer_are_listed() -> None:
    """A running pod that requests a removed resource cannot start again after it ends."""

    def pod(home: str, name: str, limits: dict[str, str]) -> dict[str, Any]:
        containers = [{"name": "main", "resources": {"limits": limits}}]
        return {"metadata": {"namespace": home, "name": name}, "spec": {"containers": containers}}

    metadata = {"namespace": "gpu-tenancy-system", "name": names.LEDGER}
    data = {names.LEDGER_KEY: '{"domain": "example.com"}'}
    ledger = {
        "type": "kubernetes:core/v1:ConfigMap",
        "inputs": {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data},
    }
    asked = {"example.com/gpumem": "100"}
    running = [pod("immich", "ml-0", asked), pod("web", "web-0", {})]
    found = removal(ledger, objects=Objects({"/api/v1/pods": running}))
    assert [*found.notes] == [
        "leaves 1 pod (immich/ml-0) with a limit of example.com/gpumem, which no node offers after this: a pod keeps "
        "running, but its next pod would wait; then remove the limit from its workload"
    ]
    assert found.problems == ()
