"""Starts an API server with etcd, and sends requests as any user. Only a real API server evaluates
admission policies.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tenancy import names
from toolchain.cluster import cluster
from toolchain.cluster.api import MERGE, ApiAnswer, ClusterApi
from toolchain.cluster.extent import Extent

__all__ = ["ADMIN", "RECONCILE", "SCHEDULER", "WATCHDOG", "ApiAnswer", "ApiServer", "api_server"]

ADMIN, SCHEDULER = "admin", "system:kube-scheduler"
# Only the account of reconcile may write the capacity of nodes.
RECONCILE, WATCHDOG = (f"system:serviceaccount:gpu-tenancy-system:{name}" for name in (names.RECONCILE, names.WATCHDOG))
NAMESPACES = "/api/v1/namespaces"


@dataclass(frozen=True)
class ApiServer:
    api: ClusterApi
    kubeconfig: Path
    created: list[str] = field(default_factory=list)

    def request(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        user: str = ADMIN,
        content_type: str = "application/json",
    ) -> ApiAnswer:
        """Raises OSError if the API server cannot be reached."""
        other = None if user == ADMIN else user
        return self.api.request(method, path, body, user=other, content_type=content_type)

    def apply(self, manifest: Mapping[str, Any], plural: str) -> None:
        """Raises ClusterError if the API server refuses the object."""
        group = "/api/v1" if manifest["apiVersion"] == "v1" else f"/apis/{manifest['apiVersion']}"
        self.create(f"{group}/{plural}", manifest)

    def create(self, collection: str, manifest: Mapping[str, Any]) -> Mapping[str, Any]:
        """Raises ClusterError if the API server refuses the object."""
        found = self.api.create(collection, manifest)
        self.created.append(f"{collection}/{found['metadata']['name']}")
        return found

    def clear(self) -> None:
        for path in reversed(self.created):
            if path.startswith(f"{NAMESPACES}/") and path.count("/") == NAMESPACES.count("/") + 1:
                self._remove_namespace(path)
            else:
                self.api.request("PATCH", path, {"metadata": {"finalizers": None}}, content_type=MERGE)
                self.api.request("DELETE", f"{path}?gracePeriodSeconds=0")
        left = [path for path in self.created if self.api.get(path) is not None]
        assert not left, left
        self.created.clear()

    def _remove_namespace(self, path: str) -> None:
        self.api.request("DELETE", f"{path}/pods?gracePeriodSeconds=0")
        self.api.request("DELETE", path)
        found = self.api.get(path)
        if found is not None:
            self.api.request("PUT", f"{path}/finalize", {**found, "spec": {"finalizers": []}})


@contextmanager
def api_server(folder: Path) -> Iterator[ApiServer]:
    with cluster.running(folder, extent=Extent.API_SERVER) as started:
        processes = [Path("/proc", str(started.pid_of(name))) for name in ("etcd", "kube-apiserver")]
        yield ApiServer(started.api, started.kubeconfig)
    assert not [process for process in processes if process.exists()]
