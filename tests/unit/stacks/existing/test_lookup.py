"""Tests that the command finds existing objects with one list request for each kind."""

from stacks.existing.lookup import lookup
from stacks.existing.planned import Identity
from tests.support.cluster_objects import Objects, namespace

RBAC = "rbac.authorization.k8s.io/v1"


def binding(home: str, name: str = "edit") -> Identity:
    return Identity("RoleBinding", home, name, RBAC)


def test_a_fresh_cluster_is_asked_for_its_namespaces_and_for_kinds_of_the_whole_cluster() -> None:
    objects = Objects()
    wanted = [binding(f"team-{number}") for number in range(1000)]
    role = Identity("ClusterRole", "", "viewer", RBAC)
    assert lookup(objects, [Identity("Namespace", "", "team-1", "v1"), role, *wanted]) == {}
    assert objects.asked == ["/api/v1/namespaces", f"/apis/{RBAC}", f"/apis/{RBAC}/clusterroles"]


def test_a_kind_in_several_namespaces_is_one_list() -> None:
    there = {"metadata": {"namespace": "b", "name": "edit"}}
    objects = Objects({"/api/v1/namespaces": [namespace("a"), namespace("b")], f"/apis/{RBAC}/rolebindings": [there]})
    assert lookup(objects, [binding("a"), binding("b"), binding("gone")]) == {binding("b"): there}
    assert objects.asked == ["/api/v1/namespaces", f"/apis/{RBAC}", f"/apis/{RBAC}/rolebindings"]


def test_a_kind_that_the_cluster_does_not_have_is_nowhere() -> None:
    objects = Objects()
    assert lookup(objects, [Identity("ClusterQueue", "", "gpu-cq", "kueue.x-k8s.io/v1beta2")]) == {}
    assert objects.asked == ["/api/v1/namespaces", "/apis/kueue.x-k8s.io/v1beta2"]
