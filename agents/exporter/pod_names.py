"""What the API tells the exporter, apart from the measuring: the node's pods, the ledger, the watchdog's recycles.

An API that is away takes nothing off the measurements: the last answer stays, and its age is served with it.
"""

import http.client
import threading
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime

from agents import ledger, roster
from agents.api import Api, ApiError
from agents.cgroup import Container
from agents.clock import Clock
from agents.errors import AgentError
from agents.journal import Journal, JournalError
from agents.log import Log
from agents.roster import Roster
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
    """Asks again and again; one thread writes `last`, all read."""

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
            roster=roster.read(self.api, self.node, found),
            ledger=found,
            recycled=_recycled(self.api, self.ledger_namespace),
        )
        self._at = self.clock.monotonic()

    def keep_refreshing(self, log: Log) -> None:
        """Asks for ever, in a thread of its own because the API may be slow; tells when the problem changes."""
        told: str | None = None
        while True:
            try:
                self.refresh()
                problem = None
            except AgentError as error:
                problem = str(error)
            if problem != told:
                log.error(f"names and budgets stay as they were: {problem}") if problem else log.info("the API answers")
            told = problem
            self._pause()

    def _pause(self) -> None:
        for _ in range(int(REFRESH_SECONDS // LOOK_UP_SECONDS)):
            self.clock.sleep(LOOK_UP_SECONDS)
            if self._wanted.is_set():
                return


def _recycled(api: Api, namespace: str) -> tuple[datetime, ...] | None:
    """From the watchdog's journal. One that cannot be read ends the watchdog's runs, which is told of by itself."""
    try:
        content = Journal(api=api, namespace=namespace, name=names.journal(names.WATCHDOG)).read().content
        return tuple(datetime.fromisoformat(entry["at"]) for entry in content.get("recycled", ()))
    except ApiError as error:
        if error.status != http.client.NOT_FOUND:
            raise
        return None
    except (JournalError, ValueError, TypeError, KeyError):
        return None
