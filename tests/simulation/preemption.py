"""Compares the victims of a preemption with every other choice of victims. Units: MiB."""

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from functools import partial
from itertools import combinations
from typing import TYPE_CHECKING

from tests.simulation.model.api import Object
from tests.simulation.model.scheduler import priority_of
from tests.simulation.model.tenants import RESIDENT, Workload, gpumem_of

if TYPE_CHECKING:
    from tests.simulation.system import System

_MOST_CANDIDATES = 10
_DROPPED_SECONDS = 130.0


class Preemptions:
    def __init__(self, system: "System") -> None:
        self.system = system
        self.violations = system.violations

    def check(self, pod: Object, node: str, victims: Sequence[Object], candidates: Sequence[Object]) -> None:
        workload = self.system.tenants.of(pod)
        if workload is None or workload.kind != RESIDENT or len(candidates) > _MOST_CANDIDATES:
            return
        server, name = self.system.server, pod["metadata"]["name"]
        is_calm = self.system.world.now - server.failed.get("extender", -1e9) > _DROPPED_SECONDS
        if server.is_faulty or not is_calm or not self.violations.up():
            return
        text = f"{_names(victims)} for {name} on {node}"
        fits = partial(self._fits, pod, workload, node)
        if not fits(victims, ending=True):
            self.violations.add("preempted without use", text)
            return
        if any(fits([other for other in victims if other is not each]) for each in victims):
            self.violations.add("preempted in vain", text)
        if workload.devices > 1:
            return
        burden = self._burden(victims)
        for others in _subsets(candidates):
            if self._burden(others) < burden and fits(others):
                self.violations.add("preempted too much", f"{text}, instead of {_names(others)}")
                return

    def _burden(self, victims: Collection[Object]) -> tuple[int, int, list[int]]:
        broken = sum(map(self.system.server.has_budget, victims))
        return broken, len(victims), sorted(map(priority_of, victims), reverse=True)

    def _fits(
        self, pod: Object, workload: Workload, node: str, victims: Collection[Object], *, ending: bool = False
    ) -> bool:
        names, pool = self.system.stack.ledger.names, self.system.pools[node]
        uids = {victim["metadata"]["uid"] for victim in victims}
        held: Counter[str] = Counter()
        for other in self.system.scheduler.bound_to(node):
            metadata = other["metadata"]
            if metadata["uid"] in uids or (ending and "deletionTimestamp" in metadata):
                continue
            uuids = (metadata.get("annotations") or {}).get(names.device_uuid, "")
            for uuid in filter(None, uuids.split(",")):
                held[uuid] += gpumem_of(other, names.gpumem) // max(gpumem_of(other, names.gpu_count), 1)
        cards = self.system.hardware.machines[node].cards
        free = sorted((pool.device_mib - held[card.uuid] for card in cards), reverse=True)
        if not ending:
            free = [mib - self._nominated_mib(node, pod) for mib in free]
        return sum(mib >= workload.each_mib for mib in free) >= max(workload.devices, 1)

    def _nominated_mib(self, node: str, own: Object) -> int:
        key, pods = self.system.stack.ledger.names.gpumem, self.system.server.pods
        waiting = [pods[each] for each in self.system.scheduler.waiting if each in pods and pods[each] is not own]
        return sum(gpumem_of(pod, key) for pod in waiting if pod["status"].get("nominatedNodeName") == node)


def _subsets(candidates: Sequence[Object]) -> Iterator[tuple[Object, ...]]:
    for count in range(1, len(candidates) + 1):
        yield from combinations(candidates, count)


def _names(pods: Collection[Object]) -> str:
    return ", ".join(pod["metadata"]["name"] for pod in pods)
