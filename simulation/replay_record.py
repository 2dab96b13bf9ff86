"""Records a replay: recycles, gates that opened or closed, waits, refusals, and devices below their floor."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from simulation.kubelet import Running
from simulation.world import World

# Before the history begins, each pod is placed. It holds its first memory of the history, but at most its budget.
WARM_SECONDS = 600.0
DRAINS_SECONDS = 10.0  # the time that a process needs to end
# Shorter waits are left out. A gate opens after several samples, so on-demand workloads may wait longer.
PENDING_SECONDS = 10.0
LET_IN_SECONDS = 60.0
# A pod that ends for a new pod counts in its quota until it has ended. A refusal of this length is left out.
_REPLACED_SECONDS = 30.0


@dataclass(frozen=True, kw_only=True)
class Happened:
    """An event. `what` is recycled, let in, put out, pending or refused. Pending and refused have `seconds`.

    A recycle has `used_mib`, `declared_mib` and `device`.
    """

    at: datetime
    what: str
    workload: str
    seconds: int = 0
    used_mib: int = 0
    declared_mib: int = 0
    device: str = ""


@dataclass(frozen=True, kw_only=True)
class Floor:
    """A time in which a device was below its floor."""

    at: datetime
    device: str
    seconds: int


class Record:
    """Records the replay, in the world's times. Nothing before WARM_SECONDS is recorded."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.happened: list[Happened] = []
        self.floors: list[Floor] = []
        self.short_seconds = Counter[str]()
        self.waiting: dict[str, tuple[float, str]] = {}  # by the pod's UID: the begin of its wait, and its workload
        self._refused: dict[str, float] = {}  # by workload: the begin of its refusal
        self._below: dict[str, float] = {}  # by device: the time since which it is below its floor

    @property
    def is_open(self) -> bool:
        return self.world.now >= WARM_SECONDS

    def add(self, what: str, workload: str, **given: Any) -> None:
        if self.is_open:
            at = self.world.time_of_day().replace(microsecond=0)
            self.happened.append(Happened(at=at, what=what, workload=workload, **given))

    def lasted(self, what: str, workload: str, since: float, least: float) -> None:
        """Records what lasted since `since`, unless it lasted less than `least` seconds."""
        seconds = self.world.now - max(since, WARM_SECONDS)
        if seconds >= least:
            self.add(what, workload, seconds=round(seconds))

    def recycled(self, running: Running) -> None:
        self.add(
            "recycled",
            running.workload.name,
            used_mib=running.used_mib,
            declared_mib=running.workload.declared_mib,
            device=running.card.uuid,
        )

    def created(self, uid: str, workload: str) -> None:
        """Records a pod that has no node yet."""
        self.waiting[uid] = (self.world.now, workload)
        if workload in self._refused:
            self._end_refusal(workload)

    def placed(self, uid: str, *, is_resident: bool) -> None:
        """Ends a pod's wait, because the pod has a node or is gone."""
        since, workload = self.waiting.pop(uid)
        if is_resident:
            self.lasted("pending", workload, since, PENDING_SECONDS)

    def refused(self, workload: str) -> None:
        """Records that a quota refused a pod. The refusal lasts until a pod is created."""
        self._refused.setdefault(workload, self.world.now)

    def _end_refusal(self, workload: str) -> None:
        least = DRAINS_SECONDS + PENDING_SECONDS + _REPLACED_SECONDS
        self.lasted("refused", workload, self._refused.pop(workload), least)

    def measure(self, low: set[str], running: Iterable[Running], seconds: float) -> None:
        """Records the devices below their floor, and the processes that have lacked memory of their budget."""
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
        self.floors.append(Floor(at=at, device=uuid, seconds=round(self.world.now - since)))

    def close(self, residents: Iterable[str]) -> None:
        """Ends every record that still lasts."""
        for uid, (_, workload) in [*self.waiting.items()]:
            self.placed(uid, is_resident=workload in residents)
        for workload in [*self._refused]:
            self._end_refusal(workload)
        for uuid in [*self._below]:
            self._rose(uuid)
