"""Keeps the node's ResourceSlice as its devices are: the shell of agents/telemetry/resourceslice.py."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NoReturn

from agents.exporter.pod_names import OwnNode, Registry
from agents.kube.client import Api
from agents.runtime.clock import Clock
from agents.runtime.log import Log
from agents.runtime.loop import Problem, keep_running
from agents.telemetry import resourceslice
from agents.telemetry.device import Survey
from agents.telemetry.resourceslice import SLICES, Host
from tenancy.ledger import Ledger, SeveralPoolsError, Sharing


@dataclass(frozen=True, kw_only=True)
class Publisher:
    """Compares the slice with the devices once an interval: kubelet takes a node's slices away when it restarts.

    `survey` gives what was last read of the devices, None before; a failed reading of NVML is no reason to write.
    `registry` gives what a watch last told of the node and its slices.
    """

    api: Api
    node: str
    survey: Callable[[], Survey | None]
    registry: Callable[[], Registry]
    clock: Clock
    interval_seconds: int

    def publish(self) -> str | None:
        """Writes the slice where it is not as it should be; what was done. Raises AgentError."""
        survey, registry = self.survey(), self.registry()
        ledger, node = registry.ledger, registry.node
        if survey is None or ledger is None or node is None:
            return None
        name = resourceslice.name_of(self.node, ledger.names)
        stored = registry.slices.get(name)
        host, doubt = self._host(ledger, node)
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

        problem = Problem(
            log=log,
            failing="the node's ResourceSlice stays as it is",
            recovered="the node's ResourceSlice can be written again",
        )
        keep_running(step, problem, lambda: self.clock.sleep(self.interval_seconds))

    def _host(self, ledger: Ledger, node: OwnNode) -> tuple[Host, str]:
        """The node, and why its devices offer nothing if several pools match it: memory that one of them may not have
        is given to no claim."""
        pool, doubt = None, ""
        try:
            pool = ledger.pool_of(node.labels)
        except SeveralPoolsError as error:
            doubt = f", which offers nothing: the node is {error}"
        shared = pool if pool is not None and pool.sharing is Sharing.MEMORY else None
        return Host(name=self.node, uid=node.uid, pool=shared), doubt
