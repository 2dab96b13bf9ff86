"""What the exporter of a node has measured: the unused memory of each device, and the pods that use it."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from agents.extender.cache.pod_info import PodInfo
from agents.telemetry.reading import PodUse
from tenancy.devices.recycle import overshoot_mib
from tenancy.units import MIB


@dataclass(frozen=True)
class UndeclaredUse:
    """A pod that uses `mib` of a device beyond its request. `name` is empty if the exporter does not know the pod."""

    namespace: str
    name: str
    mib: int

    def __str__(self) -> str:
        pod = f"{self.namespace}/{self.name}" if self.name else "a pod whose name is not known yet"
        return f"{pod} by {self.mib} MiB"


@dataclass(frozen=True)
class MeasuredMemory:
    """The reading of a node: the unused MiB of each device, and the pods that use the devices. The reading is valid
    until the monotonic time `until`.

    `unknown` has the UUIDs of devices with unknown processes.
    """

    unused: Mapping[int, int]
    until: float
    uses: tuple[PodUse, ...] = ()
    unknown: frozenset[str] = frozenset()

    def used_mib(self, uid: str, uuid: str) -> int:
        """Returns the MiB of the device that the pod uses."""
        return sum(use.used_bytes for use in self.uses if (use.uid, use.uuid) == (uid, uuid)) // MIB

    def over_budget(
        self, uuid: str, pods: Mapping[str, PodInfo], recorded: Mapping[str, int]
    ) -> tuple[UndeclaredUse, ...]:
        """Returns the pods over their budgets on the device by more than the `recorded` MiB of their tenants, with the
        largest overshoot first.
        """
        used: dict[str, dict[str, int]] = {}
        for use in self.uses:
            used.setdefault(use.uid, {})[use.uuid] = use.used_bytes // MIB
        found = []
        for use in self.uses:
            if use.uuid == uuid:
                pod = pods.get(use.uid)
                over_mib = overshoot_mib(
                    used=used[use.uid],
                    device=uuid,
                    declared_mib=pod.request.total_mib if pod else 0,
                    placed_on=pod.uuids if pod else None,
                )
                if over_mib > recorded.get(use.namespace, 0):
                    found.append(UndeclaredUse(use.namespace, use.pod, over_mib))
        return tuple(sorted(found, key=lambda each: (-each.mib, str(each))))

    def without(self, uid: str, by_uuid: Mapping[str, int]) -> "MeasuredMemory":
        """Returns the reading after this pod has ended: the memory that the pod used is unused."""
        unused = dict(self.unused)
        for use in self.uses:
            if use.uid == uid and by_uuid.get(use.uuid) in unused:
                unused[by_uuid[use.uuid]] += use.used_bytes // MIB
        return replace(self, unused=unused, uses=tuple(use for use in self.uses if use.uid != uid))
