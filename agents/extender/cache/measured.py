"""What the exporters measure, brought to the cache: a device that somebody uses unasked takes no new pod."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import NoReturn

from agents.extender.cache.cache import Cache
from agents.runtime.clock import Clock
from agents.runtime.errors import AgentError
from agents.runtime.log import Log
from agents.runtime.loop import ProblemLog, keep_running
from agents.runtime.settings import PORT, text, variable
from agents.telemetry.client import NodeTelemetry
from tenancy.units import MIB

INTERVAL_SECONDS = 5.0
_SOON_SECONDS = 0.2  # until it is known whom to ask


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Where the exporters are."""

    exporter_namespace: str = variable(text)
    exporter_port: int = variable(PORT)


@dataclass(kw_only=True)
class Measured:
    """One thread runs `keep`, all read. `read` asks the exporters, and raises AgentError; None where it is not known
    yet whom to ask. `tried` is whether they were asked: until then it is not known who uses the devices.
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
        """Seconds since each node's devices were last measured, for nodes that are there and ever were."""
        now = self.clock.monotonic()
        return {node: now - at for node, at in self._read_at.items()}

    def refresh(self) -> None:
        """A new measurement of every node. Raises AgentError."""
        readings = self.read()
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
            free = {device.gpu: device.free_bytes // MIB for device in found.devices}
            self.cache.measure(found.node, free, found.read_at, found.uses, unknown=found.unknown_uses)
            read_at[found.node] = found.read_at
        self._read_at = read_at
        for problem in sorted(problems - self._problems):
            self.log.warning(f"is placed on by the ledger alone: {problem}")
        self._problems = frozenset(problems)
        self.tried = True
        self.grown()

    def keep(self) -> NoReturn:
        """Does not return; measurements that cannot be renewed grow old, and do not count then."""
        problem = ProblemLog(
            log=self.log, failing="the devices are not measured", recovered="the devices are measured again"
        )
        keep_running(self._try, problem, lambda: self.clock.sleep(INTERVAL_SECONDS if self.tried else _SOON_SECONDS))

    def _try(self) -> None:
        try:
            self.refresh()
        except AgentError:
            self.tried = True
            raise
