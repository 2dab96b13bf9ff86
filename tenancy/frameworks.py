"""Defines the kinds of work that Kueue can queue. For each kind of work, defines how Kueue prevents the start of its
pods.

The source is pkg/controller/jobs of sigs.k8s.io/kueue. The names of the kinds are the values of
`integrations.frameworks` in Kueue's configuration.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from tenancy.names import JOB_CONTROLLERS, KUEUE_GROUP

# Kueue removes these scheduling gates from a pod after it has admitted the pod and chosen its place.
GATES = (f"{KUEUE_GROUP}/admission", f"{KUEUE_GROUP}/topology")


class FrameworkName(StrEnum):
    """The names of Kueue's frameworks in Kueue's configuration."""

    JOB = "batch/job"
    JOBSET = "jobset.x-k8s.io/jobset"
    LEADER_WORKER_SET = "leaderworkerset.x-k8s.io/leaderworkerset"
    RAY_JOB = "ray.io/rayjob"
    RAY_CLUSTER = "ray.io/raycluster"
    TRAIN_JOB = "trainer.kubeflow.org/trainjob"
    MPI_JOB = "kubeflow.org/mpijob"
    POD = "pod"
    DEPLOYMENT = "deployment"
    STATEFUL_SET = "statefulset"


@dataclass(frozen=True)
class Framework:
    """A kind of work that Kueue can queue.

    If `is_suspended` is True, Kueue suspends an object of this kind. If `is_suspended` is False, Kueue adds a
    scheduling gate to the pods of the object. `accounts` are the user names of the controllers that create objects of
    this kind. `makes_pods` is True if one of these controllers creates the pods directly, without a scheduling gate.
    `parts` are the kinds of the objects between an object of this kind and its pods.
    """

    name: FrameworkName
    kind: str
    group: str
    resource: str
    accounts: Sequence[str] = ()
    is_suspended: bool = True
    makes_pods: bool = False
    parts: Sequence[FrameworkName] = ()


def kinds_of(frameworks: Iterable[FrameworkName]) -> str:
    """Returns the names of the kinds as a part of a sentence, such as `Job or JobSet`."""
    return " or ".join(FRAMEWORKS[name].kind for name in frameworks)


def parts_of(frameworks: Iterable[FrameworkName]) -> Sequence[Framework]:
    """Returns the kinds of the objects between the objects of these kinds and their pods."""
    names = {part for name in frameworks for part in FRAMEWORKS[name].parts}
    return [FRAMEWORKS[name] for name in sorted(names)]


def framework_of(kind: str, group: str) -> FrameworkName | None:
    """Returns the framework of a kind. A CronJob has the framework of the Jobs that it creates."""
    kind = "Job" if (kind, group) == ("CronJob", "batch") else kind
    return next((each.name for each in FRAMEWORKS.values() if (each.kind, each.group) == (kind, group)), None)


def _account(namespace: str, name: str) -> tuple[str, ...]:
    return (f"system:serviceaccount:{namespace}:{name}",)


_RAY = _account("default", "kuberay-operator")  # ray-operator/config/default of ray-project/kuberay

FRAMEWORKS = {
    framework.name: framework
    for framework in (
        Framework(FrameworkName.JOB, "Job", "batch", "jobs", JOB_CONTROLLERS, makes_pods=True),
        Framework(
            FrameworkName.JOBSET,
            "JobSet",
            "jobset.x-k8s.io",
            "jobsets",
            _account("jobset-system", "jobset-controller-manager"),
            parts=(FrameworkName.JOB,),
        ),
        Framework(
            FrameworkName.RAY_JOB,
            "RayJob",
            "ray.io",
            "rayjobs",
            _RAY,
            parts=(FrameworkName.RAY_CLUSTER, FrameworkName.JOB),
        ),
        Framework(FrameworkName.RAY_CLUSTER, "RayCluster", "ray.io", "rayclusters", _RAY, makes_pods=True),
        Framework(
            FrameworkName.TRAIN_JOB,
            "TrainJob",
            "trainer.kubeflow.org",
            "trainjobs",
            _account("kubeflow-system", "kubeflow-trainer-controller-manager"),
            parts=(FrameworkName.JOBSET, FrameworkName.JOB),
        ),
        Framework(
            FrameworkName.MPI_JOB,
            "MPIJob",
            "kubeflow.org",
            "mpijobs",
            _account("mpi-operator", "mpi-operator"),
            makes_pods=True,
            parts=(FrameworkName.JOB,),
        ),
        Framework(
            FrameworkName.LEADER_WORKER_SET,
            "LeaderWorkerSet",
            "leaderworkerset.x-k8s.io",
            "leaderworkersets",
            _account("lws-system", "lws-controller-manager"),
            is_suspended=False,
        ),
        Framework(FrameworkName.POD, "Pod", "", "pods", is_suspended=False),
        Framework(FrameworkName.DEPLOYMENT, "Deployment", "apps", "deployments", is_suspended=False),
        Framework(FrameworkName.STATEFUL_SET, "StatefulSet", "apps", "statefulsets", is_suspended=False),
    )
}
