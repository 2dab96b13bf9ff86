"""Compares the limit that NVML reports for each container with the container's budget.

A container counts as capped only if the limit of its own control group equals its budget.

Source: memacct.c of NVIDIA's open kernel modules, R615; https://docs.nvidia.com/deploy/mps/mpsv3-memory-partitioning.html
"""

import os.path
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

from agents.exporter.attribution import CapReading, DeviceUse, NodeUse
from agents.exporter.registry import Registry
from agents.node.cgroup import CgroupDirectories, Container
from agents.runtime.items import Unjudged, judged
from agents.telemetry.device import Uncapped
from tenancy.caps import Cap
from tenancy.units import MIB

# Returns the limit of a control group on a device in bytes, or the reason why the group has no cap. The arguments are
# the UUID of the device and the directory of the control group.
LimitOf = Callable[[str, str], int | Uncapped]


@dataclass(frozen=True, kw_only=True)
class _Budget:
    """A container that the driver must cap on the devices `uuids`. If `cap` is None, `without` is the reason for the
    missing cap.
    """

    container: Container
    uuids: tuple[str, ...]
    cap: Cap | None = None
    without: Uncapped = Uncapped.UNKNOWN


@dataclass(frozen=True, kw_only=True)
class CapReader:
    """Reads the containers' caps on a node of a pool with `enforce: driver`."""

    limit_of: LimitOf
    groups: CgroupDirectories

    def of(self, found: NodeUse, registry: Registry) -> NodeUse:
        """Adds the cap of each container to `found`. Marks the devices on which the driver cannot cap containers.

        Returns `found` unchanged if the node's pool does not have `enforce: driver`.
        """
        if not registry.caps:
            return found
        uses = tuple(replace(use, device=replace(use.device, cannot_cap=self._ability(use))) for use in found.uses)
        return replace(found, uses=uses, caps=tuple(self._read(uses, registry)))

    def _ability(self, use: DeviceUse) -> Uncapped | None:
        if not self.groups.unified:
            return Uncapped.CGROUP
        answer = self.limit_of(use.device.uuid, str(self.groups.root))
        return answer if isinstance(answer, Uncapped) and answer.of_node else None

    def _read(self, uses: Sequence[DeviceUse], registry: Registry) -> Iterator[CapReading]:
        budgets = list(_budgets(uses, registry))
        wanted = {budget.container for budget in budgets}
        directories = self.groups.find(wanted) if self.groups.unified else {}
        for budget in budgets:
            for uuid in budget.uuids:
                found = judged(partial(self._judge, budget, uuid, directories.get(budget.container)))
                limit, uncapped = (None, Uncapped.UNREADABLE) if isinstance(found, Unjudged) else found
                yield CapReading(container=budget.container, uuid=uuid, limit_bytes=limit, uncapped=uncapped)

    def _judge(self, budget: _Budget, uuid: str, directory: str | None) -> tuple[int | None, Uncapped | None]:
        """Returns the container's limit on the device. If this limit differs from the container's budget, also returns
        the reason.
        """
        cap = budget.cap
        if budget.without is Uncapped.BUDGETLESS:
            return None, Uncapped.BUDGETLESS
        if not self.groups.unified:
            return None, Uncapped.CGROUP
        if directory is None:
            return None, Uncapped.GROUPLESS
        limit = self.limit_of(uuid, directory)
        if isinstance(limit, Uncapped):
            unstamped = limit is Uncapped.UNLIMITED and cap is not None and not cap.stamped
            return None, Uncapped.UNSTAMPED if unstamped else limit
        return limit, self._doubt(uuid, directory, limit, cap)

    def _doubt(self, uuid: str, directory: str, limit: int, cap: Cap | None) -> Uncapped | None:
        if cap is None:
            return Uncapped.UNKNOWN
        if limit != cap.mib * MIB:
            return Uncapped.OTHER
        # For a group without a limit, NVML reports the limit of the nearest parent group that has a limit.
        above = self.limit_of(uuid, os.path.dirname(directory))
        if isinstance(above, Uncapped):
            return None if above is Uncapped.UNLIMITED else above
        return Uncapped.INHERITED if above == limit else None


def _budgets(uses: Sequence[DeviceUse], registry: Registry) -> Iterator[_Budget]:
    used: dict[Container, tuple[str, ...]] = {}
    for use in uses:
        for container in use.used_bytes:
            used[container] = (*used.get(container, ()), use.device.uuid)
    every = tuple(use.device.uuid for use in uses)
    for pod in registry.node_pods.pods:
        caps = {cap.container: cap for cap in pod.caps}
        for identity, name in pod.containers.items():
            container = Container(pod.group_uid, identity)
            if name in caps and (identity in pod.running or container in used):
                # If no annotation names the pod's devices, the driver must cap the pod on every device of the node.
                uuids = tuple(dict.fromkeys((*(pod.uuids or every), *used.get(container, ()))))
                yield _Budget(container=container, cap=caps[name], uuids=uuids)
            elif caps and container in used:
                yield _Budget(container=container, uuids=used[container], without=Uncapped.BUDGETLESS)
    for container, uuids in used.items():
        owner = registry.node_pods.pod(container.pod_uid)
        if owner is None or (owner.caps and container.id not in owner.containers):
            yield _Budget(container=container, uuids=uuids)
