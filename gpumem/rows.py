"""Defines the nodes, the devices and the pods of a report on the cluster."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Holder:
    """A pod on a device, with the pod's budget on the device and the pod's use.

    A field with the value None is unknown. `seat` is None if the pod has no seat. `over_mib` is the overshoot as the
    watchdog computes it. `capped` is "" if the pod has a cap. If the cap is missing, `capped` is the reason. `capped`
    is None if the pool has no caps. `state` is the pod's phase, `terminating` or `unbudgeted`. `state` is `unknown` for
    a process without a known pod.
    """

    namespace: str
    name: str
    uid: str
    seat: str | None
    declared_mib: int
    used_mib: int | None
    over_mib: int | None
    capped: str | None
    state: str


@dataclass(frozen=True, kw_only=True)
class DeviceRow:
    """A device of a node, with its pods.

    `room_mib` is the memory for a new pod without a seat, after the memory of pods and of absent seats. `free_mib` is
    the largest budget with which a new seat fits. The fields `measured_*` are None without a reading. `held_mib` counts
    only pods that the user may read. The scheduler keeps `kept_mib` for seats that have no pod now. The scheduler may
    keep the memory on other devices later.
    """

    index: int
    uuid: str
    offered_mib: int
    held_mib: int
    free_mib: int
    room_mib: int
    measured_free_mib: int | None
    healthy: bool
    excluded: bool
    kept_mib: int
    measured_used_mib: int | None
    floor_mib: int
    pods: tuple[Holder, ...]


@dataclass(frozen=True, kw_only=True)
class NodeRow:
    """A node with its devices.

    `unusable` is the reason why the node takes no new pod. `devices` is empty if the devices are not known, or cannot
    be used. The node advertises `unadvertised_mib` less than its devices offer. `adrift` are the pods on the node
    without a known device.
    """

    node: str
    pool: str | None
    unusable: str | None
    devices: tuple[DeviceRow, ...]
    adrift: tuple[Holder, ...]
    unadvertised_mib: int = 0

    @property
    def free_mib(self) -> int:
        """Returns the MiB for new seats on all devices together, as far as the node advertises them."""
        held_mib = sum(each.held_mib for each in self.devices)
        offered_mib = sum(each.offered_mib for each in self.devices)
        free_mib = sum(each.free_mib for each in self.devices)
        return min(free_mib, max(offered_mib - self.unadvertised_mib - held_mib, 0))


@dataclass(frozen=True, kw_only=True)
class WholeRow:
    """A node that hands out whole devices. `offered` is None if the node advertises no nvidia.com/gpu.

    `unusable` is the reason why the node takes no new pod.
    """

    node: str
    pool: str
    offered: int | None
    held: int
    pods: tuple[str, ...]
    unusable: str | None = None

    @property
    def free(self) -> int:
        """Returns the number of devices for new pods."""
        return 0 if self.unusable else max((self.offered or 0) - self.held, 0)
