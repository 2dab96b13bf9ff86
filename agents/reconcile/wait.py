"""Between two passes of reconcile: watches show when the next one has something to do."""

from collections.abc import Iterable
from dataclasses import dataclass

from agents.kube.client import Api, Object
from agents.kube.informer import Watches, WatchSource
from agents.kube.ledger import StoredLedger
from agents.reconcile import decide
from agents.reconcile.cache import NodeCache
from agents.reconcile.decide import Action
from agents.runtime.clock import Clock
from agents.runtime.errors import AgentError
from agents.runtime.log import Log
from tenancy.ledger import Ledger
from tenancy.names import LEDGER


@dataclass(frozen=True, kw_only=True)
class Settled:
    """What a pass left: the ledger it read, what it read last of the cluster, what it would do or say again."""

    stored: StoredLedger
    ledger: Ledger
    view: NodeCache
    actions: tuple[Action, ...]

    @property
    def stirred(self) -> bool:
        """Whether a pass would now do or say anything else."""
        return decide.decide(self.ledger, self.view.snapshot()) != self.actions

    def sources(self) -> tuple[WatchSource, ...]:
        """What the next pass depends on."""
        only = {"fieldSelector": f"metadata.name={LEDGER}"}
        return (
            WatchSource(path=self.stored.collection, resource_version=self.stored.resource_version, parameters=only),
            *self.view.sources,
        )


@dataclass
class EventWait:
    """Waits for what makes a pass due; it never decides what to write."""

    api: Api
    clock: Clock
    log: Log
    _watches: Watches | None = None

    def wait(self, settled: Settled | None, until: float) -> bool:
        """Whether a pass has something to do before `until`, on the clock's monotonic scale.

        False before that time: there are no watches, and only a pass, which relists, finds out. Raises AgentError as a
        pass would.
        """
        if settled is None:
            self.close()
            return False
        watches = self._watches = self._watches or Watches(self.api, self.clock, settled.sources())
        while (left := until - self.clock.monotonic()) > 0:
            try:
                events = watches.take(left)
            except AgentError as error:
                self.log.info(f"lost a watch, polls: {error}")
                self.close()
                return False
            due = _is_due(settled, events)
            del events  # before more are decoded
            if due:
                return True
        return False

    def close(self) -> None:
        """Ends the watches."""
        if self._watches:
            self._watches.close()
            self._watches = None


def _is_due(settled: Settled, events: Iterable[Object]) -> bool:
    changed = False
    for event in events:
        if event["object"].get("kind") == "ConfigMap" and event["type"] != "BOOKMARK":
            return True
        changed = settled.view.apply(event) or changed
    return changed and settled.stirred
