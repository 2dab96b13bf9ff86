"""The audit: what the extender believes, against a fresh list of the API and what is measured."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass
from functools import partial
from typing import NoReturn

from agents.extender.cache.cache import Cache
from agents.extender.cache.pod_info import PodInfo
from agents.extender.cache.snapshot import Drift
from agents.runtime.clock import Clock
from agents.runtime.log import Log
from agents.runtime.loop import ProblemLog, keep_running

INTERVAL_SECONDS = 120.0
# A relist puts these right.
_CURED_BY_LISTS = ("missing", "stale", "moved")


@dataclass(kw_only=True)
class Comparer:
    """One thread runs `keep`, all read. `bound` lists the pods, and raises AgentError; `renew` relists everything;
    `lost` reports a pod whose device is gone."""

    bound: Callable[[], Iterable[PodInfo]]
    renew: Callable[[], None]
    lost: Callable[[PodInfo], None]
    cache: Cache
    clock: Clock
    log: Log
    last: Drift | None = None

    def pass_once(self) -> None:
        """Compares, remembers, and tells of what two comparisons in a row found. Raises AgentError."""
        since = self.clock.monotonic()
        pods = {pod.uid: pod for pod in self.bound()}
        found = self.cache.compare(pods.values(), since)
        lasting = {kind: each for kind, each in _kinds(found).items() if each and each == self._before(kind)}
        if lasting:
            self.log.error("the ledger of placement drifts", **lasting)
        if lasting.keys() & set(_CURED_BY_LISTS):
            self.renew()
        if "adrift" in lasting:
            for uid in found.adrift:
                if uid in pods:
                    self.lost(pods[uid])
        self.last = found

    def keep(self) -> NoReturn:
        """Does not return; the first audit is after an interval."""
        pause = partial(self.clock.sleep, INTERVAL_SECONDS)
        pause()
        keep_running(self.pass_once, ProblemLog(log=self.log, failing="no audit", recovered="audits again"), pause)

    def _before(self, kind: str) -> object:
        return _kinds(self.last).get(kind) if self.last else None

    def counts(self) -> Mapping[str, int]:
        """How much the last audit found, by kind."""
        return {kind: len(each) for kind, each in _kinds(self.last).items()} if self.last else {}


def _kinds(drift: Drift) -> dict[str, tuple[object, ...]]:
    return asdict(drift)
