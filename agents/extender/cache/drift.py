"""Compares the bound pods in the cache with the devices and the exporters' readings."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import NoReturn

from agents.extender.cache.cache import Cache
from agents.extender.cache.node_info import NodeInfo
from agents.extender.cache.pod_info import PodInfo
from agents.runtime.clock import Clock
from agents.runtime.log import Log

INTERVAL_SECONDS = 120.0


@dataclass(frozen=True)
class DeviceDrift:
    node: str
    index: int
    mib: int

    def __str__(self) -> str:
        return f"{self.node}, gpu {self.index}: {self.mib} MiB"


@dataclass(frozen=True, kw_only=True)
class Drift:
    """The differences between the bound pods in the cache and the devices."""

    # The pods without a device in their annotations.
    unplaced: tuple[PodInfo, ...] = ()
    # The pods with a device that the node no longer has.
    adrift: tuple[PodInfo, ...] = ()
    # The devices on which pods hold more memory than the device offers.
    over: tuple[DeviceDrift, ...] = ()
    # The devices with more memory in use than the sum of the reserve and the pods' requests.
    outside: tuple[DeviceDrift, ...] = ()


def drift_of(nodes: Iterable[NodeInfo]) -> Drift:
    unplaced, adrift, over, outside = [], [], [], []
    for node in nodes:
        bound = [pod for _, pod in sorted(node.pods.items()) if pod.is_bound]
        unplaced += [pod for pod in bound if not pod.is_placed]
        adrift += [pod for pod in bound if node.offered and not node.places[pod.uid]]
        for device in node.devices:
            left_mib = device.mib - device.held_mib
            if left_mib < 0:
                over.append(DeviceDrift(node.node, device.index, -left_mib))
            if device.measured_free_mib is not None and left_mib > device.measured_free_mib:
                outside.append(DeviceDrift(node.node, device.index, left_mib - device.measured_free_mib))
    return Drift(unplaced=tuple(unplaced), adrift=tuple(adrift), over=tuple(over), outside=tuple(outside))


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
        self.cache.learn()
        found, before = drift_of(self.cache.snapshot()), vars(self.last)
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
