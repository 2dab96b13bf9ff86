"""Waits with watches until reconcile must make its next pass."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from agents.kube.client import Api, ApiError, Object
from agents.kube.informer import Watches, WatchSource, name_selector
from agents.kube.ledger import StoredLedger
from agents.reconcile import decide
from agents.reconcile.cache import NodeCache
from agents.reconcile.decide import Action, NodeFinding, NodePatch
from agents.runtime.clock import Clock
from agents.runtime.errors import AgentError
from agents.runtime.log import Log
from tenancy.ledger import Ledger
from tenancy.names import LEDGER


@dataclass(frozen=True, kw_only=True)
class PassEnd:
    """The state at the end of a pass, and the actions that are still necessary. `refused` maps each node to the error
    of a refused write.
    """

    stored: StoredLedger
    ledger: Ledger
    cache: NodeCache
    actions: tuple[Action, ...]
    refused: Mapping[str, ApiError] = field(default_factory=dict)

    @property
    def findings(self) -> tuple[NodeFinding, ...]:
        return tuple(action for action in self.actions if isinstance(action, NodeFinding))

    @property
    def changes(self) -> tuple[NodePatch, ...]:
        return tuple(action for action in self.actions if isinstance(action, NodePatch))

    @property
    def wanting(self) -> frozenset[str]:
        """Returns the names of nodes with a wrong or unverified capacity."""
        blocked = {finding.node.name for finding in self.findings if finding.blocking}
        return frozenset(blocked.union(change.node.name for change in self.changes))

    def makes_due(self, events: Iterable[Object]) -> bool:
        """Applies the events of the watches to the cache. Returns True if a new pass would act differently from the
        last pass.
        """
        changed = False
        for event in events:
            if event["object"].get("kind") == "ConfigMap" and event["type"] != "BOOKMARK":
                return True
            changed = self.cache.apply(event) or changed
        return changed and decide.decide(self.ledger, self.cache.snapshot()) != self.actions

    def sources(self) -> tuple[WatchSource, ...]:
        """Returns the sources for the watches of the ledger and of the cache's collections."""
        path, version = self.stored.collection, self.stored.resource_version
        return (WatchSource(path=path, resource_version=version, parameters=name_selector(LEDGER)), *self.cache.sources)


@dataclass
class EventWait:
    api: Api
    clock: Clock
    log: Log
    _watches: Watches | None = None

    def wait(self, pass_end: PassEnd | None, until: float) -> bool:
        """Returns True as soon as an event makes a new pass necessary. Returns False at the monotonic time `until`, or
        earlier if a watch is missing or fails.

        Raises AgentError.
        """
        if pass_end is None:
            self.close()
            return False
        watches = self._watches = self._watches or Watches(self.api, self.clock, pass_end.sources())
        while (left := until - self.clock.monotonic()) > 0:
            try:
                events = watches.take(left)
            except AgentError as error:
                self.log.info(f"lost a watch, polls: {error}")
                self.close()
                return False
            due = pass_end.makes_due(events)
            del events  # frees the memory of the events before more events are decoded
            if due:
                return True
        return False

    def close(self) -> None:
        if self._watches:
            self._watches.close()
            self._watches = None
