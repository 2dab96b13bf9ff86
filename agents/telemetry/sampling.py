"""The run that watchdog and gate share: sample the devices' telemetry periodically, decide on each sample."""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass

from agents.kube import ledger
from agents.kube.client import Api
from agents.kube.nodes import Node
from agents.runtime.clock import Clock, seconds_left
from agents.runtime.errors import AgentError
from agents.runtime.log import Log
from agents.runtime.settings import PORT, RUN_SECONDS, SECONDS, flag, text, variable
from agents.telemetry import client
from agents.telemetry.client import NodeTelemetry
from tenancy.ledger import Ledger

# Before the one more pass of a run that would leave something unsettled: what the Job's deadline leaves after a run.
_ONCE_MORE_SECONDS = 5


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Where the ledger and the exporters are, and how long a run lasts."""

    pod_name: str = variable(text)
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


def read_ledger(settings: Settings, api: Api, log: Log) -> Ledger | None:
    """The ledger; None where there is none, or none much longer. Raises AgentError."""
    stored = ledger.read(api, settings.ledger_namespace)
    if stored is None or stored.deleting:
        log.info("nothing to do: there is no ledger")
        return None
    return stored.ledger()


def read_telemetry(
    settings: Settings, api: Api, clock: Clock, promised: Ledger, nodes: Sequence[Node]
) -> tuple[NodeTelemetry, ...]:
    """What the exporters measure on these nodes of the ledger's pools. Raises AgentError."""
    return client.read(
        api,
        promised,
        nodes,
        namespace=settings.exporter_namespace,
        port=settings.exporter_port,
        monotonic=clock.monotonic,
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
    run_seconds = seconds_left(settings.run_seconds, settings.pod_name, clock.now())
    for _ in clock.passes(run_seconds=run_seconds, interval_seconds=settings.interval_seconds):
        status = _pass(decide, log)
    if settings.run_seconds and unsettled():
        clock.sleep(min(settings.interval_seconds, _ONCE_MORE_SECONDS))
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
