"""Tests which damage an agent's stolen token can do (docs/choosing/security.md). The API server is real, with prod's
roles and policies.
"""

from dataclasses import dataclass
from typing import Any

import pytest

from stacks import platform, settings
from tenancy import names
from tests.support.e2e.access import await_right
from tests.support.e2e.admitted import container, gpu_pod, pod, put_into_force
from tests.support.e2e.rollout import becomes, eventually
from tests.support.e2e.server import ApiServer
from tests.support.engine import build
from tests.support.prod import Change, put, raw

SYSTEM = "gpu-tenancy-system"
NODES = names.node_agent_namespace(SYSTEM)
RBAC = "rbac.authorization.k8s.io"
PLURALS = {"ClusterRole": "clusterroles", "ClusterRoleBinding": "clusterrolebindings"}
NAMESPACED = {"Role": "roles", "RoleBinding": "rolebindings"}
MERGE = "application/merge-patch+json"
IMMICH, TTS = "/api/v1/namespaces/immich/pods/pod", "/api/v1/namespaces/tts/pods/pod"
LEDGER = f"/api/v1/namespaces/{SYSTEM}/configmaps/{names.LEDGER}"
CHANGES: tuple[Change, ...] = (put("scheduler", {}), put("pools t4 device_count", 2))
OPERATOR = "system:serviceaccount:web:operator"
ONLY_FINALIZERS = "may change only metadata.finalizers of the ledger"


def account(agent: str) -> str:
    home = NODES if agent in (names.EXPORTER, names.GUARD) else SYSTEM
    return f"system:serviceaccount:{home}:{agent}"


@dataclass(frozen=True)
class Act:
    agent: str
    method: str
    path: str
    body: Any = None


def metadata(**fields: Any) -> dict[str, Any]:
    return {"metadata": fields}


def annotated(key: str) -> dict[str, Any]:
    return metadata(annotations={key: "GPU-of-another"})


def binding(key: str) -> dict[str, Any]:
    target = {"kind": "Node", "name": "node"}
    return {"apiVersion": "v1", "kind": "Binding", "target": target, **metadata(name="pod", annotations={key: "x"})}


def eviction(namespace: str) -> dict[str, Any]:
    return {"apiVersion": "policy/v1", "kind": "Eviction", **metadata(name="pod", namespace=namespace)}


def scaled(namespace: str, name: str) -> str:
    return f"/apis/apps/v1/namespaces/{namespace}/deployments/{name}/scale"


def false_event(namespace: str) -> dict[str, Any]:
    regarding = {"apiVersion": "v1", "kind": "Pod", "namespace": namespace, "name": "pod"}
    said = {"reason": names.EVENT_RECYCLED, "action": "Recycle", "type": "Warning", "note": "never happened"}
    who = {"reportingController": "gpu-tenancy", "reportingInstance": "anybody"}
    when = {"eventTime": "2026-01-01T00:00:00.000000Z"}
    made = {"apiVersion": "events.k8s.io/v1", "kind": "Event", **metadata(name="false", namespace=namespace)}
    return {**made, "regarding": regarding, **said, **who, **when}


def events(namespace: str) -> str:
    return f"/apis/events.k8s.io/v1/namespaces/{namespace}/events"


DEVICE = "device.viktorbarzin.me/uuid"
REPLICAS = {"spec": {"replicas": 3}}

REWRITE = Act(names.RECONCILE, "PATCH", LEDGER, {"data": {names.LEDGER_KEY: "{}"}})
# The requests that an agent's stolen token makes possible.
POSSIBLE: dict[str, Act] = {
    "reconcile advertises any amount of ours": Act(
        names.RECONCILE,
        "PATCH",
        "/api/v1/nodes/node/status",
        {
            "status": {
                part: {f"viktorbarzin.me/{key}": "999999" for key in ("gpumem", "gpu-count")}
                for part in ("capacity", "allocatable")
            }
        },
    ),
    "reconcile lets the ledger go": Act(names.RECONCILE, "PATCH", LEDGER, metadata(finalizers=None)),
    "the watchdog evicts whoever is in a budgeted namespace": Act(
        names.WATCHDOG, "POST", f"{IMMICH}/eviction", eviction("immich")
    ),
    **{
        f"{agent} writes a false Event": Act(agent, "POST", events(namespace), false_event(namespace))
        for agent, namespace in (
            (names.RECONCILE, "immich"),
            (names.WATCHDOG, "immich"),
            (names.GUARD, "immich"),
            (names.SCHEDULER, "immich"),
            (names.GATE, "tts"),
        )
    },
    "the gate scales its Deployments to any number": Act(names.GATE, "PATCH", scaled("tts", "tts"), REPLICAS),
    "the exporter reads every pod": Act(names.EXPORTER, "GET", "/api/v1/pods"),
    "the guard reads every pod": Act(names.GUARD, "GET", "/api/v1/pods"),
    "the scheduler deletes any pod": Act(names.SCHEDULER, "DELETE", IMMICH),
    "the scheduler writes other annotations of a pod": Act(
        names.SCHEDULER, "PATCH", f"{IMMICH}/status", annotated("example.com/other")
    ),
    "the scheduler binds a pod that waits, to any device": Act(
        names.SCHEDULER,
        "POST",
        "/api/v1/namespaces/immich/pods/waiting/binding",
        {**binding(DEVICE), **metadata(name="waiting", annotations={DEVICE: "GPU-of-another"})},
    ),
}


@pytest.fixture(scope="module")
def cluster(server: ApiServer) -> ApiServer:
    put_into_force(server, *CHANGES)
    grant(server)
    grant_every_config_map(server)
    for namespace in ("immich", "tts"):
        server.create(f"/api/v1/namespaces/{namespace}/pods", pod())
    waiting = gpu_pod()
    server.create("/api/v1/namespaces/immich/pods", {**waiting, "metadata": {"name": "waiting"}})
    for name in ("tts", "other"):
        template = {"metadata": {"labels": {"a": name}}, "spec": {"containers": [container()]}}
        spec = {"replicas": 0, "selector": {"matchLabels": {"a": name}}, "template": template}
        server.create(
            "/apis/apps/v1/namespaces/tts/deployments",
            {"apiVersion": "apps/v1", "kind": "Deployment", **metadata(name=name), "spec": spec},
        )
    ledger = {"apiVersion": "v1", "kind": "ConfigMap", "data": {names.LEDGER_KEY: "{}"}}
    server.create(
        LEDGER.rpartition("/")[0], {**ledger, "data": {names.LEDGER_KEY: "{ }"}, **metadata(name=names.LEDGER)}
    )
    await_right(server.api, OPERATOR, "create", "configmaps", namespace=SYSTEM)
    eventually(lambda: ONLY_FINALIZERS in (refusal(server, REWRITE) or ""), "the policy on the ledger is in force")
    return server


def grant(server: ApiServer) -> None:
    config = raw()
    for change in CHANGES:
        change(config)
    prod = settings.parse(config)
    for manifest in build(lambda: platform.build(prod)).objects():
        kind = manifest["kind"]
        if kind in PLURALS:
            server.apply(manifest, PLURALS[kind])
        elif kind in NAMESPACED and manifest["metadata"]["namespace"] != "kube-system":
            home = manifest["metadata"]["namespace"]
            server.create(f"/apis/{RBAC}/v1/namespaces/{home}/{NAMESPACED[kind]}", manifest)


def grant_every_config_map(server: ApiServer) -> None:
    rules = [{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["*"]}]
    role = {"apiVersion": f"{RBAC}/v1", "kind": "ClusterRole", **metadata(name="every-configmap"), "rules": rules}
    ref = {"apiGroup": RBAC, "kind": "ClusterRole", "name": "every-configmap"}
    subject = {"kind": "ServiceAccount", "name": "operator", "namespace": "web"}
    bound = {"apiVersion": f"{RBAC}/v1", "kind": "ClusterRoleBinding", **metadata(name="every-configmap")}
    server.apply(role, "clusterroles")
    server.apply({**bound, "roleRef": ref, "subjects": [subject]}, "clusterrolebindings")


def refusal(server: ApiServer, act: Act) -> str | None:
    dry = "" if act.method == "GET" else f"{'&' if '?' in act.path else '?'}dryRun=All"
    kind = MERGE if act.method == "PATCH" else "application/json"
    path = f"{act.path}{dry}"
    return server.request(act.method, path, act.body, user=account(act.agent), content_type=kind).refusal


@pytest.mark.parametrize("act", POSSIBLE)
def test_is_what_a_stolen_token_is_good_for(cluster: ApiServer, act: str) -> None:
    becomes(lambda: refusal(cluster, POSSIBLE[act]), None, f"the account has the right: {act}")


def test_reconcile_changes_nothing_of_the_ledger_but_its_finalizers(cluster: ApiServer) -> None:
    assert ONLY_FINALIZERS in (refusal(cluster, REWRITE) or "")


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("PATCH", LEDGER),
        ("DELETE", LEDGER),
        ("POST", LEDGER.rpartition("/")[0]),
        ("POST", f"/api/v1/namespaces/{NODES}/configmaps"),
    ],
)
def test_an_operator_with_the_right_to_every_configmap_changes_none_of_ours(
    cluster: ApiServer, method: str, path: str
) -> None:
    """Many Kubernetes operators may write ConfigMaps in every namespace."""

    def answer(name: str) -> str | None:
        body = {"apiVersion": "v1", "kind": "ConfigMap", "data": {names.LEDGER_KEY: "{}"}, **metadata(name=name)}
        kind = MERGE if method == "PATCH" else "application/json"
        given = None if method == "DELETE" else body
        return cluster.request(method, f"{path}?dryRun=All", given, user=OPERATOR, content_type=kind).refusal

    assert "only the agents, and accounts that may change admission policies" in (answer(names.LEDGER) or "")
    if method == "POST":
        assert answer("istio-ca-root-cert") is None
