"""Runs the passes of the watchdog and of the gate. Each pass reads a sample and decides."""

from collections.abc import Callable
from dataclasses import asdict, dataclass

from agents.kube import ledger
from agents.kube.client import Api
from agents.runtime.clock import Clock, seconds_left
from agents.runtime.errors import AgentError
from agents.runtime.log import Log
from agents.runtime.settings import PORT, RUN_SECONDS, SECONDS, flag, text, variable
from tenancy.ledger import Ledger

# The longest wait before an additional pass at the end of a run. The deadline of the Job does not allow a longer wait.
_ONCE_MORE_SECONDS = 5


@dataclass(frozen=True, kw_only=True)
class Settings:
    """The settings of a run, such as the ledger's namespace and the seconds between two passes."""

    pod_name: str = variable(text)
    ledger_namespace: str = variable(text)
    exporter_namespace: str = variable(text)
    exporter_port: int = variable(PORT)
    dry_run: bool = variable(flag)
    interval_seconds: int = variable(SECONDS)
    run_seconds: int = variable(RUN_SECONDS)


class IncompletePassError(AgentError):
    """A pass could not do all its work. If an incomplete pass is the last pass, the run fails."""

    @property
    def transient(self) -> bool:
        return True


def read_ledger(settings: Settings, api: Api, log: Log) -> Ledger | None:
    """Reads the ledger. Returns None if the ledger is missing or is being deleted. Raises AgentError."""
    stored = ledger.read(api, settings.ledger_namespace)
    if stored is None or stored.deleting:
        log.info("nothing to do: there is no ledger")
        return None
    return stored.ledger()


def run(
    settings: Settings,
    clock: Clock,
    log: Log,
    decide: Callable[[], None],
    unsettled: Callable[[], bool] = lambda: False,
) -> int:
    """Calls `decide` in each pass, and once more at the end if `unsettled` returns True. Raises AgentError.

    Returns 1 if the last pass failed, and else 0.
    """
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
