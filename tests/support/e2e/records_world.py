"""Creates the cluster of record 0000 in its state before gpu-tenancy, with containers on the real node.

The real node has a fake Tesla T4 and seven workloads without budgets. An admission policy, "the stand-in", takes the
place of record 0000's Kyverno policy.
"""

import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.support.e2e.made import made
from tests.support.given_clusters import GPU, NAMESPACE_OF, STEADY
from tests.support.waiting import becomes, eventually
from toolchain.cluster import card, fake_nvml, node, simulated
from toolchain.cluster.api import MERGE, ApiAnswer, ClusterApi
from toolchain.cluster.background import call_repeatedly
from toolchain.cluster.card import Card
from toolchain.cluster.cluster import HeldCluster
from toolchain.cluster.image import agent_image
from toolchain.cluster.prod import OPERATOR_NAMESPACE, TTS_MIB

Object = Mapping[str, Any]

USE_MIB = {**STEADY, "tts": TTS_MIB, "android-emulator": 154}
NAMESPACES = sorted({NAMESPACE_OF.get(app, app) for app in USE_MIB})
CLASSES = {"gpu-workload": 1200000, "tier-2-gpu": 600000}
# Maps each app to its PersistentVolumeClaim.
CLAIMS = {"immich-server": "photos", "frigate": "recordings", "llama-swap": "models"}
STAND_IN = "inject-gpu-workload-priority"
STAMPED = "stamped-by"
# The stand-in policy can ignore namespaces with this label. A stack in the mode enforce sets the label.
RETIRED_BY = "pod-security.kubernetes.io/enforce"
_NODE = f"/api/v1/nodes/{node.NODE}"
_LABELS = {**card.LABELS, "nvidia.com/gpu.product": "Tesla-T4-SHARED", "nvidia.com/gpu.replicas": "100"}
_OF_OTHERS = ("k8s-node1", "k8s-node2", "node-4")  # The names of the simulated nodes with GPUs.
_POLICIES = "/apis/admissionregistration.k8s.io/v1/mutatingadmissionpolicies"
# The programs end at once on SIGTERM.
_MODEL = "import signal, sys; signal.signal(signal.SIGTERM, lambda *_: sys.exit()); signal.pause()"
# Controllers create and delete such objects at any time.
_FLEETING = {"events", "leases", "endpoints", "endpointslices", "pods", "replicasets", "controllerrevisions"}


def namespace_of(app: str) -> str:
    return NAMESPACE_OF.get(app, app)


def deployment_path(app: str) -> str:
    return f"/apis/apps/v1/namespaces/{namespace_of(app)}/deployments/{app}"


@dataclass(frozen=True)
class Snapshot:
    objects: Mapping[str, str]
    namespaces: Mapping[str, tuple[Object, Object]]
    files: Mapping[str, str]
    pods: Mapping[str, tuple[str, int]]

    def changes(self, later: "Snapshot") -> list[str]:
        return [
            f"{what} {key}: {before.get(key)} became {after.get(key)}"
            for what, before, after in (
                ("object", self.objects, later.objects),
                ("namespace", self.namespaces, later.namespaces),
                ("file", self.files, later.files),
                ("pod of", self.pods, later.pods),
            )
            for key in sorted(before.keys() | after.keys())
            if before.get(key) != after.get(key)
        ]


@dataclass(frozen=True)
class World:
    cluster: HeldCluster
    files: Path

    @property
    def api(self) -> ClusterApi:
        return self.cluster.api

    def pods(self) -> dict[str, tuple[str, int]]:
        found = {app: self._running(app) for app in USE_MIB}
        return {
            app: (pod["metadata"]["uid"], pod["status"]["containerStatuses"][0]["restartCount"])
            for app, pod in found.items()
            if pod is not None
        }

    def pod(self, app: str) -> Object:
        found = self._running(app)
        assert found is not None, app
        return found

    def _running(self, app: str) -> Object | None:
        path = f"/api/v1/namespaces/{namespace_of(app)}/pods?labelSelector=app%3D{app}"
        for pod in (self.api.get(path) or {"items": []})["items"]:
            statuses = pod["status"].get("containerStatuses", ())
            if "deletionTimestamp" not in pod["metadata"] and any("running" in each["state"] for each in statuses):
                return dict(pod)
        return None

    def snapshot(self, pods: Mapping[str, tuple[str, int]] | None = None) -> Snapshot:
        return Snapshot(self._objects(), self._namespaces(), self._contents(), self.pods() if pods is None else pods)

    def all_run(self) -> bool:
        return self.pods().keys() == USE_MIB.keys()

    def limit(self, app: str, limits: Mapping[str, str | None]) -> None:
        before = self.pods()[app]
        containers = [{"name": "model", "resources": {"limits": dict(limits)}}]
        patch = {"spec": {"template": {"spec": {"containers": containers}}}}
        self.api.patch(deployment_path(app), patch, "application/strategic-merge-patch+json")
        self._await_another(app, before)

    def restart(self, app: str) -> None:
        before, metadata = self.pods()[app], self.pod(app)["metadata"]
        self.api.request("DELETE", f"/api/v1/namespaces/{metadata['namespace']}/pods/{metadata['name']}")
        self._await_another(app, before)

    def _await_another(self, app: str, before: tuple[str, int]) -> None:
        what = f"the new pod of {app} runs"
        eventually(lambda: self.pods().get(app, before) != before, what, self.pods, pause_seconds=0.2)

    def _objects(self) -> dict[str, str]:
        return {
            f"{path} {item['metadata'].get('namespace', '')}/{item['metadata']['name']}": item["metadata"]["uid"]
            for path in self._lists()
            for item in (self.api.get(path) or {"items": []})["items"]
            if "uid" in item["metadata"]
        }

    def _lists(self) -> Iterator[str]:
        groups = (self.api.get("/apis") or {"groups": []})["groups"]
        for top in ("/api/v1", *(f"/apis/{group['preferredVersion']['groupVersion']}" for group in groups)):
            for resource in (self.api.get(top) or {"resources": []})["resources"]:
                if "list" in resource["verbs"] and resource["name"] not in _FLEETING:
                    yield f"{top}/{resource['name']}"

    def _namespaces(self) -> dict[str, tuple[Object, Object]]:
        found = (self.api.get("/api/v1/namespaces") or {"items": []})["items"]
        return {
            each["metadata"]["name"]: (each["metadata"]["labels"], each["metadata"].get("annotations") or {})
            for each in found
        }

    def _contents(self) -> dict[str, str]:
        return {str(path.relative_to(self.files)): path.read_text() for path in self.files.rglob("*") if path.is_file()}

    def created(self, namespace: str, limits: Mapping[str, str]) -> ApiAnswer:
        container = {"name": "main", "image": "app:1", "resources": {"limits": dict(limits)}}
        manifest = {"metadata": {"name": "tried"}, "spec": {"containers": [container]}}
        return self.api.request("POST", f"/api/v1/namespaces/{namespace}/pods?dryRun=All", manifest)

    def stamp(self, namespace: str, limits: Mapping[str, str]) -> tuple[str | None, bool]:
        body = self.created(namespace, limits).body
        metadata, spec = body.get("metadata", {}), body.get("spec", {})
        return spec.get("priorityClassName"), STAMPED in metadata.get("annotations", {})

    def stamped(self, app: str) -> tuple[str | None, bool]:
        pod = self.pod(app)
        return pod["spec"].get("priorityClassName"), STAMPED in pod["metadata"].get("annotations", {})

    def retire_the_stand_in(self) -> None:
        selector = {"matchExpressions": [{"key": RETIRED_BY, "operator": "DoesNotExist"}]}
        patch = {"spec": {"matchConstraints": {"namespaceSelector": selector}}}
        self.api.patch(f"{_POLICIES}/{STAND_IN}", patch, MERGE)


@contextmanager
def records_world(cluster: HeldCluster, files: Path) -> Iterator[World]:
    world = World(cluster, files)
    workloads = [(deployment_path(app).rpartition("/")[0], _deployment(app)) for app in USE_MIB]
    with _gpu(cluster) as script, made(cluster.api, _objects(files)):
        await_the_stand_in(world)
        device = Card(script=script, wants=dict(USE_MIB))
        with made(cluster.api, workloads), call_repeatedly(device.turn, card.TURN_SECONDS):
            eventually(world.all_run, "all workloads run", world.pods)
            yield world


def await_the_stand_in(world: World) -> None:
    becomes(lambda: world.stamp("immich", {GPU: "1"}), ("gpu-workload", True), "the stand-in stamps")


@contextmanager
def _gpu(cluster: HeldCluster) -> Iterator[Path]:
    if not fake_nvml.can_build():
        pytest.skip("NO C COMPILER: the fake device cannot be built")
    api, libraries = cluster.api, node.gpu_libraries(cluster.folder)
    fake_nvml.build(libraries)
    fake_nvml.write(libraries / "card", card.nvml_figures(card.free_mib({})))
    for name in _OF_OTHERS:
        api.request("DELETE", f"/api/v1/nodes/{name}")
    try:
        _offer(api, "100", _LABELS)
        yield libraries / "card"
    finally:
        _offer(api, None, dict.fromkeys(_LABELS))
        for manifest in simulated.nodes():
            if manifest["metadata"]["name"] in _OF_OTHERS:
                api.create("/api/v1/nodes", manifest)
        eventually(lambda: _all_ready(api), "all nodes are Ready again")


def _all_ready(api: ClusterApi) -> bool:
    return all(map(simulated.is_ready, (api.get("/api/v1/nodes") or {"items": []})["items"]))


def _offer(api: ClusterApi, slices: str | None, labels: Mapping[str, str | None]) -> None:
    api.patch(_NODE, {"metadata": {"labels": dict(labels)}})
    api.patch(f"{_NODE}/status", {"status": {"capacity": {GPU: slices}, "allocatable": {GPU: slices}}})


def _objects(files: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    core = "/api/v1"
    for name, value in CLASSES.items():
        yield "/apis/scheduling.k8s.io/v1/priorityclasses", {"metadata": {"name": name}, "value": value}
    for name in NAMESPACES:
        yield f"{core}/namespaces", {"metadata": {"name": name, "labels": {"owner": "me"}}}
    for app, claim in CLAIMS.items():
        folder = files / claim
        folder.mkdir()
        (folder / "content").write_text(secrets.token_hex())
        yield f"{core}/persistentvolumes", _volume(claim, folder)
        yield f"{core}/namespaces/{namespace_of(app)}/persistentvolumeclaims", _claim(claim)
    yield f"/apis/apps/v1/namespaces/{OPERATOR_NAMESPACE}/daemonsets", _device_plugin()
    policy = _stand_in()
    yield _POLICIES, policy
    bound = {"metadata": policy["metadata"], "spec": {"policyName": STAND_IN}}
    yield f"{_POLICIES.removesuffix('ies')}ybindings", bound


def _volume(claim: str, folder: Path) -> dict[str, Any]:
    """Kubernetes deletes a hostPath only below /tmp (pkg/volume/hostpath)."""
    spec = {
        "capacity": {"storage": "1Gi"},
        "accessModes": ["ReadWriteOnce"],
        "persistentVolumeReclaimPolicy": "Delete",
        "storageClassName": "",
        "hostPath": {"path": str(folder)},
    }
    return {"metadata": {"name": claim}, "spec": spec}


def _claim(name: str) -> dict[str, Any]:
    asked = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    return {"metadata": {"name": name}, "spec": {**asked, "storageClassName": "", "volumeName": name}}


def _deployment(app: str) -> dict[str, Any]:
    made = card.deployment(app, {GPU: "1"}, replicas=1)
    spec = made["spec"]["template"]["spec"]
    spec["containers"][0]["command"][-2] = _MODEL
    mounts = []
    if claim := CLAIMS.get(app):
        mounts.append(("data", {"persistentVolumeClaim": {"claimName": claim}}))
    if app == "android-emulator":  # Some machines have no /dev/kvm.
        mounts.append(("kvm", {"hostPath": {"path": "/dev/null"}}))
    spec["volumes"] = [{"name": name, **source} for name, source in mounts]
    spec["containers"][0]["volumeMounts"] = [{"name": name, "mountPath": f"/mnt/{name}"} for name, _ in mounts]
    return made


def _device_plugin() -> dict[str, Any]:
    labels = {"app": "nvidia-device-plugin-daemonset"}
    container = {
        "name": "nvidia-device-plugin",
        "image": agent_image(),
        "command": ["python", "-IS", "-c", _MODEL],
        "volumeMounts": [{"name": "device-plugin", "mountPath": "/var/lib/kubelet/device-plugins"}],
    }
    spec = {
        "nodeSelector": {"nvidia.com/gpu.present": "true"},
        "tolerations": [{"operator": "Exists"}],
        "priorityClassName": "system-node-critical",
        "runtimeClassName": "nvidia",
        "containers": [container],
        "volumes": [{"name": "device-plugin", "hostPath": {"path": "/var/lib/kubelet/device-plugins"}}],
    }
    template = {"metadata": {"labels": labels}, "spec": spec}
    return {"metadata": {"name": labels["app"]}, "spec": {"selector": {"matchLabels": labels}, "template": template}}


def _stand_in() -> dict[str, Any]:
    reaches = f"c.?resources.limits.orValue({{}}).exists(k, k == '{GPU}')"
    priority = "request.namespace == 'tts' ? 'tier-2-gpu' : 'gpu-workload'"
    patches = f"""
      [JSONPatch{{op: 'add', path: '/spec/priorityClassName', value: {priority}}}]
      + (has(object.spec.priority) ? [JSONPatch{{op: 'remove', path: '/spec/priority'}}] : [])
      + (has(object.spec.preemptionPolicy) ? [JSONPatch{{op: 'remove', path: '/spec/preemptionPolicy'}}] : [])
      + (has(object.metadata.annotations) ? [] : [JSONPatch{{op: 'add', path: '/metadata/annotations', value: {{}}}}])
      + [JSONPatch{{op: 'add', path: '/metadata/annotations/{STAMPED}', value: '{STAND_IN}'}}]"""
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}
    return {
        "metadata": {"name": STAND_IN},
        "spec": {
            "failurePolicy": "Fail",
            "reinvocationPolicy": "Never",
            "matchConstraints": {"resourceRules": [rule]},
            "matchConditions": [{"name": "gpu", "expression": f"object.spec.containers.exists(c, {reaches})"}],
            "mutations": [{"patchType": "JSONPatch", "jsonPatch": {"expression": patches}}],
        },
    }
