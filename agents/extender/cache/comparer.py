"""The audit: what the extender believes, against a fresh list of the API and what is measured."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass

from agents.allocated import Allocated
from agents.allocations import Allocations
from agents.clock import Clock
from agents.errors import AgentError
from agents.log import Log
from agents.usage import Drift

INTERVAL_SECONDS = 120.0
# The API knows better: lists made anew put these right.
_CURED_BY_LISTS = ("missing", "stale", "moved")


@dataclass(kw_only=True)
class Audit:
    """One thread runs `keep`, all read. `bound` lists the pods, and raises AgentError; `renew` has all listed anew."""

    bound: Callable[[], Iterable[Allocated]]
    renew: Callable[[], None]
    allocations: Allocations
    clock: Clock
    log: Log
    last: Drift | None = None

    def pass_once(self) -> None:
        """Compares, remembers, and tells of what two comparisons in a row found. Raises AgentError."""
        since = self.clock.monotonic()
        found = self.allocations.audit(self.bound(), since)
        lasting = {kind: each for kind, each in _kinds(found).items() if each and each == self._before(kind)}
        if lasting:
            self.log.error("the ledger of placement drifts", **lasting)
        if lasting.keys() & set(_CURED_BY_LISTS):
            self.renew()
        self.last = found

    def keep(self) -> None:
        """For ever."""
        while True:
            self.clock.sleep(INTERVAL_SECONDS)
            try:
                self.pass_once()
            except AgentError as error:
                self.log.warning(f"no audit: {error}")

    def _before(self, kind: str) -> object:
        return _kinds(self.last).get(kind) if self.last else None

    def counts(self) -> Mapping[str, int]:
        """How much the last audit found, by kind."""
        return {kind: len(each) for kind, each in _kinds(self.last).items()} if self.last else {}


def _kinds(drift: Drift) -> dict[str, tuple[object, ...]]:
    return asdict(drift)
