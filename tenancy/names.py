"""Defines every name that the project uses in the cluster.

The properties of `Names` are the names with the operator's resource domain. Names without the resource domain are
constants.
"""

from dataclasses import dataclass

PROJECT = "gpu-tenancy"

# The resources of NVIDIA's device plugin, and names that NVIDIA's software uses.
GPU = "nvidia.com/gpu"
# the resource for time-sliced devices, if NVIDIA's device plugin runs with renameByDefault
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
# GPU feature discovery writes these labels on a node: the MiB of one device, and the number of physical devices.
LABEL_GPU_MEMORY = "nvidia.com/gpu.memory"
LABEL_GPU_COUNT = "nvidia.com/gpu.count"
LABEL_GPU_REPLICAS = "nvidia.com/gpu.replicas"

# The suffix of the resource that reconcile advertises. The operator's domain comes before this suffix.
GPUMEM_SUFFIX = "/gpumem"
GPU_COUNT_SUFFIX = "/gpu-count"

# Recommended labels, https://kubernetes.io/docs/concepts/overview/working-with-objects/common-labels/
LABEL_NAME = "app.kubernetes.io/name"
LABEL_PART_OF = "app.kubernetes.io/part-of"
LABEL_COMPONENT = "app.kubernetes.io/component"
LABEL_MANAGED_BY = "app.kubernetes.io/managed-by"

# The PriorityClass of pods without which a node cannot run. The kubelet gives pods of this PriorityClass an
# oom_score_adj of -997 and does not evict them.
NODE_CRITICAL = "system-node-critical"
# The PriorityClass of pods without which a cluster cannot run, and of our agents. A tenant's PriorityClass never has a
# higher value.
CLUSTER_CRITICAL = "system-cluster-critical"
# This sysctl of a pod's IPC namespace frees shared memory that no process uses any more. Kubernetes lists this sysctl
# as safe.
SHM_RMID_FORCED = "kernel.shm_rmid_forced"
# The prefix of the names system-node-critical and system-cluster-critical. Kubernetes reserves this prefix for its own
# PriorityClasses.
SYSTEM_PRIORITIES = "system-"

# Kubernetes writes this label with the namespace's name on every namespace. Our admission policies select namespaces by
# this label, because nobody can forge it.
LABEL_NAMESPACE = "kubernetes.io/metadata.name"
LABEL_HOSTNAME = "kubernetes.io/hostname"
POD_SECURITY_ENFORCE = "pod-security.kubernetes.io/enforce"
# The value of each of these labels is a Pod Security level. Kubernetes warns about pods that violate this Pod Security
# level, or audits them.
POD_SECURITY_AUDIT = "pod-security.kubernetes.io/audit"
POD_SECURITY_WARN = "pod-security.kubernetes.io/warn"

# Our admission policies skip a namespace with this label. Only an account that may change our admission policies may
# set this label.
EXEMPT, EXEMPT_VALUE = "gpu-tenancy/exempt", "true"
# Every object of a stack has this label. The label's value is the stack's project and name, such as gpu-tenancy/prod.
STACK = "gpu-tenancy/stack"

# The namespace kube-system is exempt by its name. A tenant cannot create kube-system, because it always exists.
EXEMPT_BY_NAME = "kube-system"
# Pulumi's type of a patched namespace. The patch of kube-system identifies the cluster of a state.
CLUSTER_TYPE = "kubernetes:core/v1:NamespacePatch"
# https://kubernetes.io/docs/concepts/overview/working-with-objects/namespaces/#initial-namespaces
# `default` is Kubernetes' too, but may be a tenant, because many clusters have their workloads in it.
SYSTEM_NAMESPACES = ("kube-node-lease", "kube-public", EXEMPT_BY_NAME)
KUBERNETES_NAMESPACES = ("default", *SYSTEM_NAMESPACES)

# Admission sets this label on each new pod that reaches a GPU, so that an agent can watch these pods alone. The label
# is an index and no proof: a pod that is older than the policy lacks it, and a tenant may remove it.
GPU_POD, GPU_POD_VALUE = "gpu-tenancy/gpu-pod", "true"

# The Deployment controller writes this label on ReplicaSets and their pods.
POD_TEMPLATE_HASH = "pod-template-hash"

# The API group, labels and annotations of Kueue.
KUEUE_GROUP = "kueue.x-k8s.io"
KUEUE_API = f"{KUEUE_GROUP}/v1beta2"
KUEUE_MULTI_KUEUE = f"{KUEUE_GROUP}/multikueue"  # the controller that dispatches work to worker clusters
KUEUE_QUEUE_LABEL = "kueue.x-k8s.io/queue-name"
AUTOSCALING_GROUP = "autoscaling.x-k8s.io"  # the API group of the cluster autoscaler's ProvisioningRequests.
DEFAULT_QUEUE = "default"  # The name of the LocalQueue for work that names no queue.
KUEUE_PRIORITY_LABEL = "kueue.x-k8s.io/priority-class"
KUEUE_FEWEST_PODS = "kueue.x-k8s.io/job-min-parallelism"
# Kueue manages the Jobs in a namespace with this label. The name of this label does not contain the resource domain. A
# change of this label's name would restart Kueue. Kueue suspends new Jobs until they have quota. While Kueue restarts,
# new Jobs would start at once.
QUEUE_TENANT = "gpu-tenancy/queue-tenant"
# Kueue adds KUEUE_MANAGED_LABEL to every pod that it admits. KUEUE_WORKLOAD_ANNOTATION has the name of the pod's
# Workload (apis/kueue/v1beta2/topology_types.go).
KUEUE_MANAGED_LABEL = "kueue.x-k8s.io/managed"
KUEUE_POD_SET_LABEL = "kueue.x-k8s.io/podset"
KUEUE_WORKLOAD_ANNOTATION = "kueue.x-k8s.io/workload"
LEADER_WORKER_SET_LABEL = "leaderworkerset.sigs.k8s.io/name"  # on each pod of a LeaderWorkerSet

# The ConfigMap with the ledger, in the system namespace. The agents and the policy pack read the ledger's ConfigMap.
LEDGER = "gpu-tenancy-ledger"
LEDGER_KEY = "ledger.json"

# The ConfigMap with the memory pools, in the system namespace. The policy pack reads the ConfigMap with the memory
# pools.
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
BOARD = "gpu-tenancy-board"
# The guard's pods have this label. The label's value is the name of the pods' memory pool.
LABEL_HOST_MEMORY_POOL = "gpu-tenancy/memory-pool"
ALERTS = "gpu-tenancy"
DASHBOARD = "gpu-tenancy-dashboard"
PROMETHEUS_OPERATOR_API = "monitoring.coreos.com/v1"
# Each of our alerts has this label. The label's value is the name of the project. The digest selects its alerts by this
# label.
ALERT_LABEL = "part_of"

# The key of an agent's journal in the journal's ConfigMap. The ConfigMap of a journal stays between runs, and has the
# name of the agent.
JOURNAL_KEY = "journal.json"
JOURNAL_WRITE_KEY = "write"  # a value that is different in each write of the journal

# The ClusterRoles with which people can use kubectl gpumem.
VIEWER = "gpumem-viewer"
OPERATOR = "gpumem-operator"

# The directory with the agents' code in every pod. AGENTS_DIGEST is an annotation with the SHA-256 of the agents' code.
AGENTS_DIRECTORY = "/opt/gpu-tenancy"
AGENTS_DIGEST = "gpu-tenancy/sha256"

# REPLACE_UNREADY is an annotation with which Pulumi replaces a failed Job. Without REPLACE_UNREADY, every later `pulumi
# up` would wait for the failed Job.
REPLACE_UNREADY = "pulumi.com/replaceUnready"
# Names to Pulumi's provider the field manager of an object.
FIELD_MANAGER = "pulumi.com/patchFieldManager"
_LONGEST_MANAGER = 128

# The attributes of a device in a ResourceSlice. A device's capacity in a ResourceSlice is the whole memory of the
# device.
RESOURCE_GROUP = "resource.k8s.io"
RESOURCE_API = f"{RESOURCE_GROUP}/v1"
DEVICE_UUID = "uuid"
DEVICE_INDEX = "index"
DEVICE_MEMORY = "memory"
# The name of NVIDIA's DRA driver. NVIDIA's DRA driver gives whole GPUs the type "gpu". Like our exporter, NVIDIA's DRA
# driver publishes the whole memory of a GPU.
NVIDIA_DEVICE_DRIVER = "gpu.nvidia.com"
NVIDIA_DEVICE_TYPE = "type"
NVIDIA_WHOLE_GPU = "gpu"
# Each device in a pool with caps has this attribute. The value of this attribute is CAN_CAP if the driver can enforce
# caps on the device. Any other value of this attribute is the reason why the driver cannot enforce caps.
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
# The possible reasons of the watchdog's Events about a pod. An Event about the recycle limit belongs to the Node.
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
EVENT_PLACED = "GpuPlaced"
EVENT_SEAT_HELD = "GpuSeatHeldBack"
EVENT_SEAT_OVERCROWDED = "GpuSeatOvercrowded"
EVENT_DEVICE_LOST = "GpuDeviceLost"

# The exporter's metrics of each device. The label `gpu` is the index of a device, and the label `uuid` is its UUID.
METRIC_DEVICE_TOTAL = "gpu_device_memory_total_bytes"
METRIC_DEVICE_USED = "gpu_device_memory_used_bytes"
METRIC_DEVICE_FREE = "gpu_device_memory_free_bytes"
# This metric has only the label `gpu`, because the exporter cannot read the device's UUID.
METRIC_UNREADABLE = "gpu_device_unreadable"
# This metric exists only for an unhealthy device. The label `fault` has the value of the device's taint.
METRIC_UNHEALTHY = "gpu_device_unhealthy"
METRIC_SAMPLE_AGE = "gpu_memory_sample_age_seconds"
METRIC_BUILD_INFO = "gpu_memory_exporter_build_info"
# The exporter's metric of each container, with the labels namespace, pod, pod_uid, container, gpu and uuid. The labels
# of the pod are empty until the exporter has read the pod from the API.
METRIC_POD_USED = "gpu_pod_memory_used_bytes"
# Metrics of each device: the use that belongs to no known container, and the number of processes for which NVML reports
# no use. If NVML reports no use for some processes, the figures of pods on the device are incomplete.
METRIC_UNATTRIBUTED = "gpu_memory_unattributed_bytes"
METRIC_UNKNOWN_PROCESSES = "gpu_memory_unknown_processes"
# Metrics of each pod that requests gpumem, with the labels namespace, pod and pod_uid. The values are sums over all
# devices of the pod.
METRIC_POD_DECLARED = "gpu_pod_memory_declared_bytes"
METRIC_POD_OVER = "gpu_pod_memory_over_bytes"
# Metrics of each container with a cap, by device. METRIC_LIMIT is the limit that NVML reports. METRIC_CAPPED is 1 if
# the limit equals the budget. If the limit differs, METRIC_CAPPED is 0 and has a label with the reason.
METRIC_LIMIT = "gpu_container_memory_limit_bytes"
METRIC_CAPPED = "gpu_container_memory_capped"
# A metric of each device in a pool with caps. The metric is 1 if the driver can enforce caps on the device. If the
# driver cannot enforce caps, the metric is 0 and has a label with the reason.
METRIC_CAN_CAP = "gpu_device_memory_cap_able"
# Metrics of the ledger. METRIC_SEAT has the labels pool, tenant and seat. All other metrics of the ledger have only the
# label pool.
METRIC_POOL_ADVERTISED = "gpu_pool_memory_advertised_bytes"
METRIC_POOL_PROMISED = "gpu_pool_memory_promised_bytes"
METRIC_POOL_FLOOR = "gpu_pool_memory_floor_bytes"
METRIC_SEAT = "gpu_seat_memory_bytes"
# Prometheus records these two series each minute by tenant and pool: the MiB of all seats, and the use of the tenant's
# pods.
RECORDED_SEATS = "tenant_pool:gpu_seat_memory_bytes:sum"
RECORDED_USED = "tenant_pool:gpu_pod_memory_used_bytes:sum"
# Metrics that the exporter reads from the watchdog's journal.
METRIC_RECYCLES = "gpu_watchdog_recycles_last_hour"
METRIC_TENANT_RECYCLES = "gpu_watchdog_tenant_recycles_last_hour"  # a series for each tenant with at least one recycle
METRIC_API_AGE = "gpu_memory_exporter_api_age_seconds"

# Metrics of the scheduler extender: the seconds of requests by verb, the refusals by reason, and the differences
# between cache and API by kind. A metric of a device has the labels node, gpu and uuid.
METRIC_EXTENDER_SECONDS = "gpu_extender_request_seconds"
METRIC_EXTENDER_REFUSALS = "gpu_extender_refusals_total"
METRIC_EXTENDER_LEADING = "gpu_extender_leading"
METRIC_EXTENDER_READY = "gpu_extender_ready"
METRIC_EXTENDER_OFFERED = "gpu_extender_device_memory_offered_bytes"
METRIC_EXTENDER_ALLOCATED = "gpu_extender_device_memory_allocated_bytes"
METRIC_EXTENDER_RESERVATIONS = "gpu_extender_reservations"
METRIC_EXTENDER_WAITING = "gpu_extender_waiting_pods"
METRIC_EXTENDER_DRIFT = "gpu_extender_ledger_drift"
# Two metrics of each pool. HELD_SEATS counts the seats with delayed pods, because other pods exceed their budgets.
# OVERCROWDED counts the seats on a device where other pods exceed their budgets.
METRIC_EXTENDER_HELD_SEATS = "gpu_extender_held_seats"
# UNPLACED counts the absent seats without room on any device.
METRIC_EXTENDER_UNPLACED_SEATS = "gpu_extender_unplaced_seats"
METRIC_EXTENDER_OVERCROWDED = "gpu_extender_overcrowded_seats_total"
METRIC_EXTENDER_MEASURED_AGE = "gpu_extender_measured_age_seconds"

# Metrics of the guard for each protected pod, with the labels namespace, pod and pod_uid. The guard's metrics are the
# highest allowed oom_score_adj, and the numbers of processes up to this value and above it.
METRIC_GUARD_ADJ = "memory_guard_oom_score_adj"
METRIC_GUARD_HELD = "memory_guard_held_processes"
METRIC_GUARD_UNHELD = "memory_guard_unheld_processes"
METRIC_GUARD_API_AGE = "memory_guard_api_age_seconds"

# A metric of the exporter, the extender and the guard: the number of objects that the agent cannot judge, with the
# labels agent and kind.
METRIC_UNJUDGED = "gpu_unjudged_objects"

# The ResourceQuota in the namespaces of the agents.
CRITICAL_PODS = "critical-pods"
# The ResourceQuota of each tenant for gpumem.
SEATS = "gpumem-seats"

# The ResourceQuotas of a tenant for the PriorityClasses of a memory pool. Each of these names ends with the name of the
# PriorityClass.
HOST_MEMORY_QUOTA = "memory-pool"

# Kueue's Helm release.
KUEUE = "kueue"
# The names of the objects of the platform and of Kueue start with these prefixes.
OURS = (f"{PROJECT}-", KUEUE, RECONCILE, WATCHDOG, GATE, EXPORTER, GUARD)
# the chart of Kueue appends this suffix to the name of the release
KUEUE_SERVICE_ACCOUNT = f"{KUEUE}-controller-manager"

# An annotation on the scheduler's ResourceClaim. When this annotation changes, kube-scheduler tries waiting pods again.
RETRY_ANNOTATION = "gpu-tenancy/tried-again"

# The mirror pod of a static pod has this annotation. Only the kubelet of the pod's node may set this annotation
# (pkg/kubelet/types).
MIRROR_ANNOTATION = "kubernetes.io/config.mirror"

# The accounts of Kubernetes' controllers. A cluster has an account for each controller, or one account for all of them.
JOB_CONTROLLERS = ("system:serviceaccount:kube-system:job-controller", "system:kube-controller-manager")
REPLICA_SET_CONTROLLERS = ("system:serviceaccount:kube-system:replicaset-controller", "system:kube-controller-manager")
DEPLOYMENT_CONTROLLERS = ("system:serviceaccount:kube-system:deployment-controller", "system:kube-controller-manager")
# The account that removes deleted owners from the ownerReferences of objects. A cluster with one account for all
# controllers does not use this account.
GARBAGE_COLLECTOR = "system:serviceaccount:kube-system:generic-garbage-collector"
# The account of the cluster's default scheduler. The default scheduler binds every pod for which our extender does not
# choose a device.
SCHEDULER_ACCOUNT = "system:kube-scheduler"

# The names of our own kube-scheduler, which places pods by device. SCHEDULER is the name of the workload, the account
# and the Lease of our kube-scheduler. SCHEDULER_NAME is the schedulerName of pods that our kube-scheduler places.
SCHEDULER = "gpu-tenancy-scheduler"
SCHEDULER_NAME = "gpu-tenancy"
# The extender's refusal contains this text if a pod fits by the ledger but too little measured memory is free. The gate
# and the watchdog look for this text in the pod's condition.
REFUSED_AS_MEASURED = "as measured and less the floor"
REFUSED_AS_KEPT = "beside the memory that absent seats need"
# The upstream name of kube-scheduler. Our container with kube-scheduler and a key of our ConfigMap have this name too.
KUBE_SCHEDULER = "kube-scheduler"
# The ClusterRoles that Kubernetes defines for a scheduler (plugin/pkg/auth/authorizer/rbac/bootstrappolicy).
KUBE_SCHEDULER_ROLES = ("system:kube-scheduler", "system:volume-scheduler")
AUTHENTICATION_READER = "extension-apiserver-authentication-reader"

# The name of the only policy in the policy pack. The policy has the same key in `--policy-pack-config`.
POLICY_PACK = "gpu-tenancy"
POLICY = "gpu-tenancy"


@dataclass(frozen=True)
class Names:
    """Makes the names with the operator's resource domain, such as `viktorbarzin.me`."""

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
    def seat_label(self) -> str:
        """Returns the label by which a pod names its seat. The label's value is the resident's name."""
        return f"{self.domain}/seat"

    @property
    def requests_gpumem(self) -> str:
        """Returns the ResourceQuota key for gpumem. Kubernetes enforces a quota of gpumem only with this spelling of
        the key (pkg/quota/v1/evaluator/core/pods.go).
        """
        return f"requests.{self.gpumem}"

    @property
    def requests_gpu_count(self) -> str:
        """Returns the ResourceQuota key for gpu-count. Kubernetes enforces a quota of gpu-count only with this spelling
        of the key.
        """
        return f"requests.{self.gpu_count}"

    @property
    def capacity_finalizer(self) -> str:
        """Returns the finalizer of the ledger's ConfigMap.

        Reconcile removes this finalizer after it has removed the advertised capacity from every node.
        """
        return f"{self.domain}/advertised-capacity"

    @classmethod
    def of_capacity_finalizer(cls, finalizer: str) -> "Names | None":
        """Reads the resource domain from a capacity finalizer. Returns None for any other finalizer."""
        names = cls(finalizer.partition("/")[0])
        return names if names.capacity_finalizer == finalizer else None

    @property
    def device_driver(self) -> str:
        """Returns the driver name in the ResourceSlices of the exporter.

        The driver name has at most 63 characters.
        """
        return f"gpumem.{self.domain}"

    @property
    def unhealthy_taint(self) -> str:
        """Returns the key of the taint on an unhealthy device in a ResourceSlice.

        A device with this taint gets no new pods, and the taint's value is the fault.
        """
        return f"{self.domain}/unhealthy"

    @property
    def device_annotation_prefix(self) -> str:
        """Returns the prefix of the annotations that record a pod's devices.

        Only the scheduler may write these annotations.
        """
        return f"device.{self.domain}/"

    @property
    def device_index(self) -> str:
        """Returns the pod annotation with the indexes of the pod's devices on its node, such as "1" or "0,2"."""
        return f"{self.device_annotation_prefix}index"

    @property
    def device_uuid(self) -> str:
        """Returns the pod annotation with the UUIDs of the pod's devices.

        The containers get these UUIDs as NVIDIA_VISIBLE_DEVICES.
        """
        return f"{self.device_annotation_prefix}uuid"

    @property
    def device_mib(self) -> str:
        """Returns the pod annotation with the whole MiB that the pod holds on each of its devices."""
        return f"{self.device_annotation_prefix}mib"

    @property
    def device_assumed_at(self) -> str:
        """Returns the pod annotation with the time when the devices were chosen, in nanoseconds since 1970."""
        return f"{self.device_annotation_prefix}assumed-at"

    @property
    def device_excluded(self) -> str:
        """Returns the node annotation in which an operator lists the UUIDs of devices that take no new pod."""
        return f"{self.device_annotation_prefix}excluded"


def journal(agent: str) -> str:
    """Returns the name of the ConfigMap with the journal of an agent."""
    return f"{agent}-journal"


def multi_kueue_check(queue: str) -> str:
    """Returns the name of the AdmissionCheck and of the MultiKueueConfig for a ClusterQueue that dispatches
    its work.
    """
    return f"multikueue-{queue}"


def guard(host_memory_pool: str) -> str:
    """Returns the name of the guard's DaemonSet for a memory pool."""
    return f"{GUARD}-{host_memory_pool}"


def labels(component: str, name: str | None = None) -> dict[str, str]:
    """Returns the recommended labels of Kubernetes for an object of one of our components."""
    return {
        LABEL_NAME: name or component,
        LABEL_COMPONENT: component,
        LABEL_PART_OF: PROJECT,
        LABEL_MANAGED_BY: "pulumi",
    }


def node_agent_namespace(system_namespace: str) -> str:
    """Returns the name of the namespace for agents that must read the node's process table.

    All other agents run in a namespace with the Pod Security level `restricted`.
    """
    return f"{system_namespace}-nodes"


def stack_mark(project: str, stack: str) -> str:
    """Returns the value of the annotation STACK."""
    return f"{project}/{stack}"


def field_manager(mark: str) -> str:
    """Returns the field manager of a stack's objects and patches. The end of a long mark is the stack's name."""
    return mark[-_LONGEST_MANAGER:]


def service_account_user(namespace: str, name: str) -> str:
    """Returns the user name of a ServiceAccount."""
    return f"system:serviceaccount:{namespace}:{name}"
