"""Compares the objects of two new clusters: one after `make up`, one after `make render` and server-side apply."""

import json
import re
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from http.client import TOO_MANY_REQUESTS
from typing import Any

import pytest

from tests.support.e2e.rollout import SYSTEM, Object, Rollout, complete_pods, jobs
from tests.support.paths import ROOT
from tests.support.waiting import becomes, eventually
from tests.support.workspace import workspace
from toolchain.cluster import cluster
from toolchain.cluster.api import ClusterApi
from toolchain.cluster.extent import Extent

PAGE = ROOT / "docs" / "howto" / "use-flux-or-argo.md"
BY_KUBECTL = re.compile(r"## kubectl\n\n```sh\n(.*?)```", re.DOTALL)

# The metadata that the API server sets.
OF_THE_SERVER = {"uid", "resourceVersion", "creationTimestamp", "managedFields", "generation"}
# The annotations that only one of the two ways writes (Pulumi's Kubernetes provider and Helm, or `make render`), or a
# controller after either.
ANNOTATIONS = {
    "pulumi.com/patchForce",
    "pulumi.com/replaceUnready",
    "meta.helm.sh/release-name",
    "meta.helm.sh/release-namespace",
    "deployment.kubernetes.io/revision",
    "argocd.argoproj.io/sync-options",
    "argocd.argoproj.io/sync-wave",
    "kustomize.toolkit.fluxcd.io/prune",
}
# Values that each cluster chooses: addresses, UIDs of Jobs, certificates, and the port of the local cluster's Kueue.
CHOSEN = re.compile(
    r"ConfigMap \S+ \S+/kube-root-ca\.crt\.data\..*"
    r"|Secret \S+ kueue-system/kueue-webhook-server-cert\.data\..*"
    r"|Service .*\.spec\.clusterIPs?(\[0\])?"
    r"|Job .*\.controller-uid|Job .*\.batch\.kubernetes\.io/controller-uid"
    r"|.*\.clientConfig\.caBundle|.*\.clientConfig\.service\.port"
)
# Only controllers write the objects of these kinds.
MADE_BY_CONTROLLERS = {
    "ControllerRevision",
    "Endpoints",
    "EndpointSlice",
    "Event",
    "IPAddress",
    "Lease",
    "Node",
    "Pod",
    "ReplicaSet",
    "Workload",
}
# Kueue adds this to the queues and flavors that it has seen.
FINALIZER_OF_KUEUE = "kueue.x-k8s.io/resource-in-use"
# Helm's record of its release. `kubectl` has none.
RECORD_OF_HELM = "helm.sh/release.v1"


@pytest.fixture(scope="module")
def by_pulumi(installed: None, tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Object]:
    with cluster.running(tmp_path_factory.mktemp("pulumi"), extent=Extent.SIMULATED) as running:
        before = {*objects(running.api)}
        rollout = Rollout(running, workspace(tmp_path_factory.mktemp("prod")))
        rollout.init()
        up(rollout)
        return {name: each for name, each in objects(running.api).items() if name not in before}


@pytest.fixture(scope="module")
def by_kubectl(installed: None, tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Object]:
    with cluster.running(tmp_path_factory.mktemp("kubectl"), extent=Extent.SIMULATED) as running:
        before = {*objects(running.api)}
        rollout = Rollout(running, workspace(tmp_path_factory.mktemp("rendered")))
        apply(rollout)
        return {name: each for name, each in objects(running.api).items() if name not in before}


def up(rollout: Rollout) -> None:
    """Runs `make up`, and ends the Job of the agent reconcile, because pods of simulated nodes do not end."""
    with ThreadPoolExecutor(1) as threads:
        running = threads.submit(rollout.up)

        def has_ended() -> bool:
            for job in rollout.items(jobs(SYSTEM)):
                if "ownerReferences" not in job["metadata"]:
                    complete_pods(rollout, SYSTEM, job["metadata"]["name"])
            return running.done()

        eventually(has_ended, "make up ends")
        running.result()


def apply(rollout: Rollout) -> None:
    """Renders prod, and runs the commands of the documentation until they succeed."""
    space, access = rollout.workspace, {"KUBECONFIG": str(rollout.cluster.kubeconfig)}
    python = str(ROOT / ".venv" / "bin" / "python")
    rendered = space.run(python, "-m", "stacks", "render", "--stack", "prod", "--out", "manifests", cwd=space.project)
    assert rendered.code == 0, rendered.text
    (commands,) = BY_KUBECTL.findall(PAGE.read_text())
    answers: list[str] = []

    def succeeds() -> bool:
        outcome = space.run("bash", "-c", f"{commands}", cwd=space.project, **access)
        answers.append(outcome.text)
        return outcome.code == 0

    eventually(succeeds, "kubectl applies all folders", lambda: answers[-1][-4000:], pause_seconds=5)


def test_server_side_apply_makes_the_objects_of_make_up(
    by_pulumi: Mapping[str, Object], by_kubectl: Mapping[str, Object]
) -> None:
    assert {*by_kubectl} == {*by_pulumi}
    assert [each for name in sorted(by_pulumi) for each in differences(by_pulumi[name], by_kubectl[name], name)] == []


def differences(one: Any, other: Any, path: str) -> Iterator[str]:
    if isinstance(one, dict) and isinstance(other, dict):
        for key in sorted(one.keys() | other.keys()):
            yield from differences(one.get(key), other.get(key), f"{path}.{key}")
    elif isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        for index, pair in enumerate(zip(one, other, strict=True)):
            yield from differences(*pair, f"{path}[{index}]")
    elif one != other and not CHOSEN.fullmatch(path):
        yield f"{path}: {json.dumps(one)[:200]} by make up, {json.dumps(other)[:200]} by kubectl"


def objects(api: ClusterApi) -> Mapping[str, Object]:
    """Maps kind, namespace and name of each object of the cluster to the object without the fields of the server."""
    becomes(lambda: [*lacking(api)], [], "the controllers have made what each namespace has")
    return {
        f"{kind} {each['metadata'].get('namespace', '')}/{each['metadata']['name']}": declared(each)
        for path, kind in kinds(api)
        for each in listed(api, path)
        if "ownerReferences" not in each["metadata"] and each.get("type") != RECORD_OF_HELM
    }


def lacking(api: ClusterApi) -> Iterator[str]:
    for each in (api.get("/api/v1/namespaces") or {})["items"]:
        namespace = f"/api/v1/namespaces/{each['metadata']['name']}"
        for path in (f"{namespace}/serviceaccounts/default", f"{namespace}/configmaps/kube-root-ca.crt"):
            if api.get(path) is None:
                yield path


def listed(api: ClusterApi, path: str) -> list[Object]:
    """Lists the objects. Shortly after its definition, a kind has no storage, and the API server answers 429."""
    answer = eventually(
        lambda: (got := api.request("GET", path)).code != TOO_MANY_REQUESTS and got, f"{path} is listed"
    )
    assert answer.refusal is None, f"{path}: {answer.refusal}"
    return list(answer.body["items"])


def kinds(api: ClusterApi) -> Iterator[tuple[str, str]]:
    groups = (api.get("/apis") or {})["groups"]
    for path in ("/api/v1", *(f"/apis/{each['preferredVersion']['groupVersion']}" for each in groups)):
        for each in (api.get(path) or {})["resources"]:
            if "list" in each["verbs"] and "/" not in each["name"] and each["kind"] not in MADE_BY_CONTROLLERS:
                yield f"{path}/{each['name']}", f"{each['kind']} {path}"


def declared(found: Object) -> Object:
    metadata = {key: value for key, value in found["metadata"].items() if key not in OF_THE_SERVER}
    annotations = {key: text for key, text in metadata.pop("annotations", {}).items() if key not in ANNOTATIONS}
    rest = {key: value for key, value in found.items() if key not in ("status", "metadata")}
    finalizers = [each for each in metadata.pop("finalizers", ()) if each != FINALIZER_OF_KUEUE]
    return {**rest, "metadata": {**metadata, "annotations": annotations, "finalizers": finalizers}}
