"""Runs the steps of the demo on the cluster. Each step of the demo triggers a cause, and waits for the effect."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from toolchain.cluster import prod
from toolchain.cluster.api import ClusterApi, wait_until
from toolchain.cluster.card import Card, deployment
from toolchain.cluster.errors import ClusterError
from toolchain.cluster.prod import NIGHT_MIB, STEADY_MIB, TTS_MIB, budgets, deployment_of, tenant_of

Object = Mapping[str, Any]

LEAK_MIB = 150  # A leaking process grows by this many MiB at each call of `Card.turn`, every 0.5 s.
STEP_SECONDS = 240  # The time limit is far longer than any step takes, even on a busy machine.
_READING_SECONDS = 8  # After this time, the agents have a new reading, because the exporter reads every 5 s.


@dataclass(frozen=True, kw_only=True)
class EventToShow:
    """The namespace and the reason of an Event that the demo shows."""

    namespace: str
    reason: str


@dataclass(frozen=True)
class Stage:
    """Runs steps of the demo on a cluster with a simulated device.

    The method of a step triggers its cause, and waits for its effect. It raises ClusterError if the effect takes too
    long.
    """

    api: ClusterApi
    card: Card

    def said(self, told: EventToShow) -> str:
        """Returns a sentence about the latest Event that has this reason and namespace."""
        path = f"/apis/events.k8s.io/v1/namespaces/{told.namespace}/events?fieldSelector=reason%3D{told.reason}"
        found = self._items(path)
        if not found:
            return f"there is no Event {told.reason} in {told.namespace}"
        latest = max(found, key=lambda event: str(event["metadata"]["creationTimestamp"]))
        reporter = latest.get("reportingController") or "the cluster"
        about = f"{latest['regarding']['kind'].lower()} {latest['regarding']['name']}"
        return f"{reporter} says {told.reason} of {about}: {' '.join(latest.get('note', '').split())}"

    def residents(self) -> None:
        key = f"{prod.cluster_settings()['resource_domain']}/gpumem"
        for app, mib in budgets().items():
            self._create(app, {key: str(mib)}, replicas=1)
        self._create("tts", {}, replicas=0)
        self._until(self._all_hold, "every resident holds its steady use")

    def _create(self, app: str, gpumem: Mapping[str, str], replicas: int) -> None:
        self.api.create(deployment_of(app).rpartition("/")[0], deployment(app, gpumem, replicas))

    def leak(self) -> None:
        before = self._uids()
        self.card.leak("frigate", LEAK_MIB)
        self._until(lambda: self._uids()["frigate"] not in ("", before["frigate"]), "frigate is recycled")
        self._until(self._all_hold, "frigate is loaded again")
        after = self._uids()
        lost = [app for app in before if app != "frigate" and before[app] != after[app]]
        if lost:
            raise ClusterError(f"frigate leaked, and {', '.join(lost)} lost their pods as well")

    def night(self) -> None:
        self.card.wants["immich-ml"] = NIGHT_MIB
        self._until(lambda: self.card.holds("tts") == TTS_MIB, "tts is let in")

    def queue(self) -> None:
        self._submit("team-a", "nightly", "gpu-batch")
        self._until(lambda: self._runs("team-a", "nightly"), "nightly runs")
        self._submit("team-b", "later", "gpu-batch")
        self._until(lambda: self._waits("team-b", "later"), "later waits")

    def urgent(self) -> None:
        self._submit("team-b", "urgent", "gpu-urgent")
        self._until(
            lambda: self._runs("team-b", "urgent") and not self._runs("team-a", "nightly"), "urgent runs in its place"
        )
        self._until(lambda: self._waits("team-a", "nightly"), "nightly waits again")

    def seat(self) -> None:
        self._scale("llama-swap", 0)
        self._until(lambda: self.card.holds("llama-swap") == 0, "its old process has ended")
        self.card.wants |= budgets()
        ends = time.monotonic() + _READING_SECONDS
        self._until(lambda: time.monotonic() >= ends, "the agents have a new reading")
        self._scale("llama-swap", 1)
        self.card.wants["llama-swap"] = STEADY_MIB["llama-swap"]
        self._until(lambda: self.card.holds("llama-swap") == STEADY_MIB["llama-swap"], "llama-swap is loaded")
        self._until(lambda: self.card.holds("tts") == 0, "tts is out")

    def _all_hold(self) -> bool:
        return all(self.card.holds(app) == mib for app, mib in STEADY_MIB.items())

    def _uids(self) -> dict[str, str]:
        """Maps each resident to the UID of its pod. If the pod is terminating, the UID is ""."""
        return {app: self._uid(app) for app in STEADY_MIB}

    def _uid(self, app: str) -> str:
        path = f"/api/v1/namespaces/{tenant_of(app)}/pods?labelSelector=app%3D{app}"
        found = [pod["metadata"] for pod in self._items(path) if "deletionTimestamp" not in pod["metadata"]]
        return str(found[0]["uid"]) if found else ""

    def _scale(self, app: str, replicas: int) -> None:
        self.api.patch(f"{deployment_of(app)}/scale", {"spec": {"replicas": replicas}})

    def _submit(self, team: str, name: str, priority: str) -> None:
        queue = {"kueue.x-k8s.io/queue-name": f"{team}-gpu", "kueue.x-k8s.io/priority-class": priority}
        container = {"name": "main", "image": "busybox:1.37.0", "resources": {"limits": {"nvidia.com/gpu": "1"}}}
        spec = {"restartPolicy": "Never", "containers": [container]}
        manifest = {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": {"name": name, "labels": queue},
            "spec": {"backoffLimit": 0, "template": {"spec": spec}},
        }
        self.api.create(f"/apis/batch/v1/namespaces/{team}/jobs", manifest)

    def _runs(self, team: str, job: str) -> bool:
        path = f"/api/v1/namespaces/{team}/pods?labelSelector=batch.kubernetes.io%2Fjob-name%3D{job}"
        return any(
            pod["status"].get("phase") == "Running" and "deletionTimestamp" not in pod["metadata"]
            for pod in self._items(path)
        )

    def _waits(self, team: str, job: str) -> bool:
        """Returns True if Kueue has reported that it cannot reserve quota for the Job."""
        for each in self._items(f"/apis/kueue.x-k8s.io/v1beta2/namespaces/{team}/workloads"):
            if each["metadata"]["ownerReferences"][0]["name"] == job:
                conditions = each.get("status", {}).get("conditions", [])
                return any(c["type"] == "QuotaReserved" and c["status"] == "False" for c in conditions)
        return False

    def _items(self, path: str) -> list[Object]:
        return list((self.api.get(path) or {"items": []})["items"])

    def _until(self, holds: Callable[[], bool], what: str) -> None:
        wait_until(holds, STEP_SECONDS, what, lambda: f"died for lack of memory: {self.card.died}")
