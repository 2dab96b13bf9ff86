"""The possible values of settings that have a fixed list of values. The ledger spells the values in the same way."""

import enum


class Sharing(enum.StrEnum):
    """The way in which the devices of a pool are shared."""

    # The pool shares its devices by budget. Reconcile advertises gpumem, and several tenants can use one device.
    MEMORY = "memory"
    # The pool gives out whole devices. Only one tenant at a time uses a device, and Kueue queues the pods.
    WHOLE = "whole"


class Source(enum.StrEnum):
    """The source that must show a node's devices before reconcile advertises gpumem (docs/adr/0026)."""

    LABELS = "labels"  # The labels of NVIDIA's GPU feature discovery show the devices.
    SLICES = "slices"  # The ResourceSlices of NVIDIA's DRA driver or of our exporter show the devices.
    DECLARED = "declared"  # Either the labels or the ResourceSlices must show all declared devices of the pool.


class Enforce(enum.StrEnum):
    """The way in which a budget is enforced."""

    NONE = "none"  # The watchdog evicts pods over their budgets if their device is below its floor.
    DRIVER = "driver"  # NVIDIA's driver (R615 or later) refuses an allocation beyond the budget.


class Mode(enum.StrEnum):
    """The mode of a stack or of one of its parts.

    In the mode observe, a part only reports how it would act in the mode enforce.
    """

    OBSERVE = "observe"
    ENFORCE = "enforce"


class PodSecurity(enum.StrEnum):
    """The levels of the Pod Security Standards, with the least strict level first
    (https://kubernetes.io/docs/concepts/security/pod-security-standards/).
    """

    PRIVILEGED = "privileged"
    BASELINE = "baseline"
    RESTRICTED = "restricted"

    @property
    def at_least(self) -> tuple["PodSecurity", ...]:
        """Returns all levels that are at least as strict as this level."""
        levels = tuple(PodSecurity)
        return levels[levels.index(self) :]
