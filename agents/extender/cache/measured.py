"""Copies the exporters' readings into the cache. The readings show how much memory pods use. Only a seat's pod may be
placed on memory that other pods use.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import NoReturn

from agents.extender.cache.cache import Cache
from agents.runtime.clock import Clock
from agents.runtime.errors import AgentError
from agents.runtime.log import Log
from agents.runtime.loop import ProblemLog, keep_running
from agents.telemetry.client import NodeTelemetry
from tenancy.units import MIB

INTERVAL_SECONDS = 5.0
_SOON_SECONDS = 0.2  # the seconds between two attempts while the exporters are not known


@dataclass(kw_only=True)
class ReadingRefresher:
    """Refreshes the readings. One thread runs `keep`. Any thread may read the fields.

    `read` scrapes the exporters. `read` returns None while the exporters are not known, and may raise AgentError.
    `tried` is True after the first attempt to scrape.
    """

    read: Callable[[], Iterable[NodeTelemetry] | None]
    cache: Cache
    grown: Callable[[], None]
    clock: Clock
    log: Log
    tried: bool = False
    _read_at: dict[str, float] = field(default_factory=dict)
    _problems: frozenset[str] = frozenset()

    def ages(self) -> dict[str, float]:
        """Returns the age of each node's last reading in seconds."""
        now = self.clock.monotonic()
        return {node: now - at for node, at in self._read_at.items()}

    def refresh(self) -> None:
        """Scrapes the exporters. Raises AgentError."""
        try:
            readings = self.read()
        except AgentError:
            self.tried = True
            raise
        if readings is None:
            return
        problems, read_at = set(), {}
        for found in readings:
            if found.problem:
                problems.add(f"{found.node}: {found.problem}")
            if not found.devices:
                if found.node in self._read_at:
                    read_at[found.node] = self._read_at[found.node]
                continue
            unused = {device.gpu: device.free_bytes // MIB for device in found.devices}
            self.cache.measure(found.node, unused, found.read_at, found.uses, unknown=found.unknown_uses)
            read_at[found.node] = found.read_at
        self._read_at = read_at
        for problem in sorted(problems - self._problems):
            self.log.warning(f"is placed by the ledger alone: {problem}")
        self._problems = frozenset(problems)
        self.tried = True
        self.grown()

    def keep(self) -> NoReturn:
        """Refreshes the readings in the cache until the process ends. A reading expires if no new reading
        replaces it.
        """
        problem = ProblemLog(
            log=self.log, failing="the devices are not measured", recovered="the devices are measured again"
        )
        keep_running(self.refresh, problem, lambda: self.clock.sleep(INTERVAL_SECONDS if self.tried else _SOON_SECONDS))
