"""NodeInfo: one node's devices, and what each pod holds of them. Units: whole MiB of GPU memory."""

from collections.abc import Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass

from agents.extender.cache.inventory import NodeDevices
from agents.extender.cache.pod_info import Bystander, PodInfo
from tenancy.devices.allocate import Ask, Chooser, DeviceChoice, best_fit


@dataclass(frozen=True, kw_only=True)
class DeviceShare:
    """Devices kept for a pod not known to be bound; `until` is monotonic seconds, None where no time ends it."""

    uid: str
    ask: Ask
    indices: tuple[int, ...]
    uuids: tuple[str, ...]
    until: float | None = None


@dataclass(frozen=True)
class MeasuredMemory:
    """Free MiB by device's index as measured, and until when (monotonic seconds) that counts."""

    free: Mapping[int, int]
    until: float


class NodeInfo:
    """What is free on a node's devices. Whoever changes a part calls `recount` afterwards.

    A device has what it offers less what pods and holds have of it, and by a reading no more than what was measured
    free less the floor.
    """

    def __init__(self, node: str) -> None:
        self.node = node
        self.inventory: NodeDevices | None = None
        self.pods: dict[str, PodInfo] = {}
        self.bystanders: dict[str, Bystander] = {}
        self.taken: dict[str, DeviceShare] = {}
        self.reserved: dict[str, DeviceShare] = {}
        self.reading: MeasuredMemory | None = None
        self._choices: dict[Ask, DeviceChoice | None] = {}
        self.recount()

    @property
    def idle(self) -> bool:
        """Nothing is known of the node and nothing is held on it."""
        return self.inventory is None and not (self.pods or self.bystanders or self.taken or self.reserved)

    def as_now(self) -> "NodeInfo":
        """A copy that changes no more, to be read without the lock: `recount` puts new sums in the place of the old."""
        seen = copy(self)
        seen.pods, seen.taken, seen.reserved = {**self.pods}, {**self.taken}, {**self.reserved}
        return seen

    def claims(self) -> Iterator[PodInfo | DeviceShare]:
        yield from self.pods.values()
        yield from self.taken.values()
        yield from self.reserved.values()

    def recount(self) -> None:
        """Counts again from the parts, so that no sum can go astray."""
        devices = self.inventory.devices if self.inventory else ()
        self.offered = {device.index: device.offered_mib for device in devices}
        self.largest = sorted(self.offered.values(), reverse=True)
        self.unheld = self._less_what_is_held({device.uuid: device.index for device in devices})
        self.room = self._as_measured(self.unheld)
        self.free = {index: max(mib, 0) for index, mib in self.room.items()}
        self.freest = sorted(self.free.values(), reverse=True)
        self.recount_cpu()

    def recount_cpu(self) -> None:
        """The part of `recount` that a bystander touches. `cpu_milli` is the node's free CPU, None where unknown."""
        whole = self.inventory.cpu_milli if self.inventory else None
        held = sum(claim.ask.cpu_milli for claim in self.claims()) + sum(b.cpu_milli for b in self.bystanders.values())
        self.cpu_milli = None if whole is None else whole - held
        self.forget_choices()

    def forget_choices(self) -> None:
        """Has the next one chosen again."""
        self._choices.clear()

    def _less_what_is_held(self, by_uuid: Mapping[str, int]) -> dict[int, int]:
        """By the ledger alone; below 0 where more is held than offered. `places` is where each claim was counted.

        A device is known by its UUID: after a change of hardware its index may be another's. A pod of which nobody
        knows where it lies counts where it would have been put, after all others and the largest first.
        """
        left = dict(self.offered)
        self.places: dict[str, tuple[int, ...]] = {}
        lost = []
        for claim in self.claims():
            if claim.uuids is not None:
                self.places[claim.uid] = tuple(by_uuid[uuid] for uuid in claim.uuids if uuid in by_uuid)
            elif claim.indices is not None:
                self.places[claim.uid] = tuple(index for index in claim.indices if index in left)
            else:
                lost.append(claim)
                continue
            _deduct(left, claim.ask, self.places[claim.uid])
        for claim in sorted(lost, key=lambda claim: (-claim.ask.mib, claim.uid)):
            self.places[claim.uid] = _likely(claim.ask, left)
            _deduct(left, claim.ask, self.places[claim.uid])
        return left

    def _as_measured(self, left: Mapping[int, int]) -> dict[int, int]:
        if self.inventory is None or self.reading is None:
            return dict(left)
        free, floor_mib = self.reading.free, self.inventory.floor_mib
        return {index: min(mib, free[index] - floor_mib) if index in free else mib for index, mib in left.items()}

    def fits(self, ask: Ask) -> bool:
        return len(self.freest) >= ask.count and self.freest[ask.count - 1] >= ask.mib

    def choice(self, ask: Ask, choose: Chooser) -> DeviceChoice | None:
        """What `choose` chooses; it is asked once until something changes."""
        if ask not in self._choices:
            self._choices[ask] = choose(ask, self.free, self.cpu_milli)
        return self._choices[ask]

    def hold(self, uid: str, ask: Ask, indices: tuple[int, ...], until: float | None = None) -> DeviceShare:
        """A hold on those devices, not yet a part."""
        uuids = {device.index: device.uuid for device in self.inventory.devices} if self.inventory else {}
        return DeviceShare(
            uid=uid, ask=ask, indices=indices, uuids=tuple(uuids[index] for index in indices), until=until
        )

    def never(self, ask: Ask) -> str | None:
        """Why the node could not take the ask if every pod left it; None where it could."""
        if self.inventory is None:
            return "has no GPU memory to share that is known"
        if self.inventory.unusable:
            return self.inventory.unusable
        if len(self.largest) < ask.count:
            return f"has {len(self.largest)} of {ask.count} GPUs"
        if self.largest[ask.count - 1] < ask.mib:
            return _shortage(ask, self.largest, "to share")
        return None

    def not_now(self, ask: Ask) -> str:
        """Why an ask that does not fit does not, though it would on the empty node."""
        by_ledger = sorted(self.unheld.values(), reverse=True)
        measured = "" if by_ledger[ask.count - 1] < ask.mib else ", as measured and less the floor"
        return _shortage(ask, self.freest, "free") + measured


def _shortage(ask: Ask, largest_first: Sequence[int], what: str) -> str:
    """The largest is always named: it is what a smaller request could get."""
    if ask.count == 1:
        return f"its largest GPU has {largest_first[0]} MiB {what}, not {ask.mib}"
    fitting = sum(mib >= ask.mib for mib in largest_first)
    return f"has {fitting} of {ask.count} GPUs with {ask.mib} MiB {what}, the largest has {largest_first[0]}"


def _deduct(left: dict[int, int], ask: Ask, indices: tuple[int, ...]) -> None:
    for index in indices:
        left[index] -= ask.mib


def _likely(ask: Ask, left: Mapping[int, int]) -> tuple[int, ...]:
    """Where the ask would be put, or where the most is free."""
    choice = best_fit(ask, left)
    if choice is not None:
        return choice.indices
    freest = sorted(left, key=lambda index: (-left[index], index))
    return tuple(sorted(freest[: ask.count]))
