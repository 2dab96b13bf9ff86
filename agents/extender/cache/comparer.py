"""Compares the pods in the cache with the devices and the exporters' readings."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import NoReturn

from agents.extender.cache.cache import Cache
from agents.extender.cache.pod_info import PodInfo
from agents.extender.cache.snapshot import Drift
from agents.runtime.clock import Clock
from agents.runtime.log import Log

INTERVAL_SECONDS = 120.0


@dataclass(kw_only=True)
class Comparer:
    """Compares the cache every INTERVAL_SECONDS. One thread runs `keep`. Any thread may read the result.

    `lost` reports a pod with a lost device.
    """

    lost: Callable[[PodInfo], None]
    cache: Cache
    clock: Clock
    log: Log
    last: Drift = field(default_factory=Drift)

    def pass_once(self) -> None:
        """Makes one comparison. Logs each difference that both this comparison and the one before have found."""
        found, before = self.cache.drift(), vars(self.last)
        lasting = {kind: [str(each) for each in now if each in before[kind]] for kind, now in vars(found).items()}
        if any(lasting.values()):
            self.log.error("the cache drifts", **{kind: each for kind, each in lasting.items() if each})
        for pod in found.adrift:
            if pod in self.last.adrift:
                self.lost(pod)
        self.last = found

    def keep(self) -> NoReturn:
        """Compares the cache every INTERVAL_SECONDS until the process ends. The first comparison is INTERVAL_SECONDS
        after the start.
        """
        while True:
            self.clock.sleep(INTERVAL_SECONDS)
            self.pass_once()

    def counts(self) -> Mapping[str, int]:
        """Returns the number of differences of each kind in the last comparison."""
        return {kind: len(each) for kind, each in vars(self.last).items()}
