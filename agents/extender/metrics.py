"""The extender's metrics, in bytes and seconds."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from agents.extender.cache.cache import Cache
from agents.extender.handlers import COUNTED, Readiness, VerbHandler
from agents.runtime.exposition import Family, Metric, Sample, gauges
from tenancy.names import (
    METRIC_EXTENDER_ALLOCATED,
    METRIC_EXTENDER_DRIFT,
    METRIC_EXTENDER_HELD_SEATS,
    METRIC_EXTENDER_LEADING,
    METRIC_EXTENDER_MEASURED_AGE,
    METRIC_EXTENDER_OFFERED,
    METRIC_EXTENDER_READY,
    METRIC_EXTENDER_RESERVATIONS,
    METRIC_EXTENDER_UNSETTLED,
    METRIC_EXTENDER_WAITING,
)
from tenancy.units import MIB

METRICS: Mapping[str, Metric] = {
    **COUNTED,
    METRIC_EXTENDER_LEADING: Metric(text="1 if this pod's scheduler is the leader."),
    METRIC_EXTENDER_READY: Metric(text="1 if nodes, devices, pods and the ledger are known."),
    METRIC_EXTENDER_OFFERED: Metric(
        text="Memory that the device may hand out; 0 for one that is unhealthy or excluded.",
        labels=("node", "gpu", "uuid"),
    ),
    METRIC_EXTENDER_ALLOCATED: Metric(
        text="Memory of the device that pods hold: bound, being bound or reserved.", labels=("node", "gpu", "uuid")
    ),
    METRIC_EXTENDER_RESERVATIONS: Metric(text="Pods between filter and bind."),
    METRIC_EXTENDER_UNSETTLED: Metric(text="Binds that got no answer from the API."),
    METRIC_EXTENDER_WAITING: Metric(text="Pods that fit no device."),
    METRIC_EXTENDER_HELD_SEATS: Metric(
        text="Seats that the ledger has room for, held back while memory in use is given back.", labels=("pool",)
    ),
    METRIC_EXTENDER_DRIFT: Metric(text="Differences that the last comparison found, by kind.", labels=("kind",)),
    METRIC_EXTENDER_MEASURED_AGE: Metric(text="Age of the last measurement of the node's devices.", labels=("node",)),
}


@dataclass(frozen=True, kw_only=True)
class ExtenderMetrics:
    """Collects the values of all metrics for a scrape."""

    readiness: Readiness
    verbs: VerbHandler
    cache: Cache
    drift: Callable[[], Mapping[str, int]]
    ages: Callable[[], Mapping[str, float]]
    unsettled: Callable[[], int]
    waiting: Callable[[], int]
    held: Callable[[], Mapping[str, int]]

    def families(self) -> tuple[Family, ...]:
        verbs = self.verbs
        return (
            *gauges(self._samples(), METRICS),
            *(each.family() for each in (verbs.seconds, verbs.refusals, verbs.overcrowded)),
        )

    def _samples(self) -> Iterator[Sample]:
        yield Sample(name=METRIC_EXTENDER_LEADING, value=int(self.readiness.leadership.since is not None))
        yield Sample(name=METRIC_EXTENDER_READY, value=int(self.readiness.problem() is None))
        yield Sample(name=METRIC_EXTENDER_UNSETTLED, value=self.unsettled())
        yield Sample(name=METRIC_EXTENDER_WAITING, value=self.waiting())
        for pool, number in self.held().items():
            self.verbs.overcrowded.add(pool, 0)  # creates the series at 0, so that its first increase is visible
            yield Sample(name=METRIC_EXTENDER_HELD_SEATS, labels={"pool": pool}, value=number)
        for kind, number in self.drift().items():
            yield Sample(name=METRIC_EXTENDER_DRIFT, labels={"kind": kind}, value=number)
        for node, seconds in self.ages().items():
            yield Sample(name=METRIC_EXTENDER_MEASURED_AGE, labels={"node": node}, value=round(seconds, 3))
        usage = self.cache.snapshot()
        held = [pod for node in usage for device in node.devices for pod in device.pods]
        waiting = {pod.uid for pod in held if not pod.is_bound}
        yield Sample(name=METRIC_EXTENDER_RESERVATIONS, value=len(waiting))
        for node_usage in usage:
            for device in node_usage.devices:
                labels = {"node": node_usage.node, "gpu": str(device.index), "uuid": device.uuid}
                offered_mib = device.mib if device.healthy and not device.excluded else 0
                yield Sample(name=METRIC_EXTENDER_OFFERED, labels=labels, value=offered_mib * MIB)
                yield Sample(name=METRIC_EXTENDER_ALLOCATED, labels=labels, value=device.held_mib * MIB)
