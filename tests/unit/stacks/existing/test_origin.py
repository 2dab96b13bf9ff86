"""Tests that a state of another cluster is found by the uids of its namespaces."""

from typing import Any

from stacks.existing.origin import lost, namespaces_by_uid
from tests.support.cluster_objects import Objects, namespace

PATH = "/api/v1/namespaces"
NAMESPACE = "kubernetes:core/v1:NamespacePatch"


def state(*resources: dict[str, Any]) -> dict[str, Any]:
    return {"deployment": {"resources": [*resources]}}


def created(name: str, uid: str) -> dict[str, Any]:
    return {"type": NAMESPACE, "outputs": namespace(name, uid=uid)}


STATE = namespaces_by_uid(state(created("immich", "1"), created("agents", "2"), {"type": "kubernetes:core/v1:Secret"}))


def test_a_new_cluster_with_namespaces_of_the_same_names_is_another_one() -> None:
    assert lost(STATE, Objects({PATH: [namespace("immich", uid="3")]})) == ["agents", "immich"]
    assert lost(STATE, Objects()) == ["agents", "immich"]


def test_a_cluster_that_lost_some_of_the_namespaces_is_the_same() -> None:
    assert lost(STATE, Objects({PATH: [namespace("immich", uid="1"), namespace("agents", uid="3")]})) == []


def test_a_state_without_a_live_namespace_is_of_no_cluster() -> None:
    resources = (
        {"type": NAMESPACE},
        {"type": NAMESPACE, "outputs": {}},
        {"type": NAMESPACE, "outputs": namespace("a")},
    )
    assert namespaces_by_uid(state(*resources)) == {}
    assert namespaces_by_uid({"deployment": {}}) == {}
