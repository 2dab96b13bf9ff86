"""Read back what the driver holds each container to: the pure half. A container counts as capped only where NVML's
own number for its control group is its budget; every doubt is a reason why it is not.

Source: memacct.c of NVIDIA's open kernel modules, R615; https://docs.nvidia.com/deploy/mps/mpsv3-memory-partitioning.html
"""

import os.path
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from agents.exporter.attribution import CapReading, DeviceUse, NodeUse
from agents.exporter.pod_names import Registry
from agents.node.cgroup import Container, Groups
from agents.telemetry.device import Uncapped
from tenancy.caps import Cap
from tenancy.units import MIB

# What a group is held to on a device, by uuid and directory: bytes, or why that is no cap.
LimitOf = Callable[[str, str], int | Uncapped]


@dataclass(frozen=True, kw_only=True)
class _Budget:
    """A container that the driver is to hold; `cap` is None where it has none, for the reason `without`."""

    container: Container
    uuids: tuple[str, ...]
    cap: Cap | None = None
    without: Uncapped = Uncapped.UNKNOWN


@dataclass(frozen=True, kw_only=True)
class CapReader:
    """What NVML says of the containers that have a budget, on a node of a pool whose driver is to hold them."""

    limit_of: LimitOf
    groups: Groups

    def of(self, found: NodeUse, registry: Registry) -> NodeUse:
        """The same reading with each device's ability and each container's cap; as it is on other pools' nodes."""
        if registry.pool is None or not registry.pool.caps:
            return found
        uses = tuple(replace(use, device=replace(use.device, cannot_cap=self._ability(use))) for use in found.uses)
        return replace(found, uses=uses, caps=tuple(self._read(uses, registry)))

    def _ability(self, use: DeviceUse) -> Uncapped | None:
        """As far as an exporter can know: no limit on everything is no word against the driver."""
        if not self.groups.unified:
            return Uncapped.CGROUP
        answer = self.limit_of(use.device.uuid, str(self.groups.root))
        return answer if isinstance(answer, Uncapped) and answer.of_node else None

    def _read(self, uses: Sequence[DeviceUse], registry: Registry) -> Iterator[CapReading]:
        budgets = list(_budgets(uses, registry))
        unified = self.groups.unified
        directories = self.groups.find({budget.container for budget in budgets}) if unified else {}
        for budget in budgets:
            for uuid in budget.uuids:
                reading = CapReading(container=budget.container, uuid=uuid)
                if budget.without is Uncapped.BUDGETLESS:
                    yield replace(reading, uncapped=budget.without)
                elif not unified:
                    yield replace(reading, uncapped=Uncapped.CGROUP)
                else:
                    yield self._judged(reading, budget.cap, directories)

    def _judged(self, reading: CapReading, cap: Cap | None, directories: Mapping[Container, str]) -> CapReading:
        directory = directories.get(reading.container)
        if directory is None:
            return replace(reading, uncapped=Uncapped.GROUPLESS)
        limit = self.limit_of(reading.uuid, directory)
        if isinstance(limit, Uncapped):
            missing = limit is Uncapped.UNLIMITED and cap is not None and not cap.stamped
            return replace(reading, uncapped=Uncapped.UNSTAMPED if missing else limit)
        return replace(reading, limit_bytes=limit, uncapped=self._doubt(reading.uuid, directory, limit, cap))

    def _doubt(self, uuid: str, directory: str, limit: int, cap: Cap | None) -> Uncapped | None:
        if cap is None:
            return Uncapped.UNKNOWN
        if limit != cap.mib * MIB:
            return Uncapped.OTHER
        # A group without a limit of its own answers with the nearest one above it.
        above = self.limit_of(uuid, os.path.dirname(directory))
        if isinstance(above, Uncapped):
            return None if above is Uncapped.UNLIMITED else above
        return Uncapped.INHERITED if above == limit else None


def _budgets(uses: Sequence[DeviceUse], registry: Registry) -> Iterator[_Budget]:
    """The containers that run and have a budget, and those that use a device next to them or are not known yet."""
    used: dict[Container, tuple[str, ...]] = {}
    for use in uses:
        for container in use.used_bytes:
            used[container] = (*used.get(container, ()), use.device.uuid)
    every = tuple(use.device.uuid for use in uses)
    for pod in registry.roster.pods:
        caps = {cap.container: cap for cap in pod.caps}
        for identity, name in pod.containers.items():
            container = Container(pod.group_uid, identity)
            if name in caps and (identity in pod.running or container in used):
                # Without an annotation nobody knows which devices it reaches: it must be held on each.
                uuids = tuple(dict.fromkeys((*(pod.uuids or every), *used.get(container, ()))))
                yield _Budget(container=container, cap=caps[name], uuids=uuids)
            elif caps and container in used:
                yield _Budget(container=container, uuids=used[container], without=Uncapped.BUDGETLESS)
    for container, uuids in used.items():
        owner = registry.roster.pod(container.pod_uid)
        if owner is None or (owner.caps and container.id not in owner.containers):
            yield _Budget(container=container, uuids=uuids)
