"""Tests on a real API server which rights `init` needs, with the cluster of record 0000."""

import json
from pathlib import Path

import pytest

from tests.support.e2e import given_world
from tests.support.e2e.access import await_right
from tests.support.e2e.plugin import gpumem
from tests.support.e2e.server import ApiServer
from tests.support.given_clusters import GPU, Cluster, of_deployment, record_0000

LISTED = [
    "nodes",
    "pods",
    "namespaces",
    "resourceslices",
    "priorityclasses",
    "runtimeclasses",
    "resourcequotas",
    "deployments",
]


@pytest.fixture(scope="module")
def cluster(server: ApiServer) -> Cluster:
    found = record_0000()
    found.runtime_classes = [{"metadata": {"name": "nvidia"}, "handler": "nvidia"}]
    found.priorities.append({"metadata": {"name": "tier-2-gpu"}, "value": 600000})
    found.pods += of_deployment("tts", "tts", limits={GPU: "1"}, priorityClassName="tier-2-gpu")
    given_world.write(server, found)
    return found


@pytest.mark.usefixtures("cluster")
def test_an_account_without_rights_is_told_the_verb_and_the_resource(server: ApiServer, tmp_path: Path) -> None:
    done = gpumem(server.kubeconfig, "init", "--stack", "mine", "--as", "nobody-special", folder=tmp_path)
    assert done.returncode == 1
    assert 'cannot list resource "' in done.stderr
    assert "gpumem: may not list " in done.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.usefixtures("cluster")
def test_an_account_that_may_only_list_is_enough(server: ApiServer, tmp_path: Path) -> None:
    rbac, name = "rbac.authorization.k8s.io", "may-list"
    metadata = {"metadata": {"name": name}}
    rules = [{"apiGroups": ["*"], "verbs": ["list"], "resources": LISTED}]
    role = {"apiVersion": f"{rbac}/v1", "kind": "ClusterRole", "rules": rules}
    server.apply({**role, **metadata}, "clusterroles")
    subject = {"kind": "User", "name": name, "apiGroup": rbac}
    binding = {"apiVersion": f"{rbac}/v1", "kind": "ClusterRoleBinding", "subjects": [subject], **metadata}
    reference = {"apiGroup": rbac, "kind": "ClusterRole", "name": name}
    server.apply({**binding, "roleRef": reference}, "clusterrolebindings")
    await_right(server.api, name, "list", "nodes")
    done = gpumem(server.kubeconfig, "init", "--stack", "mine", "-o", "json", "--as", name, folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["proposal"]["unknown"] == []
