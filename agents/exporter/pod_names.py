"""What the API tells the exporter, apart from the measuring: the node's pods, the ledger, the watchdog's recycles.

An API that is away takes nothing off the measurements: the last answer stays, and its age is served with it.
"""

import threading
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime
from typing import NoReturn

from agents.kube import ledger
from agents.kube.client import Api
from agents.kube.journal import Journal, JournalError
from agents.node import pods
from agents.node.cgroup import Container
from agents.node.pods import Roster
from agents.runtime.clock import Clock
from agents.runtime.log import Log
from agents.runtime.loop import Problem, keep_running
from tenancy import names
from tenancy.ledger import Ledger

REFRESH_SECONDS = 15.0
# A container without a name is asked for at once, but no more often than this: one may never get a name.
LOOK_UP_SECONDS = 5.0


@dataclass(frozen=True)
class Registry:
    """One answer of the API. Without a ledger nobody's budget is known; `recycled` is when the watchdog recycled, None
    where it keeps no journal."""

    roster: Roster = field(default_factory=Roster)
    ledger: Ledger | None = None
    recycled: tuple[datetime, ...] | None = None


@dataclass(kw_only=True)
class Registrar:
    """Polls the API; one thread writes `last`, all read."""

    api: Api
    node: str
    ledger_namespace: str
    clock: Clock
    last: Registry = field(default_factory=Registry)
    _at: float = field(init=False)
    _wanted: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        self._at = self.clock.monotonic()

    @property
    def age_seconds(self) -> float:
        """Seconds since the last whole answer, or since the start."""
        return self.clock.monotonic() - self._at

    def look_up(self, containers: Iterable[Container]) -> None:
        """Has the next answer come early if one of the containers has no name yet."""
        if not all(map(self.last.roster.knows, containers)):
            self._wanted.set()

    def refresh(self) -> None:
        """A new answer, remembered. Raises AgentError."""
        self._wanted.clear()
        stored = ledger.read(self.api, self.ledger_namespace)
        found = None if stored is None or stored.deleting else stored.ledger()
        self.last = Registry(
            roster=pods.read(self.api, self.node, found),
            ledger=found,
            recycled=_recycled(self.api, self.ledger_namespace),
        )
        self._at = self.clock.monotonic()

    def keep_refreshing(self, log: Log) -> NoReturn:
        """Does not return; in a thread of its own because the API may be slow."""
        problem = Problem(
            log=log, failing="names and budgets stay as they were", recovered="names and budgets are up to date again"
        )
        keep_running(self.refresh, problem, self._pause)

    def _pause(self) -> None:
        for _ in range(int(REFRESH_SECONDS // LOOK_UP_SECONDS)):
            self.clock.sleep(LOOK_UP_SECONDS)
            if self._wanted.is_set():
                return


def _recycled(api: Api, namespace: str) -> tuple[datetime, ...] | None:
    """From the watchdog's journal. One that cannot be read ends the watchdog's runs, which has its own alert."""
    try:
        record = Journal(api=api, namespace=namespace, name=names.journal(names.WATCHDOG)).find()
        if record is None:
            return None
        return tuple(datetime.fromisoformat(entry["at"]) for entry in record.content.get("recycled", ()))
    except (JournalError, ValueError, TypeError, KeyError):
        return None
