"""Removes the gpumem from the nodes in a removal, if no agent does (docs/adr/0001).

A removal waits until reconcile has removed the gpumem from the nodes and the finalizer from the ledger.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass

from agents.runtime.errors import AgentError
from stacks.cluster import Cluster
from stacks.engine import EngineError
from tenancy.names import LABEL_NAME, LEDGER, RECONCILE, Names
from tenancy.workload import map_at

# Between the end of a run of reconcile and the start of the next one, no pod runs for up to half a minute.
PATIENCE_SECONDS = 45
_OURS = f"{LABEL_NAME}={RECONCILE}"


@dataclass
class Retirement:
    """Does the work of reconcile as soon as no pod of reconcile has run for PATIENCE_SECONDS.

    A pod that starts later finds a ledger that is being deleted, and advertises nothing.
    """

    cluster: Cluster
    namespace: str
    clock: Callable[[], float] = time.monotonic
    _since: float | None = None
    _failure: str = ""

    def step(self) -> list[str]:
        """Makes one step, and says what was done. The removal goes on after a failure, because a pod may run later."""
        try:
            return retire(self.cluster, self.namespace) if self._is_patient() else []
        except AgentError:  # The API server does not respond. The next step tries again.
            return []
        except EngineError as error:
            known, self._failure = self._failure, str(error)
            if self._failure == known:
                return []
            return [
                f"  No agent runs, and your account cannot remove the gpumem from the nodes: {error}",
                f"    It goes on when a pod of {RECONCILE} runs in {self.namespace}. Repair it, or end with Ctrl-C.",
            ]

    def _is_patient(self) -> bool:
        pods = self.cluster.items(f"/api/v1/namespaces/{self.namespace}/pods", labelSelector=_OURS)
        if any(map_at(pod, "status").get("phase") == "Running" for pod in pods):
            self._since = None
            return False
        self._since = self.clock() if self._since is None else self._since
        return self.clock() - self._since >= PATIENCE_SECONDS


def retire(cluster: Cluster, namespace: str) -> list[str]:
    """Removes the gpumem from the nodes, and then the finalizer from a ledger that is being deleted.

    Says what was done. Raises EngineError, and the errors of the cluster.
    """
    path = f"/api/v1/namespaces/{namespace}/configmaps/{LEDGER}"
    metadata = map_at(cluster.find(path) or {}, "metadata")
    finalizers = metadata.get("finalizers") or ()
    ours = [*filter(None, map(Names.of_capacity_finalizer, finalizers))]
    if not ours or "deletionTimestamp" not in metadata:
        return []
    said = []
    for each in ours:
        keys = dict.fromkeys((each.gpumem, each.gpu_count))
        nodes = [
            str(node["metadata"]["name"])
            for node in cluster.items("/api/v1/nodes")
            if any(keys.keys() & node["status"].get(held, {}).keys() for held in ("capacity", "allocatable"))
        ]
        said.append(f"  No agent runs, so make removes {each.gpumem} from the nodes itself ({len(nodes)} have it).")
        if nodes:
            empty = {"status": {"capacity": keys, "allocatable": keys}}
            cluster.patch("node", *nodes, "--subresource=status", patch=empty)
    rest = [each for each in finalizers if Names.of_capacity_finalizer(each) is None]
    try:
        cluster.patch("configmap", LEDGER, f"--namespace={namespace}", patch={"metadata": {"finalizers": rest}})
    except EngineError:
        if cluster.find(path) is not None:  # Otherwise an agent has run after all, and has let the ledger go.
            raise
    return said
