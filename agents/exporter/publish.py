"""Keeps the node's ResourceSlice as its devices are: the shell of slices.py."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NoReturn

from agents.kube.client import Api
from agents.kube.nodes import NODES
from agents.runtime.clock import Clock
from agents.runtime.log import Log
from agents.runtime.loop import Problem, keep_running
from agents.telemetry import resourceslice
from agents.telemetry.device import Survey
from agents.telemetry.resourceslice import SLICES, Host
from tenancy.ledger import Ledger, SeveralPoolsError, Sharing


@dataclass(frozen=True, kw_only=True)
class Publisher:
    """Looks at the slice once an interval: kubelet takes a node's slices away when it restarts, and says nothing.

    `survey` and `ledger` give what was last read, None before; a failed reading of NVML is no reason to write.
    """

    api: Api
    node: str
    survey: Callable[[], Survey | None]
    ledger: Callable[[], Ledger | None]
    clock: Clock
    interval_seconds: int

    def publish(self) -> str | None:
        """Writes the slice where it is not as it should be; what was done. Raises AgentError."""
        survey, ledger = self.survey(), self.ledger()
        if survey is None or ledger is None:
            return None
        stored = self.api.find(f"{SLICES}/{resourceslice.name_of(self.node, ledger.names)}")
        host, doubt = self._host(ledger)
        wanted = resourceslice.slice_of(survey, host, ledger.names, stored)
        if stored is None:
            self.api.create(SLICES, wanted)
            return f"created{doubt}"
        if not resourceslice.differs(wanted, stored):
            return None
        metadata = {**wanted["metadata"], "resourceVersion": stored["metadata"]["resourceVersion"]}
        self.api.merge_patch(f"{SLICES}/{metadata['name']}", {"metadata": metadata, "spec": wanted["spec"]})
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

    def _host(self, ledger: Ledger) -> tuple[Host, str]:
        """The node, and why its devices offer nothing if several pools match it: memory that one of them may not have
        is given to no claim. From the API server's cache: a label that is a second old is no matter."""
        metadata = self.api.get(f"{NODES}/{self.node}?resourceVersion=0")["metadata"]
        pool, doubt = None, ""
        try:
            pool = ledger.pool_of(metadata.get("labels") or {})
        except SeveralPoolsError as error:
            doubt = f", which offers nothing: the node is {error}"
        shared = pool if pool is not None and pool.sharing is Sharing.MEMORY else None
        return Host(name=self.node, uid=metadata["uid"], pool=shared), doubt
