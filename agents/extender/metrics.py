"""The extender's metrics, in bytes and seconds."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from agents.extender.cache.cache import Cache
from agents.extender.handlers import COUNTED, Readiness, VerbHandler
from agents.extender.waiting import WaitingPods
from agents.runtime import items
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
    METRIC_EXTENDER_UNPLACED_SEATS,
    METRIC_EXTENDER_WAITING,
)
from tenancy.units import MIB

METRICS: Mapping[str, Metric] = {
    **COUNTED,
    **items.METRICS,
    METRIC_EXTENDER_LEADING: Metric(text="1 if this pod's scheduler is the leader."),
    METRIC_EXTENDER_READY: Metric(text="1 if the extender knows the nodes, the devices, the pods and the ledger."),
    METRIC_EXTENDER_OFFERED: Metric(
        text="Memory that the device may hand out; 0 for an unhealthy or excluded device.",
        labels=("node", "gpu", "uuid"),
    ),
    METRIC_EXTENDER_ALLOCATED: Metric(
        text="Memory that pods hold on the device, from the reservation until the end of the pod.",
        labels=("node", "gpu", "uuid"),
    ),
    METRIC_EXTENDER_RESERVATIONS: Metric(text="Pods between filter and bind."),
    METRIC_EXTENDER_WAITING: Metric(text="Pods that fit no device."),
    METRIC_EXTENDER_HELD_SEATS: Metric(
        text="Pods with a seat that fit by the ledger, but wait for memory that other pods use.", labels=("pool",)
    ),
    METRIC_EXTENDER_UNPLACED_SEATS: Metric(
        text="Seats of this size without a pod and without room on any device.", labels=("pool", "seat")
    ),
    METRIC_EXTENDER_DRIFT: Metric(
        text="Differences that the last comparison of the cache with the cluster found, by kind.", labels=("kind",)
    ),
    METRIC_EXTENDER_MEASURED_AGE: Metric(text="Age of the last measurement of the node's devices.", labels=("node",)),
}


@dataclass(frozen=True, kw_only=True)
class ExtenderMetrics:
    """Collects the values of all metrics for one scrape."""

    readiness: Readiness
    verbs: VerbHandler
    cache: Cache
    drift: Callable[[], Mapping[str, int]]
    ages: Callable[[], Mapping[str, float]]
    waiting: WaitingPods

    def families(self) -> tuple[Family, ...]:
        verbs = self.verbs
        return (
            *gauges(self._samples(), METRICS),
            *(each.family() for each in (verbs.seconds, verbs.refusals, verbs.overcrowded)),
        )

    def _samples(self) -> Iterator[Sample]:
        yield Sample(name=METRIC_EXTENDER_LEADING, value=int(self.readiness.led_since() is not None))
        yield Sample(name=METRIC_EXTENDER_READY, value=int(self.readiness.problem() is None))
        yield from items.samples(self.readiness.informers.problems)
        yield Sample(name=METRIC_EXTENDER_WAITING, value=len(self.waiting))
        for pool, number in self.waiting.held_by_pool().items():
            # Creates each series with the value 0, so that Prometheus sees the first increase.
            self.verbs.overcrowded.add(pool, 0)
            yield Sample(name=METRIC_EXTENDER_HELD_SEATS, labels={"pool": pool}, value=number)
        for pool, seats, number in self.cache.unplaced_seats():
            for seat in seats:
                labels = {"pool": pool, "seat": seat.name}
                yield Sample(name=METRIC_EXTENDER_UNPLACED_SEATS, labels=labels, value=number)
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
                yield Sample(name=METRIC_EXTENDER_OFFERED, labels=labels, value=device.offered_mib * MIB)
                yield Sample(name=METRIC_EXTENDER_ALLOCATED, labels=labels, value=device.held_mib * MIB)
