"""Simulates the exporters: their real code reads simulated devices."""

import http.client
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial

from agents.exporter.attribution import NodeUse, attribute
from agents.exporter.main import DeviceReader
from agents.exporter.publish import publish
from agents.exporter.registry import RegistryInformer
from agents.runtime.errors import AgentError
from agents.runtime.http_client import FetchError
from agents.runtime.items import Unjudged, judged
from agents.telemetry import reading
from agents.telemetry.client import Scraper
from agents.telemetry.device import Scan
from agents.telemetry.reading import Reading
from tenancy.names import SYSTEM_NAMESPACE
from tests.simulation.model.api import KilledError, Server
from tests.simulation.model.client import SimApi
from tests.simulation.model.devices import Machine
from tests.simulation.model.following import SimInformer
from tests.simulation.model.log import SimLog
from tests.simulation.model.world import World


@dataclass(kw_only=True)
class Exporter:
    """A node's exporter."""

    machine: Machine
    world: World
    server: Server
    address: str = "10.0.0.1"
    parsed: tuple[object, Reading] | None = None
    scan: Scan = field(default_factory=lambda: Scan(()))  # the devices that NVML read at the time `scanned_at`
    scanned_at: float = 0.0

    def __post_init__(self) -> None:
        name = f"exporter@{self.machine.name}"
        clock = self.world.clock(lambda: self.machine.ahead)
        api = SimApi(self.server, name, clock)
        log = SimLog(name, world=self.world)
        node = self.machine.name
        self.registry = RegistryInformer(
            api=api, node=node, ledger_namespace=SYSTEM_NAMESPACE, clock=clock, log=log, slices=True
        )
        self.following = SimInformer(informer=self.registry.informer, world=self.world, server=self.server)
        self.gauge = DeviceReader(read=self._read, registry=self.registry, clock=clock, interval_seconds=5)
        self.publish = lambda: publish(api, node, self.gauge.survey, self.registry.last)

    def _read(self) -> NodeUse:
        if self.machine.failing:
            raise AgentError(self.machine.failing)
        self.scan, self.scanned_at = self.machine.scan(), self.world.now
        return attribute(self.scan, self.machine.containers.get)

    def resume(self) -> None:
        for loop in (self._follow, self._sample, self._publish):
            self.world.tick(0.0, loop)

    def _sample(self) -> None:
        if self.machine.alive and not self.machine.hangs:
            self.gauge.sample()
        self.world.tick(5.0 + 0.05 * self.world.dice.random(), self._sample)

    def _follow(self) -> None:
        if self.machine.alive:
            self._quietly(self.following.look)
            self.following.heard()
        self.world.tick(5.0, self._follow)

    def _publish(self) -> None:
        if self.machine.alive:
            self._quietly(self.publish)
        self.world.tick(15.0, self._publish)

    def _quietly(self, step: Callable[[], object]) -> None:
        try:
            step()
        except (AgentError, KilledError):
            self.world.see("exporter: a step failed")

    def fetch(self, url: str) -> str:
        """Returns the body of GET /metrics. Raises FetchError if the status is not 200."""
        status, text = self.metrics()
        if status != http.client.OK:
            raise FetchError(f"{url}: HTTP {status}: {text[:200].strip()}")
        return text

    def metrics(self) -> tuple[int, str]:
        return self.gauge.metrics()

    def reading(self, url: str) -> Reading:
        """Returns the reading of a scrape. Raises AgentError.

        If only the age has changed since the last scrape, returns the last reading again. Without the reuse of
        readings, rendering and parsing the text would take a third of the simulation's CPU time.
        """
        last = self.gauge.last
        shown = last.node, self.registry.last
        if self.parsed and self.parsed[0] == shown and self.gauge.health()[0] == http.client.OK and last.node.uses:
            return replace(self.parsed[1], age_seconds=round(self.gauge.age_seconds, 3))
        found = reading.parse(self.fetch(url))
        self.parsed = (shown, found)
        return found


@dataclass(frozen=True, kw_only=True)
class SimScraper(Scraper):
    """Reads the simulated exporters instead of scraping over HTTP. `get` answers all other requests."""

    read: Callable[[str], Reading]
    get: Callable[[str], bytes]

    def readings(self, urls: Iterable[str]) -> Iterator[tuple[str, Reading | Unjudged]]:
        for url in urls:
            yield url, judged(partial(self.read, url))
