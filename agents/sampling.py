"""What watchdog and gate share: a run samples the devices' telemetry again and again, and decides on each sample."""

from collections.abc import Callable
from dataclasses import asdict, dataclass

from agents import ledger, telemetry
from agents.api import Api, ApiError
from agents.clock import Clock
from agents.environment import PORT, RUN_SECONDS, SECONDS, report_only, text, variable
from agents.log import Log
from agents.nodes import read_nodes
from agents.telemetry import NodeTelemetry


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Where the ledger and the exporters are, and how long a run lasts."""

    ledger_namespace: str = variable(text)
    exporter_namespace: str = variable(text)
    exporter_port: int = variable(PORT)
    dry_run: bool = variable(report_only)
    interval_seconds: int = variable(SECONDS)
    run_seconds: int = variable(RUN_SECONDS)


def sample(settings: Settings, api: Api, log: Log) -> tuple[NodeTelemetry, ...] | None:
    """What the exporters measure on the ledger's pools; None where there is no ledger. Raises AgentError."""
    stored = ledger.read(api, settings.ledger_namespace)
    if stored is None or stored.deleting:
        log.info("nothing to do: there is no ledger")
        return None
    return telemetry.read(
        api,
        stored.ledger().pools,
        read_nodes(api),
        namespace=settings.exporter_namespace,
        port=settings.exporter_port,
    )


def run(settings: Settings, clock: Clock, log: Log, decide: Callable[[], None]) -> int:
    """Calls `decide` for each sample. 0 if the last got its answers from the API, else 1. Raises AgentError."""
    log.info("starts", **asdict(settings))
    status = 0
    for _ in clock.passes(run_seconds=settings.run_seconds, interval_seconds=settings.interval_seconds):
        try:
            decide()
            status = 0
        except ApiError as error:
            if not error.transient:
                raise
            log.error(str(error))
            status = 1
    return status
