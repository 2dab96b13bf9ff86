"""Filter, prioritize and preempt: the cache's answers in the scheduler's words. No I/O."""

from collections.abc import Collection
from dataclasses import dataclass, field

from agents.extender.cache.cache import Cache, Fits
from agents.extender.cache.informers import Informers
from agents.extender.cache.inventory import NodeDevices
from agents.extender.cache.pod_info import AskError, PodInfo, ask_of
from agents.extender.protocol import PodNodes, PodVictims, Victims
from agents.runtime.clock import Clock
from tenancy.devices.allocate import Ask
from tenancy.names import Names


class RequestCache:
    """What the pods asked that were filtered last; a bind does not tell."""

    _MOST = 10_000

    def __init__(self) -> None:
        self._asks: dict[str, Ask] = {}

    def remember(self, uid: str, ask: Ask) -> None:
        self._asks.pop(uid, None)
        self._asks[uid] = ask
        while len(self._asks) > self._MOST:
            self._asks.pop(next(iter(self._asks)), None)

    def of(self, uid: str) -> Ask | None:
        return self._asks.get(uid)


@dataclass(frozen=True, kw_only=True)
class Verbs:
    """Judges pods by what the informers keep up to date. `asks` remembers what each pod asked, for its bind."""

    informers: Informers
    cache: Cache
    clock: Clock
    asks: RequestCache = field(default_factory=RequestCache)

    def fits(self, query: PodNodes, names: Names) -> Fits:
        """Which of the nodes have room; the best of them keeps it for the pod."""
        try:
            ask = ask_of(query.pod["spec"], names)
        except AskError as error:
            return Fits((), {}, dict.fromkeys(query.nodes, str(error)))
        if ask is None:
            return Fits(query.nodes, {}, {})
        uid = query.pod["metadata"]["uid"]
        self.asks.remember(uid, ask)
        return self.cache.fit(uid, ask, query.nodes, self.clock.monotonic())

    def scores(self, query: PodNodes, names: Names) -> dict[str, int]:
        """0 to 10 for each node. Raises AskError."""
        ask = ask_of(query.pod["spec"], names)
        if ask is None:
            return dict.fromkeys(query.nodes, 0)
        return dict(self.cache.scores(query.pod["metadata"]["uid"], ask, query.nodes, self.clock.monotonic()))

    def victims(self, query: PodVictims, names: Names) -> dict[str, Victims]:
        """Who must go from each node; nodes where nobody's going would help are left out. Raises AskError.

        Only a node that came without victims is named without any: the pod fits there now. A scheduler from before
        kubernetes#135486 asks of no such node, and takes one in the answer for an error.
        """
        ask = ask_of(query.pod["spec"], names)
        if ask is None:
            return dict(query.victims)
        priority = query.pod["spec"].get("priority") or 0
        chosen = {node: self._victims_on(node, ask, priority, given) for node, given in query.victims.items()}
        return {node: victims for node, victims in chosen.items() if victims is not None}

    def _victims_on(self, node: str, ask: Ask, priority: int, given: Victims) -> Victims | None:
        """The scheduler's own choice frees what the pod lacks of the node: its sum of gpumem, or CPU, or another thing.

        If a device is free then as well, it stands. If not, it is replaced where gpumem is what lacks, for a device
        that is free brings the sum with it, and added to where it is not.
        """
        now = self.clock.monotonic()
        if self.cache.victims(ask, node, given.uids, now) is not None and given.uids:
            return given
        pods = self.cache.pods(node)
        lower = {pod.uid for pod in pods if pod.priority < priority and not pod.terminating}
        needed = self.cache.victims(ask, node, lower, now)
        if needed is None:
            return None
        if given.uids and not _lacks_gpumem(self.informers.devices(node), pods, ask):
            needed = tuple(dict.fromkeys((*given.uids, *needed)))
        if given.uids and not needed:
            return None  # room came meanwhile: for the scheduler, victims that became none are an error of all nodes
        return Victims(needed, given.pdb_violations)


def _lacks_gpumem(devices: NodeDevices | None, pods: Collection[PodInfo], ask: Ask) -> bool:
    """Whether the node's sum is what keeps the ask out, as the scheduler sums."""
    offered = sum(device.offered_mib for device in devices.devices) if devices else 0
    return sum(pod.ask.total_mib for pod in pods) + ask.total_mib > offered
