"""Tests that the check of a removal lists everything that the removal would delete."""

from typing import Any

from stacks.existing.removal import Removal, of_state
from tenancy import names
from tests.support.cluster_objects import Objects, namespace

MARK = {names.STACK: "gpu-tenancy/lab"}
KUEUE = "kueue.x-k8s.io/v1beta2"


def kept(name: str, component: str = "tenant", *, retain: bool = True, **annotations: str) -> dict[str, Any]:
    labels = {names.LABEL_COMPONENT: component}
    inputs = namespace(name, labels=labels, annotations=annotations or MARK)
    return {"type": "kubernetes:core/v1:Namespace", "inputs": inputs, "retainOnDelete": retain}


def queue(home: str) -> dict[str, Any]:
    manifest = {"apiVersion": KUEUE, "kind": "LocalQueue", "metadata": {"namespace": home, "name": "gpu"}}
    return {"type": f"kubernetes:{KUEUE}:LocalQueue", "inputs": manifest}


def removal(*resources: dict[str, Any], objects: Objects | None = None) -> Removal:
    return of_state({"deployment": {"resources": list(resources)}}, objects or Objects())


def claims(home: str, *found: str) -> dict[str, list[Any]]:
    path = f"/api/v1/namespaces/{home}/persistentvolumeclaims"
    return {path: [{"metadata": {"name": name}} for name in found]}


def test_namespaces_that_stay_are_listed_and_not_read() -> None:
    objects = Objects(claims("immich", "photos"))
    found = removal(kept("immich"), kept("frigate"), objects=objects)
    assert [*found.lines()] == ["keeps namespaces frigate, immich"]
    assert [*found.problems()] == []
    assert objects.asked == []


def test_a_namespace_that_may_go_is_listed_with_its_claims_and_goes() -> None:
    names_of_claims = [f"data-{number}" for number in range(7)]
    found = removal(kept("scratch", retain=False), objects=Objects(claims("scratch", *names_of_claims)))
    assert [*found.lines()] == [
        "deletes namespace scratch with 7 PersistentVolumeClaims (data-0, data-1, data-2, data-3, data-4, …), "
        "no running pods"
    ]
    assert [*found.problems()] == []


def test_claims_in_a_namespace_of_the_agents_are_somebody_elses() -> None:
    system = kept("gpu-tenancy-system", "system", retain=False)
    assert [*removal(system).problems()] == []
    (line,) = removal(system, objects=Objects(claims("gpu-tenancy-system", "odd"))).problems()
    assert line == (
        "namespace gpu-tenancy-system has 1 PersistentVolumeClaim (odd) of somebody else; move or delete them first"
    )


def test_a_state_of_an_earlier_release_is_brought_up_to_date_before_volumes_go() -> None:
    old = kept("immich", retain=False, other="x")
    (line,) = removal(old, objects=Objects(claims("immich", "photos"))).problems()
    assert "an earlier release wrote the state; run make up first" in line


def workload(home: str, name: str, local_queue: str = "gpu", **status: Any) -> dict[str, Any]:
    return {"metadata": {"namespace": home, "name": name}, "spec": {"queueName": local_queue}, "status": status}


FINISHED = {"conditions": [{"type": "Finished", "status": "True"}]}


def test_jobs_that_stay_without_their_queue_are_to_end_first() -> None:
    """Kueue keeps a deleted queue while a Workload holds quota of the queue."""
    workloads = [
        workload("team-a", "train"),
        workload("team-a", "done", **FINISHED),
        workload("team-a", "others", "of-others"),
        workload("team-b", "goes-with-its-namespace"),
    ]
    found = removal(
        kept("team-a"),
        kept("team-b", retain=False),
        queue("team-a"),
        queue("team-b"),
        objects=Objects({f"/apis/{KUEUE}/workloads": workloads}),
    )
    assert found.waiting == ["team-a/train"]
    (line,) = found.problems()
    assert line.startswith(
        "Kueue's queues go, and 1 Workload (team-a/train) would keep them from it; let their Jobs end"
    )


def patch(name: str) -> dict[str, Any]:
    return {"type": "kubernetes:core/v1:NamespacePatch", "inputs": namespace(name)}


def test_namespaces_of_others_are_listed_though_they_only_lose_labels() -> None:
    found = removal(patch("tts"), patch("immich"))
    assert [*found.lines()] == ["leaves namespaces immich, tts, and removes its labels from them"]


def test_running_pods_that_ask_for_what_no_node_will_offer_are_listed() -> None:
    """A running pod that requests a removed resource cannot start again after it ends."""

    def pod(home: str, name: str, limits: dict[str, str]) -> dict[str, Any]:
        containers = [{"name": "main", "resources": {"limits": limits}}]
        return {"metadata": {"namespace": home, "name": name}, "spec": {"containers": containers}}

    metadata = {"namespace": "gpu-tenancy-system", "name": names.LEDGER}
    data = {names.LEDGER_KEY: '{"domain": "example.com"}'}
    ledger = {"type": "kubernetes:core/v1:ConfigMap", "inputs": {"metadata": metadata, "data": data}}
    asked = {"example.com/gpumem": "100"}
    running = [pod("immich", "ml-0", asked), pod("web", "web-0", {}), pod("scratch", "goes-with-it", asked)]
    found = removal(ledger, kept("scratch", retain=False), objects=Objects({"/api/v1/pods": running}))
    assert [*found.lines()][1:] == [
        "leaves 1 pod (immich/ml-0) with a limit of example.com/gpumem, which no node offers after this: a pod keeps "
        "running, but its next pod would wait; then remove the limit from its workload"
    ]
    assert [*found.problems()] == []
