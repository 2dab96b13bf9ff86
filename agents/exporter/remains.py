"""What claims may have of a node's devices while pods that the extender placed may still be there (docs/adr/0031).

Nobody promises the same memory twice: a device's gpumem is for claims as far as no pod with gpumem has it, and as far
as the node does not advertise it. What it advertises beyond what its pods have could be given away of any device.

It may be less at once, and more only when it was more at every look for SETTLE_SECONDS: what goes by an old view of
the node may be on its way for OLD_VIEW_SECONDS, and reconcile may not look for UNSEEN_SECONDS before it advertises
more. The looks are consistent reads; the stored slice is all that a restart leaves, and a restarted exporter waits as
long. Units: whole MiB, seconds.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from agents.kube.client import Object
from agents.kube.nodes import Node
from agents.kube.pods import Pod, PodError
from tenancy.devices.allocate import Ask
from tenancy.names import OLD_VIEW_SECONDS, UNSEEN_SECONDS, Names
from tenancy.quantity import QuantityError, whole

SETTLE_SECONDS = OLD_VIEW_SECONDS + UNSEEN_SECONDS


@dataclass(frozen=True, kw_only=True)
class GpumemHeld:
    """What pods with gpumem have of a node: by UUID, and `anywhere`, of which it is not known on which device. None:
    it cannot be read, so that nothing is to spare."""

    by_uuid: Mapping[str, int] = field(default_factory=dict)
    anywhere: int | None = 0

    def left_mib(self, uuid: str, offered_mib: int) -> int:
        """What of the device is nobody's."""
        if self.anywhere is None:
            return 0
        return max(offered_mib - self.by_uuid.get(uuid, 0) - self.anywhere, 0)


def held(node: Node, pods: Iterable[Object], names: Names) -> GpumemHeld:
    """`pods` are those that are bound to the node and have not ended."""
    by_uuid: dict[str, int] = {}
    anywhere = bound = 0
    try:
        for item in pods:
            pod = Pod(item)
            with pod.reading(names.gpumem):
                ask = Ask.of_pod(pod.spec, names)
            if ask is None:
                continue
            bound += ask.total_mib
            uuids = {uuid for uuid in pod.annotations.get(names.device_uuid, "").split(",") if uuid}
            if len(uuids) != ask.count:
                anywhere += ask.total_mib
                continue
            for uuid in uuids:
                by_uuid[uuid] = by_uuid.get(uuid, 0) + ask.mib
        advertised = max(whole(shown.get(names.gpumem, "0")) for shown in (node.capacity, node.allocatable))
    except (PodError, QuantityError):
        return GpumemHeld(anywhere=None)
    return GpumemHeld(by_uuid=by_uuid, anywhere=anywhere + max(advertised - bound, 0))


@dataclass(kw_only=True)
class Rise:
    """Lets what a node offers fall at once, and rise to the least that was left at every look for so long."""

    settle_seconds: float = SETTLE_SECONDS
    _since: float | None = None
    _seen: float = 0
    _least: dict[str, int] = field(default_factory=dict)

    def settle(self, stored: Mapping[str, int], left: Mapping[str, int], now: float) -> dict[str, int]:
        """What to offer, by UUID; `now` is monotonic, of before `left` was read."""
        fallen = {uuid: min(stored.get(uuid, 0), mib) for uuid, mib in left.items()}
        if fallen == left:
            self.forget()
            return fallen
        if self._since is None or now - self._seen > OLD_VIEW_SECONDS:
            self._since, self._least = now, dict(left)
        self._seen, self._least = now, {uuid: min(self._least.get(uuid, 0), mib) for uuid, mib in left.items()}
        if now - self._since < self.settle_seconds:
            return fallen
        risen = {uuid: max(mib, self._least[uuid]) for uuid, mib in fallen.items()}
        self.forget()
        return risen

    def forget(self) -> None:
        """A look that failed says nothing of the time since the last."""
        self._since, self._least = None, {}
