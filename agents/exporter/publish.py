"""Keeps the node's ResourceSlice as its devices are: the shell of agents/telemetry/resourceslice.py."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import NoReturn

from agents.exporter.pod_names import OwnNode, Registry
from agents.exporter.remains import GpumemHeld, Rise, held
from agents.kube.client import Api, Object
from agents.kube.ledger import stored_ledger
from agents.kube.nodes import NODES, node_of
from agents.kube.pods import PODS, on_node
from agents.runtime.clock import Clock
from agents.runtime.errors import AgentError
from agents.runtime.log import Log
from agents.runtime.loop import ProblemLog, keep_running
from agents.telemetry import resourceslice
from agents.telemetry.device import Survey
from agents.telemetry.resourceslice import SLICES, PublishingNode
from tenancy.ledger import Ledger, PlacementMode, Pool, SeveralPoolsError, Sharing
from tenancy.names import LEDGER


@dataclass(frozen=True, kw_only=True)
class Publisher:
    """Compares the slice with the devices once an interval: kubelet takes a node's slices away when it restarts.

    `survey` gives what was last read of the devices, None before; a failed reading of NVML is no reason to write.
    `registry` gives what a watch last told of the node and its slices.
    """

    api: Api
    node: str
    ledger_namespace: str
    survey: Callable[[], Survey | None]
    registry: Callable[[], Registry]
    clock: Clock
    interval_seconds: int
    rise: Rise = field(default_factory=Rise)

    def publish(self) -> str | None:
        """Writes the slice where it is not as it should be; what was done. Raises AgentError."""
        survey, registry = self.survey(), self.registry()
        ledger, node = registry.ledger, registry.node
        if survey is None or ledger is None or node is None:
            return None
        name = resourceslice.name_of(self.node, ledger.names)
        stored = registry.slices.get(name)
        host, doubt = self._host(ledger, node)
        try:
            host = replace(host, offered=self._offered(survey, host, stored))
        except AgentError:
            self.rise.forget()
            raise
        wanted = resourceslice.slice_of(survey, host, ledger.names, stored)
        if stored is None:
            self.api.create(SLICES, wanted)
            return f"created{doubt}"
        if not resourceslice.differs(wanted, stored):
            return None
        metadata = {**wanted["metadata"], "resourceVersion": stored["metadata"]["resourceVersion"]}
        self.api.merge_patch(f"{SLICES}/{name}", {"metadata": metadata, "spec": wanted["spec"]})
        return f"changed{doubt}"

    def keep_publishing(self, log: Log) -> NoReturn:
        """Does not return."""

        def step() -> None:
            if done := self.publish():
                log.info(f"ResourceSlice {done}")

        problem = ProblemLog(
            log=log,
            failing="the node's ResourceSlice stays as it is",
            recovered="the node's ResourceSlice can be written again",
        )
        keep_running(step, problem, lambda: self.clock.sleep(self.interval_seconds))

    def _offered(self, survey: Survey, host: PublishingNode, stored: Object | None) -> dict[str, int]:
        """To claims, where the pool says that it is placed by them. While anything of it is kept back, the API is asked
        for all that it depends on; a look that finds anything else than what is known here is none. Raises
        AgentError."""
        if host.pool is None or host.pool.placement is not PlacementMode.DRA:
            self.rise.forget()
            return {}
        offered, known = resourceslice.offered_by(stored), resourceslice.memory_of(survey, stored)
        full = {uuid: host.pool.offered_mib(mib) for uuid, mib in known.items()}
        if full == offered:
            self.rise.forget()
            return offered
        now, found = self.clock.monotonic(), self._read()
        if found is None or found[0] != host.pool:
            raise AgentError("its pool has just changed")
        return self.rise.settle(offered, {uuid: found[1].left_mib(uuid, mib) for uuid, mib in full.items()}, now)

    def _read(self) -> tuple[Pool | None, GpumemHeld] | None:
        """The node's pool and what is held there, by consistent lists; None where it cannot be told."""
        nodes = [node_of(item) for item in self.api.items(NODES, fieldSelector=f"metadata.name={self.node}")]
        path = f"/api/v1/namespaces/{self.ledger_namespace}/configmaps"
        ledgers = [
            stored_ledger(item, self.ledger_namespace)
            for item in self.api.items(path, fieldSelector=f"metadata.name={LEDGER}")
        ]
        if not nodes or not ledgers or ledgers[0].deleting:
            return None
        ledger = ledgers[0].ledger()
        try:
            pool = ledger.pool_of(nodes[0].labels)
        except SeveralPoolsError:
            return None
        return pool, held(nodes[0], self.api.items(PODS, fieldSelector=on_node(self.node)), ledger.names)

    def _host(self, ledger: Ledger, node: OwnNode) -> tuple[PublishingNode, str]:
        """The node, and why its devices offer nothing if several pools match it: memory that one of them may not have
        is given to no claim."""
        pool, doubt = None, ""
        try:
            pool = ledger.pool_of(node.labels)
        except SeveralPoolsError as error:
            doubt = f", which offers nothing: the node is {error}"
        shared = pool if pool is not None and pool.sharing is Sharing.MEMORY else None
        return PublishingNode(name=self.node, uid=node.uid, pool=shared), doubt
