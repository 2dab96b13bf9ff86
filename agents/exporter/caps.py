"""Compares the limit that NVML reports for each container with the container's budget.

A container counts as capped only if the limit of its own control group equals its budget.

Source: memacct.c of NVIDIA's open kernel modules, R615; https://docs.nvidia.com/deploy/mps/mpsv3-memory-partitioning.html
"""

import os.path
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from agents.exporter.attribution import CapReading, DeviceUse, NodeUse
from agents.exporter.registry import Registry
from agents.node.cgroup import CgroupDirectories, Container
from agents.telemetry.device import Uncapped
from tenancy.caps import Cap
from tenancy.units import MIB

# Takes a device's UUID and a control group's directory. Returns the group's limit on the device in bytes, or why the
# group has no cap.
LimitOf = Callable[[str, str], int | Uncapped]


@dataclass(frozen=True, kw_only=True)
class _Budget:
    """A container that must be capped on the devices `uuids`. If `cap` is None, `without` is the reason."""

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
        """Adds each container's cap to `found`, and marks the devices on which the driver cannot cap containers.

        Returns `found` unchanged if the node's pool does not have `enforce: driver`.
        """
        if not registry.caps:
            return found
        uses = tuple(replace(use, device=replace(use.device, cannot_cap=self._ability(use))) for use in found.uses)
        return replace(found, uses=uses, caps=tuple(self._read(uses, registry)))

    def _ability(self, use: DeviceUse) -> Uncapped | None:
        """Returns the reason why the driver can cap no container on the device, or None if the driver can cap."""
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
                limit, uncapped = self._judge(budget, uuid, directories.get(budget.container))
                yield CapReading(container=budget.container, uuid=uuid, limit_bytes=limit, uncapped=uncapped)

    def _judge(self, budget: _Budget, uuid: str, directory: str | None) -> tuple[int | None, Uncapped | None]:
        """Returns the container's limit on the device, and the reason if this limit differs from the container's
        budget.
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
    """Yields the containers with a budget, and the containers without a known budget that use a device."""
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
                # Without its annotation, a pod's devices are unknown. The pod must then be capped on every device of
                # the node.
                uuids = tuple(dict.fromkeys((*(pod.uuids or every), *used.get(container, ()))))
                yield _Budget(container=container, cap=caps[name], uuids=uuids)
            elif caps and container in used:
                yield _Budget(container=container, uuids=used[container], without=Uncapped.BUDGETLESS)
    for container, uuids in used.items():
        owner = registry.node_pods.pod(container.pod_uid)
        if owner is None or (owner.caps and container.id not in owner.containers):
            yield _Budget(container=container, uuids=uuids)
