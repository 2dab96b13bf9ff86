"""exporter: serves GPU memory by device, by container and by budget to Prometheus, the watchdog and the gates.

GET /metrics answers 200 only with a fresh NVML reading of some device, else 503 with the reason: an empty success would
read as an idle card. A device that cannot be read is named beside the others. The API adds names and budgets; while it
is away the last ones stay. Where asked to, it also publishes the devices as the node's ResourceSlice.
"""

# First, so that what compiling NVML's bindings took, 12 MiB, is free again for the modules below.
from agents.exporter.nvml import Nvml  # isort: split

import ctypes
import http.client
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import NoReturn

from agents.exporter import metrics as exporter_metrics
from agents.exporter.attribution import CapReading, DeviceUse, NodeUse, attribute
from agents.exporter.caps import CapReader
from agents.exporter.pod_names import Registrar
from agents.exporter.publish import Publisher
from agents.kube.client import Api, in_cluster
from agents.node import cgroup
from agents.runtime import exposition
from agents.runtime.clock import Clock
from agents.runtime.errors import AgentError, StoppedError
from agents.runtime.log import Log
from agents.runtime.loop import ProblemLog, keep_running
from agents.runtime.open_server import MetricsServer
from agents.runtime.settings import PORT, SECONDS, flag, read, text, variable
from agents.telemetry.device import Survey
from tenancy.names import CGROUPS

# A reading older than so many intervals is stale: NVML hangs, or the driver is going away.
STALE_INTERVALS = 3


@dataclass(frozen=True, kw_only=True)
class Settings:
    """INTERVAL_SECONDS is the time between two NVML readings, and between two looks at the published slice."""

    port: int = variable(PORT)
    interval_seconds: int = variable(SECONDS)
    node_name: str = variable(text)
    ledger_namespace: str = variable(text)
    publish_devices: bool = variable(flag)


def start(environ: Mapping[str, str], log: Log) -> int:
    """Serves until SIGTERM, then 0. Raises AgentError."""
    settings = read(Settings, environ)
    _give_back()
    clock = Clock()
    registrar = Registrar(
        api=Api(in_cluster(environ), clock=clock),
        node=settings.node_name,
        ledger_namespace=settings.ledger_namespace,
        clock=clock,
        log=log,
        slices=settings.publish_devices,
    )
    nvml, container_of = Nvml(), cgroup.reader()
    caps = CapReader(limit_of=nvml.limit, groups=cgroup.Groups(Path(CGROUPS)))
    gauge = Gauge(
        read=lambda: caps.of(attribute(nvml.read(), container_of), registrar.last),
        registrar=registrar,
        clock=clock,
        interval_seconds=settings.interval_seconds,
    )
    threads: list[Callable[[], object]] = [registrar.informer.run, partial(gauge.keep_sampling, log)]
    if settings.publish_devices:
        publisher = Publisher(
            api=Api(in_cluster(environ), clock=clock),
            node=settings.node_name,
            ledger_namespace=settings.ledger_namespace,
            survey=lambda: gauge.last.survey,
            registry=lambda: registrar.last,
            clock=clock,
            interval_seconds=settings.interval_seconds,
        )
        threads.append(partial(publisher.keep_publishing, log))
    for keep in threads:
        threading.Thread(target=keep, daemon=True).start()
    with MetricsServer(settings.port, gauge) as server:
        log.info("serves", port=settings.port, interval_seconds=settings.interval_seconds)
        try:
            server.serve_forever()
        except StoppedError:
            log.info("stopped by SIGTERM")
    return 0


def _give_back() -> None:
    """To the system, what compiling NVML's bindings took: glibc keeps what is free within its heap."""
    ctypes.CDLL(None).malloc_trim(0)


@dataclass(frozen=True)
class NvmlReading:
    """The last reading: devices, and those that could not be read, or why there is none; `at` is monotonic time in
    seconds."""

    at: float
    uses: tuple[DeviceUse, ...] = ()
    unreadable: tuple[int, ...] = ()
    problem: str | None = "no reading yet"  # with some of the devices or with all
    survey: Survey | None = None
    caps: tuple[CapReading, ...] = ()


@dataclass(kw_only=True)
class Gauge:
    """Reads the devices and remembers the last reading; one thread writes, all read."""

    read: Callable[[], NodeUse]
    registrar: Registrar
    clock: Clock
    interval_seconds: int
    last: NvmlReading = field(init=False)

    def __post_init__(self) -> None:
        self.last = NvmlReading(at=self.clock.monotonic())

    def sample(self) -> NvmlReading:
        """A new reading, remembered."""
        try:
            found = self.read()
        except AgentError as error:
            self.last = NvmlReading(self.clock.monotonic(), problem=str(error))
            return self.last
        unreadable = tuple(sorted(found.unreadable))
        self.last = NvmlReading(
            self.clock.monotonic(),
            found.uses,
            unreadable,
            "; ".join(found.unreadable[gpu] for gpu in unreadable) or None,
            Survey(devices=tuple(use.device for use in found.uses), unreadable=unreadable),
            found.caps,
        )
        return self.last

    def keep_sampling(self, log: Log) -> NoReturn:
        """Does not return; in a thread of its own because NVML may hang."""

        def step() -> None:
            if problem := self.sample().problem:
                raise AgentError(problem)

        problem = ProblemLog(log=log, failing="not all is read", recovered="NVML answers again")
        keep_running(step, problem, lambda: self.clock.sleep(self.interval_seconds))

    def metrics(self) -> tuple[int, str]:
        """The status and the body of GET /metrics."""
        reading = self.last
        if reading.problem and not reading.uses:
            return http.client.SERVICE_UNAVAILABLE, f"{reading.problem}\n"
        if self.age_seconds > self._limit_seconds:
            return self.health()
        served = exporter_metrics.samples(
            reading.uses,
            reading.unreadable,
            self.registrar.last,
            self.clock.now(),
            age_seconds=self.age_seconds,
            api_age_seconds=self.registrar.age_seconds,
            caps=reading.caps,
        )
        return http.client.OK, exposition.render(served, exporter_metrics.HELP)

    def health(self) -> tuple[int, str]:
        """The status and the body of GET /healthz: an NVML that fails is reported, one that hangs needs a restart."""
        age_seconds = self.age_seconds
        if age_seconds <= self._limit_seconds:
            return http.client.OK, "ok\n"
        stale = f"the last NVML reading is {age_seconds:.0f} s old, the limit is {self._limit_seconds} s\n"
        return http.client.SERVICE_UNAVAILABLE, stale

    @property
    def age_seconds(self) -> float:
        """Seconds since the last reading, good or bad."""
        return self.clock.monotonic() - self.last.at

    @property
    def _limit_seconds(self) -> int:
        return STALE_INTERVALS * self.interval_seconds
