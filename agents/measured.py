"""What the exporters measure, brought to the allocations: a device that somebody uses unasked takes no new pod."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from agents.allocations import Allocations
from agents.clock import Clock
from agents.device import MIB
from agents.environment import PORT, text, variable
from agents.errors import AgentError
from agents.log import Log
from agents.telemetry import NodeTelemetry

INTERVAL_SECONDS = 5.0


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Where the exporters are."""

    exporter_namespace: str = variable(text)
    exporter_port: int = variable(PORT)


@dataclass(kw_only=True)
class Measured:
    """One thread runs `keep`, all read. `read` asks the exporters, and raises AgentError."""

    read: Callable[[], Iterable[NodeTelemetry]]
    allocations: Allocations
    grown: Callable[[], None]
    clock: Clock
    log: Log
    _read_at: dict[str, float] = field(default_factory=dict)
    _problems: frozenset[str] = frozenset()

    def ages(self) -> dict[str, float]:
        """Seconds since each node's devices were last measured, for nodes that ever were."""
        now = self.clock.monotonic()
        return {node: now - at for node, at in [*self._read_at.items()]}

    def refresh(self) -> None:
        """A new measurement of every node. Raises AgentError."""
        problems = set()
        for found in self.read():
            if found.problem:
                problems.add(f"{found.node}: {found.problem}")
                continue
            free = {device.gpu: device.free_bytes // MIB for device in found.devices}
            self.allocations.measure(found.node, free, found.read_at)
            self._read_at[found.node] = found.read_at
        for problem in sorted(problems - self._problems):
            self.log.warning(f"is placed on by the ledger alone: {problem}")
        self._problems = frozenset(problems)
        self.grown()

    def keep(self) -> None:
        """For ever; what is known grows old meanwhile, and then counts no more."""
        while True:
            try:
                self.refresh()
            except AgentError as error:
                self.log.warning(f"the devices are not measured: {error}")
            self.clock.sleep(INTERVAL_SECONDS)
