"""Runs endless loops. Logs when a problem begins, changes or ends."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NoReturn

from agents.runtime.errors import AgentError
from agents.runtime.log import Log


@dataclass(kw_only=True)
class ProblemLog:
    """Logs `failing` and the problem when it begins or changes. Logs `recovered` when the problem ends."""

    log: Log
    failing: str
    recovered: str
    now: str | None = None

    def report(self, problem: str | None) -> None:
        if problem and problem != self.now:
            self.log.error(f"{self.failing}: {problem}")
        if self.now and not problem:
            self.log.info(self.recovered)
        self.now = problem


def keep_running(
    step: Callable[[], object], problem: ProblemLog, pause: Callable[[], object] = lambda: None
) -> NoReturn:
    """Repeats `step` and `pause`, and logs each AgentError of `step`. Any other error ends the loop."""
    while True:
        try:
            step()
        except AgentError as error:
            problem.report(str(error))
        else:
            problem.report(None)
        pause()
