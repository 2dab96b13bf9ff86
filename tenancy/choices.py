"""Defines the possible values of settings with a fixed list of values. The ledger uses the same spelling."""

import enum


class Sharing(enum.StrEnum):
    """The way in which the devices of a pool are shared."""

    # The pool shares its devices by budget. Reconcile advertises gpumem, and several tenants use one device.
    MEMORY = "memory"
    # The pool hands out whole devices. A device serves one tenant at a time, and Kueue queues the pods.
    WHOLE = "whole"


class Source(enum.StrEnum):
    """The source of the information about a node's devices.

    Reconcile needs this information before it advertises gpumem (docs/adr/0026).
    """

    LABELS = "labels"  # Uses the labels of NVIDIA's GPU feature discovery.
    SLICES = "slices"  # Uses the ResourceSlices of NVIDIA's DRA driver or of our exporter, which list each device.
    DECLARED = "declared"  # Uses the labels or the ResourceSlices that show all declared devices of the pool.


class PlacementMode(enum.StrEnum):
    """The program that chooses a pod's device."""

    EXTENDER = "extender"  # Our scheduler extender chooses devices by the gpumem that the node advertises.
    DRA = "dra"  # Kubernetes' allocator chooses devices by claims on the devices of NVIDIA's DRA driver.


class ConsumableShares(enum.StrEnum):
    """The value of the option --consumable-shares of NVIDIA's DRA driver.

    The stack accepts no other value of the option. With any other value, a claim without a memory request would reserve
    0 MiB, and other pods could take the memory of seats.
    """

    DISABLED = "disabled"  # A claim takes a whole device.
    MEMORY = "memory"  # A claim takes a part of a device's memory.


class Enforce(enum.StrEnum):
    """The way in which a budget is enforced."""

    NONE = "none"  # The watchdog evicts a pod after it has exceeded its budget.
    DRIVER = "driver"  # NVIDIA's driver (R615 or later) refuses an allocation beyond the budget.


class Mode(enum.StrEnum):
    """The mode of a stack or of one of its parts.

    In the mode observe, a part only reports what it would do in the mode enforce.
    """

    OBSERVE = "observe"
    ENFORCE = "enforce"


class PodSecurity(enum.StrEnum):
    """The levels of the Pod Security Standards, from the least strict level to the strictest
    (https://kubernetes.io/docs/concepts/security/pod-security-standards/).
    """

    PRIVILEGED = "privileged"
    BASELINE = "baseline"
    RESTRICTED = "restricted"

    @property
    def at_least(self) -> tuple["PodSecurity", ...]:
        """Returns the levels that are at least as strict as this level."""
        levels = tuple(PodSecurity)
        return levels[levels.index(self) :]
