"""Tests the roles gpumem-viewer and gpumem-operator on a real API server, with `kubectl gpumem`."""

import json
from datetime import UTC, datetime, timedelta
from subprocess import CompletedProcess
from typing import Any

import pytest

from components.readers import binding, operator_role, viewer_role
from tenancy import names
from tests.support.e2e.admitted import await_policies
from tests.support.e2e.plugin import gpumem
from tests.support.e2e.server import ApiServer
from tests.support.e2e.tenant import TENANT, let_edit
from tests.support.kubectl import LEDGER_OF_PROD, SYSTEM, device_slice, node, pod
from tests.support.waiting import eventually

NOW = datetime.now(UTC)
RBAC = "/apis/rbac.authorization.k8s.io/v1"
VIEWERS, OPERATORS = "team-immich", "on-call"


def event(name: str, controller: str) -> dict[str, Any]:
    return {
        "metadata": {"name": name, "namespace": "immich"},
        "eventTime": f"{NOW:%Y-%m-%dT%H:%M:%S.%fZ}",
        "type": "Warning",
        "reason": names.EVENT_RECYCLED,
        "action": "Evict",
        "note": f"the note of {name}",
        "regarding": {"apiVersion": "v1", "kind": "Pod", "namespace": "immich", "name": "ml", "uid": "u1"},
        "reportingController": controller,
        "reportingInstance": "one",
    }


@pytest.fixture(scope="module")
def cluster(server: ApiServer) -> ApiServer:
    await_policies(server)  # Without this, the API server could judge the pods by policies that are deleted already.
    for name in ("immich", "llama-swap", SYSTEM):
        server.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}, "namespaces")
    act = {"at": (NOW - timedelta(days=3)).isoformat(), "workload": "immich/Deployment/ml", "pods": []}
    stored = {
        names.LEDGER: {names.LEDGER_KEY: json.dumps(LEDGER_OF_PROD.to_data())},
        names.journal(names.WATCHDOG): {names.JOURNAL_KEY: json.dumps({"recycled": [act]})},
    }
    for name, data in stored.items():
        server.create(f"/api/v1/namespaces/{SYSTEM}/configmaps", {"metadata": {"name": name}, "data": data})
    for name, controller in (("ours", names.WATCHDOG), ("other", "somebody")):
        server.create("/apis/events.k8s.io/v1/namespaces/immich/events", event(name, controller))
    shown = node("k8s-node1")
    shown["metadata"] = {key: shown["metadata"][key] for key in ("name", "labels")}
    server.apply({"apiVersion": "v1", "kind": "Node", **shown}, "nodes")
    server.create("/apis/resource.k8s.io/v1/resourceslices", device_slice("k8s-node1", 15360))
    for made in (pod("ml", 3000, on="k8s-node1"), pod("swap", 5000, "llama-swap", on="k8s-node1")):
        metadata = {key: made["metadata"][key] for key in ("name", "annotations")}
        made["spec"]["containers"][0]["image"] = "model"
        body = {"metadata": metadata, "spec": {**made["spec"], "automountServiceAccountToken": False}}
        server.create(f"/api/v1/namespaces/{made['metadata']['namespace']}/pods", body)
    for role, name, group in ((viewer_role(), names.VIEWER, VIEWERS), (operator_role(), names.OPERATOR, OPERATORS)):
        server.create(f"{RBAC}/clusterroles", role)
        server.create(f"{RBAC}/clusterrolebindings", binding(name, [group]))
    let_edit(server, "immich")
    return server


def typed(server: ApiServer, *arguments: str) -> "CompletedProcess[str]":
    return gpumem(server.kubeconfig, *arguments, f"--as={TENANT}")


def test_a_viewer_sees_his_own_pods_and_the_sums(cluster: ApiServer) -> None:
    eventually(lambda: typed(cluster, "who", "-n", "immich", f"--as-group={VIEWERS}").returncode == 0, "may view")
    done = typed(cluster, "who", "-n", "immich", "-o", "json", f"--as-group={VIEWERS}")
    report = json.loads(done.stdout)
    assert report["scope"] == "immich"
    assert [p["name"] for n in report["nodes"] for d in n["devices"] for p in d["pods"]] == ["ml"]
    assert report["unknown"][0].startswith("the pods of other namespaces than immich may not be read")
    assert (report["own_budget_mib"], report["own_held_mib"], report["pools"][0]["promised_mib"]) == (4800, 3000, 9800)


def test_a_viewer_sees_no_pod_of_another_namespace(cluster: ApiServer) -> None:
    done = typed(cluster, "who", "-n", "llama-swap", f"--as-group={VIEWERS}")
    assert done.returncode == 1
    assert "you may not GET /api/v1/namespaces/llama-swap/pods" in done.stderr
    assert "swap-" not in done.stdout


def test_a_user_without_the_role_gets_the_missing_right_in_the_message(cluster: ApiServer) -> None:
    done = typed(cluster, "who", "-n", "immich")
    assert (done.returncode, done.stdout) == (1, "")
    assert "you may not GET /api/v1/namespaces/gpu-tenancy-system/configmaps/" in done.stderr


def test_an_operator_sees_the_agents_events_and_the_journals(cluster: ApiServer) -> None:
    asked = ("changes", "--since", "99999h", "--pool", "t4", "-o", "json", f"--as-group={OPERATORS}")
    eventually(lambda: typed(cluster, *asked).returncode == 0, "the operator may read")
    found = json.loads(typed(cluster, *asked).stdout)
    assert [(each["source"], each["name"], each["text"]) for each in found["changes"]] == [
        ("gpu-vram-watchdog-journal", "ml", "recycled"),
        ("event", "ml", "the note of ours"),
    ]
    assert found["unknown"] == []
