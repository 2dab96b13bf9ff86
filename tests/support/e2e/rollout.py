"""Rolls prod out on a real cluster with the Pulumi CLI, and reads the cluster's objects."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from tests.support.paths import ROOT
from toolchain.cluster import simulated
from toolchain.cluster.api import ApiAnswer, wait_until
from toolchain.cluster.cluster import HeldCluster
from toolchain.workspace import Outcome, Workspace

SYSTEM = "gpu-tenancy-system"
GPUMEM, GPU_COUNT = "viktorbarzin.me/gpumem", "viktorbarzin.me/gpu-count"
SHARED = {"nvidia.com/gpu.sharing-strategy": "time-slicing"}
# The longest time that a test waits for an event. A CronJob's next run begins within a minute and takes up to a minute,
# and a busy machine starts containers slowly.
PATIENCE_SECONDS = 240
# The pause between two checks limits the load, because each check sends requests and five lanes wait at once.
BETWEEN_SECONDS = 0.5

Object = Mapping[str, Any]
Change = Callable[[dict[str, Any]], object]


def unchanged(_: dict[str, Any]) -> None:
    """Leaves prod's configuration unchanged."""


@dataclass
class Rollout:
    """Holds the workspace of prod and the cluster on which prod is rolled out."""

    cluster: HeldCluster
    workspace: Workspace
    rolled_out: str | None = None  # the stack file that is rolled out, or None if that is not known

    def init(self) -> None:
        self._succeed("stack", "init", "prod")

    def gated_up(self) -> Outcome:
        """Runs `up` with the policy pack, as `make up` does. If `up` fails, raises AssertionError with its output."""
        return self._succeeded(self._attempt(*_UP, *_GATED))

    def up(self) -> Outcome:
        """Runs `up` without the policy pack. Pulumi saves its state only at the end.

        If `up` fails, raises AssertionError with its output.
        """
        return self._succeeded(self._attempt(*_UP, **_STATE_AT_THE_END))

    def attempt_up(self) -> Outcome:
        """Runs `up`, which may fail. Pulumi saves its state after each step."""
        return self._attempt(*_UP)

    def _attempt(self, *arguments: str, **env: str) -> Outcome:
        outcome = self._run(*arguments, **env)
        self.rolled_out = None if outcome.code else self.workspace.stack_file.read_text()
        return outcome

    def settle(self, change: Change = unchanged) -> None:
        """Rolls prod out with only this change. Does nothing if exactly this stack file is rolled out already."""
        self.workspace.reset()
        self.workspace.change(change)
        if self.rolled_out != self.workspace.stack_file.read_text():
            self.up()

    def expect_no_changes(self) -> None:
        """Checks that another `up` would change nothing. Otherwise raises AssertionError with the changes."""
        self._succeed("preview", "--expect-no-changes", *_PLAIN)

    def drift(self) -> Outcome:
        """Runs a preview that refreshes the state and expects no changes, as .github/workflows/drift.yml does."""
        return self._run("preview", "--refresh", "--expect-no-changes", *_PLAIN, *_GATED)

    def destroy(self) -> Outcome:
        self.rolled_out = None
        return self._succeeded(self._run("destroy", "--yes", "--skip-preview", *_PLAIN, **_STATE_AT_THE_END))

    def preview_destroy(self) -> Outcome:
        return self._succeeded(self._run("destroy", "--preview-only", *_PLAIN))

    def recover(self) -> str:
        """Runs the recovery and returns its output. `make up` and `make destroy` begin with this recovery."""
        return self._succeeded(self.command("recover")).text

    def command(self, name: str) -> Outcome:
        """Runs a command of `python -m stacks`, which may fail."""
        command = (str(ROOT / ".venv" / "bin" / "python"), "-m", "stacks", name, "--stack", "prod", "--yes")
        return self.workspace.run(*command, cwd=self.workspace.project, KUBECONFIG=str(self.cluster.kubeconfig))

    def _succeed(self, *arguments: str) -> Outcome:
        return self._succeeded(self._run(*arguments))

    def _succeeded(self, outcome: Outcome) -> Outcome:
        assert outcome.code == 0, f"{outcome.text}\nThe cluster's logs are in {self.cluster.log('x').parent}"
        return outcome

    def _run(self, *arguments: str, **env: str) -> Outcome:
        stack = () if arguments[0] == "stack" else ("--stack", "prod")
        cluster = {"KUBECONFIG": str(self.cluster.kubeconfig)}
        return self.workspace.pulumi(*arguments, *stack, cwd=self.workspace.project, **cluster, **env)

    def get(self, path: str) -> Object:
        """Returns the object. Raises AssertionError if the object does not exist."""
        found = self.cluster.api.get(path)
        assert found is not None, path
        return found

    def items(self, path: str) -> list[Object]:
        """Returns the objects of a list, or an empty list if the cluster lacks the kind."""
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


_PLAIN = ("--color", "never", "--suppress-progress", "--suppress-outputs")
_UP = ("up", "--yes", "--skip-preview", *_PLAIN)
_STATE_AT_THE_END = {"PULUMI_EXPERIMENTAL": "true", "PULUMI_SKIP_CHECKPOINTS": "true"}
_GATED = ("--policy-pack", str(ROOT / "policy"))


def register_anew(prod: Rollout, node: str) -> Object:
    """Replaces a Node by a new Node with the same name, as if the machine was installed again.

    The new Node does not advertise gpumem.
    """
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
    """Returns how many resources the engine has "updated", "replaced", "created", "deleted" and left "unchanged"."""
    counted = re.findall(r"(\d+) (created|updated|replaced|deleted|unchanged)", outcome.text)
    return {what: int(count) for count, what in counted}


def condition(found: Object, kind: str) -> Object:
    """Returns the condition of this type, or an empty dict if the object has no such condition."""
    conditions = found.get("status", {}).get("conditions", [])
    return next((entry for entry in conditions if entry["type"] == kind), {})


def eventually(
    holds: Callable[[], Any],
    what: str,
    state: Callable[[], object] | None = None,
    *,
    pause_seconds: float = BETWEEN_SECONDS,
) -> Any:
    """Calls `holds` until its result is true, and returns this result.

    After PATIENCE_SECONDS, raises ClusterError with the result of `state`.
    """
    return wait_until(holds, PATIENCE_SECONDS, what, state, pause_seconds=pause_seconds)


def becomes(read: Callable[[], Any], wanted: object, what: str) -> None:
    """Waits until `read` returns `wanted`. After PATIENCE_SECONDS, raises ClusterError with the last value."""
    eventually(lambda: read() == wanted, what, read)


_NO_LOG = ("unable to retrieve container logs", "failed to try resolving symlinks in path")


def logged(answer: ApiAnswer) -> str | None:
    """Returns a container's log, or None if there is no log yet.

    If the container has just ended, the kubelet returns an error text in place of the log (GetContainerLogs in
    pkg/kubelet/kuberuntime/kuberuntime_container.go, ReadLogs in k8s.io/cri-client/pkg/logs).
    """
    said = None if answer.refusal else answer.body.get("message")
    return None if said is None or said.startswith(_NO_LOG) else str(said)


def container(limits: Mapping[str, str]) -> dict[str, Any]:
    return {"name": "main", "image": "busybox:1.37.0", "resources": {"limits": dict(limits)}}


def deployment(app: str, mib: str | None, replicas: int = 1) -> dict[str, Any]:
    """Returns a Deployment for simulated nodes. With `mib`, its pods have a budget and run on a shared GPU."""
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


def job(name: str, queue: str | None, resource: str = "nvidia.com/gpu", priority: str = "gpu-batch") -> dict[str, Any]:
    labels = {"kueue.x-k8s.io/queue-name": queue, "kueue.x-k8s.io/priority-class": priority} if queue else {}
    template = {"spec": {"restartPolicy": "Never", "containers": [container({resource: "1"} if queue else {})]}}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "labels": labels},
        "spec": {"backoffLimit": 0, "template": template},
    }


def pods(namespace: str, name: str = "") -> str:
    return f"/api/v1/namespaces/{namespace}/pods{f'/{name}' if name else ''}"


def jobs(namespace: str, name: str = "") -> str:
    return f"/apis/batch/v1/namespaces/{namespace}/jobs{f'/{name}' if name else ''}"


def submit(prod: Rollout, team: str, manifest: Object) -> str:
    answer = prod.create(jobs(team), manifest)
    assert answer.refusal is None, answer.refusal
    return str(manifest["metadata"]["name"])


def job_pods(prod: Rollout, namespace: str, name: str) -> list[Object]:
    """Returns the Job's pods."""
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
    """Returns the Workload object that Kueue has created for the Job, or an empty dict if there is none."""
    found = prod.items(f"/apis/kueue.x-k8s.io/v1beta2/namespaces/{team}/workloads")
    return next((item for item in found if item["metadata"]["ownerReferences"][0]["name"] == name), {})


def await_waiting(prod: Rollout, team: str, name: str, why: str) -> None:
    def waits() -> bool:
        reserved = condition(workload(prod, team, name), "QuotaReserved")
        return reserved.get("status") == "False" and why in reserved["message"]

    eventually(waits, f"{name} waits because {why}")
    assert prod.get(jobs(team, name))["spec"]["suspend"] is True
    assert running_pods(prod, team, name) == []


def complete(prod: Rollout, team: str, name: str) -> None:
    for running in running_pods(prod, team, name):
        prod.cluster.api.patch(pods(team, running), {"metadata": {"annotations": {simulated.COMPLETE: "true"}}})
    eventually(lambda: prod.get(jobs(team, name))["status"].get("succeeded") == 1, f"{name} succeeds")
