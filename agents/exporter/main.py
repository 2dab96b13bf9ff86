"""exporter: serves the use of GPU memory by device and by container to Prometheus and the other agents.

GET /metrics returns 200 only if the exporter has a fresh NVML reading of at least one device. Without a fresh reading,
the status is 503, because an empty response would suggest idle devices. With PUBLISH_DEVICES, the exporter also writes
the node's ResourceSlice, a list of the node's devices.
"""

# The bindings of NVML are imported first. Python needs 12 MiB of host memory to compile the bindings, and reuses this
# memory for the modules below.
from agents.exporter.nvml import Nvml  # isort: split

import ctypes
import http.client
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from agents.exporter import metrics as exporter_metrics
from agents.exporter.attribution import NodeUse, attribute
from agents.exporter.caps import CapReader
from agents.exporter.publish import publish
from agents.exporter.registry import RegistryInformer
from agents.kube.client import Api, in_cluster
from agents.node import cgroup
from agents.runtime import exposition
from agents.runtime.clock import Clock
from agents.runtime.errors import AgentError, StoppedError
from agents.runtime.http_server import MetricsServer
from agents.runtime.log import Log
from agents.runtime.loop import ProblemLog, keep_running
from agents.runtime.settings import PORT, SECONDS, flag, read, text, variable
from agents.telemetry.device import Survey
from tenancy.names import CGROUPS

# A reading is stale if it is older than this number of intervals. A stale reading means that NVML hangs, or that the
# driver is being removed.
STALE_INTERVALS = 3


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Every INTERVAL_SECONDS, the exporter reads NVML and compares the devices with the ResourceSlice."""

    port: int = variable(PORT)
    interval_seconds: int = variable(SECONDS)
    node_name: str = variable(text)
    ledger_namespace: str = variable(text)
    publish_devices: bool = variable(flag)


def start(environ: Mapping[str, str], log: Log) -> int:
    """Serves until SIGTERM, then returns the exit status 0. Raises AgentError."""
    settings = read(Settings, environ)
    ctypes.CDLL(None).malloc_trim(0)  # returns the host memory for compiling to the node
    clock = Clock()
    registry = RegistryInformer(
        api=Api(in_cluster(environ), clock=clock),
        node=settings.node_name,
        ledger_namespace=settings.ledger_namespace,
        clock=clock,
        log=log,
        slices=settings.publish_devices,
    )
    nvml, container_of = Nvml(), cgroup.container_of
    caps = CapReader(limit_of=nvml.limit, groups=cgroup.CgroupDirectories(Path(CGROUPS)))
    reader = DeviceReader(
        read=lambda: caps.of(attribute(nvml.read(), container_of), registry.last),
        registry=registry,
        clock=clock,
        interval_seconds=settings.interval_seconds,
    )
    slices = Api(in_cluster(environ), clock=clock)

    def publish_devices() -> None:
        if done := publish(slices, settings.node_name, reader.survey, registry.last):
            log.info(f"ResourceSlice {done}")

    def keep(step: Callable[[], object], failing: str, recovered: str) -> Callable[[], object]:
        problem = ProblemLog(log=log, failing=failing, recovered=recovered)
        return partial(keep_running, step, problem, partial(clock.sleep, settings.interval_seconds))

    # Each loop has its own thread, so that a hang of NVML stops only one loop.
    loops = [registry.informer.run, keep(reader.step, "some devices cannot be read", "NVML answers again")]
    if settings.publish_devices:
        failing, recovered = "the node's ResourceSlice stays as it is", "the node's ResourceSlice can be written again"
        loops.append(keep(publish_devices, failing, recovered))
    for loop in loops:
        threading.Thread(target=loop, daemon=True).start()
    with MetricsServer(settings.port, reader) as server:
        log.info("serves", port=settings.port, interval_seconds=settings.interval_seconds)
        try:
            server.serve_forever()
        except StoppedError:
            log.info("stopped by SIGTERM")
    return 0


@dataclass(frozen=True)
class NvmlReading:
    """One reading of all devices of the node. `at` is the time of the reading in monotonic seconds.

    If NVML could not read some device, `problem` is the reason.
    """

    at: float
    node: NodeUse = field(default_factory=NodeUse)
    problem: str | None = "no reading yet"


@dataclass(kw_only=True)
class DeviceReader:
    """Reads the devices, and serves the last reading. Only one thread may call `step`, and any thread may call the
    other methods.
    """

    read: Callable[[], NodeUse]
    registry: RegistryInformer
    clock: Clock
    interval_seconds: int
    last: NvmlReading = field(init=False)

    def __post_init__(self) -> None:
        self.last = NvmlReading(self.clock.monotonic())

    def sample(self) -> NvmlReading:
        """Reads the devices, and replaces the last reading by the result."""
        try:
            found = self.read()
        except AgentError as error:
            self.last = NvmlReading(self.clock.monotonic(), problem=str(error))
        else:
            problem = "; ".join(reason for _, reason in sorted(found.unreadable.items())) or None
            self.last = NvmlReading(self.clock.monotonic(), found, problem)
        return self.last

    def step(self) -> None:
        """Takes a sample. Raises AgentError if NVML could not read every device."""
        if problem := self.sample().problem:
            raise AgentError(problem)

    @property
    def survey(self) -> Survey | None:
        """Returns the devices of the last reading, or None if NVML failed for the whole node."""
        found = self.last.node
        return found.survey if found.uses or found.unreadable else None

    def metrics(self) -> tuple[int, str]:
        reading = self.last
        if reading.problem and not reading.node.uses:
            return http.client.SERVICE_UNAVAILABLE, f"{reading.problem}\n"
        if self.age_seconds > self._limit_seconds:
            return self.health()
        served = exporter_metrics.samples(
            reading.node,
            self.registry.last,
            self.clock.now(),
            self.registry.problems,
            age_seconds=self.age_seconds,
            api_age_seconds=self.registry.informer.age_seconds,
        )
        return http.client.OK, exposition.render(served, exporter_metrics.METRICS)

    def health(self) -> tuple[int, str]:
        """Returns the status and the body of GET /healthz.

        If NVML hangs, the status is 503, so that the kubelet restarts the exporter.
        """
        age_seconds = self.age_seconds
        if age_seconds <= self._limit_seconds:
            return http.client.OK, "ok\n"
        stale = f"the last NVML reading is {age_seconds:.0f} s old, the limit is {self._limit_seconds} s\n"
        return http.client.SERVICE_UNAVAILABLE, stale

    @property
    def age_seconds(self) -> float:
        """Returns the seconds since the last reading. A failed reading also counts."""
        return self.clock.monotonic() - self.last.at

    @property
    def _limit_seconds(self) -> int:
        return STALE_INTERVALS * self.interval_seconds
