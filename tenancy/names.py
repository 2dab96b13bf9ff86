"""Defines every name that the project uses in the cluster.

The names that contain the operator's resource domain are properties of `Names`. All other names are constants.
"""

from dataclasses import dataclass

PROJECT = "gpu-tenancy"

# The resources of NVIDIA's device plugin, and names that NVIDIA's software uses.
GPU = "nvidia.com/gpu"
# the resource of a time slice, if NVIDIA's device plugin runs with renameByDefault
GPU_SHARED = "nvidia.com/gpu.shared"
GPU_RUNTIME_CLASS = "nvidia"
GPU_TAINT = "nvidia.com/gpu"
VISIBLE_DEVICES = "NVIDIA_VISIBLE_DEVICES"
DRIVER_CAPABILITIES = "NVIDIA_DRIVER_CAPABILITIES"
# The environment variable with a container's cap, in whole MiB on each of its devices (container toolkit 1.20.1 or
# later).
MEMORY_LIMIT = "NVIDIA_GPU_MEMORY_LIMIT"
MEMORY_REQUEST = "NVIDIA_GPU_MEMORY_REQUEST"
# NVIDIA's driver sets memory limits for each control group. The control group of each container is a directory below
# CGROUPS.
CGROUPS = "/sys/fs/cgroup"
# GPU feature discovery sets these labels on a node: the MiB of one device, and the number of physical devices.
LABEL_GPU_MEMORY = "nvidia.com/gpu.memory"
LABEL_GPU_COUNT = "nvidia.com/gpu.count"
LABEL_GPU_REPLICAS = "nvidia.com/gpu.replicas"

# The suffix of the resource that reconcile advertises. The operator's domain comes before the suffix.
GPUMEM_SUFFIX = "/gpumem"
GPU_COUNT_SUFFIX = "/gpu-count"

# Recommended labels, https://kubernetes.io/docs/concepts/overview/working-with-objects/common-labels/
LABEL_NAME = "app.kubernetes.io/name"
LABEL_PART_OF = "app.kubernetes.io/part-of"
LABEL_COMPONENT = "app.kubernetes.io/component"
LABEL_MANAGED_BY = "app.kubernetes.io/managed-by"

# The PriorityClass of pods that a node cannot run without. The kubelet gives pods of this PriorityClass an
# oom_score_adj of -997 and does not evict them.
NODE_CRITICAL = "system-node-critical"
# The PriorityClass of pods that a cluster cannot run without, and of our agents. No PriorityClass of a tenant has a
# higher value.
CLUSTER_CRITICAL = "system-cluster-critical"
# Kubernetes lists this sysctl of a pod's IPC namespace as safe. The sysctl frees shared memory that no process uses any
# more.
SHM_RMID_FORCED = "kernel.shm_rmid_forced"
# The prefix of the names system-node-critical and system-cluster-critical. Kubernetes reserves this prefix.
SYSTEM_PRIORITIES = "system-"

# Kubernetes sets this label with the namespace's name on every namespace. Our admission policies select namespaces by
# this label, because nobody can forge it.
LABEL_NAMESPACE = "kubernetes.io/metadata.name"
LABEL_HOSTNAME = "kubernetes.io/hostname"
POD_SECURITY_ENFORCE = "pod-security.kubernetes.io/enforce"
# The value of each label is a Pod Security level. Kubernetes warns about or audits pods that violate this level.
POD_SECURITY_AUDIT = "pod-security.kubernetes.io/audit"
POD_SECURITY_WARN = "pod-security.kubernetes.io/warn"

# Our admission policies skip a namespace with this label. Only an account that may change our admission policies may
# set this label.
EXEMPT, EXEMPT_VALUE = "gpu-tenancy/exempt", "true"
# Every object of a stack has this label: the stack's project and name, such as gpu-tenancy/prod.
STACK = "gpu-tenancy/stack"

# kube-system is exempt by its name. kube-system always exists, so no tenant can create it.
EXEMPT_BY_NAME = "kube-system"

# The Deployment controller sets this label on ReplicaSets and their pods.
POD_TEMPLATE_HASH = "pod-template-hash"

# The API group, labels and annotations of Kueue.
KUEUE_GROUP = "kueue.x-k8s.io"
KUEUE_API = f"{KUEUE_GROUP}/v1beta2"
KUEUE_QUEUE_LABEL = "kueue.x-k8s.io/queue-name"
DEFAULT_QUEUE = "default"  # the name of the LocalQueue for work that names no queue
KUEUE_PRIORITY_LABEL = "kueue.x-k8s.io/priority-class"
KUEUE_FEWEST_PODS = "kueue.x-k8s.io/job-min-parallelism"
# Kueue manages the Jobs in a namespace with this label. The label's name does not have the resource domain. Changing
# the label's name would restart Kueue. While Kueue restarts, Jobs would start without waiting for quota.
QUEUE_TENANT = "gpu-tenancy/queue-tenant"
# Kueue adds KUEUE_MANAGED_LABEL to every pod that it admits. KUEUE_WORKLOAD_ANNOTATION has the name of the pod's
# Workload (apis/kueue/v1beta2/topology_types.go).
KUEUE_MANAGED_LABEL = "kueue.x-k8s.io/managed"
KUEUE_POD_SET_LABEL = "kueue.x-k8s.io/podset"
KUEUE_WORKLOAD_ANNOTATION = "kueue.x-k8s.io/workload"

# The ConfigMap with the ledger in the system namespace. The agents and the policy pack read this ConfigMap.
LEDGER = "gpu-tenancy-ledger"
LEDGER_KEY = "ledger.json"

# The ConfigMap with the memory pools in the system namespace. The policy pack reads this ConfigMap.
HOST_MEMORY_POOLS = "gpu-tenancy-memory-pools"
HOST_MEMORY_POOLS_KEY = "memory-pools.json"

# The default namespace of the ledger and of the agents.
SYSTEM_NAMESPACE = "gpu-tenancy-system"
# The default port of the exporters.
EXPORTER_PORT = 9401

# The names of each agent's workload, ServiceAccount and roles. The name of the ConfigMap with the agents' code begins
# with AGENTS.
AGENTS = "gpu-tenancy-agents"
AGENTS_KEY = "agents.pyz"
RECONCILE = "gpumem-reconcile"
WATCHDOG = "gpu-vram-watchdog"
GATE = "gpu-demand-gate"
EXPORTER = "gpu-memory-exporter"
GUARD = "memory-guard"
# The guard's pods have this label with the name of their memory pool.
LABEL_HOST_MEMORY_POOL = "gpu-tenancy/memory-pool"
ALERTS = "gpu-tenancy"
DASHBOARD = "gpu-tenancy-dashboard"
PROMETHEUS_OPERATOR_API = "monitoring.coreos.com/v1"
# Each of our alerts has this label, with the project's name as its value. The digest selects its alerts by this label.
ALERT_LABEL = "part_of"

# The key of an agent's journal in its ConfigMap. The ConfigMap is kept between runs, and its name is the name of the
# agent.
JOURNAL_KEY = "journal.json"
JOURNAL_WRITE_KEY = "write"  # a value that is different for each write of the journal

# The ClusterRoles that let people use kubectl gpumem.
VIEWER = "gpumem-viewer"
OPERATOR = "gpumem-operator"

# The directory with the agents' code in every pod. AGENTS_DIGEST is an annotation with the SHA-256 of the code.
AGENTS_DIRECTORY = "/opt/gpu-tenancy"
AGENTS_DIGEST = "gpu-tenancy/sha256"

# With this annotation, Pulumi replaces a failed Job. Without REPLACE_UNREADY, every later `pulumi up` would wait for
# the failed Job.
REPLACE_UNREADY = "pulumi.com/replaceUnready"
# With this annotation, Pulumi's provider overwrites fields that another program has written.
APPLY_BY_FORCE, APPLY_BY_FORCE_VALUE = "pulumi.com/patchForce", "true"

# The attributes of a device in a ResourceSlice. A device also has a capacity, which is its whole memory.
RESOURCE_GROUP = "resource.k8s.io"
RESOURCE_API = f"{RESOURCE_GROUP}/v1"
DEVICE_UUID = "uuid"
DEVICE_INDEX = "index"
DEVICE_MEMORY = "memory"
# The name of NVIDIA's DRA driver. NVIDIA's DRA driver gives whole GPUs the type "gpu". Like our exporter, NVIDIA's DRA
# driver publishes the whole memory of a GPU.
NVIDIA_DEVICE_DRIVER = "gpu.nvidia.com"
NVIDIA_DEVICE_CLASS = "gpu.nvidia.com"  # the DeviceClass of all whole GPUs in NVIDIA's chart
NVIDIA_DEVICE_TYPE = "type"
NVIDIA_WHOLE_GPU = "gpu"
# Each device in a pool with caps has this attribute. The attribute's value is CAN_CAP, or the reason why the driver
# cannot enforce caps on the device.
DEVICE_CAP = "memoryCap"
CAN_CAP = "able"

# The possible reasons of our Events about a Node.
EVENT_ADVERTISED = "GpuMemoryAdvertised"
EVENT_REMOVED = "GpuMemoryRemoved"
EVENT_WITHHELD = "GpuMemoryWithheld"
EVENT_REFUSED = "GpuMemoryRefused"
EVENT_OVERBOUND = "GpuMemoryOverbound"
EVENT_SHORT = "GpuMemoryShort"
EVENT_LABELS_GONE = "GpuMemoryLabelsGone"
EVENT_SLICES_GONE = "GpuMemorySlicesGone"
EVENT_UNREADABLE = "GpuMemoryRequestUnreadable"
# The possible reasons of the watchdog's Events about a pod. An Event about the recycle limit is about the Node.
EVENT_RECYCLED = "GpuMemoryRecycled"
EVENT_WOULD_RECYCLE = "GpuMemoryWouldRecycle"
EVENT_SPARED = "GpuMemoryOverBudget"
EVENT_BLOCKED = "GpuMemoryRecycleBlocked"
EVENT_CAPPED = "GpuMemoryRecycleCapped"
EVENT_TOO_LITTLE = "GpuMemoryRecycleTooLittle"
EVENT_UNDECLARED = "GpuMemoryUndeclared"
EVENT_BLIND = "GpuMemoryNotJudged"
EVENT_UNCAPPED = "GpuMemoryNotCapped"

# The possible reasons of the gate's Events about the Deployment of an on-demand workload.
EVENT_GATE_OPENED = "GpuGateOpened"
EVENT_GATE_CLOSED = "GpuGateClosed"
EVENT_GATE_WOULD_OPEN = "GpuGateWouldOpen"
EVENT_GATE_WOULD_CLOSE = "GpuGateWouldClose"
EVENT_GATE_WAITS = "GpuGateWaits"
EVENT_GATE_LEFT_ALONE = "GpuGateLeftAlone"
EVENT_GATE_UNANSWERED = "GpuGateUnanswered"
EVENT_GATE_REFUSED = "GpuGateRefused"

# The possible reasons of the guard's Events about a protected pod.
EVENT_GUARDED = "OomScoreLowered"
EVENT_UNGUARDED = "OomScoreNotLowered"

# The possible reasons of the extender's Events about a pod.
EVENT_SEAT_HELD = "GpuSeatHeldBack"
EVENT_SEAT_OVERCROWDED = "GpuSeatOvercrowded"
EVENT_DEVICE_LOST = "GpuDeviceLost"

# The exporter's metrics of each device. The label `gpu` is the device's index, and `uuid` is its UUID.
METRIC_DEVICE_TOTAL = "gpu_device_memory_total_bytes"
METRIC_DEVICE_USED = "gpu_device_memory_used_bytes"
METRIC_DEVICE_FREE = "gpu_device_memory_free_bytes"
METRIC_UNREADABLE = "gpu_device_unreadable"  # This metric has only the label `gpu`, because the UUID cannot be read.
# This metric exists only for an unhealthy device. The label `fault` has the value of the device's taint.
METRIC_UNHEALTHY = "gpu_device_unhealthy"
METRIC_SAMPLE_AGE = "gpu_memory_sample_age_seconds"
METRIC_BUILD_INFO = "gpu_memory_exporter_build_info"
# The exporter's metric of each container, with the labels namespace, pod, pod_uid, container, gpu and uuid. The labels
# of the pod are empty until the exporter has read the pod from the API.
METRIC_POD_USED = "gpu_pod_memory_used_bytes"
# Metrics of each device: the use outside of known containers, and the number of processes for which NVML reports no
# use. If there are processes without a reported use, the figures of pods on the device are incomplete.
METRIC_UNATTRIBUTED = "gpu_memory_unattributed_bytes"
METRIC_UNKNOWN_PROCESSES = "gpu_memory_unknown_processes"
# Metrics of each pod that requests gpumem, with the labels namespace, pod and pod_uid. The values are sums over all
# devices.
METRIC_POD_DECLARED = "gpu_pod_memory_declared_bytes"
METRIC_POD_OVER = "gpu_pod_memory_over_bytes"
# Metrics of each container with a cap, by device. METRIC_LIMIT is the limit that NVML reports. METRIC_CAPPED is 1 if
# the limit equals the budget. Otherwise METRIC_CAPPED is 0 and has a label with the reason.
METRIC_LIMIT = "gpu_container_memory_limit_bytes"
METRIC_CAPPED = "gpu_container_memory_capped"
# A metric of each device in a pool with caps. The metric is 1 if the device's driver can enforce caps. Otherwise the
# metric is 0 and has a label with the reason.
METRIC_CAN_CAP = "gpu_device_memory_cap_able"
# Metrics of the ledger. METRIC_SEAT is by pool, tenant and seat, and the other metrics are by pool.
METRIC_POOL_ADVERTISED = "gpu_pool_memory_advertised_bytes"
METRIC_POOL_PROMISED = "gpu_pool_memory_promised_bytes"
METRIC_POOL_FLOOR = "gpu_pool_memory_floor_bytes"
METRIC_SEAT = "gpu_seat_memory_bytes"
# Prometheus records these two series each minute, by tenant and pool: the MiB of all seats, and the use of the tenant's
# pods.
RECORDED_SEATS = "tenant_pool:gpu_seat_memory_bytes:sum"
RECORDED_USED = "tenant_pool:gpu_pod_memory_used_bytes:sum"
# Metrics that the exporter reads from the watchdog's journal.
METRIC_RECYCLES = "gpu_watchdog_recycles_last_hour"
METRIC_TENANT_RECYCLES = "gpu_watchdog_tenant_recycles_last_hour"  # a series for each tenant with at least one recycle
METRIC_API_AGE = "gpu_memory_exporter_api_age_seconds"

# Metrics of the scheduler extender: seconds by verb, refusals by reason, and differences of its cache from the API by
# kind. Metrics of a device have the labels node, gpu and uuid.
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
# Two metrics by pool. HELD_SEATS counts the seats that wait because other pods exceed their budgets. OVERCROWDED counts
# the seats that were placed on a device although other pods there exceed their budgets.
METRIC_EXTENDER_HELD_SEATS = "gpu_extender_held_seats"
METRIC_EXTENDER_OVERCROWDED = "gpu_extender_overcrowded_seats_total"
METRIC_EXTENDER_MEASURED_AGE = "gpu_extender_measured_age_seconds"

# Metrics of the guard for each protected pod, with the labels namespace, pod and pod_uid. The metrics are the highest
# allowed oom_score_adj, the number of processes that comply, and the number of processes that the guard cannot lower.
METRIC_GUARD_ADJ = "memory_guard_oom_score_adj"
METRIC_GUARD_HELD = "memory_guard_held_processes"
METRIC_GUARD_UNHELD = "memory_guard_unheld_processes"
METRIC_GUARD_API_AGE = "memory_guard_api_age_seconds"

# The ResourceQuota in the agents' namespaces.
CRITICAL_PODS = "critical-pods"
# The exporter's ResourceClaim on all devices of its node. The exporter's namespace needs the label for this claim
# (KEP-5018).
EXPORTER_CLAIM = "gpu-memory-exporter-devices"
ADMIN_ACCESS = "resource.kubernetes.io/admin-access"
# The ResourceQuota of each tenant for gpumem, and the ResourceQuota for claims on the tenant's seats.
SEATS = "gpumem-seats"
SEAT_CLAIM_QUOTA = "gpumem-seat-claims"
# The name of a pod's claim on a seat, and of the device request in this claim.
SEAT_CLAIM = "gpumem"

# The ResourceQuotas of a tenant for the PriorityClasses of a memory pool. Each name ends with the name of the
# PriorityClass.
HOST_MEMORY_QUOTA = "memory-pool"

# Kueue's Helm release.
KUEUE = "kueue"
KUEUE_SERVICE_ACCOUNT = f"{KUEUE}-controller-manager"  # the chart appends this suffix to the name of the release

# An annotation on the ResourceClaim of the scheduler. When the annotation changes, kube-scheduler tries waiting pods
# again.
RETRY_ANNOTATION = "gpu-tenancy/tried-again"

# Kubernetes' object of a static pod has this annotation. Only the kubelet of the pod's node sets the annotation
# (pkg/kubelet/types).
MIRROR_ANNOTATION = "kubernetes.io/config.mirror"

# The accounts that create the pods of Jobs. A cluster has a separate account for the Job controller, or one account for
# all controllers.
JOB_CONTROLLERS = ("system:serviceaccount:kube-system:job-controller", "system:kube-controller-manager")
# The accounts that create the ResourceClaims of pods.
CLAIM_CONTROLLERS = ("system:serviceaccount:kube-system:resource-claim-controller", "system:kube-controller-manager")
# The account that removes deleted owners from the ownerReferences of objects. A cluster with one account for all
# controllers does not use this account.
GARBAGE_COLLECTOR = "system:serviceaccount:kube-system:generic-garbage-collector"
# The account of the cluster's default scheduler, which binds every pod that is not placed by device.
SCHEDULER_ACCOUNT = "system:kube-scheduler"

# The names of the second kube-scheduler, which places pods by device. SCHEDULER is the name of the workload, the
# account and the Lease. SCHEDULER_NAME is the schedulerName of the pods.
SCHEDULER = "gpu-tenancy-scheduler"
SCHEDULER_NAME = "gpu-tenancy"
# The extender's refusal contains this text if a pod fits by the ledger but the measured memory is in use. The gate and
# the watchdog find this text in the pod's condition.
REFUSED_AS_MEASURED = "as measured and less the floor"
# The upstream name of kube-scheduler. Our container and a key of our ConfigMap have this name too.
KUBE_SCHEDULER = "kube-scheduler"
# The ClusterRoles that Kubernetes defines for a scheduler (plugin/pkg/auth/authorizer/rbac/bootstrappolicy).
KUBE_SCHEDULER_ROLES = ("system:kube-scheduler", "system:volume-scheduler")
AUTHENTICATION_READER = "extension-apiserver-authentication-reader"

# The name of the only policy in the policy pack, which is also its key in `--policy-pack-config`.
POLICY_PACK = "gpu-tenancy"
POLICY = "gpu-tenancy"


@dataclass(frozen=True)
class Names:
    """Builds the names that contain the operator's resource domain, for instance `viktorbarzin.me`."""

    domain: str

    @property
    def gpumem(self) -> str:
        """Returns the name of the extended resource that counts whole MiB of GPU memory."""
        return f"{self.domain}{GPUMEM_SUFFIX}"

    @property
    def gpu_count(self) -> str:
        """Returns the name of the extended resource that counts the physical devices of a pod."""
        return f"{self.domain}{GPU_COUNT_SUFFIX}"

    @property
    def requests_gpumem(self) -> str:
        """Returns the ResourceQuota key for gpumem, the only spelling that Kubernetes enforces
        (pkg/quota/v1/evaluator/core/pods.go).
        """
        return f"requests.{self.gpumem}"

    @property
    def requests_gpu_count(self) -> str:
        """Returns the ResourceQuota key for gpu-count, the only spelling that Kubernetes enforces."""
        return f"requests.{self.gpu_count}"

    @property
    def capacity_finalizer(self) -> str:
        """Returns the finalizer of the ledger's ConfigMap.

        Reconcile first removes the advertised capacity from every node, and then this finalizer.
        """
        return f"{self.domain}/advertised-capacity"

    @classmethod
    def of_capacity_finalizer(cls, finalizer: str) -> "Names | None":
        """Returns the names with the domain of a capacity finalizer, or None for any other finalizer."""
        names = cls(finalizer.partition("/")[0])
        return names if names.capacity_finalizer == finalizer else None

    @property
    def device_driver(self) -> str:
        """Returns the driver name in the ResourceSlices in which the exporter publishes devices.

        The name has at most 63 characters.
        """
        return f"gpumem.{self.domain}"

    def device_class(self, seat: str) -> str:
        """Returns the name of the DeviceClass of a resident's seat."""
        return f"{seat}.{self.device_driver}"

    @property
    def unhealthy_taint(self) -> str:
        """Returns the key of the taint on an unhealthy device in a ResourceSlice.

        A device with the taint gets no new pods. The value of the taint is the fault.
        """
        return f"{self.domain}/unhealthy"

    @property
    def device_annotation_prefix(self) -> str:
        """Returns the prefix of the pod annotations that record the pod's devices.

        Only the scheduler writes these annotations.
        """
        return f"device.{self.domain}/"

    @property
    def device_index(self) -> str:
        """Returns the pod annotation with the indexes of the pod's devices on its node, such as "1" or "0,2"."""
        return f"{self.device_annotation_prefix}index"

    @property
    def device_uuid(self) -> str:
        """Returns the pod annotation with the UUIDs of the pod's devices.

        The containers get the UUIDs as NVIDIA_VISIBLE_DEVICES.
        """
        return f"{self.device_annotation_prefix}uuid"

    @property
    def device_mib(self) -> str:
        """Returns the pod annotation with the whole MiB that the pod holds on each of its devices."""
        return f"{self.device_annotation_prefix}mib"

    @property
    def device_assumed_at(self) -> str:
        """Returns the pod annotation with the time of the choice of devices, in nanoseconds since 1970."""
        return f"{self.device_annotation_prefix}assumed-at"

    @property
    def device_excluded(self) -> str:
        """Returns the node annotation in which the operator lists the indexes of devices that take no new pod, such as
        "0,2".
        """
        return f"{self.device_annotation_prefix}excluded"


def journal(agent: str) -> str:
    """Returns the name of the ConfigMap with the journal of an agent."""
    return f"{agent}-journal"


def seat_claim_template(seat: str) -> str:
    """Returns the name of the ResourceClaimTemplate of a resident's seat. The template is in the tenant's namespace."""
    return f"{seat}-{SEAT_CLAIM}"


def devices_quota(device_class: str) -> str:
    """Returns the ResourceQuota key that limits the devices in a namespace's claims on a DeviceClass."""
    return f"{device_class}.deviceclass.{RESOURCE_GROUP}/devices"


def guard(host_memory_pool: str) -> str:
    """Returns the name of the guard's DaemonSet for a memory pool."""
    return f"{GUARD}-{host_memory_pool}"


def labels(component: str, name: str | None = None) -> dict[str, str]:
    """Returns the recommended Kubernetes labels for an object of one of our components."""
    return {
        LABEL_NAME: name or component,
        LABEL_COMPONENT: component,
        LABEL_PART_OF: PROJECT,
        LABEL_MANAGED_BY: "pulumi",
    }


def node_agent_namespace(system_namespace: str) -> str:
    """Returns the name of the namespace for agents that must read the node's process table.

    Pod Security can restrict all other agents to the level `restricted`.
    """
    return f"{system_namespace}-nodes"
