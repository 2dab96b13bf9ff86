"""The reasons for which a pod with GPU memory does not run, each with what happens next and what helps."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Reason:
    """`title` names the problem, `then` the next event by itself, `do` the remedy."""

    title: str
    then: str
    do: str


# Nothing is wrong.
FINE = ("runs", "completed")

REASONS: dict[str, Reason] = {
    "runs": Reason("it runs", "nothing", "nothing"),
    "completed": Reason("it ended well", "nothing", "nothing"),
    # It was never created.
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
        "Kueue admits it as soon as its ClusterQueue has quota and nobody is before it",
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
        "have it use no more than it declares, then set spec.active of its Workload to true",
    ),
    "unqueued": Reason(
        "it is suspended, and no Workload of Kueue is its",
        "Kueue makes one as soon as it is there and the Job names a LocalQueue",
        "give it the label kueue.x-k8s.io/queue-name; see that Kueue runs",
    ),
    "uncreated": Reason(
        "its controller has made no pod, and says nothing of it",
        "the controller makes it within seconds, if it runs",
        "see kubectl describe; if it stays so, see that the cluster's controllers run",
    ),
    # It waits for a node.
    "scheduling-gate": Reason(
        "a scheduling gate holds it",
        "whoever set the gate takes it off: for Kueue's, when its quota is reserved",
        "ask who set it",
    ),
    "scheduler": Reason(
        "its scheduler is away",
        "it is placed within seconds once a scheduler's pod is ready and leads",
        "see docs/operations.md, GpuSchedulerDown",
    ),
    "extender": Reason(
        "its scheduler cannot place anything now",
        "it is tried again with growing pauses, of minutes at most",
        "see docs/operations.md, GpuSchedulerDown",
    ),
    "untried": Reason(
        "its scheduler has not tried it yet, or will try it again: it has room by now",
        "it is placed within seconds",
        "nothing",
    ),
    "held": Reason(
        "its seat is held back: memory that others use keeps it from loading",
        "gates close and the watchdog recycles; it is placed all the same after 60 s",
        "have whoever is over a budget use less, or delete that pod",
    ),
    "measured": Reason(
        "the ledger has room, and memory in use keeps it out",
        "it is placed as soon as what is measured is free above the floor; gates close and the watchdog recycles for "
        "what Kueue admitted, for others nothing is done",
        "have whoever uses the device use less; a seat in the stack file would not have to wait",
    ),
    "device": Reason(
        "no single device has room, though the node's sum has",
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
        "nothing: it never fits",
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
        "nothing, unless the taint goes",
        "give the pod a toleration, or take the taint off the node",
    ),
    "selector": Reason(
        "its nodeSelector or affinity leads to no node of a pool",
        "nothing, unless a node gets the labels",
        "leave the nodeSelector out, which admission then sets; or label the node",
    ),
    # It is on a node, and does not run.
    "image": Reason(
        "its image cannot be pulled",
        "the kubelet tries again, at intervals that grow to 5 minutes",
        "correct the image's name, or its pull secret",
    ),
    "crash": Reason(
        "its container ends again and again",
        "the kubelet starts it again, at intervals that grow to 5 minutes; meanwhile it keeps its seat",
        "see kubectl logs --previous",
    ),
    "config": Reason(
        "its container cannot be created",
        "the kubelet tries again",
        "make what its message names, for instance a Secret",
    ),
    "device-lost": Reason(
        "its device is gone from its node", "nothing: its containers cannot start again there", "delete the pod"
    ),
    "starting": Reason("its node is starting it", "it runs within seconds, or its Events say why not", "nothing"),
    "terminating": Reason(
        "it is ending",
        "it is gone after its grace at the latest, where its node is alone with it",
        "if its node is gone for good, delete the node; if a finalizer keeps it, ask who set that",
    ),
    # It was there.
    "recycled": Reason(
        "the watchdog recycled it, because it was over its budget while others lacked memory",
        "its controller makes another at once",
        "have it use no more than it declares, or raise its seat",
    ),
    "evicted": Reason(
        "it was evicted",
        "its controller makes another at once",
        "see the reason; for preemption: a higher priority",
    ),
    "failed": Reason("it failed", "its controller may make another", "see kubectl logs"),
    "gone": Reason(
        "there is no such pod, and no Event of one",
        "nothing",
        "name its workload: kubectl gpumem why deployment/NAME",
    ),
}
