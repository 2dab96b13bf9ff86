"""The input of a pass of the watchdog, and what follows from it about a pod or a tenant."""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import cached_property

from agents.telemetry.client import NodeTelemetry
from agents.watchdog.pods import GpuPod
from agents.watchdog.types import HOUR, Limits, PassState, Recycled, RecycleTarget
from tenancy.devices.waiting import WaitingSeat

# For 30 s after its recycle, a pod counts as terminating, even if the API does not show its deletion yet. A second run
# may have evicted the pod a moment ago.
SETTLE_SECONDS = 30
# An evicted pod terminates at once. If the pod is not terminating after 60 s, the API server did not receive the
# eviction.
VAIN_SECONDS = 60
# A pod counts as terminating until 60 s after its grace period. If the pod still exists after this time, its node has
# failed or its process hangs.
LATE_SECONDS = 60


@dataclass(frozen=True, kw_only=True)
class Snapshot:
    """The input of one pass of the watchdog.

    `at` is the time of the pass in monotonic seconds, `now` the API server's time of day, and `local_now` this node's.
    `pods` has the pods of nodes with a device below its floor, and of nodes on which a waiting seat could be placed.
    `refused` maps each workload whose recycle was refused in this run to the reason. `on_record` has the namespaces of
    unbudgeted workloads. `chosen` has the recycles on which this pass has already decided.
    """

    at: float
    now: datetime
    local_now: datetime
    readings: Sequence[NodeTelemetry]
    pods: Sequence[GpuPod]
    recycled: Sequence[Recycled]
    limits: Limits
    state: PassState
    refused: Mapping[str, str] = field(default_factory=dict)
    seats: Sequence[WaitingSeat] = ()
    on_record: frozenset[str] = frozenset()
    chosen: tuple[Recycled, ...] = ()

    def with_chosen(self, targets: Iterable[RecycleTarget]) -> "Snapshot":
        return replace(self, chosen=(*self.chosen, *(target.recycled(self.now) for target in targets)))

    @cached_property
    def pods_by_uid(self) -> Mapping[str, GpuPod]:
        return {pod.uid: pod for pod in self.pods}

    @cached_property
    def readings_by_node(self) -> Mapping[str, NodeTelemetry]:
        return {reading.node: reading for reading in self.readings}

    def is_new(self, node: str) -> bool:
        """Returns True if the exporter has read the node's devices again since the last pass."""
        return self.readings_by_node[node].is_new(self.state.readings.get(node))

    def has_ended(self, uid: str) -> bool:
        pod = self.pods_by_uid.get(uid)
        return pod is None or pod.ended

    def ended_since(self, uid: str) -> float:
        return self.state.ended_since.get(uid, self.at)

    @cached_property
    def counted(self) -> Collection[Recycled]:
        """Returns the recycles that have ended their pods.

        If a recycle was repeated, the result has the recycle once, with the time of the last attempt.
        """
        done = sorted((each for each in self.recycled if not self._was_in_vain(each)), key=lambda each: each.at)
        return {(each.workload, each.pods): each for each in done}.values()

    @property
    def recycles_by_tenant(self) -> Counter[str]:
        """Returns the number of recycles of each tenant within the last hour, including those of this pass."""
        hour = (each for each in self.counted if self.now - each.at < HOUR)
        return Counter(each.tenant for each in (*hour, *self.chosen))

    def is_going(self, pod: GpuPod) -> bool:
        """Returns True if the pod will end soon.

        If the pod has a longer grace period than a recycle gives, the grace period of the recycle applies.
        """
        if any(pod.uid in each.pods or (pod.queued_as and pod.workload == each.workload) for each in self._settling):
            return True
        if pod.gone_by is None:
            return False
        began = pod.gone_by - timedelta(seconds=pod.going_seconds)
        due = min(pod.gone_by, began + timedelta(seconds=self.limits.grace_seconds))
        return self.now < due + timedelta(seconds=LATE_SECONDS)

    def frees_soon(self, uid: str) -> bool:
        """Returns True if the memory of the pod with this UID will be free soon, because the pod is terminating or has
        just ended.
        """
        if self.has_ended(uid):
            return self.at - self.ended_since(uid) <= SETTLE_SECONDS
        return self.is_going(self.pods_by_uid[uid])

    @cached_property
    def _settling(self) -> tuple[Recycled, ...]:
        recent = (each for each in self.recycled if self.now - each.at < timedelta(seconds=SETTLE_SECONDS))
        return (*recent, *self.chosen)

    def _was_in_vain(self, entry: Recycled) -> bool:
        if self.now - entry.at < timedelta(seconds=VAIN_SECONDS):
            return False
        left = [self.pods_by_uid[uid] for uid in entry.pods if uid in self.pods_by_uid]
        return any(pod.gone_by is None for pod in left)
