"""Answers Kueue's ProvisioningRequests like the cluster autoscaler
(cluster-autoscaler/provisioningrequest/conditions/conditions.go).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

import yaml

from tests.support.e2e.controllers import DEFINITIONS
from tests.support.e2e.rollout import Object
from tests.support.waiting import eventually
from toolchain.cluster.api import ClusterApi
from toolchain.cluster.cluster import HeldCluster
from toolchain.cluster.paths import TOOLCHAIN

DEFINITION = TOOLCHAIN / "frameworks" / "autoscaler" / "autoscaling.x-k8s.io_provisioningrequests.yaml"
API = "/apis/autoscaling.x-k8s.io/v1"
NOT_FOUND = "Provisioning Request's pods cannot be scheduled."


@dataclass(frozen=True)
class Autoscaler:
    cluster: HeldCluster
    namespace: str

    def requests(self) -> list[Object]:
        found = (self.cluster.api.get(self._path()) or {"items": []})["items"]
        return sorted(found, key=lambda each: str(each["metadata"]["name"]).rpartition("-")[2])

    def open_request(self) -> Object:
        found = eventually(
            lambda: next((each for each in self.requests() if not conditions(each)), None), "Kueue asks for nodes"
        )
        self._add(found, "Accepted", "Accepted", "ProvisioningRequest is accepted by ClusterAutoscaler")
        return dict(found)

    def provide(self, request: Object, node: str, labels: Mapping[str, str], resources: Mapping[str, str]) -> None:
        self.cluster.add_node(node, labels=labels, resources=resources)
        self._add(request, "Provisioned", "CapacityIsProvisioned", "Capacity is found in the cluster")

    def refuse(self, request: Object) -> None:
        self._add(request, "Failed", "CapacityIsNotFound", NOT_FOUND)

    def _path(self, name: str = "") -> str:
        return f"{API}/namespaces/{self.namespace}/provisioningrequests{f'/{name}' if name else ''}"

    def _add(self, request: Object, kind: str, reason: str, message: str) -> None:
        path = self._path(request["metadata"]["name"])
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        added = {"type": kind, "status": "True", "reason": reason, "message": message, "lastTransitionTime": now}
        kept = [each for each in conditions(self.cluster.api.get(path) or {}) if each["type"] != kind]
        self.cluster.api.patch(f"{path}/status", {"status": {"conditions": [*kept, added]}})


def conditions(request: Object) -> list[Object]:
    return list(request.get("status", {}).get("conditions", []))


def define(api: ClusterApi) -> None:
    """Kueue looks for this CustomResourceDefinition only when it starts."""
    api.create(DEFINITIONS, yaml.safe_load(DEFINITION.read_text()))
    eventually(lambda: api.request("GET", f"{API}/provisioningrequests").code == 200, "the kind is served")
