"""Defines the reasons why a pod with GPU memory does not run.

For each reason, the table has the next event and the remedy.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Reason:
    """A reason why a pod does not run.

    `title` describes the problem. `then` describes the next event if nobody acts. `do` describes the remedy.
    """

    title: str
    then: str
    do: str


# The reasons of pods that have no problem.
FINE = ("runs", "elsewhere", "completed")

REASONS: dict[str, Reason] = {
    "runs": Reason(
        "the pod runs",
        "nothing",
        "nothing",
    ),
    "elsewhere": Reason(
        "Kueue dispatched the workload to a worker cluster, where its pods run",
        "the workload's status comes back from the worker cluster",
        "run kubectl gpumem why with the kubeconfig of the worker cluster",
    ),
    "completed": Reason(
        "the pod or Job has completed",
        "nothing",
        "nothing",
    ),
    # Reasons why the pod was never created.
    "quota": Reason(
        "the tenant's pods have used up its quota",
        "the pod's controller tries again, at intervals that grow to 16 minutes at most",
        "end another pod of the tenant, lower the pod's request, or raise the tenant's seats in the stack file",
    ),
    "namespace-quota": Reason(
        "the pods of the namespace have used up a ResourceQuota that is not of this stack",
        "the pod's controller tries again, at intervals that grow to 16 minutes at most",
        "end another pod of the namespace, lower the pod's request, or raise the ResourceQuota that the message names",
    ),
    "missing": Reason(
        "an object that the pod names does not exist",
        "the pod's controller or kube-scheduler tries again; the pod starts once the object exists",
        "create the object that the message names",
    ),
    "admission": Reason(
        "an admission policy denied the pod",
        "the pod's controller retries, and admission denies each new pod until the pod template changes",
        "change the field that the policy names",
    ),
    "class": Reason(
        "the tenant may not use the pod's PriorityClass",
        "the pod's controller retries, and admission denies each new pod until the pod template changes",
        "remove priorityClassName, so that admission sets it; or give the class to the tenant in the stack file",
    ),
    "gate": Reason(
        "the demand gate keeps the workload at 0 replicas",
        "the demand gate starts the workload once enough consecutive samples show demand and headroom",
        "create demand for the workload, or free memory; to scale the workload by hand, remove it from on_demand",
    ),
    "scaled": Reason(
        "the workload is scaled to 0",
        "nothing",
        "scale the workload with kubectl scale",
    ),
    "queue": Reason(
        "the workload waits in Kueue's queue",
        "Kueue admits the workload as soon as its ClusterQueue has quota and no other workload is before it",
        "wait; give the workload a higher kueue.x-k8s.io/priority-class, or raise the queue's quota in the stack file",
    ),
    "dispatch": Reason(
        "the workload has quota here, and waits until a worker cluster admits it",
        "Kueue dispatches the workload to the first worker cluster that has enough quota",
        "wait; check the worker clusters with kubectl get multikueueclusters, and their queues with their kubeconfigs",
    ),
    "check": Reason(
        "the workload has its quota, and waits for an admission check of its queue",
        "Kueue starts the workload as soon as the check is ready, for example when the cluster autoscaler has added "
        "nodes",
        "wait; check the ProvisioningRequests of the namespace and the log of the cluster autoscaler",
    ),
    "preempted": Reason(
        "Kueue preempted the workload for another workload",
        "the workload is in the queue again, and starts from its beginning",
        "wait, or give the workload a higher kueue.x-k8s.io/priority-class",
    ),
    "deactivated": Reason(
        "Kueue's Workload is deactivated, by Kueue, by the watchdog's recycle or by hand",
        "nothing",
        "remove the cause, such as a use above the budget; then set spec.active of its Workload to true",
    ),
    "unqueued": Reason(
        "Kueue holds the workload back, but the workload is in no queue",
        "Kueue queues the workload once Kueue runs and the workload names a LocalQueue",
        "give the workload the label kueue.x-k8s.io/queue-name; check that Kueue runs",
    ),
    "uncreated": Reason(
        "the controller has created no pod, for an unknown reason",
        "the controller creates the pod within seconds, if the controller runs",
        "run kubectl describe; if no pod is created, check that the cluster's controllers run",
    ),
    # Reasons why the pod waits for a node.
    "scheduling-gate": Reason(
        "a scheduling gate holds the pod back",
        "the component that set the gate removes the gate; Kueue does this once it has reserved the quota",
        "find the component that set the gate",
    ),
    "scheduler": Reason(
        "the pod's scheduler does not run, or does not try the pod",
        "the pod is placed within seconds once a scheduler's pod is ready and is the leader",
        "see docs/operations.md, GpuSchedulerDown",
    ),
    "extender": Reason(
        "the pod's scheduler cannot place any pod now",
        "the scheduler tries again after pauses that grow to some minutes",
        "see docs/operations.md, GpuSchedulerDown",
    ),
    "untried": Reason(
        "the scheduler has not tried to place the pod yet, or will try again because the pod fits now",
        "kube-scheduler tries the pod within 5 minutes",
        "wait",
    ),
    "held": Reason(
        "the scheduler delays the pod, because other pods use the memory of its seat",
        "the demand gate stops workloads and the watchdog recycles pods; after 60 s the pod is placed anyway",
        "lower the use of the pod that is over its budget, or delete that pod",
    ),
    "measured": Reason(
        "enough memory is free by the ledger, but too much memory is in use",
        "the pod is placed as soon as enough measured memory is free above the floor; the gate and the watchdog free "
        "memory only for pods that Kueue admitted",
        "lower the use of other pods on the device; a pod with a seat in the stack file would not have to wait",
    ),
    "device": Reason(
        "no single device has enough free memory, although the node has enough in total",
        "the pod is placed as soon as enough pods on one device have ended",
        "lower the pod's request, or delete a pod on the node so that its replacement gets another device",
    ),
    "node-sum": Reason(
        "running pods hold the memory",
        "the pod is placed as soon as enough running pods have ended; it preempts pods with a lower priority",
        "lower the pod's request, or end a running pod",
    ),
    "too-large": Reason(
        "the pod requests more than an empty node has",
        "nothing, because every node is too small",
        "lower the pod's request, or use devices of another pool",
    ),
    "resources": Reason(
        "no node has enough of a resource that the pod requests",
        "the pod is placed as soon as a node has enough of this resource",
        "lower the pod's request for this resource, or end a pod that holds it",
    ),
    "refused": Reason(
        "kube-scheduler places the pod on no node, for a reason that this command does not judge",
        "kube-scheduler tries again, and refuses the pod until the reason is gone",
        "remove the cause that kube-scheduler names",
    ),
    "capacity": Reason(
        "no node advertises gpumem",
        "reconcile advertises gpumem within seconds once the node shows the devices that the pool declares",
        "see the node's Events and docs/operations.md, GpuCapacityDrift",
    ),
    "unusable": Reason(
        "the node's devices cannot be used",
        "the pod is placed once the node's exporter publishes the devices again",
        "see docs/operations.md, GpuTelemetryMissing",
    ),
    "not-ready": Reason(
        "the node is not ready",
        "the pod is placed once the node's kubelet reports again",
        "run kubectl describe node",
    ),
    "cordoned": Reason(
        "the node takes no new pods (cordoned)",
        "nothing",
        "run kubectl uncordon when the node may take pods again",
    ),
    "taint": Reason(
        "the node has a taint that the pod does not tolerate",
        "nothing until somebody removes the taint",
        "give the pod a toleration, or remove the taint from the node",
    ),
    "selector": Reason(
        "the pod's nodeSelector or affinity matches no node of a pool",
        "nothing until a node gets the labels",
        "remove the nodeSelector, so that admission sets it; or label the node",
    ),
    # Reasons why the pod is on a node but does not run.
    "image": Reason(
        "the container's image cannot be pulled",
        "the kubelet tries again, at intervals that grow to 5 minutes",
        "correct the image's name or the pull secret",
    ),
    "crash": Reason(
        "the pod's container ends again and again",
        "the kubelet restarts the container, at intervals that grow to 5 minutes; the pod still holds its memory",
        "see kubectl logs --previous",
    ),
    "config": Reason(
        "the pod's container cannot be created",
        "the kubelet tries again",
        "correct what the message names, for instance create the missing Secret",
    ),
    "device-error": Reason(
        "the container runtime cannot give the container its GPU",
        "the kubelet tries again, with the same device",
        "if kubectl gpumem who lists the device as healthy, restart NVIDIA's device plugin; else delete the pod, so "
        "that a new one gets another device",
    ),
    "device-lost": Reason(
        "the pod's device is no longer on the node",
        "nothing, because the pod's containers cannot start on this node again",
        "delete the pod",
    ),
    "starting": Reason(
        "the pod's node is starting the pod",
        "the pod runs once its images are pulled and its volumes are mounted",
        "wait; if it takes long, see kubectl describe pod",
    ),
    "terminating": Reason(
        "the pod is ending",
        "the pod is gone after its grace period at the latest, if its node runs and the pod has no finalizer",
        "if the node is gone for good, delete the node; if the pod has a finalizer, find the controller that set it",
    ),
    # Reasons why the pod is gone.
    "recycled": Reason(
        "the watchdog recycled the pod, because the pod was over its budget and other pods lacked memory",
        "the pod's controller creates a new pod at once",
        "lower the pod's use to its budget, or raise the budget of its seat",
    ),
    "evicted": Reason(
        "the pod was evicted",
        "the pod's controller creates a new pod at once",
        "see the reason; after a preemption, give the pod a higher priority",
    ),
    "rejected": Reason(
        "the node's kubelet rejected the pod, so no container of it ran",
        "the pod stays as it is; its controller, if it has one, creates a new pod",
        "delete the pod; if it has no controller, create it again",
    ),
    "failed": Reason(
        "the pod failed",
        "the pod's controller may create a new pod",
        "see kubectl logs",
    ),
    "gone": Reason(
        "the pod is gone",
        "nothing",
        "name the pod's workload: kubectl gpumem why deployment/NAME",
    ),
}
