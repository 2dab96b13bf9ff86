"""Builds a device, and pods that use it, with a fake cluster and a fake exporter."""

import json
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from agents.runtime.clock import Clock
from tenancy import names
from tests.support.curves import Script, Use
from tests.support.fake_cluster import NAMES, SYSTEM, Served

NODE = "k8s-node1"
BEGIN = datetime(2026, 6, 2, 12, 0, tzinfo=UTC)
JOURNAL = f"/api/v1/namespaces/{SYSTEM}/configmaps/{names.journal(names.WATCHDOG)}"


@dataclass
class Card:
    served: Served
    mib: dict[str, int] = field(default_factory=dict)
    ahead: timedelta = timedelta()  # The API server's clock is ahead of the watchdog's clock by this time.

    def __post_init__(self) -> None:
        self.script = Script(uses=self.uses)
        self.served.cluster.objects[JOURNAL] = {"metadata": {"name": "journal", "resourceVersion": "1"}}

    def add(self, name: str, mib: int, *, declared: str = "3000", namespace: str = "immich", **metadata: Any) -> None:
        resources = {"limits": {NAMES.gpumem: declared}} if declared else {}
        self.served.cluster.pods.append(
            {
                "metadata": {
                    "name": name,
                    "namespace": namespace,
                    "uid": f"uid-{name}",
                    "creationTimestamp": "2026-06-02T06:00:00Z",
                    "ownerReferences": [
                        {"kind": "ReplicaSet", "name": f"{name}-rs", "uid": f"rs-{name}", "controller": True}
                    ],
                    **metadata,
                },
                "spec": {"nodeName": NODE, "containers": [{"name": "main", "resources": resources}]},
                "status": {"phase": "Running"},
            }
        )
        self.mib[name] = mib

    def uses(self) -> list[Use]:
        return [
            Use(pod["metadata"]["namespace"], name, pod["metadata"]["uid"], self.mib[name], declares=_declares(pod))
            for pod in self.served.cluster.pods
            if (name := pod["metadata"]["name"]) in self.mib
        ]

    def clock(self) -> Clock:
        def now() -> datetime:
            return BEGIN + timedelta(seconds=self.served.time.seconds)

        def move() -> None:
            self.served.cluster.now = now() + self.ahead

        move()
        self.served.time.meanwhile = move
        return replace(self.served.time.clock(), now=now)

    def calls(self, method: str) -> list[str]:
        return [url for called, url in self.served.cluster.requests if called == method]

    def events(self, reason: str) -> list[dict[str, Any]]:
        return [event for event in self.served.cluster.events.values() if event["reason"] == reason]

    def journal(self) -> list[dict[str, Any]]:
        text = self.served.cluster.objects[JOURNAL].get("data", {}).get(names.JOURNAL_KEY, "{}")
        entries: list[dict[str, Any]] = json.loads(text).get("recycled", [])
        return entries

    def gone(self, name: str) -> bool:
        (pod,) = (pod for pod in self.served.cluster.pods if pod["metadata"]["name"] == name)
        return "deletionTimestamp" in pod["metadata"]


def _declares(pod: dict[str, Any]) -> bool:
    (container,) = pod["spec"]["containers"]
    return NAMES.gpumem in container["resources"].get("limits", {})
