"""Compares the cache with a new list from the API, and with the exporters' readings."""

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
# The kinds of differences that a relist corrects.
_CURED_BY_LISTS = ("missing", "stale", "moved")


@dataclass(kw_only=True)
class Comparer:
    """Compares the cache every INTERVAL_SECONDS. One thread runs `keep`. Any thread may read the result.

    `bound` lists the bound pods, and may raise AgentError. `renew` relists all objects of the cache. `lost` reports a
    pod with a lost device.
    """

    bound: Callable[[], Iterable[PodInfo]]
    renew: Callable[[], None]
    lost: Callable[[PodInfo], None]
    cache: Cache
    clock: Clock
    log: Log
    last: Drift | None = None

    def pass_once(self) -> None:
        """Makes one comparison. Logs each difference that both this comparison and the one before have found. Raises
        AgentError.
        """
        since = self.clock.monotonic()
        pods = {pod.uid: pod for pod in self.bound()}
        found = self.cache.compare(pods.values(), since)
        before = _kinds(self.last)
        lasting = {kind: each for kind, each in _kinds(found).items() if each and each == before.get(kind)}
        if lasting:
            self.log.error("the cache drifts", **lasting)
        if lasting.keys() & set(_CURED_BY_LISTS):
            self.renew()
        if "adrift" in lasting:
            for uid in found.adrift:
                if uid in pods:
                    self.lost(pods[uid])
        self.last = found

    def keep(self) -> NoReturn:
        """Compares the cache every INTERVAL_SECONDS until the process ends. The first comparison is INTERVAL_SECONDS
        after the start.
        """
        pause = partial(self.clock.sleep, INTERVAL_SECONDS)
        pause()
        keep_running(
            self.pass_once,
            ProblemLog(
                log=self.log, failing="the cache is not compared with the API", recovered="the cache is compared again"
            ),
            pause,
        )

    def counts(self) -> Mapping[str, int]:
        """Returns the number of differences of each kind in the last comparison."""
        return {kind: len(each) for kind, each in _kinds(self.last).items()}


def _kinds(drift: Drift | None) -> dict[str, tuple[object, ...]]:
    return asdict(drift) if drift else {}
