"""Tests that a tenant cannot forge the mirror pod of a static pod."""

from typing import Any

import pytest

from agents.kube.pods import Pod
from tests.support.e2e.admitted import pod, put_into_force
from tests.support.e2e.server import ApiAnswer, ApiServer
from tests.support.e2e.tenant import TENANT, let_edit
from tests.support.mirrors import mirror, owner
from tests.support.prod import drop

ONLY_KUBELETS = "the annotation kubernetes.io/config.mirror is for kubelets, which mirror static pods by it: remove it"
VICTIM = "5c9d3f0a-0000-4000-8000-000000000000"
MERGE = "application/merge-patch+json"


@pytest.fixture(scope="module")
def cluster(server: ApiServer) -> ApiServer:
    put_into_force(server, drop("scheduler"))
    let_edit(server, "immich")
    return server


def forged(server: ApiServer) -> dict[str, Any]:
    node = server.request("GET", "/api/v1/nodes/node").body["metadata"]["uid"]
    made = pod(nodeName="node")
    made["metadata"] |= mirror(VICTIM, "node", node)
    return made


def posted(server: ApiServer, manifest: dict[str, Any], *, dry_run: bool = True) -> ApiAnswer:
    path = f"/api/v1/namespaces/immich/pods{'?dryRun=All' if dry_run else ''}"
    return server.request("POST", path, manifest, user=TENANT)


def test_a_tenant_makes_no_mirror_of_a_static_pod(cluster: ApiServer) -> None:
    answer = posted(cluster, forged(cluster))
    assert answer.code == 422
    assert ONLY_KUBELETS in (answer.refusal or "")


def test_a_hash_annotation_and_an_owner_are_admitted_but_make_no_mirror_pod(cluster: ApiServer) -> None:
    """A pod from a restored backup can have the annotation and the owner of a mirror pod."""
    manifest = forged(cluster)
    del manifest["metadata"]["annotations"]["kubernetes.io/config.mirror"]
    answer = posted(cluster, manifest)
    assert answer.refusal is None
    found = Pod(answer.body)
    assert (found.static, found.group_uid) == (False, found.uid)


def test_nobody_makes_a_pod_a_mirror_later(cluster: ApiServer) -> None:
    manifest = pod()
    manifest["metadata"]["name"] = "later"
    assert posted(cluster, manifest, dry_run=False).refusal is None
    path = "/api/v1/namespaces/immich/pods/later"
    for change in (mirror(VICTIM, "node"), {"annotations": {"kubernetes.io/config.mirror": VICTIM}}):
        answer = cluster.request("PATCH", path, {"metadata": change}, user=TENANT, content_type=MERGE)
        assert "annotations[kubernetes.io/config.mirror]: Forbidden" in (answer.refusal or "")


def test_a_kubelet_mirrors_its_static_pod_and_agents_know_it(cluster: ApiServer) -> None:
    path = "/api/v1/namespaces/immich/pods?dryRun=All"
    answer = cluster.request("POST", path, forged(cluster), user="system:node:node")
    assert answer.refusal is None
    assert (Pod(answer.body).static, Pod(answer.body).group_uid) == (True, VICTIM)


def test_a_tenant_writes_no_status_and_so_no_containers_id(cluster: ApiServer) -> None:
    """The exporter identifies containers by the ids in the pod's status."""
    manifest = pod()
    manifest["metadata"]["name"] = "stated"
    stated = {"phase": "Running", "containerStatuses": [{"name": "main", "containerID": "containerd://aaa"}]}
    answer = posted(cluster, {**manifest, "status": stated}, dry_run=False)
    assert Pod(answer.body).containers == {}
    path = "/api/v1/namespaces/immich/pods/stated/status"
    refused = cluster.request("PATCH", path, {"status": stated}, user=TENANT, content_type=MERGE)
    assert (refused.code, "cannot patch resource" in (refused.refusal or "")) == (403, True)


def test_a_pods_uid_is_the_api_servers_and_not_its_authors(cluster: ApiServer) -> None:
    manifest = pod()
    manifest["metadata"] |= {"uid": VICTIM, "ownerReferences": owner("ReplicaSet", "somebody")}
    assert posted(cluster, manifest).body["metadata"]["uid"] != VICTIM
