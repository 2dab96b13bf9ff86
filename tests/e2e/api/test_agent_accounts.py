"""What each agent's token can do, and what it cannot: a real API server with prod's roles and admission policies.

docs/security.md says what a token in the wrong hands is good for: each line there is tried here.
"""

import json
import ssl
import urllib.error
import urllib.request
from dataclasses import dataclass
from typing import Any

import pytest

from stacks import platform, settings
from tenancy import names
from tests.e2e.api.admitted import container, gpu_pod, pod, put_into_force
from tests.e2e.api.server import ApiServer
from tests.e2e.rollout import eventually
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
SLICES = f"/apis/{names.RESOURCE_API}/resourceslices"
DRIVER = "gpumem.viktorbarzin.me"
CHANGES: tuple[Change, ...] = (put("scheduler", {"placement": "extender"}), put("pools t4 device_count", 2))


def account(agent: str) -> str:
    home = NODES if agent in (names.EXPORTER, names.GUARD) else SYSTEM
    return f"system:serviceaccount:{home}:{agent}"


@dataclass(frozen=True)
class Act:
    """One request; `words` is what the API server says of it, None where it is allowed."""

    agent: str
    method: str
    path: str
    body: Any = None
    words: str | None = None


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


def capacity(key: str, amount: str | None = "1") -> dict[str, Any]:
    return {"status": {"capacity": {key: amount}, "allocatable": {key: amount}}}


def resource_slice(node: str, driver: str) -> dict[str, Any]:
    pool = {"name": node, "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": driver, "nodeName": node, "pool": pool, "devices": []}
    return {"apiVersion": names.RESOURCE_API, "kind": "ResourceSlice", **metadata(name=f"{node}-x"), "spec": spec}


def false_event(namespace: str) -> dict[str, Any]:
    """Of something that never happened to a pod."""
    regarding = {"apiVersion": "v1", "kind": "Pod", "namespace": namespace, "name": "pod"}
    said = {"reason": names.EVENT_RECYCLED, "action": "Recycle", "type": "Warning", "note": "never happened"}
    who = {"reportingController": "gpu-tenancy", "reportingInstance": "anybody"}
    when = {"eventTime": "2026-01-01T00:00:00.000000Z"}
    made = {"apiVersion": "events.k8s.io/v1", "kind": "Event", **metadata(name="false", namespace=namespace)}
    return {**made, "regarding": regarding, **said, **who, **when}


def events(namespace: str) -> str:
    return f"/apis/events.k8s.io/v1/namespaces/{namespace}/events"


DEVICE = "device.viktorbarzin.me/uuid"
EVERYBODY = (names.RECONCILE, names.WATCHDOG, names.GATE, names.EXPORTER, names.GUARD, names.SCHEDULER)
SECRETS = f"/api/v1/namespaces/{SYSTEM}/secrets"
ROLES = f"/apis/{RBAC}/v1/clusterroles"
ANY_ROLE = {"apiVersion": f"{RBAC}/v1", "kind": "ClusterRole", **metadata(name="mine"), "rules": []}
REPLICAS = {"spec": {"replicas": 3}}

# Of every agent.
FORBIDDEN_TO_ALL: dict[str, tuple[str, str, Any, str]] = {
    "reads secrets": ("GET", SECRETS, None, 'cannot list resource "secrets"'),
    "makes a role": ("POST", ROLES, ANY_ROLE, 'cannot create resource "clusterroles"'),
    "makes a pod": ("POST", "/api/v1/namespaces/immich/pods", pod(), 'cannot create resource "pods"'),
    "changes a pod": ("PATCH", IMMICH, annotated(DEVICE), 'cannot patch resource "pods"'),
    "runs a program in a pod": ("POST", f"{IMMICH}/exec?command=id", None, 'cannot create resource "pods/exec"'),
    "changes a node": (
        "PATCH",
        "/api/v1/nodes/node",
        {"spec": {"unschedulable": True}},
        'cannot patch resource "nodes"',
    ),
    "changes a namespace": (
        "PATCH",
        "/api/v1/namespaces/immich",
        metadata(labels={"a": "b"}),
        'cannot patch resource "namespaces"',
    ),
    "changes a policy": (
        "PATCH",
        f"/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies/{names.DEVICE_CHOICE}",
        metadata(labels={"a": "b"}),
        'cannot patch resource "validatingadmissionpolicies"',
    ),
}

FORBIDDEN: dict[str, Act] = {
    "reconcile labels a node": Act(
        names.RECONCILE,
        "PATCH",
        "/api/v1/nodes/node/status",
        metadata(labels={"a": "b"}),
        "may not change metadata.labels",
    ),
    "reconcile writes another resource of a node": Act(
        names.RECONCILE,
        "PATCH",
        "/api/v1/nodes/node/status",
        capacity("nvidia.com/gpu"),
        "may change only viktorbarzin.me",
    ),
    "reconcile rewrites the ledger": Act(
        names.RECONCILE,
        "PATCH",
        LEDGER,
        {"data": {names.LEDGER_KEY: "{}"}},
        "may change only metadata.finalizers of the ledger",
    ),
    "reconcile writes another's journal": Act(
        names.RECONCILE,
        "PATCH",
        LEDGER.replace(names.LEDGER, names.journal(names.WATCHDOG)),
        {"data": {"a": "b"}},
        'cannot patch resource "configmaps"',
    ),
    "reconcile evicts": Act(
        names.RECONCILE, "POST", f"{IMMICH}/eviction", eviction("immich"), 'cannot create resource "pods/eviction"'
    ),
    "the watchdog evicts where there is no budget": Act(
        names.WATCHDOG, "POST", f"{TTS}/eviction", eviction("tts"), 'cannot create resource "pods/eviction"'
    ),
    "the watchdog deletes": Act(names.WATCHDOG, "DELETE", IMMICH, None, 'cannot delete resource "pods"'),
    "the watchdog writes the ledger": Act(
        names.WATCHDOG, "PATCH", LEDGER, {"data": {}}, 'cannot patch resource "configmaps"'
    ),
    "the watchdog scales": Act(
        names.WATCHDOG, "PATCH", scaled("tts", "tts"), REPLICAS, 'cannot patch resource "deployments/scale"'
    ),
    "the gate scales another Deployment": Act(
        names.GATE, "PATCH", scaled("tts", "other"), REPLICAS, 'cannot patch resource "deployments/scale"'
    ),
    "the gate scales where it has no Deployment": Act(
        names.GATE, "PATCH", scaled("immich", "tts"), REPLICAS, 'cannot patch resource "deployments/scale"'
    ),
    "the gate changes what its Deployment runs": Act(
        names.GATE,
        "PATCH",
        scaled("tts", "tts").removesuffix("/scale"),
        REPLICAS,
        'cannot patch resource "deployments"',
    ),
    "the gate evicts": Act(
        names.GATE, "POST", f"{TTS}/eviction", eviction("tts"), 'cannot create resource "pods/eviction"'
    ),
    "the exporter publishes without its pod": Act(
        names.EXPORTER, "POST", SLICES, resource_slice("node", DRIVER), "writes only with its pod's token"
    ),
    "the exporter writes capacity": Act(
        names.EXPORTER, "PATCH", "/api/v1/nodes/node/status", capacity("a.b/c"), 'cannot patch resource "nodes/status"'
    ),
    "the exporter writes an Event": Act(
        names.EXPORTER, "POST", events("immich"), false_event("immich"), 'cannot create resource "events"'
    ),
    "the gate writes an Event elsewhere": Act(
        names.GATE, "POST", events("immich"), false_event("immich"), 'cannot create resource "events"'
    ),
    "the exporter reads other ConfigMaps": Act(
        names.EXPORTER, "GET", LEDGER.rpartition("/")[0], None, 'cannot list resource "configmaps"'
    ),
    "the guard evicts": Act(
        names.GUARD, "POST", f"{IMMICH}/eviction", eviction("immich"), 'cannot create resource "pods/eviction"'
    ),
    "the guard reads the ledger": Act(names.GUARD, "GET", LEDGER, None, 'cannot get resource "configmaps"'),
    "the guard writes a pod's status": Act(
        names.GUARD, "PATCH", f"{IMMICH}/status", annotated("a"), 'cannot patch resource "pods/status"'
    ),
    "the scheduler gives a running pod another device": Act(
        names.SCHEDULER, "PATCH", f"{IMMICH}/status", annotated(DEVICE), "are the scheduler's: leave them as they are"
    ),
    "the scheduler evicts": Act(
        names.SCHEDULER, "POST", f"{IMMICH}/eviction", eviction("immich"), 'cannot create resource "pods/eviction"'
    ),
    "the scheduler writes the ledger": Act(
        names.SCHEDULER, "PATCH", LEDGER, {"data": {}}, 'cannot patch resource "configmaps"'
    ),
    "the scheduler publishes devices": Act(
        names.SCHEDULER, "POST", SLICES, resource_slice("node", DRIVER), 'cannot create resource "resourceslices"'
    ),
    "the scheduler writes capacity": Act(
        names.SCHEDULER, "PATCH", "/api/v1/nodes/node/status", capacity("a.b/c"), 'cannot patch resource "nodes/status"'
    ),
}

# What a token in the wrong hands is good for.
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
    """Prod with its scheduler, and an object for each act."""
    put_into_force(server, *CHANGES)
    grant(server)
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
    for words in ("reconcile labels a node", "reconcile rewrites the ledger", "the exporter publishes without its pod"):
        eventually(lambda act=FORBIDDEN[words]: (act.words or "") in str(refusal(server, act)), words)
    return server


def grant(server: ApiServer) -> None:
    """Every role of the stack, and its binding."""
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


def refusal(server: ApiServer, act: Act) -> str | None:
    dry = "" if act.method == "GET" else f"{'&' if '?' in act.path else '?'}dryRun=All"
    kind = MERGE if act.method == "PATCH" else "application/json"
    path = f"{act.path}{dry}"
    return server.request(act.method, path, act.body, user=account(act.agent), content_type=kind).refusal


@pytest.mark.parametrize("agent", EVERYBODY)
@pytest.mark.parametrize("act", FORBIDDEN_TO_ALL)
def test_no_agent(cluster: ApiServer, act: str, agent: str) -> None:
    method, path, body, words = FORBIDDEN_TO_ALL[act]
    assert words in (refusal(cluster, Act(agent, method, path, body)) or "")


@pytest.mark.parametrize("act", FORBIDDEN)
def test_is_refused(cluster: ApiServer, act: str) -> None:
    assert (FORBIDDEN[act].words or "") in (refusal(cluster, FORBIDDEN[act]) or "")


@pytest.mark.parametrize("act", POSSIBLE)
def test_is_what_a_stolen_token_is_good_for(cluster: ApiServer, act: str) -> None:
    assert refusal(cluster, POSSIBLE[act]) is None


@pytest.mark.parametrize(
    ("node", "driver", "words"),
    [
        ("node", DRIVER, None),
        ("another", DRIVER, "may publish only the devices of the node that it runs on"),
        ("node", "gpu.nvidia.com", f"may publish only for the driver {DRIVER}"),
    ],
    ids=["its own node", "another node", "another driver"],
)
def test_with_its_pods_token_an_exporter_publishes(
    cluster: ApiServer, token: str, node: str, driver: str, words: str | None
) -> None:
    answer = posted(cluster, f"{SLICES}?dryRun=All", resource_slice(node, driver), token)
    assert (words or '"kind":"ResourceSlice"') in answer


@pytest.fixture(scope="module")
def token(cluster: ApiServer) -> str:
    """Of an exporter's pod, as its node's kubelet asks for it."""
    home = f"/api/v1/namespaces/{NODES}"
    made = {"apiVersion": "v1", "kind": "ServiceAccount", **metadata(name=names.EXPORTER)}
    cluster.create(f"{home}/serviceaccounts", made)
    exporter = pod(serviceAccountName=names.EXPORTER, nodeName="node")
    exporter["metadata"]["name"] = "exporter"
    uid = cluster.create(f"{home}/pods", exporter)["metadata"]["uid"]
    bound = {"boundObjectRef": {"apiVersion": "v1", "kind": "Pod", "name": "exporter", "uid": uid}}
    asked = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "metadata": {}, "spec": bound}
    given: str = cluster.api.create(f"{home}/serviceaccounts/{names.EXPORTER}/token", asked)["status"]["token"]
    return given


def posted(server: ApiServer, path: str, body: Any, token: str) -> str:
    """The answer to a request with that token and nothing else."""
    tls = ssl.create_default_context(cafile=str(server.api.kubeconfig.parent / "pki" / "ca.crt"))
    headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
    request = urllib.request.Request(f"{server.api.server}{path}", json.dumps(body).encode(), headers)  # noqa: S310
    try:
        with urllib.request.urlopen(request, context=tls, timeout=30) as answer:  # noqa: S310 (https)
            return str(answer.read().decode())
    except urllib.error.HTTPError as error:
        with error:
            return error.read().decode()
