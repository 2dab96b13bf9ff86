"""watchdog: tells which device has less free memory than its floor (seed 000).

It reports and does not act: without telemetry by pod it knows no offender, and it names none.
"""

from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass

from agents import sampling
from agents.api import Api, in_cluster
from agents.clock import Clock
from agents.environment import SECONDS, read, variable, whole
from agents.log import Log
from agents.telemetry import MIB, NodeTelemetry


@dataclass(frozen=True, kw_only=True)
class Settings(sampling.Settings):
    """Ages and limits bind the evictions; they are validated and logged while there are none."""

    minimum_age_seconds: int = variable(SECONDS)
    cool_down_seconds: int = variable(SECONDS)
    evictions_per_hour: int = variable(whole(1, 100_000))


@dataclass(frozen=True, kw_only=True)
class DeviceVerdict:
    """One device against its floor."""

    node: str
    gpu: int
    uuid: str
    free_mib: int
    floor_mib: int

    @property
    def pressed(self) -> bool:
        return self.free_mib < self.floor_mib


@dataclass(frozen=True, kw_only=True)
class Blind:
    """A node of which nothing is known; nothing is done there."""

    node: str
    problem: str


Verdict = DeviceVerdict | Blind


def decide(readings: Sequence[NodeTelemetry]) -> tuple[Verdict, ...]:
    """A verdict for each device, or for its node where there is no telemetry."""
    verdicts: list[Verdict] = []
    for reading in readings:
        if reading.problem is not None:
            verdicts.append(Blind(node=reading.node, problem=reading.problem))
        verdicts.extend(
            DeviceVerdict(
                node=reading.node,
                gpu=device.gpu,
                uuid=device.uuid,
                free_mib=device.free_bytes // MIB,
                floor_mib=reading.pool.floor_mib,
            )
            for device in reading.devices
        )
    return tuple(verdicts)


def start(environ: Mapping[str, str], log: Log) -> int:
    """The exit status of a run under `environ`. Raises AgentError."""
    settings = read(Settings, environ)
    clock = Clock()
    with closing(Api(in_cluster(environ), clock=clock)) as api:
        return run(settings, api, clock, log)


def run(settings: Settings, api: Api, clock: Clock, log: Log) -> int:
    """0 if the last pass got its answers from the API, else 1. Raises AgentError."""
    return sampling.run(settings, clock, log, lambda: _pass(settings, api, log))


def _pass(settings: Settings, api: Api, log: Log) -> None:
    readings = sampling.sample(settings, api, log)
    if readings is None:
        return
    verdicts = decide(readings)
    for verdict in verdicts:
        _report(verdict, log)
    measured = [verdict for verdict in verdicts if isinstance(verdict, DeviceVerdict)]
    log.info(
        "no action",
        devices=len(measured),
        under_pressure=sum(verdict.pressed for verdict in measured),
        nodes_without_telemetry=len(verdicts) - len(measured),
    )


def _report(verdict: Verdict, log: Log) -> None:
    if isinstance(verdict, Blind):
        log.warning("no action: no telemetry", **asdict(verdict))
    elif verdict.pressed:
        log.warning("under pressure; without telemetry by pod no offender is known", **asdict(verdict))
    else:
        log.info("above the floor", **asdict(verdict))
