"""Contains every string that the cluster sees.

Names with the operator's resource domain are properties of `Names`; the others are constants.
"""

from dataclasses import dataclass

PROJECT = "gpu-tenancy"

# The resources of NVIDIA's device plugin, and the labels of feature discovery.
GPU = "nvidia.com/gpu"
GPU_SHARED = "nvidia.com/gpu.shared"  # the name of a time slice, unless the slice is called a GPU (renameByDefault)
GPU_RUNTIME_CLASS = "nvidia"
GPU_TAINT = "nvidia.com/gpu"
VISIBLE_DEVICES = "NVIDIA_VISIBLE_DEVICES"
DRIVER_CAPABILITIES = "NVIDIA_DRIVER_CAPABILITIES"
# The variable with a container's cap: whole MiB on each of its devices (container toolkit from 1.20.1 on).
MEMORY_LIMIT = "NVIDIA_GPU_MEMORY_LIMIT"
MEMORY_REQUEST = "NVIDIA_GPU_MEMORY_REQUEST"
# The driver keeps memory limits by control group. Each container has a directory below this one.
CGROUPS = "/sys/fs/cgroup"
# GPU feature discovery writes these labels: the MiB of one device, and the number of physical devices of the node.
LABEL_GPU_MEMORY = "nvidia.com/gpu.memory"
LABEL_GPU_COUNT = "nvidia.com/gpu.count"
LABEL_GPU_REPLICAS = "nvidia.com/gpu.replicas"

# The suffix of the resource that reconcile advertises, under any domain.
GPUMEM_SUFFIX = "/gpumem"
GPU_COUNT_SUFFIX = "/gpu-count"

# Recommended labels, https://kubernetes.io/docs/concepts/overview/working-with-objects/common-labels/
LABEL_NAME = "app.kubernetes.io/name"
LABEL_PART_OF = "app.kubernetes.io/part-of"
LABEL_COMPONENT = "app.kubernetes.io/component"
LABEL_MANAGED_BY = "app.kubernetes.io/managed-by"

# The class of a node's own pods. The kubelet gives them an oom_score_adj of -997, and does not evict them.
NODE_CRITICAL = "system-node-critical"
# The class of the cluster's own pods, and of our agents. No tenant's class is above it.
CLUSTER_CRITICAL = "system-cluster-critical"
# This sysctl of a pod's own IPC namespace is safe by Kubernetes' list. It frees shared memory that no process has
# attached.
SHM_RMID_FORCED = "kernel.shm_rmid_forced"
# The prefix of both names, which Kubernetes reserves.
SYSTEM_PRIORITIES = "system-"

# Kubernetes sets this label on every namespace. Admission policies select by it, because nobody can forge it.
LABEL_NAMESPACE = "kubernetes.io/metadata.name"
LABEL_HOSTNAME = "kubernetes.io/hostname"
POD_SECURITY_ENFORCE = "pod-security.kubernetes.io/enforce"
# Kubernetes judges a workload's template by this level, and warns its author.
POD_SECURITY_AUDIT = "pod-security.kubernetes.io/audit"
POD_SECURITY_WARN = "pod-security.kubernetes.io/warn"

# Admission skips a namespace with this label. Only an account that may change our policies may set the label.
EXEMPT, EXEMPT_VALUE = "gpu-tenancy/exempt", "true"
# Every object of a stack has this label: the stack's project and name, such as gpu-tenancy/prod.
STACK = "gpu-tenancy/stack"

# This namespace is exempt by name. It always exists, so no tenant can create it.
EXEMPT_BY_NAME = "kube-system"

# The Deployment controller sets this label on ReplicaSets and their pods.
POD_TEMPLATE_HASH = "pod-template-hash"

# The API group, kinds and labels of Kueue.
KUEUE_GROUP = "kueue.x-k8s.io"
KUEUE_API = f"{KUEUE_GROUP}/v1beta2"
KUEUE_QUEUE_LABEL = "kueue.x-k8s.io/queue-name"
DEFAULT_QUEUE = "default"  # the LocalQueue of work that names none
KUEUE_PRIORITY_LABEL = "kueue.x-k8s.io/priority-class"
KUEUE_FEWEST_PODS = "kueue.x-k8s.io/job-min-parallelism"
# With this namespace label, Kueue manages the Jobs of the namespace. The label does not use the resource domain: while
# Kueue restarted for another label, Jobs would start without waiting for their turn.
QUEUE_TENANT = "gpu-tenancy/queue-tenant"
# Every pod that Kueue admitted has this label, and the name of its Workload (apis/kueue/v1beta2/topology_types.go).
KUEUE_MANAGED_LABEL = "kueue.x-k8s.io/managed"
KUEUE_POD_SET_LABEL = "kueue.x-k8s.io/podset"
KUEUE_WORKLOAD_ANNOTATION = "kueue.x-k8s.io/workload"

# The ConfigMap of the ledger in the system namespace, which agents and the policy pack read.
LEDGER = "gpu-tenancy-ledger"
LEDGER_KEY = "ledger.json"

# The ConfigMap of the memory pools in the system namespace, which the policy pack reads.
HOST_MEMORY_POOLS = "gpu-tenancy-memory-pools"
HOST_MEMORY_POOLS_KEY = "memory-pools.json"

# The namespace of the ledger and the agents, unless a stack names another.
SYSTEM_NAMESPACE = "gpu-tenancy-system"
# The port of the exporters, unless a stack names another.
EXPORTER_PORT = 9401

# The agents' workload, ServiceAccount and roles all have this name.
AGENTS = "gpu-tenancy-agents"
AGENTS_KEY = "agents.pyz"
RECONCILE = "gpumem-reconcile"
WATCHDOG = "gpu-vram-watchdog"
GATE = "gpu-demand-gate"
EXPORTER = "gpu-memory-exporter"
GUARD = "memory-guard"
# The guard's pods have this label with their memory pool.
LABEL_HOST_MEMORY_POOL = "gpu-tenancy/memory-pool"
ALERTS = "gpu-tenancy"
DASHBOARD = "gpu-tenancy-dashboard"
PROMETHEUS_OPERATOR_API = "monitoring.coreos.com/v1"
# Each of our alerts has this label with the project's name. The digest of alerts selects by it.
ALERT_LABEL = "part_of"

# The key of an agent's journal, which lasts across runs. The ConfigMap is named after the agent.
JOURNAL_KEY = "journal.json"
JOURNAL_WRITE_KEY = "write"  # identifies the write of the content: no two writes have the same value

# The ClusterRoles for users of kubectl gpumem.
VIEWER = "gpumem-viewer"
OPERATOR = "gpumem-operator"

# The directory of the agents' code in every pod, and the annotation with the SHA-256 of the code.
AGENTS_DIRECTORY = "/opt/gpu-tenancy"
AGENTS_DIGEST = "gpu-tenancy/sha256"

# With this annotation, Pulumi replaces a failed Job. Otherwise every later `pulumi up` would wait for the failed Job.
REPLACE_UNREADY = "pulumi.com/replaceUnready"
# With this annotation, Pulumi's provider overrules other writers of the fields that it applies.
APPLY_BY_FORCE, APPLY_BY_FORCE_VALUE = "pulumi.com/patchForce", "true"

# A device in a ResourceSlice has these attributes, and a capacity, which is all of its memory.
RESOURCE_GROUP = "resource.k8s.io"
RESOURCE_API = f"{RESOURCE_GROUP}/v1"
DEVICE_UUID = "uuid"
DEVICE_INDEX = "index"
DEVICE_MEMORY = "memory"
# NVIDIA's own DRA driver. It has this type for whole GPUs, and reports their whole memory as we do.
NVIDIA_DEVICE_DRIVER = "gpu.nvidia.com"
NVIDIA_DEVICE_CLASS = "gpu.nvidia.com"  # the class of every whole GPU in NVIDIA's chart
NVIDIA_DEVICE_TYPE = "type"
NVIDIA_WHOLE_GPU = "gpu"
# This attribute of a device in a pool with caps is CAN_CAP, or the reason why the device cannot cap.
DEVICE_CAP = "memoryCap"
CAN_CAP = "able"

# The reasons of Kubernetes Events on a Node.
EVENT_ADVERTISED = "GpuMemoryAdvertised"
EVENT_REMOVED = "GpuMemoryRemoved"
EVENT_WITHHELD = "GpuMemoryWithheld"
EVENT_REFUSED = "GpuMemoryRefused"
EVENT_OVERBOUND = "GpuMemoryOverbound"
EVENT_SHORT = "GpuMemoryShort"
EVENT_LABELS_GONE = "GpuMemoryLabelsGone"
EVENT_SLICES_GONE = "GpuMemorySlicesGone"
EVENT_UNREADABLE = "GpuMemoryRequestUnreadable"
# The reasons of the watchdog's Events, on a pod or, for the recycle limit, on the node.
EVENT_RECYCLED = "GpuMemoryRecycled"
EVENT_WOULD_RECYCLE = "GpuMemoryWouldRecycle"
EVENT_SPARED = "GpuMemoryOverBudget"
EVENT_BLOCKED = "GpuMemoryRecycleBlocked"
EVENT_CAPPED = "GpuMemoryRecycleCapped"
EVENT_TOO_LITTLE = "GpuMemoryRecycleTooLittle"
EVENT_UNDECLARED = "GpuMemoryUndeclared"
EVENT_BLIND = "GpuMemoryNotJudged"
EVENT_UNCAPPED = "GpuMemoryNotCapped"

# The reasons of Kubernetes Events on a Deployment behind a gate.
EVENT_GATE_OPENED = "GpuGateOpened"
EVENT_GATE_CLOSED = "GpuGateClosed"
EVENT_GATE_WOULD_OPEN = "GpuGateWouldOpen"
EVENT_GATE_WOULD_CLOSE = "GpuGateWouldClose"
EVENT_GATE_WAITS = "GpuGateWaits"
EVENT_GATE_LEFT_ALONE = "GpuGateLeftAlone"
EVENT_GATE_UNANSWERED = "GpuGateUnanswered"
EVENT_GATE_REFUSED = "GpuGateRefused"

# The reasons of the guard's Events on a pod that the guard protects.
EVENT_GUARDED = "OomScoreLowered"
EVENT_UNGUARDED = "OomScoreNotLowered"

# The reasons of the extender's Events on a pod.
EVENT_SEAT_HELD = "GpuSeatHeldBack"
EVENT_SEAT_OVERCROWDED = "GpuSeatOvercrowded"
EVENT_DEVICE_LOST = "GpuDeviceLost"

# The exporter's metrics by device; `gpu` is the device's index, `uuid` its identity.
METRIC_DEVICE_TOTAL = "gpu_device_memory_total_bytes"
METRIC_DEVICE_USED = "gpu_device_memory_used_bytes"
METRIC_DEVICE_FREE = "gpu_device_memory_free_bytes"
METRIC_UNREADABLE = "gpu_device_unreadable"  # by `gpu` alone, because the UUID cannot be read
METRIC_UNHEALTHY = "gpu_device_unhealthy"  # only for an unhealthy device; `fault` is the value of its taint
METRIC_SAMPLE_AGE = "gpu_memory_sample_age_seconds"
METRIC_BUILD_INFO = "gpu_memory_exporter_build_info"
# This metric is by container: namespace, pod, pod_uid, container, gpu, uuid. The names are empty until the API has
# reported them.
METRIC_POD_USED = "gpu_pod_memory_used_bytes"
# By device: the use outside known containers, and the number of processes with a use that NVML does not report. If
# there is such a process, the use by pod is partial.
METRIC_UNATTRIBUTED = "gpu_memory_unattributed_bytes"
METRIC_UNKNOWN_PROCESSES = "gpu_memory_unknown_processes"
# These metrics are by pod (namespace, pod, pod_uid) that declares gpumem. They are sums over all devices.
METRIC_POD_DECLARED = "gpu_pod_memory_declared_bytes"
METRIC_POD_OVER = "gpu_pod_memory_over_bytes"
# By capped container and device: the limit in NVML; 1 if the limit is the budget, else 0 with the reason.
METRIC_LIMIT = "gpu_container_memory_limit_bytes"
METRIC_CAPPED = "gpu_container_memory_capped"
# By device of a pool with caps: 1 if the device's driver can enforce caps, else 0 with the reason.
METRIC_CAN_CAP = "gpu_device_memory_cap_able"
# The ledger's metrics: by pool; by pool, tenant and seat.
METRIC_POOL_ADVERTISED = "gpu_pool_memory_advertised_bytes"
METRIC_POOL_PROMISED = "gpu_pool_memory_promised_bytes"
METRIC_POOL_FLOOR = "gpu_pool_memory_floor_bytes"
METRIC_SEAT = "gpu_seat_memory_bytes"
# Prometheus records these each minute, by tenant and pool: all seats, and the use of the tenant's pods.
RECORDED_SEATS = "tenant_pool:gpu_seat_memory_bytes:sum"
RECORDED_USED = "tenant_pool:gpu_pod_memory_used_bytes:sum"
# The metrics of the watchdog's journal.
METRIC_RECYCLES = "gpu_watchdog_recycles_last_hour"
METRIC_TENANT_RECYCLES = "gpu_watchdog_tenant_recycles_last_hour"  # by each tenant that has had a recycle
METRIC_API_AGE = "gpu_memory_exporter_api_age_seconds"

# The scheduler extender's metrics: seconds by verb, refusals by reason, drift by kind; by device: node, gpu, uuid.
METRIC_EXTENDER_SECONDS = "gpu_extender_request_seconds"
METRIC_EXTENDER_REFUSALS = "gpu_extender_refusals_total"
METRIC_EXTENDER_LEADING = "gpu_extender_leading"
METRIC_EXTENDER_READY = "gpu_extender_ready"
METRIC_EXTENDER_OFFERED = "gpu_extender_device_memory_offered_bytes"
METRIC_EXTENDER_ALLOCATED = "gpu_extender_device_memory_allocated_bytes"
METRIC_EXTENDER_RESERVATIONS = "gpu_extender_reservations"
METRIC_EXTENDER_UNSETTLED = "gpu_extender_unsettled_binds"
METRIC_EXTENDER_WAITING = "gpu_extender_waiting_pods"
METRIC_EXTENDER_DRIFT = "gpu_extender_ledger_drift"
# These metrics count by pool the seats that wait for memory used over budget, and the seats placed on such memory.
METRIC_EXTENDER_HELD_SEATS = "gpu_extender_held_seats"
METRIC_EXTENDER_OVERCROWDED = "gpu_extender_overcrowded_seats_total"
METRIC_EXTENDER_MEASURED_AGE = "gpu_extender_measured_age_seconds"

# The guard's metrics by protected pod (namespace, pod, pod_uid): the highest oom_score_adj that the guard leaves, the
# number of processes at or below it, and the number of processes that the guard cannot lower.
METRIC_GUARD_ADJ = "memory_guard_oom_score_adj"
METRIC_GUARD_HELD = "memory_guard_held_processes"
METRIC_GUARD_UNHELD = "memory_guard_unheld_processes"
METRIC_GUARD_API_AGE = "memory_guard_api_age_seconds"

# The ResourceQuota in the agents' namespaces.
CRITICAL_PODS = "critical-pods"
# The exporter's claim on all devices of its node, and the label that the exporter's namespace needs for this
# (KEP-5018).
EXPORTER_CLAIM = "gpu-memory-exporter-devices"
ADMIN_ACCESS = "resource.kubernetes.io/admin-access"
# The ResourceQuota in each tenant, and the ResourceQuota for claims on the tenant's seats.
SEATS = "gpumem-seats"
SEAT_CLAIM_QUOTA = "gpumem-seat-claims"
# The name of a pod's claim on a seat, and of the request in the claim.
SEAT_CLAIM = "gpumem"

# The ResourceQuotas of a memory pool's classes in a tenant. Each is named after its class.
HOST_MEMORY_QUOTA = "memory-pool"

# Kueue's Helm release.
KUEUE = "kueue"
KUEUE_SERVICE_ACCOUNT = f"{KUEUE}-controller-manager"  # the chart adds this suffix to the release's name

# An annotation on the scheduler's ResourceClaim. A change of it makes kube-scheduler try waiting pods again.
RETRY_ANNOTATION = "gpu-tenancy/tried-again"

# The mirror of a static pod has this annotation. Only its node's kubelet writes it (pkg/kubelet/types).
MIRROR_ANNOTATION = "kubernetes.io/config.mirror"

# The accounts that make the pods of Jobs: the account of the Job controller, or the account of all controllers.
JOB_CONTROLLERS = ("system:serviceaccount:kube-system:job-controller", "system:kube-controller-manager")
# The accounts that make the claims of pods.
CLAIM_CONTROLLERS = ("system:serviceaccount:kube-system:resource-claim-controller", "system:kube-controller-manager")
# This account removes deleted owners from the objects that they owned. Without an account of its own, it is the last of
# those above.
GARBAGE_COLLECTOR = "system:serviceaccount:kube-system:generic-garbage-collector"
# The cluster's own scheduler, which binds every pod that is not placed by device.
SCHEDULER_ACCOUNT = "system:kube-scheduler"

# Placement by device uses a second kube-scheduler. This names its workload, account and Lease, and the schedulerName of
# its pods.
SCHEDULER = "gpu-tenancy-scheduler"
SCHEDULER_NAME = "gpu-tenancy"
# The extender's refusal has this text if only memory in use keeps the pod out. Gate and watchdog read it in the pod's
# condition.
REFUSED_AS_MEASURED = "as measured and less the floor"
# Upstream's name for the program, for its container and for the key of its ConfigMap.
KUBE_SCHEDULER = "kube-scheduler"
# The roles that Kubernetes has for a scheduler (plugin/pkg/auth/authorizer/rbac/bootstrappolicy).
KUBE_SCHEDULER_ROLES = ("system:kube-scheduler", "system:volume-scheduler")
AUTHENTICATION_READER = "extension-apiserver-authentication-reader"

# The one policy of the policy pack, and the key of `--policy-pack-config`.
POLICY_PACK = "gpu-tenancy"
POLICY = "gpu-tenancy"


@dataclass(frozen=True)
class Names:
    """Builds the names under the operator's resource domain, for instance `viktorbarzin.me`."""

    domain: str

    @property
    def gpumem(self) -> str:
        """Returns the extended resource for whole MiB of GPU memory."""
        return f"{self.domain}{GPUMEM_SUFFIX}"

    @property
    def gpu_count(self) -> str:
        """Returns the extended resource for physical devices of the node."""
        return f"{self.domain}{GPU_COUNT_SUFFIX}"

    @property
    def requests_gpumem(self) -> str:
        """Returns the only ResourceQuota key for gpumem that Kubernetes enforces
        (pkg/quota/v1/evaluator/core/pods.go).
        """
        return f"requests.{self.gpumem}"

    @property
    def requests_gpu_count(self) -> str:
        """Returns the only ResourceQuota key for gpu-count that Kubernetes enforces."""
        return f"requests.{self.gpu_count}"

    @property
    def capacity_finalizer(self) -> str:
        """Returns the ledger's finalizer. reconcile removes it after the capacity keys of every node."""
        return f"{self.domain}/advertised-capacity"

    @classmethod
    def of_capacity_finalizer(cls, finalizer: str) -> "Names | None":
        """Returns the names behind a capacity finalizer, or None for any other finalizer."""
        names = cls(finalizer.partition("/")[0])
        return names if names.capacity_finalizer == finalizer else None

    @property
    def device_driver(self) -> str:
        """Returns the driver of the ResourceSlices in which the exporter publishes devices; at most 63 characters."""
        return f"gpumem.{self.domain}"

    def device_class(self, seat: str) -> str:
        """Returns the DeviceClass of a resident's seat."""
        return f"{seat}.{self.device_driver}"

    @property
    def unhealthy_taint(self) -> str:
        """Returns the taint of an unhealthy device in a ResourceSlice: no new pods. The taint's value is the fault."""
        return f"{self.domain}/unhealthy"

    @property
    def device_annotation_prefix(self) -> str:
        """Returns the prefix of pod annotations with the pod's devices. Only the scheduler writes these annotations."""
        return f"device.{self.domain}/"

    @property
    def device_index(self) -> str:
        """Returns the pod annotation with the indices of the pod's devices on the node, such as "1" or "0,2"."""
        return f"{self.device_annotation_prefix}index"

    @property
    def device_uuid(self) -> str:
        """Returns the pod annotation with the devices' UUIDs, which become NVIDIA_VISIBLE_DEVICES in the containers."""
        return f"{self.device_annotation_prefix}uuid"

    @property
    def device_mib(self) -> str:
        """Returns the pod annotation with the whole MiB that the pod has on each of its devices."""
        return f"{self.device_annotation_prefix}mib"

    @property
    def device_assumed_at(self) -> str:
        """Returns the pod annotation with the time at which the devices were chosen, in nanoseconds since 1970."""
        return f"{self.device_annotation_prefix}assumed-at"

    @property
    def device_excluded(self) -> str:
        """Returns the operator's node annotation with the indices of devices that take no new pod, such as "0,2"."""
        return f"{self.device_annotation_prefix}excluded"


def journal(agent: str) -> str:
    """Returns the ConfigMap that holds the journal of the agent of that name."""
    return f"{agent}-journal"


def seat_claim_template(seat: str) -> str:
    """Returns the ResourceClaimTemplate of a resident's seat, in the namespace of its tenant."""
    return f"{seat}-{SEAT_CLAIM}"


def devices_quota(device_class: str) -> str:
    """Returns the ResourceQuota key for the devices that claims of the class ask for in a namespace."""
    return f"{device_class}.deviceclass.{RESOURCE_GROUP}/devices"


def guard(host_memory_pool: str) -> str:
    """Returns the DaemonSet that guards the nodes of the memory pool of that name."""
    return f"{GUARD}-{host_memory_pool}"


def labels(component: str, name: str | None = None) -> dict[str, str]:
    """Returns the recommended labels of an object that belongs to one of our components."""
    return {
        LABEL_NAME: name or component,
        LABEL_COMPONENT: component,
        LABEL_PART_OF: PROJECT,
        LABEL_MANAGED_BY: "pulumi",
    }


def node_agent_namespace(system_namespace: str) -> str:
    """Returns the namespace of agents that need the host's process table.

    All other agents can be held to `restricted`.
    """
    return f"{system_namespace}-nodes"
