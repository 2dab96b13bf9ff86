"""What watchdog and gate share: a run samples the devices' telemetry again and again, and decides on each sample."""

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass

from agents import ledger, telemetry
from agents.api import Api
from agents.clock import Clock
from agents.environment import PORT, RUN_SECONDS, SECONDS, flag, text, variable
from agents.errors import AgentError
from agents.log import Log
from agents.nodes import read_nodes
from agents.telemetry import NodeTelemetry
from tenancy.ledger import Ledger


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Where the ledger and the exporters are, and how long a run lasts."""

    ledger_namespace: str = variable(text)
    exporter_namespace: str = variable(text)
    exporter_port: int = variable(PORT)
    dry_run: bool = variable(flag)
    interval_seconds: int = variable(SECONDS)
    run_seconds: int = variable(RUN_SECONDS)


class UnsoundError(AgentError):
    """A pass did what it could, and that was not all: a run that ends with it is no success."""

    @property
    def transient(self) -> bool:
        return True


def sample(settings: Settings, api: Api, log: Log) -> tuple[NodeTelemetry, ...] | None:
    """What the exporters measure on the ledger's pools; None where there is no ledger. Raises AgentError."""
    found = read_ledger(settings, api, log)
    return None if found is None else read_telemetry(settings, api, found)


def read_ledger(settings: Settings, api: Api, log: Log) -> Ledger | None:
    """The ledger; None where there is none, or none much longer. Raises AgentError."""
    stored = ledger.read(api, settings.ledger_namespace)
    if stored is None or stored.deleting:
        log.info("nothing to do: there is no ledger")
        return None
    return stored.ledger()


def read_telemetry(
    settings: Settings, api: Api, found: Ledger, monotonic: Callable[[], float] = time.monotonic
) -> tuple[NodeTelemetry, ...]:
    """What the exporters measure on the ledger's pools. Raises AgentError."""
    return telemetry.read(
        api,
        found.pools,
        read_nodes(api),
        namespace=settings.exporter_namespace,
        port=settings.exporter_port,
        monotonic=monotonic,
    )


def run(
    settings: Settings,
    clock: Clock,
    log: Log,
    decide: Callable[[], None],
    unsettled: Callable[[], bool] = lambda: False,
) -> int:
    """Calls `decide` for each sample, and once more at the end while `unsettled`, so that what began late is not left
    to the next run. 0 if the last pass was sound, else 1. Raises AgentError."""
    log.info("starts", **asdict(settings))
    status = 0
    for _ in clock.passes(run_seconds=settings.run_seconds, interval_seconds=settings.interval_seconds):
        status = _pass(decide, log)
    if settings.run_seconds and unsettled():
        clock.sleep(settings.interval_seconds)
        status = _pass(decide, log)
    return status


def _pass(decide: Callable[[], None], log: Log) -> int:
    try:
        decide()
    except AgentError as error:
        if not error.transient:
            raise
        log.error(str(error))
        return 1
    return 0
