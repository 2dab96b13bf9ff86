"""Between two passes of reconcile: watches tell when the next one has something to do."""

from dataclasses import dataclass

from agents import capacity
from agents.api import Api
from agents.capacity import Action
from agents.clock import Clock
from agents.feed import Feed, FeedError, Source
from agents.ledger import StoredLedger
from agents.log import Log
from agents.nodes import NODES
from agents.view import BOUND, PODS, View
from tenancy.ledger import Ledger
from tenancy.names import LEDGER

# A CronJob's run stops its watches before; a Job that waits longer begins new ones.
WATCH_SECONDS = 300.0


@dataclass(frozen=True, kw_only=True)
class Settled:
    """What a pass left: the ledger it read, what it read last of the cluster, what it would do or say again."""

    stored: StoredLedger
    ledger: Ledger
    view: View
    actions: tuple[Action, ...]

    @property
    def stirred(self) -> bool:
        """Whether a pass would now do or say anything else."""
        return capacity.decide(self.ledger.names, self.ledger.pools, self.view.snapshot()) != self.actions

    def sources(self) -> tuple[Source, ...]:
        """What the next pass depends on."""
        only = {"fieldSelector": f"metadata.name={LEDGER}"}
        return (
            Source(path=self.stored.collection, resource_version=self.stored.resource_version, parameters=only),
            Source(path=NODES, resource_version=self.view.nodes_version),
            Source(path=PODS, resource_version=self.view.pods_version, parameters=BOUND),
        )


@dataclass
class Lookout:
    """Asks the watches whether a pass is due; it never decides what to write."""

    api: Api
    clock: Clock
    log: Log
    _feed: Feed | None = None

    def wait(self, settled: Settled | None, until: float) -> bool:
        """Whether a pass has something to do before `until`, on the clock's monotonic scale.

        False before that time: nothing tells, and only a pass finds out. Raises AgentError as a pass would.
        """
        if settled is None:
            self.close()
            return False
        try:
            return self._watch(settled, until)
        except FeedError as error:
            self.log.info(f"polls: {error}")
            self.close()
            return False

    def close(self) -> None:
        """Ends the watches."""
        if self._feed:
            self._feed.close()
            self._feed = None

    def _watch(self, settled: Settled, until: float) -> bool:
        self._feed = self._feed or Feed(self.api, self.clock, settled.sources(), seconds=WATCH_SECONDS)
        while (left := until - self.clock.monotonic()) > 0:
            changed = False
            for event in self._feed.take(left):
                if event["object"].get("kind") == "ConfigMap" and event["type"] != "BOOKMARK":
                    return True
                changed = settled.view.tell(event) or changed
            if changed and settled.stirred:
                return True
        return False
