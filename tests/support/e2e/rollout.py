"""Rolls out prod on a real cluster with the Pulumi CLI, and reads the objects of the cluster."""

import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tenancy.names import GATE, GPU, KUEUE_PRIORITY_LABEL, KUEUE_QUEUE_LABEL, RECONCILE, WATCHDOG
from tests.support.paths import ROOT
from tests.support.waiting import eventually
from tests.support.workspace import Outcome, Workspace
from toolchain.cluster import simulated
from toolchain.cluster.api import ApiAnswer, ClusterApi
from toolchain.cluster.cluster import HeldCluster

SYSTEM = "gpu-tenancy-system"
AGENTS = (RECONCILE, WATCHDOG, GATE)
GPUMEM, GPU_COUNT = "viktorbarzin.me/gpumem", "viktorbarzin.me/gpu-count"
LOW, HIGH = "gpu-batch", "gpu-urgent"  # prod's classes of queued work
SCHEMAS = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf"
SHARED = {"nvidia.com/gpu.sharing-strategy": "time-slicing"}

Object = Mapping[str, Any]
Change = Callable[[dict[str, Any]], object]


def unchanged(_: dict[str, Any]) -> None: ...


@dataclass
class Rollout:
    cluster: HeldCluster
    workspace: Workspace
    rolled_out: str | None = None

    def init(self) -> None:
        self._succeed("stack", "init", "prod")

    def gated_up(self) -> Outcome:
        return self._succeeded(self._attempt(*_UP, *_GATED))

    def up(self) -> Outcome:
        return self._succeeded(self._attempt(*_UP, **_STATE_AT_THE_END))

    def attempt_up(self) -> Outcome:
        return self._attempt(*_UP)

    def _attempt(self, *arguments: str, **env: str) -> Outcome:
        outcome = self._run(*arguments, **env)
        self.rolled_out = None if outcome.code else self.workspace.stack_file.read_text()
        return outcome

    def settle(self, change: Change = unchanged, *, runs: Collection[str] = ()) -> None:
        """Rolls prod out with this change, unless it is rolled out. Of the agents, only `runs` run each minute, because
        the runs of all three take more CPU time than all the rest of an idle cluster.
        """
        self.workspace.reset()
        self.workspace.change(change)
        if self.rolled_out != self.workspace.stack_file.read_text():
            self.up()
        self.let_run(runs)

    def go_on(self, *, runs: Collection[str] = ()) -> None:
        """Goes on with the prod that is rolled out and its changes, for tests that need no change of their own."""
        if self.rolled_out is None:
            self.settle()
        self.let_run(runs)

    def let_run(self, agents: Collection[str]) -> None:
        for agent in AGENTS:
            self.cluster.api.patch(cron_job(agent), {"spec": {"suspend": agent not in agents}})

    def expect_no_changes(self) -> None:
        self._succeed("preview", "--expect-no-changes", *_PLAIN)

    def drift(self) -> Outcome:
        return self._run("preview", "--refresh", "--expect-no-changes", *_PLAIN, *_GATED)

    def destroy(self) -> Outcome:
        """Reconcile lets go of the ledger."""
        self.rolled_out = None
        if self.cluster.api.get(cron_job(RECONCILE)):
            self.let_run(AGENTS)
        return self._succeeded(self._run("destroy", "--yes", "--skip-preview", *_PLAIN, **_STATE_AT_THE_END))

    def preview_destroy(self) -> Outcome:
        return self._succeeded(self._run("destroy", "--preview-only", *_PLAIN))

    def export(self) -> Path:
        """Writes the state to a file, and returns the path of this file."""
        path = self.workspace.folder / "exported.json"
        self._succeed("stack", "export", "--stack", "prod", "--file", str(path))
        return path

    def take_over(self, other: "Rollout") -> None:
        """Replaces the state by the state of the same stack in another backend."""
        self._succeed("stack", "import", "--stack", "prod", "--file", str(other.export()))

    def cancel(self) -> None:
        self._succeed("cancel", "--yes")

    def succeed(self, name: str) -> str:
        """Runs one of the project's own commands."""
        outcome = self._succeeded(self.command(name))
        self.rolled_out = self.workspace.stack_file.read_text() if name == "up" else None
        return outcome.text

    def command(self, name: str) -> Outcome:
        await_schemas(self.cluster.api)
        command = (str(ROOT / ".venv" / "bin" / "python"), "-m", "stacks", name, "--stack", "prod", "--yes")
        return self.workspace.run(*command, cwd=self.workspace.project, KUBECONFIG=str(self.cluster.kubeconfig))

    def _succeed(self, *arguments: str) -> Outcome:
        return self._succeeded(self._run(*arguments))

    def _succeeded(self, outcome: Outcome) -> Outcome:
        assert outcome.code == 0, "\n".join((outcome.text, *map(self._end_of_log, ("supervisor", "kueue"))))
        return outcome

    def _end_of_log(self, process: str) -> str:
        return f"The end of {self.cluster.log(process)}:\n{self.cluster.folder.tail(process)}"

    def _run(self, *arguments: str, **env: str) -> Outcome:
        if arguments[0] != "stack":
            await_schemas(self.cluster.api)
        stack = () if arguments[0] == "stack" else ("--stack", "prod")
        cluster = {"KUBECONFIG": str(self.cluster.kubeconfig)}
        return self.workspace.pulumi(*arguments, *stack, cwd=self.workspace.project, **cluster, **env)

    def get(self, path: str) -> Object:
        found = self.cluster.api.get(path)
        assert found is not None, path
        return found

    def items(self, path: str) -> list[Object]:
        return list((self.cluster.api.get(path) or {"items": []})["items"])

    def create(self, path: str, manifest: Object, *, user: str | None = None) -> ApiAnswer:
        return self.cluster.api.request("POST", path, manifest, user=user)

    def delete(self, path: str) -> ApiAnswer:
        return self.cluster.api.request("DELETE", f"{path}?propagationPolicy=Background")

    def capacity(self, node: str) -> Mapping[str, str]:
        capacity: Mapping[str, str] = self.get(f"/api/v1/nodes/{node}")["status"]["capacity"]
        return capacity

    def events(self, namespace: str, reason: str) -> list[Object]:
        return self.items(f"/apis/events.k8s.io/v1/namespaces/{namespace}/events?fieldSelector=reason%3D{reason}")


def await_schemas(api: ClusterApi) -> None:
    """After each new kind, the API server collects the schemas of all kinds, but only when somebody reads them. The
    provider of Pulumi waits for at most 32 s.
    """
    eventually(lambda: api.request("GET", "/openapi/v2", accept=SCHEMAS).code == 200, "the schemas are collected")


_PLAIN = ("--color", "never", "--suppress-progress", "--suppress-outputs")
_UP = ("up", "--yes", "--skip-preview", *_PLAIN)
_STATE_AT_THE_END = {"PULUMI_SKIP_CHECKPOINTS": "true"}
_GATED = ("--policy-pack", str(ROOT / "policy"))


def register_anew(prod: Rollout, node: str) -> Object:
    path = f"/api/v1/nodes/{node}"
    old = prod.get(path)
    hardware = {name: amount for name, amount in old["status"]["capacity"].items() if name not in (GPUMEM, GPU_COUNT)}
    fresh = {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {field: old["metadata"][field] for field in ("name", "labels", "annotations")},
        "status": {"capacity": hardware, "allocatable": hardware},
    }
    assert prod.delete(path).refusal is None
    return prod.cluster.api.create("/api/v1/nodes", fresh)


def changes(outcome: Outcome) -> dict[str, int]:
    counted = re.findall(r"(\d+) (created|updated|replaced|deleted|unchanged)", outcome.text)
    return {what: int(count) for count, what in counted}


def condition(found: Object, kind: str) -> Object:
    conditions = found.get("status", {}).get("conditions", [])
    return next((entry for entry in conditions if entry["type"] == kind), {})


_NO_LOG = ("unable to retrieve container logs", "failed to try resolving symlinks in path")


def logged(answer: ApiAnswer) -> str | None:
    """After the end of a container, the kubelet can return an error text instead of the log (GetContainerLogs in
    pkg/kubelet/kuberuntime/kuberuntime_container.go).
    """
    said = None if answer.refusal else answer.body.get("message")
    return None if said is None or said.startswith(_NO_LOG) else str(said)


def container(limits: Mapping[str, str]) -> dict[str, Any]:
    return {"name": "main", "image": "busybox:1.37.0", "resources": {"limits": dict(limits)}}


def deployment(app: str, mib: str | None, replicas: int = 1) -> dict[str, Any]:
    labels = {"app": app}
    limits = {} if mib is None else {GPUMEM: mib, "nvidia.com/gpu": "1"}
    node = {"nodeSelector": SHARED} if mib else {}
    return {
        "metadata": {"name": app},
        "spec": {
            "replicas": replicas,
            "strategy": {"type": "Recreate"},
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": {**node, "containers": [container(limits)]}},
        },
    }


def job(name: str, queue: str | None, count: int = 1, priority: str = LOW, *, resource: str = GPU) -> dict[str, Any]:
    labels = {KUEUE_QUEUE_LABEL: queue, KUEUE_PRIORITY_LABEL: priority} if queue else {}
    template = {"spec": {"restartPolicy": "Never", "containers": [container({resource: str(count)} if queue else {})]}}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "labels": labels},
        "spec": {"backoffLimit": 0, "template": template},
    }


def cron_job(agent: str) -> str:
    return f"/apis/batch/v1/namespaces/{SYSTEM}/cronjobs/{agent}"


def pods(namespace: str, name: str = "") -> str:
    return f"/api/v1/namespaces/{namespace}/pods{f'/{name}' if name else ''}"


def jobs(namespace: str, name: str = "") -> str:
    return f"/apis/batch/v1/namespaces/{namespace}/jobs{f'/{name}' if name else ''}"


def submit(prod: Rollout, team: str, manifest: Object) -> str:
    answer = prod.create(jobs(team), manifest)
    assert answer.refusal is None, answer.refusal
    return str(manifest["metadata"]["name"])


def ready_pod(api: ClusterApi, namespace: str) -> str | None:
    for pod in (api.get(pods(namespace)) or {"items": []})["items"]:
        if condition(pod, "Ready").get("status") == "True":
            return str(pod["metadata"]["name"])
    return None


def quotas_in_use(prod: Rollout, namespace: str) -> list[Object]:
    """Returns the amounts in use of each quota that is in use. A quota counts a pod until some time after its end."""
    found = (each["status"].get("used", {}) for each in prod.items(f"/api/v1/namespaces/{namespace}/resourcequotas"))
    return [used for used in found if set(used.values()) - {"0"}]


def job_pods(prod: Rollout, namespace: str, name: str) -> list[Object]:
    return prod.items(f"{pods(namespace)}?labelSelector=batch.kubernetes.io%2Fjob-name%3D{name}")


def running_pods(prod: Rollout, team: str, name: str) -> list[str]:
    return [
        item["metadata"]["name"]
        for item in job_pods(prod, team, name)
        if item["status"].get("phase") == "Running" and "deletionTimestamp" not in item["metadata"]
    ]


def await_running(prod: Rollout, team: str, name: str) -> None:
    eventually(lambda: running_pods(prod, team, name), f"{name} runs")


def workload(prod: Rollout, team: str, name: str) -> Object:
    found = prod.items(f"/apis/kueue.x-k8s.io/v1beta2/namespaces/{team}/workloads")
    return next((item for item in found if item["metadata"]["ownerReferences"][0]["name"] == name), {})


def await_waiting(prod: Rollout, team: str, name: str, why: str = "") -> None:
    def waits() -> bool:
        reserved = condition(workload(prod, team, name), "QuotaReserved")
        return reserved.get("status") == "False" and why in reserved["message"]

    eventually(waits, f"{name} waits{why and f' because {why}'}")
    assert prod.get(jobs(team, name))["spec"]["suspend"] is True
    assert running_pods(prod, team, name) == []


def complete_pods(prod: Rollout, team: str, name: str) -> None:
    for running in running_pods(prod, team, name):
        prod.cluster.api.patch(pods(team, running), {"metadata": {"annotations": {simulated.COMPLETE: "true"}}})


def complete(prod: Rollout, team: str, name: str) -> None:
    complete_pods(prod, team, name)
    eventually(lambda: prod.get(jobs(team, name))["status"].get("succeeded") == 1, f"{name} succeeds")
