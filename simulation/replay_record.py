"""Records the events of a replay.

The events are recycles, starts and stops of on-demand workloads, waits, refusals, and devices below their floor.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from simulation.kubelet import RunningPod
from simulation.world import World

# The time before the recording, in which the simulation places the pods. Before the recording begins, each pod uses the
# first recorded amount, but at most its budget.
WARM_SECONDS = 600.0
DRAINS_SECONDS = 10.0  # The time that each process of a pod needs to end.
# The record leaves out waits that are shorter than this time. For on-demand workloads, the shortest recorded wait is
# longer, because the gate starts a workload only after several samples.
PENDING_SECONDS = 10.0
LET_IN_SECONDS = 60.0
# The record leaves out refusals that are shorter than this time. A quota counts a terminating pod, and therefore
# refuses its replacement until the old pod has ended.
_REPLACED_SECONDS = 30.0


@dataclass(frozen=True, kw_only=True)
class RecordedEvent:
    """An event. `what` is "recycled", "let in", "put out", "pending" or "refused".

    `seconds` is set for "pending" and "refused". `used_mib`, `declared_mib` and `device` are set for "recycled".
    """

    at: datetime
    what: str
    workload: str
    seconds: int = 0
    used_mib: int = 0
    declared_mib: int = 0
    device: str = ""


@dataclass(frozen=True, kw_only=True)
class TimeBelowFloor:
    """A period during which a device was below its floor."""

    at: datetime
    device: str
    seconds: int


class ReplayRecord:
    """Records the events of a replay. Events before WARM_SECONDS are not recorded."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.happened: list[RecordedEvent] = []
        self.floors: list[TimeBelowFloor] = []
        self.short_seconds = Counter[str]()
        self.waiting: dict[str, tuple[float, str]] = {}  # Maps a pod's UID to the start of its wait and its workload.
        self._refused: dict[str, float] = {}  # Maps a workload to the start of its refusal.
        self._below: dict[str, float] = {}  # Maps a device to the time when it fell below its floor.

    @property
    def is_open(self) -> bool:
        return self.world.now >= WARM_SECONDS

    def add(self, what: str, workload: str, **given: Any) -> None:
        if self.is_open:
            at = self.world.time_of_day().replace(microsecond=0)
            self.happened.append(RecordedEvent(at=at, what=what, workload=workload, **given))

    def lasted(self, what: str, workload: str, since: float, least: float) -> None:
        """Records an event that began at `since` and ends now, if the event lasted at least `least` seconds."""
        seconds = self.world.now - max(since, WARM_SECONDS)
        if seconds >= least:
            self.add(what, workload, seconds=round(seconds))

    def recycled(self, running: RunningPod) -> None:
        self.add(
            "recycled",
            running.workload.name,
            used_mib=running.used_mib,
            declared_mib=running.workload.declared_mib,
            device=running.card.uuid,
        )

    def created(self, uid: str, workload: str) -> None:
        """Records a new pod without a node."""
        self.waiting[uid] = (self.world.now, workload)
        if workload in self._refused:
            self._end_refusal(workload)

    def placed(self, uid: str, *, is_resident: bool) -> None:
        """Ends a pod's wait after the pod was bound or deleted."""
        since, workload = self.waiting.pop(uid)
        if is_resident:
            self.lasted("pending", workload, since, PENDING_SECONDS)

    def refused(self, workload: str) -> None:
        """Records that a quota refused a pod of the workload. The refusal of pods ends when a pod is created."""
        self._refused.setdefault(workload, self.world.now)

    def _end_refusal(self, workload: str) -> None:
        least = DRAINS_SECONDS + PENDING_SECONDS + _REPLACED_SECONDS
        self.lasted("refused", workload, self._refused.pop(workload), least)

    def measure(self, low: set[str], running: Iterable[RunningPod], seconds: float) -> None:
        """Records the devices below their floor, and the processes that lack memory within their budget."""
        if not self.is_open:
            return
        for uuid in low - self._below.keys():
            self._below[uuid] = self.world.now
        for uuid in self._below.keys() - low:
            self._rose(uuid)
        for each in running:
            if each.used_mib < min(each.wanted_mib, each.workload.declared_mib) and not each.ends:
                self.short_seconds[each.workload.name] += round(seconds)

    def _rose(self, uuid: str) -> None:
        since = self._below.pop(uuid)
        at = self.world.time_of_day(since - self.world.now).replace(microsecond=0)
        self.floors.append(TimeBelowFloor(at=at, device=uuid, seconds=round(self.world.now - since)))

    def close(self, residents: Iterable[str]) -> None:
        """Ends all events that are still going on."""
        for uid, (_, workload) in [*self.waiting.items()]:
            self.placed(uid, is_resident=workload in residents)
        for workload in [*self._refused]:
            self._end_refusal(workload)
        for uuid in [*self._below]:
            self._rose(uuid)
