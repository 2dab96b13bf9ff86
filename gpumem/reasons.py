"""Defines the reasons why a pod with GPU memory does not run. Each reason comes with the next event and a remedy."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Reason:
    """A reason why a pod does not run.

    `title` names the problem, `then` names the next event if nobody acts, and `do` names the remedy.
    """

    title: str
    then: str
    do: str


# The reasons of pods without a problem.
FINE = ("runs", "completed")

REASONS: dict[str, Reason] = {
    "runs": Reason("it runs", "nothing", "nothing"),
    "completed": Reason("it completed", "nothing", "nothing"),
    # Reasons why the pod was never created.
    "quota": Reason(
        "the tenant's budget is used up",
        "its controller tries again, at intervals that grow to 16 minutes at most",
        "end another pod of the tenant, ask for less, or raise the tenant's seats in the stack file",
    ),
    "admission": Reason(
        "an admission policy denied it",
        "its controller tries again and is denied again, until its pod template changes",
        "change what the policy names",
    ),
    "class": Reason(
        "its PriorityClass is not this tenant's",
        "its controller tries again and is denied again, until its pod template changes",
        "leave priorityClassName out, which admission then sets; or give the tenant the class in the stack file",
    ),
    "gate": Reason(
        "its demand gate is closed",
        "the gate opens once there is demand and room for enough samples in a row, one of them each interval",
        "give it demand or free memory; take it out of on_demand to scale it by hand",
    ),
    "scaled": Reason("it is scaled to 0", "nothing", "kubectl scale it"),
    "queue": Reason(
        "it waits in Kueue's queue",
        "Kueue admits it as soon as its ClusterQueue has quota and no other Job is before it",
        "wait; give it a higher kueue.x-k8s.io/priority-class, or raise the queue's quota in the stack file",
    ),
    "preempted": Reason(
        "Kueue preempted it for another",
        "it is in the queue again by itself, and starts from its beginning",
        "wait, or give it a higher kueue.x-k8s.io/priority-class",
    ),
    "deactivated": Reason(
        "its Workload is deactivated: the watchdog recycled it, or somebody did it by hand",
        "nothing",
        "make it use no more than it declares, then set spec.active of its Workload to true",
    ),
    "unqueued": Reason(
        "it is held back, and is in no queue of Kueue",
        "Kueue queues it once Kueue runs and the work names a LocalQueue",
        "give it the label kueue.x-k8s.io/queue-name; see that Kueue runs",
    ),
    "uncreated": Reason(
        "its controller has made no pod, for an unknown reason",
        "the controller makes it within seconds, if it runs",
        "see kubectl describe; if it stays so, see that the cluster's controllers run",
    ),
    # Reasons why the pod waits for a node.
    "scheduling-gate": Reason(
        "a scheduling gate holds it",
        "the component that set the gate removes it; Kueue does so once it has reserved the quota",
        "find the component that set it",
    ),
    "scheduler": Reason(
        "its scheduler does not run",
        "it is placed within seconds once a scheduler's pod is ready and leads",
        "see docs/operations.md, GpuSchedulerDown",
    ),
    "extender": Reason(
        "its scheduler cannot place anything now",
        "it is tried again after pauses that grow to some minutes",
        "see docs/operations.md, GpuSchedulerDown",
    ),
    "untried": Reason(
        "its scheduler has not tried it yet, or will try it again: there is room now",
        "it is placed within seconds",
        "nothing",
    ),
    "held": Reason(
        "its seat is held back: memory that others use keeps it from loading",
        "gates close and the watchdog recycles; it is placed anyway after 60 s",
        "make the pod that is over its budget use less, or delete it",
    ),
    "measured": Reason(
        "the ledger has room, but too much memory is in use",
        "it is placed as soon as enough measured memory is free above the floor; gates close and the watchdog "
        "recycles only for pods that Kueue admitted",
        "make other pods on the device use less; a pod with a seat in the stack file would not have to wait",
    ),
    "device": Reason(
        "no single device has room, though the node's total would be enough",
        "it is placed as soon as enough of the pods on one device end",
        "ask for less, or delete a pod there so that its replacement goes to another device",
    ),
    "node-sum": Reason(
        "pods that run hold the memory",
        "it is placed as soon as enough of them end; those of a lower priority are preempted for it",
        "ask for less, or end a pod",
    ),
    "too-large": Reason(
        "it asks for more than an empty node has",
        "nothing: every node is too small",
        "ask for less, or for devices of another pool",
    ),
    "resources": Reason(
        "a node has the GPU memory, and lacks something else",
        "it is placed as soon as the node has it",
        "ask for less of it",
    ),
    "capacity": Reason(
        "no node advertises the memory",
        "reconcile advertises it within seconds once the node shows its devices as the pool declares them",
        "see the node's Events and docs/operations.md, GpuCapacityDrift",
    ),
    "unusable": Reason(
        "the node's devices cannot be used",
        "it is placed once the node's exporter publishes them again",
        "see docs/operations.md, GpuTelemetryMissing",
    ),
    "not-ready": Reason(
        "the node is not ready",
        "it is placed once the node's kubelet reports again",
        "see the node: kubectl describe node",
    ),
    "cordoned": Reason(
        "the node takes no new pods (cordoned)", "nothing", "kubectl uncordon it, once it may take pods again"
    ),
    "taint": Reason(
        "the node has a taint that it does not tolerate",
        "nothing until somebody removes the taint",
        "give the pod a toleration, or take the taint off the node",
    ),
    "selector": Reason(
        "its nodeSelector or affinity matches no node of a pool",
        "nothing until a node gets the labels",
        "leave the nodeSelector out, which admission then sets; or label the node",
    ),
    # Reasons why the pod is on a node but does not run.
    "image": Reason(
        "its image cannot be pulled",
        "the kubelet tries again, at intervals that grow to 5 minutes",
        "correct the image's name, or its pull secret",
    ),
    "crash": Reason(
        "its container ends again and again",
        "the kubelet starts it again, at intervals that grow to 5 minutes; it keeps its seat until then",
        "see kubectl logs --previous",
    ),
    "config": Reason(
        "its container cannot be created",
        "the kubelet tries again",
        "create the object that its message names, for instance a Secret",
    ),
    "device-lost": Reason(
        "its device is gone from its node", "nothing: its containers cannot start again there", "delete the pod"
    ),
    "starting": Reason("its node is starting it", "it runs within seconds, or its Events have the reason", "nothing"),
    "terminating": Reason(
        "it is ending",
        "it is gone after its grace period at the latest, if its node runs and no finalizer holds it",
        "if its node is gone for good, delete the node; if a finalizer holds it, find the controller that set it",
    ),
    # It was there.
    "recycled": Reason(
        "the watchdog recycled it, because it was over its budget while others lacked memory",
        "its controller makes another at once",
        "make it use no more than it declares, or raise its seat",
    ),
    "evicted": Reason(
        "it was evicted",
        "its controller makes another at once",
        "see the reason; for preemption: a higher priority",
    ),
    "failed": Reason("it failed", "its controller may make another", "see kubectl logs"),
    "gone": Reason(
        "there is no such pod, in the cluster or in its Events",
        "nothing",
        "name its workload: kubectl gpumem why deployment/NAME",
    ),
}
