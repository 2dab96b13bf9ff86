"""Defines the names of the ValidatingAdmissionPolicies and MutatingAdmissionPolicies, and what a refusal by one says.

The binding of a policy has the same name as the policy.
"""

from dataclasses import dataclass

STAMP_PRIORITY = "gpu-tenancy-stamp-priority"
PLACE_QUEUED = "gpu-tenancy-place-queued"
PLACE_SEATED = "gpu-tenancy-place-seated"
GPU_BUDGET = "gpu-tenancy-gpu-budget"
DEVICE_CHOICE = "gpu-tenancy-device-choice"
DEVICE_BINDING = "gpu-tenancy-device-binding"
DEVICE_ANNOTATIONS = "gpu-tenancy-device-annotations"
DEVICE_CAPPED = "gpu-tenancy-device-capped"
DEVICE_CAPPED_DEBUG = "gpu-tenancy-device-capped-debug"
DEVICE_CAP_STAMP = "gpu-tenancy-device-cap-stamp"
DEVICE_STAMP = "gpu-tenancy-device-stamp"
GPU_POD_STAMP = "gpu-tenancy-gpu-pod-stamp"
DEVICE_HIDE = "gpu-tenancy-device-hide"
DEVICE_STAMP_DEBUG = "gpu-tenancy-device-stamp-debug"
DEVICE_ENVIRONMENT = "gpu-tenancy-device-environment"
DEVICE_RUNTIMES = "gpu-tenancy-device-runtimes"
DEVICE_CLAIMS = "gpu-tenancy-device-claims"
DEVICE_PLACED = "gpu-tenancy-device-placed"
DEVICE_SPREAD = "gpu-tenancy-device-spread"
EXEMPTIONS = "gpu-tenancy-exemptions"
GATED_PODS = "gpu-tenancy-gated-pods"
GATED_REPLICA_SETS = "gpu-tenancy-gated-replica-sets"
GPU_COUNT_USE = "gpu-tenancy-gpu-count-use"
GPU_TENANTS = "gpu-tenancy-gpu-tenants"
POD_SECURITY = "gpu-tenancy-pod-security"
QUEUED_OWNERS = "gpu-tenancy-queued-owners"
QUEUED_PODS = "gpu-tenancy-queued-pods"
QUEUED_PRIORITIES = "gpu-tenancy-queued-priorities"
QUEUED_PODS_KEPT = "gpu-tenancy-queued-pods-kept"
SEAT_LABELS = "gpu-tenancy-seat-labels"
SEAT_NAMED = "gpu-tenancy-seat-named"
SEAT_SIZES = "gpu-tenancy-seat-sizes"
GRACE = "gpu-tenancy-grace"
COUNTED_GPUS = "gpu-tenancy-counted-gpus"
WHOLE_DEVICES = "gpu-tenancy-whole-devices"
PRIORITY_USE = "gpu-tenancy-priority-use"
PRIORITY_SYSTEM = "gpu-tenancy-priority-system"
NODE_SHARES = "gpu-tenancy-node-shares"
MIRROR_PODS = "gpu-tenancy-mirror-pods"
DEVICE_SLICES = "gpu-tenancy-device-slices"
HOST_MEMORY_STAMP = "gpu-tenancy-memory-stamp"
HOST_MEMORY_CLASSES = "gpu-tenancy-memory-classes"
RECONCILE_WRITES = "gpu-tenancy-reconcile-writes"
CAPACITY_WRITERS = "gpu-tenancy-capacity-writers"
LEDGER_WRITES = "gpu-tenancy-ledger-writes"
ONE_STACK = "gpu-tenancy-one-stack"

# The policy on the left is a part of the policy on the right (tenancy/admission/merge.py). A longer name that begins
# with a name on the left and "-", such as `gpu-tenancy-priority-use-gpu`, is a part too.
_PART_OF = {
    GPU_TENANTS: GPU_BUDGET,
    GPU_COUNT_USE: GPU_BUDGET,
    WHOLE_DEVICES: GPU_BUDGET,
    COUNTED_GPUS: GPU_BUDGET,
    GATED_PODS: GPU_BUDGET,
    MIRROR_PODS: GPU_BUDGET,
    NODE_SHARES: GPU_BUDGET,
    SEAT_NAMED: GPU_BUDGET,
    PRIORITY_USE: GPU_BUDGET,
    PRIORITY_SYSTEM: GPU_BUDGET,
    DEVICE_CHOICE: GPU_BUDGET,
    DEVICE_SPREAD: DEVICE_PLACED,
    QUEUED_PODS_KEPT: QUEUED_PODS,
    HOST_MEMORY_CLASSES: HOST_MEMORY_CLASSES,
    GPU_POD_STAMP: DEVICE_STAMP,
    DEVICE_HIDE: DEVICE_STAMP,
    DEVICE_STAMP_DEBUG: DEVICE_STAMP,
    PLACE_QUEUED: DEVICE_STAMP,
    PLACE_SEATED: DEVICE_STAMP,
}


def policy_of(part: str) -> str:
    """Returns the name of the policy in the cluster that contains the part."""
    found = (whole for name, whole in _PART_OF.items() if part == name or part.startswith(f"{name}-"))
    return next(found, part)


# These policies protect the agents' data and the status of nodes. Without the stack, nobody sends a request that these
# policies deny. The policies therefore deny requests in the mode observe too.
GUARDS = frozenset(
    {
        CAPACITY_WRITERS,
        DEVICE_ANNOTATIONS,
        DEVICE_BINDING,
        DEVICE_SLICES,
        EXEMPTIONS,
        LEDGER_WRITES,
        ONE_STACK,
        RECONCILE_WRITES,
    }
)


@dataclass(frozen=True)
class Refusal:
    """The reason why the API server would deny a pod, and what to change. `part` is the part of the admission policy
    that denies the pod."""

    part: str
    message: str

    @property
    def policy(self) -> str:
        """Returns the name of the admission policy in the cluster."""
        return policy_of(self.part)
