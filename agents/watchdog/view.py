"""Finds the pods that will end soon, and the recycles that matter for the cool-down and the recycle limits."""

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cached_property

from agents.telemetry.client import NodeTelemetry
from agents.watchdog.pods import GpuPod
from agents.watchdog.types import HOUR, PassInput, Recycled

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
class PassView:
    """The input of one pass at the time `now`. `chosen` has the recycles on which the pass has already decided."""

    snapshot: PassInput
    now: datetime
    chosen: tuple[Recycled, ...] = ()

    @cached_property
    def pods(self) -> Mapping[str, GpuPod]:
        return {pod.uid: pod for pod in self.snapshot.pods}

    @cached_property
    def readings(self) -> Mapping[str, NodeTelemetry]:
        return {reading.node: reading for reading in self.snapshot.readings}

    def is_new(self, node: str) -> bool:
        """Returns True if the exporter has read the node's devices again since the last pass."""
        return self.readings[node].is_new(self.snapshot.state.readings.get(node))

    def has_ended(self, uid: str) -> bool:
        pod = self.pods.get(uid)
        return pod is None or pod.ended

    @cached_property
    def counted(self) -> Collection[Recycled]:
        """Returns the recycles that have ended their pods.

        If a recycle was repeated, the result has the recycle once, with the time of the last attempt.
        """
        done = sorted(
            (each for each in self.snapshot.recycled if not self._was_in_vain(each)), key=lambda each: each.at
        )
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
        due = min(pod.gone_by, began + timedelta(seconds=self.snapshot.limits.grace_seconds))
        return self.now < due + timedelta(seconds=LATE_SECONDS)

    def frees_soon(self, uid: str) -> bool:
        """Returns True if the memory of the pod with this UID will be free soon, because the pod is terminating or has
        just ended.
        """
        if self.has_ended(uid):
            return self.snapshot.at - self.ended_since(uid) <= SETTLE_SECONDS
        return self.is_going(self.pods[uid])

    def ended_since(self, uid: str) -> float:
        """Returns the monotonic time when the watchdog first saw that the ended pod still uses a device."""
        return self.snapshot.state.ended_since.get(uid, self.snapshot.at)

    @cached_property
    def _settling(self) -> tuple[Recycled, ...]:
        recent = (each for each in self.snapshot.recycled if self.now - each.at < timedelta(seconds=SETTLE_SECONDS))
        return (*recent, *self.chosen)

    def _was_in_vain(self, entry: Recycled) -> bool:
        if self.now - entry.at < timedelta(seconds=VAIN_SECONDS):
            return False
        left = [self.pods[uid] for uid in entry.pods if uid in self.pods]
        return any(pod.gone_by is None for pod in left)
