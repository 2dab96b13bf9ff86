"""Tests on a real API server that no other stack can overwrite a stack's object, whatever force it uses, and that
manifests for one cluster are refused by another.
"""

from collections.abc import Mapping
from typing import Any

import pytest

from components.admission.one_stack import one_stack
from tenancy import names
from tenancy.admission.policy import binding
from tests.support.e2e.server import ApiAnswer, ApiServer
from tests.support.waiting import eventually

OURS, THEIRS = "gpu-tenancy/lab", "gpu-tenancy/other"
APPLY, MERGE = "application/apply-patch+yaml", "application/merge-patch+json"
KINDS = {
    "ConfigMap": ("/api/v1/namespaces/default/configmaps", {"data": {"a": "b"}}),
    "ClusterRole": ("/apis/rbac.authorization.k8s.io/v1/clusterroles", {"rules": []}),
    "PriorityClass": ("/apis/scheduling.k8s.io/v1/priorityclasses", {"value": 7}),
}
API_VERSIONS = {
    "ClusterRole": "rbac.authorization.k8s.io/v1",
    "PriorityClass": "scheduling.k8s.io/v1",
}


def manifest(kind: str, stack: str | None, name: str = "thing", **labels: str) -> dict[str, Any]:
    annotations = {names.STACK: stack} if stack else {}
    metadata = {"name": name, "labels": {**names.labels("test"), **labels}, "annotations": annotations}
    return {"apiVersion": API_VERSIONS.get(kind, "v1"), "kind": kind, "metadata": metadata, **KINDS[kind][1]}


def applied(server: ApiServer, found: Mapping[str, Any], manager: str, dry_run: str = "") -> ApiAnswer:
    """Applies the object with force."""
    path = f"{KINDS[found['kind']][0]}/{found['metadata']['name']}"
    query = f"?fieldManager={manager}&force=true&dryRun={dry_run}" if dry_run else f"?fieldManager={manager}&force=true"
    return server.request("PATCH", f"{path}{query}", found, content_type=APPLY)


def annotated(server: ApiServer, path: str, value: str | None) -> ApiAnswer:
    """Sends what `kubectl annotate --overwrite` sends."""
    body = {"metadata": {"annotations": {names.STACK: value}}}
    return server.request("PATCH", path, body, content_type=MERGE)


@pytest.fixture(scope="module")
def cluster(server: ApiServer) -> ApiServer:
    policy = one_stack()
    server.apply(policy, "validatingadmissionpolicies")
    server.apply(binding(policy), "validatingadmissionpolicybindings")
    for kind, (path, _) in KINDS.items():
        server.create(path, manifest(kind, OURS))
    eventually(
        lambda: all(applied(server, manifest(kind, THEIRS), "other", "All").code == 422 for kind in KINDS),
        "the policy is in force",
    )
    return server


@pytest.mark.parametrize("kind", KINDS)
def test_another_stack_overwrites_no_object_even_with_force(kind: str, cluster: ApiServer) -> None:
    path = f"{KINDS[kind][0]}/thing"
    before = cluster.api.get(path)
    refused = applied(cluster, manifest(kind, THEIRS, extra="x"), "other")
    assert "two stacks cannot have the same object" in (refused.refusal or ""), refused
    replaced = {
        **manifest(kind, THEIRS),
        "metadata": {**(before or {})["metadata"], "annotations": {names.STACK: THEIRS}},
    }
    assert cluster.request("PUT", path, replaced).code == 422
    assert cluster.api.get(path) == before


@pytest.mark.parametrize("kind", KINDS)
def test_its_own_stack_applies_it_again(kind: str, cluster: ApiServer) -> None:
    assert applied(cluster, manifest(kind, OURS, again="x"), "lab").refusal is None


def test_a_person_hands_an_object_over_by_removing_its_mark_first(cluster: ApiServer) -> None:
    path = f"{KINDS['ConfigMap'][0]}/handed"
    cluster.create(KINDS["ConfigMap"][0], manifest("ConfigMap", OURS, "handed"))
    assert "remove the annotation first" in (annotated(cluster, path, THEIRS).refusal or "")
    assert annotated(cluster, path, None).refusal is None
    assert annotated(cluster, path, THEIRS).refusal is None
    assert applied(cluster, manifest("ConfigMap", THEIRS, "handed"), "other").refusal is None


def test_an_object_without_a_mark_and_a_deletion_are_not_judged(cluster: ApiServer) -> None:
    path = f"{KINDS['ConfigMap'][0]}/lost"
    cluster.create(KINDS["ConfigMap"][0], manifest("ConfigMap", None, "lost"))
    assert annotated(cluster, path, OURS).refusal is None
    assert cluster.request("DELETE", path).refusal is None


def test_an_object_of_somebody_else_is_taken_over_only_after_a_person_has_handed_it_over(cluster: ApiServer) -> None:
    path = f"{KINDS['ConfigMap'][0]}/somebodys"
    theirs = manifest("ConfigMap", None, "somebodys")
    del theirs["metadata"]["labels"]
    cluster.create(KINDS["ConfigMap"][0], theirs)
    before = cluster.api.get(path)
    refused = applied(cluster, manifest("ConfigMap", OURS, "somebodys"), "lab")
    assert "somebody else has made the object" in (refused.refusal or ""), refused
    assert cluster.api.get(path) == before
    assert annotated(cluster, path, OURS).refusal is None
    assert applied(cluster, manifest("ConfigMap", OURS, "somebodys"), "lab").refusal is None


def test_a_label_that_the_update_drops_hides_nothing(cluster: ApiServer) -> None:
    """The selector matches a request if the old or the new object has the label."""
    bare = manifest("ConfigMap", THEIRS)
    del bare["metadata"]["labels"]
    path = f"{KINDS['ConfigMap'][0]}/thing"
    assert cluster.request("PUT", path, bare).code == 422


def test_manifests_for_another_cluster_are_refused(cluster: ApiServer) -> None:
    home = "/api/v1/namespaces/kube-system"
    found = cluster.api.get(home)
    assert found is not None
    for uid, codes in ((found["metadata"]["uid"], {200}), ("another", {409, 422})):
        home_of = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "kube-system", "uid": uid}}
        answer = cluster.request("PATCH", f"{home}?fieldManager=kubectl&force=true", home_of, content_type=APPLY)
        assert answer.code in codes, answer
