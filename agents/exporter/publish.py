"""Keeps the node's ResourceSlice as its devices are: the shell of slices.py."""

import http.client
from collections.abc import Callable
from dataclasses import dataclass

from agents import slices
from agents.api import Api, ApiError, Object
from agents.clock import Clock
from agents.device import Survey
from agents.errors import AgentError
from agents.log import Log
from agents.nodes import NODES
from agents.slices import SLICES, Host
from tenancy.ledger import Ledger, Pool, Sharing
from tenancy.selector import matches


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
        stored = self._stored(f"{SLICES}/{slices.name_of(self.node, ledger.names)}")
        wanted = slices.slice_of(survey, self._host(ledger), ledger.names, stored)
        if stored is None:
            self.api.create(SLICES, wanted)
            return "created"
        if not slices.differs(wanted, stored):
            return None
        metadata = {**wanted["metadata"], "resourceVersion": stored["metadata"]["resourceVersion"]}
        self.api.merge_patch(f"{SLICES}/{metadata['name']}", {"metadata": metadata, "spec": wanted["spec"]})
        return "changed"

    def keep_publishing(self, log: Log) -> None:
        """For ever, in a thread of its own; tells of what was written, and when the problem changes."""
        told: str | None = None
        while True:
            try:
                done, problem = self.publish(), None
            except AgentError as error:
                done, problem = None, str(error)
            if problem and problem != told:
                log.error(f"the node's ResourceSlice stays as it is: {problem}")
            if told and not problem:
                log.info("the node's ResourceSlice can be written again")
            if done:
                log.info(f"ResourceSlice {done}")
            told = problem
            self.clock.sleep(self.interval_seconds)

    def _stored(self, path: str) -> Object | None:
        try:
            return self.api.get(path)
        except ApiError as error:
            if error.status != http.client.NOT_FOUND:
                raise
            return None

    def _host(self, ledger: Ledger) -> Host:
        """From the API server's cache: a label that is a second old is no matter."""
        metadata = self.api.get(f"{NODES}/{self.node}?resourceVersion=0")["metadata"]
        return Host(name=self.node, uid=metadata["uid"], pool=_pool(ledger, metadata.get("labels") or {}))


def _pool(ledger: Ledger, labels: Object) -> Pool | None:
    """The pool that shares the memory of the node's devices."""
    shared = (pool for pool in ledger.pools if pool.sharing is Sharing.MEMORY)
    return next((pool for pool in shared if matches(pool.node_selector, labels)), None)
