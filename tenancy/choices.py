"""The values that a stack file chooses from, as the ledger has them."""

import enum


class Sharing(enum.StrEnum):
    """The way to share the devices of a pool."""

    MEMORY = "memory"  # shared by budget: gpumem is advertised, and many tenants use one device
    WHOLE = "whole"  # shared by the device: one tenant at a time, queued by Kueue


class Source(enum.StrEnum):
    """The evidence of a node's devices that reconcile needs before it advertises their memory (docs/adr/0026)."""

    LABELS = "labels"  # the labels of NVIDIA's GPU feature discovery
    SLICES = "slices"  # each device in ResourceSlices of NVIDIA's DRA driver or of our exporter
    DECLARED = "declared"  # either labels or slices, if they show all devices that the pool declares


class PlacementMode(enum.StrEnum):
    """The program that chooses a pod's device."""

    EXTENDER = "extender"  # our scheduler extender places by the gpumem that the node advertises
    DRA = "dra"  # Kubernetes' own allocator places by claims on the devices of NVIDIA's DRA driver


class ConsumableShares(enum.StrEnum):
    """The --consumable-shares of NVIDIA's DRA driver. Its other values are refused.

    With the other values, a claim without memory would take none, so nothing would be kept for seats.
    """

    DISABLED = "disabled"  # a claim takes a whole device
    MEMORY = "memory"  # claims take shares of a device's memory


class Enforce(enum.StrEnum):
    """The way to enforce a budget."""

    NONE = "none"  # the watchdog evicts after the fact
    DRIVER = "driver"  # NVIDIA's driver refuses the allocation, by control group (from R615 on)


class Mode(enum.StrEnum):
    """The effect of a stack or of one of its parts: observe only reports what enforce would do."""

    OBSERVE = "observe"
    ENFORCE = "enforce"


class PodSecurity(enum.StrEnum):
    """The levels of the Pod Security Standards, the loosest first
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
