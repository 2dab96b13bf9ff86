"""Every string that the cluster sees.

Names with the operator's resource domain are properties of `Names`; the others are constants.
"""

from dataclasses import dataclass

PROJECT = "gpu-tenancy"

# NVIDIA's device plugin and feature discovery.
GPU = "nvidia.com/gpu"
GPU_SHARED = "nvidia.com/gpu.shared"  # the name of a time slice if it is not called a GPU (renameByDefault)
GPU_RUNTIME_CLASS = "nvidia"
GPU_TAINT = "nvidia.com/gpu"
VISIBLE_DEVICES = "NVIDIA_VISIBLE_DEVICES"
DRIVER_CAPABILITIES = "NVIDIA_DRIVER_CAPABILITIES"
# A container's cap, whole MiB on each of its devices (container toolkit from 1.20.1 on).
MEMORY_LIMIT = "NVIDIA_GPU_MEMORY_LIMIT"
MEMORY_REQUEST = "NVIDIA_GPU_MEMORY_REQUEST"
# The driver keeps its memory limits by control group: each container has a directory below.
CGROUPS = "/sys/fs/cgroup"
# Labels that GPU feature discovery writes: MiB of one device, physical devices of the node.
LABEL_GPU_MEMORY = "nvidia.com/gpu.memory"
LABEL_GPU_COUNT = "nvidia.com/gpu.count"
LABEL_GPU_REPLICAS = "nvidia.com/gpu.replicas"

# The resources that reconcile advertises, under any domain.
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
# A sysctl of a pod's own IPC namespace, safe by Kubernetes' list: shared memory that no process has attached is freed.
SHM_RMID_FORCED = "kernel.shm_rmid_forced"
# The prefix of both names, reserved by Kubernetes.
SYSTEM_PRIORITIES = "system-"

# Set by Kubernetes on every namespace; admission policies select by it because nobody can forge it.
LABEL_NAMESPACE = "kubernetes.io/metadata.name"
LABEL_HOSTNAME = "kubernetes.io/hostname"
POD_SECURITY_ENFORCE = "pod-security.kubernetes.io/enforce"
# Kubernetes judges a workload's template by this level, and warns its author.
POD_SECURITY_AUDIT = "pod-security.kubernetes.io/audit"
POD_SECURITY_WARN = "pod-security.kubernetes.io/warn"

# Admission skips a namespace with this label. To set it, one needs the right to change our policies.
EXEMPT, EXEMPT_VALUE = "gpu-tenancy/exempt", "true"
# On every object that a stack made: the stack's project and name, such as gpu-tenancy/prod.
STACK = "gpu-tenancy/stack"

# Exempt by name: it always exists, so no tenant can create it.
EXEMPT_BY_NAME = "kube-system"

# Set by the Deployment controller on ReplicaSets and their pods.
POD_TEMPLATE_HASH = "pod-template-hash"

# Kueue.
KUEUE_GROUP = "kueue.x-k8s.io"
KUEUE_API = f"{KUEUE_GROUP}/v1beta2"
KUEUE_QUEUE_LABEL = "kueue.x-k8s.io/queue-name"
KUEUE_PRIORITY_LABEL = "kueue.x-k8s.io/priority-class"
KUEUE_FEWEST_PODS = "kueue.x-k8s.io/job-min-parallelism"
# Namespace label: Kueue manages the Jobs here. Not under the resource domain: while Kueue restarted for another label,
# Jobs would start without waiting for their turn.
QUEUE_TENANT = "gpu-tenancy/queue-tenant"
# On every pod that Kueue admitted, and the name of its Workload (apis/kueue/v1beta2/topology_types.go).
KUEUE_POD_SET_LABEL = "kueue.x-k8s.io/podset"
KUEUE_WORKLOAD_ANNOTATION = "kueue.x-k8s.io/workload"

# The ledger: one ConfigMap in the system namespace that agents and the policy pack read.
LEDGER = "gpu-tenancy-ledger"
LEDGER_KEY = "ledger.json"

# The memory pools: one ConfigMap in the system namespace that the policy pack reads.
HOST_MEMORY_POOLS = "gpu-tenancy-memory-pools"
HOST_MEMORY_POOLS_KEY = "memory-pools.json"

# The namespace of the ledger and the agents, unless a stack names another.
SYSTEM_NAMESPACE = "gpu-tenancy-system"
# The port of the exporters, unless a stack names another.
EXPORTER_PORT = 9401

# Agents: the name of the workload, its ServiceAccount and its roles alike.
AGENTS = "gpu-tenancy-agents"
AGENTS_KEY = "agents.pyz"
RECONCILE = "gpumem-reconcile"
WATCHDOG = "gpu-vram-watchdog"
GATE = "gpu-demand-gate"
EXPORTER = "gpu-memory-exporter"
GUARD = "memory-guard"
# On the guard's pods: their memory pool.
LABEL_HOST_MEMORY_POOL = "gpu-tenancy/memory-pool"
ALERTS = "gpu-tenancy"
DASHBOARD = "gpu-tenancy-dashboard"
PROMETHEUS_OPERATOR_API = "monitoring.coreos.com/v1"
# On each of our alerts, with the project's name: what their digest selects by.
ALERT_LABEL = "part_of"

# The key of an agent's journal: what it keeps across runs. The ConfigMap is named after the agent.
JOURNAL_KEY = "journal.json"
JOURNAL_WRITE_KEY = "write"  # which write the content is of: no two have the same

# ClusterRoles for users of kubectl gpumem.
VIEWER = "gpumem-viewer"
OPERATOR = "gpumem-operator"

# The directory of the agents' code in every pod, and the annotation with its SHA-256.
AGENTS_DIRECTORY = "/opt/gpu-tenancy"
AGENTS_DIGEST = "gpu-tenancy/sha256"

# Pulumi replaces a failed Job by this annotation; without it every later `pulumi up` would wait for the failed one.
REPLACE_UNREADY = "pulumi.com/replaceUnready"
# Pulumi's provider then overrules other writers of the fields that it applies.
APPLY_BY_FORCE, APPLY_BY_FORCE_VALUE = "pulumi.com/patchForce", "true"

# A ResourceSlice's device: its attributes, and its capacity, which is all of its memory.
RESOURCE_GROUP = "resource.k8s.io"
RESOURCE_API = f"{RESOURCE_GROUP}/v1"
DEVICE_UUID = "uuid"
DEVICE_INDEX = "index"
DEVICE_MEMORY = "memory"
# NVIDIA's own DRA driver: it names whole GPUs by this type, and all of their memory as we do.
NVIDIA_DEVICE_DRIVER = "gpu.nvidia.com"
NVIDIA_DEVICE_CLASS = "gpu.nvidia.com"  # its chart's, of every whole GPU
NVIDIA_DEVICE_TYPE = "type"
NVIDIA_WHOLE_GPU = "gpu"
# In a pool with caps: CAN_CAP, or the reason why the device has none.
DEVICE_CAP = "memoryCap"
CAN_CAP = "able"

# Reasons of the Kubernetes Events on a Node.
EVENT_ADVERTISED = "GpuMemoryAdvertised"
EVENT_REMOVED = "GpuMemoryRemoved"
EVENT_WITHHELD = "GpuMemoryWithheld"
EVENT_REFUSED = "GpuMemoryRefused"
EVENT_OVERBOUND = "GpuMemoryOverbound"
EVENT_SHORT = "GpuMemoryShort"
EVENT_LABELS_GONE = "GpuMemoryLabelsGone"
EVENT_SLICES_GONE = "GpuMemorySlicesGone"
EVENT_UNREADABLE = "GpuMemoryRequestUnreadable"
# Of the watchdog's Events, on a pod or, for the cap, on the node.
EVENT_RECYCLED = "GpuMemoryRecycled"
EVENT_WOULD_RECYCLE = "GpuMemoryWouldRecycle"
EVENT_SPARED = "GpuMemoryOverBudget"
EVENT_BLOCKED = "GpuMemoryRecycleBlocked"
EVENT_CAPPED = "GpuMemoryRecycleCapped"
EVENT_TOO_LITTLE = "GpuMemoryRecycleTooLittle"
EVENT_UNDECLARED = "GpuMemoryUndeclared"
EVENT_BLIND = "GpuMemoryNotJudged"
EVENT_UNCAPPED = "GpuMemoryNotCapped"

# Reasons of the Kubernetes Events on a Deployment behind a gate.
EVENT_GATE_OPENED = "GpuGateOpened"
EVENT_GATE_CLOSED = "GpuGateClosed"
EVENT_GATE_WOULD_OPEN = "GpuGateWouldOpen"
EVENT_GATE_WOULD_CLOSE = "GpuGateWouldClose"
EVENT_GATE_WAITS = "GpuGateWaits"
EVENT_GATE_LEFT_ALONE = "GpuGateLeftAlone"
EVENT_GATE_UNANSWERED = "GpuGateUnanswered"
EVENT_GATE_REFUSED = "GpuGateRefused"

# Reasons of the guard's Events on a pod that it protects.
EVENT_GUARDED = "OomScoreLowered"
EVENT_UNGUARDED = "OomScoreNotLowered"

# Reasons of the extender's Events on a pod.
EVENT_SEAT_HELD = "GpuSeatHeldBack"
EVENT_SEAT_OVERCROWDED = "GpuSeatOvercrowded"
EVENT_DEVICE_LOST = "GpuDeviceLost"

# Metrics of the exporter, by device; `gpu` is the device's index, `uuid` its identity.
METRIC_DEVICE_TOTAL = "gpu_device_memory_total_bytes"
METRIC_DEVICE_USED = "gpu_device_memory_used_bytes"
METRIC_DEVICE_FREE = "gpu_device_memory_free_bytes"
METRIC_UNREADABLE = "gpu_device_unreadable"  # by gpu alone: not even its uuid can be read
METRIC_UNHEALTHY = "gpu_device_unhealthy"  # only of such a device; `fault` is its taint's value
METRIC_SAMPLE_AGE = "gpu_memory_sample_age_seconds"
METRIC_BUILD_INFO = "gpu_memory_exporter_build_info"
# By container: namespace, pod, pod_uid, container, gpu, uuid. The names are empty while the API has not reported them.
METRIC_POD_USED = "gpu_pod_memory_used_bytes"
# By device: the use outside known containers, and the number of processes with a use that NVML does not report. With
# such a process, the use by pod is partial.
METRIC_UNATTRIBUTED = "gpu_memory_unattributed_bytes"
METRIC_UNKNOWN_PROCESSES = "gpu_memory_unknown_processes"
# By pod (namespace, pod, pod_uid) that declares gpumem, on all devices together.
METRIC_POD_DECLARED = "gpu_pod_memory_declared_bytes"
METRIC_POD_OVER = "gpu_pod_memory_over_bytes"
# By container with a cap, and device: the limit in NVML; 1 if that is the budget, else 0 with the reason.
METRIC_LIMIT = "gpu_container_memory_limit_bytes"
METRIC_CAPPED = "gpu_container_memory_capped"
# By device of a pool with caps: 1 if its driver can enforce them, else 0 with the reason.
METRIC_CAN_CAP = "gpu_device_memory_cap_able"
# The ledger: by pool; by pool, tenant and seat.
METRIC_POOL_ADVERTISED = "gpu_pool_memory_advertised_bytes"
METRIC_POOL_PROMISED = "gpu_pool_memory_promised_bytes"
METRIC_POOL_FLOOR = "gpu_pool_memory_floor_bytes"
METRIC_SEAT = "gpu_seat_memory_bytes"
# Recorded by Prometheus each minute, by tenant and pool: all seats, and the use of the tenant's pods.
RECORDED_SEATS = "tenant_pool:gpu_seat_memory_bytes:sum"
RECORDED_USED = "tenant_pool:gpu_pod_memory_used_bytes:sum"
# The watchdog's journal.
METRIC_RECYCLES = "gpu_watchdog_recycles_last_hour"
METRIC_TENANT_RECYCLES = "gpu_watchdog_tenant_recycles_last_hour"  # by tenant that has had one
METRIC_API_AGE = "gpu_memory_exporter_api_age_seconds"

# The scheduler extender's: seconds by verb, refusals by reason, drift by kind; by device: node, gpu, uuid.
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
# By pool: seats that wait for memory used over budget, and those placed on such memory.
METRIC_EXTENDER_HELD_SEATS = "gpu_extender_held_seats"
METRIC_EXTENDER_OVERCROWDED = "gpu_extender_overcrowded_seats_total"
METRIC_EXTENDER_MEASURED_AGE = "gpu_extender_measured_age_seconds"

# Metrics of the guard, by protected pod (namespace, pod, pod_uid): the highest oom_score_adj that it leaves, the number
# of processes at or below it, and the number that it cannot lower.
METRIC_GUARD_ADJ = "memory_guard_oom_score_adj"
METRIC_GUARD_HELD = "memory_guard_held_processes"
METRIC_GUARD_UNHELD = "memory_guard_unheld_processes"
METRIC_GUARD_API_AGE = "memory_guard_api_age_seconds"

# The ResourceQuota in the agents' namespaces.
CRITICAL_PODS = "critical-pods"
# The exporter's claim on all devices of its node, and the label that its namespace needs for that (KEP-5018).
EXPORTER_CLAIM = "gpu-memory-exporter-devices"
ADMIN_ACCESS = "resource.kubernetes.io/admin-access"
# The ResourceQuota in each tenant, and the one for claims on its seats.
SEATS = "gpumem-seats"
SEAT_CLAIM_QUOTA = "gpumem-seat-claims"
# In a pod: its claim on a seat. In a claim: its request.
SEAT_CLAIM = "gpumem"

# The ResourceQuotas of a memory pool's classes in a tenant, each named after its class.
HOST_MEMORY_QUOTA = "memory-pool"

# Kueue's Helm release.
KUEUE = "kueue"
KUEUE_SERVICE_ACCOUNT = f"{KUEUE}-controller-manager"  # the chart adds the suffix to the release's name

# On the scheduler's ResourceClaim: a change makes kube-scheduler try waiting pods again.
RETRY_ANNOTATION = "gpu-tenancy/tried-again"

# On the mirror of a static pod: only its node's kubelet writes it (pkg/kubelet/types).
MIRROR_ANNOTATION = "kubernetes.io/config.mirror"

# Accounts that make the pods of Jobs: the controller's own, or that of all controllers.
JOB_CONTROLLERS = ("system:serviceaccount:kube-system:job-controller", "system:kube-controller-manager")
# Accounts that make the claims of pods.
CLAIM_CONTROLLERS = ("system:serviceaccount:kube-system:resource-claim-controller", "system:kube-controller-manager")
# Takes owners that are gone off what they owned; where it has no account of its own it is the last of those above.
GARBAGE_COLLECTOR = "system:serviceaccount:kube-system:generic-garbage-collector"
# The cluster's own scheduler, which binds every pod that is not placed by device.
SCHEDULER_ACCOUNT = "system:kube-scheduler"

# Placement by device by a second kube-scheduler: its workload, account and Lease, and the schedulerName of its pods.
SCHEDULER = "gpu-tenancy-scheduler"
SCHEDULER_NAME = "gpu-tenancy"
# In the extender's refusal if only memory in use keeps the pod out. Gate and watchdog read it in the pod's condition.
REFUSED_AS_MEASURED = "as measured and less the floor"
# Upstream's name for the program, its container and its ConfigMap's key.
KUBE_SCHEDULER = "kube-scheduler"
# Roles that Kubernetes brings for a scheduler (plugin/pkg/auth/authorizer/rbac/bootstrappolicy).
KUBE_SCHEDULER_ROLES = ("system:kube-scheduler", "system:volume-scheduler")
AUTHENTICATION_READER = "extension-apiserver-authentication-reader"

# The policy pack's one policy; `--policy-pack-config` is keyed by it.
POLICY_PACK = "gpu-tenancy"
POLICY = "gpu-tenancy"


@dataclass(frozen=True)
class Names:
    """Names under the operator's resource domain, for instance `viktorbarzin.me`."""

    domain: str

    @property
    def gpumem(self) -> str:
        """The extended resource, whole MiB of GPU memory."""
        return f"{self.domain}{GPUMEM_SUFFIX}"

    @property
    def gpu_count(self) -> str:
        """The extended resource for physical devices of the node."""
        return f"{self.domain}{GPU_COUNT_SUFFIX}"

    @property
    def requests_gpumem(self) -> str:
        """The only ResourceQuota key for gpumem that Kubernetes enforces (pkg/quota/v1/evaluator/core/pods.go)."""
        return f"requests.{self.gpumem}"

    @property
    def requests_gpu_count(self) -> str:
        """The same for gpu-count."""
        return f"requests.{self.gpu_count}"

    @property
    def capacity_finalizer(self) -> str:
        """On the ledger: reconcile removes it after the capacity keys of every node."""
        return f"{self.domain}/advertised-capacity"

    @classmethod
    def of_capacity_finalizer(cls, finalizer: str) -> "Names | None":
        """Returns the names behind a capacity finalizer; None for any other finalizer."""
        names = cls(finalizer.partition("/")[0])
        return names if names.capacity_finalizer == finalizer else None

    @property
    def device_driver(self) -> str:
        """The driver of the ResourceSlices in which the exporter publishes devices; at most 63 characters."""
        return f"gpumem.{self.domain}"

    def device_class(self, seat: str) -> str:
        """The DeviceClass of a resident's seat."""
        return f"{seat}.{self.device_driver}"

    @property
    def unhealthy_taint(self) -> str:
        """On an unhealthy device in a ResourceSlice: no new pods. The value is the fault."""
        return f"{self.domain}/unhealthy"

    @property
    def device_annotation_prefix(self) -> str:
        """The prefix of pod annotations with the pod's devices; only the scheduler writes them."""
        return f"device.{self.domain}/"

    @property
    def device_index(self) -> str:
        """Pod annotation: the indices of its devices on the node, "1" or "0,2"."""
        return f"{self.device_annotation_prefix}index"

    @property
    def device_uuid(self) -> str:
        """Pod annotation: the UUIDs of the devices, what NVIDIA_VISIBLE_DEVICES becomes in the containers."""
        return f"{self.device_annotation_prefix}uuid"

    @property
    def device_mib(self) -> str:
        """Pod annotation: whole MiB that the pod has on each of its devices."""
        return f"{self.device_annotation_prefix}mib"

    @property
    def device_assumed_at(self) -> str:
        """Pod annotation: when the devices were chosen, nanoseconds since 1970."""
        return f"{self.device_annotation_prefix}assumed-at"

    @property
    def device_excluded(self) -> str:
        """Node annotation, the operator's: indices of devices that take no new pod, "0,2"."""
        return f"{self.device_annotation_prefix}excluded"


def journal(agent: str) -> str:
    """The ConfigMap that holds the journal of the agent of that name."""
    return f"{agent}-journal"


def seat_claim_template(seat: str) -> str:
    """The ResourceClaimTemplate of a resident's seat, in its tenant's namespace."""
    return f"{seat}-{SEAT_CLAIM}"


def devices_quota(device_class: str) -> str:
    """The ResourceQuota key for the devices that claims of the class ask for in a namespace."""
    return f"{device_class}.deviceclass.{RESOURCE_GROUP}/devices"


def guard(host_memory_pool: str) -> str:
    """The DaemonSet that guards the nodes of the memory pool of that name."""
    return f"{GUARD}-{host_memory_pool}"


def labels(component: str, name: str | None = None) -> dict[str, str]:
    """The recommended labels of an object that belongs to one of our components."""
    return {
        LABEL_NAME: name or component,
        LABEL_COMPONENT: component,
        LABEL_PART_OF: PROJECT,
        LABEL_MANAGED_BY: "pulumi",
    }


def node_agent_namespace(system_namespace: str) -> str:
    """Where agents run that need the host's process table: apart, so that the rest can be held to `restricted`."""
    return f"{system_namespace}-nodes"
