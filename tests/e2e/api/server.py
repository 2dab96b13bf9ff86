"""The cluster's API server alone, and requests to it in a user's name: the best judge of a manifest, the only one of a
policy."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tenancy import names
from toolchain.cluster import cluster
from toolchain.cluster.api import Answer, Api
from toolchain.cluster.extent import Extent

__all__ = ["ADMIN", "RECONCILE", "SCHEDULER", "WATCHDOG", "Answer", "ApiServer", "api_server"]

ADMIN, SCHEDULER = "admin", "system:kube-scheduler"
# Accounts of prod's agents: the one that may write a node's capacity, and one that may not.
RECONCILE, WATCHDOG = (f"system:serviceaccount:gpu-tenancy-system:{name}" for name in (names.RECONCILE, names.WATCHDOG))


@dataclass(frozen=True)
class ApiServer:
    """A running API server."""

    api: Api

    def request(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        user: str = ADMIN,
        content_type: str = "application/json",
    ) -> Answer:
        """One request. Raises OSError when the server cannot be reached."""
        other = None if user == ADMIN else user
        return self.api.request(method, path, body, user=other, content_type=content_type)

    def apply(self, manifest: Mapping[str, Any], plural: str) -> None:
        """Creates an object under strict field validation. Raises ClusterError with the refusal."""
        group = "/api/v1" if manifest["apiVersion"] == "v1" else f"/apis/{manifest['apiVersion']}"
        self.api.create(f"{group}/{plural}", manifest)


@contextmanager
def api_server(folder: Path) -> Iterator[ApiServer]:
    """A new one, which knows nothing but Kubernetes' own objects, as long as the block."""
    with cluster.running(folder, extent=Extent.API_SERVER) as started:
        yield ApiServer(started.api)
