"""Finds the pods that Kueue admits together, for each kind of work that Kueue queues.

A manifest is JSON-like data with the fields of the Kubernetes API, as in tenancy.workload. Source: The source is each
PodSets method in pkg/controller/jobs of sigs.k8s.io/kueue.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from tenancy.frameworks import FrameworkName
from tenancy.quantity import whole
from tenancy.workload import Manifest, ShapeError, map_at, maps_at, max_pods, pod_request, pod_template, value_or


@dataclass(frozen=True)
class PodSet:
    """A number of pods that have the same template. `template` has the metadata and the spec of the pods."""

    name: str
    count: int
    template: Manifest

    def request(self, resource: str) -> int:
        """Returns the total request of the pods. Raises QuantityError and ShapeError."""
        return self.count * pod_request(map_at(self.template, "spec"), resource)


def pod_sets(manifest: Manifest, framework: FrameworkName) -> list[PodSet]:
    """Returns the pod sets of one Workload of Kueue. Kueue makes a Workload for each pod of a Deployment.

    Raises ShapeError for a manifest that the API server would reject or that does not define its pods. Raises
    QuantityError and UnboundedError.
    """
    if framework in _SETS:
        return list(_SETS[framework](map_at(manifest, "spec")))
    template = pod_template(manifest) or {}
    single = framework in (FrameworkName.DEPLOYMENT, FrameworkName.POD)
    return [PodSet("main", 1 if single else max_pods(manifest, nodes=0), template)]


# By default, KubeRay submits a RayJob by a Kubernetes Job. The default template for the pod of the Job that submits a
# RayJob.
_BY_A_JOB = "K8sJobMode"
_SUBMITTER = {"spec": {"containers": [{"resources": {"requests": {"cpu": "500m", "memory": "200Mi"}}}]}}


def _jobset(spec: Manifest) -> Iterator[PodSet]:
    for number, part in enumerate(maps_at(spec, "replicatedJobs")):
        job = map_at(part, "template")
        pods = max_pods({**job, "kind": "Job"}, nodes=0)
        yield PodSet(_name(part, f"replicatedJobs.{number}"), _replicas(part) * pods, map_at(job, "spec", "template"))


def _leader_worker_set(spec: Manifest) -> Iterator[PodSet]:
    """Yields the pods of one group of a LeaderWorkerSet. Kueue admits each group of a LeaderWorkerSet separately."""
    group = map_at(spec, "leaderWorkerTemplate")
    size, leader, workers = (
        whole(value_or(group, "size", 1)),
        map_at(group, "leaderTemplate"),
        map_at(group, "workerTemplate"),
    )
    if not leader:
        yield PodSet("main", size, workers)
        return
    yield PodSet("leader", 1, leader)
    if size > 1:
        yield PodSet("worker", size - 1, workers)


def _ray_cluster(spec: Manifest) -> Iterator[PodSet]:
    yield PodSet("head", 1, map_at(spec, "headGroupSpec", "template"))
    for number, group in enumerate(maps_at(spec, "workerGroupSpecs")):
        pods = whole(value_or(group, "replicas", 0)) * whole(value_or(group, "numOfHosts", 1))
        yield PodSet(_name(group, f"workerGroupSpecs.{number}", "groupName"), pods, map_at(group, "template"))


def _ray_job(spec: Manifest) -> Iterator[PodSet]:
    if map_at(spec, "clusterSelector"):
        return  # The RayJob uses an existing RayCluster.
    yield from _ray_cluster(map_at(spec, "rayClusterSpec"))
    if value_or(spec, "submissionMode", _BY_A_JOB) == _BY_A_JOB:
        yield PodSet("submitter", 1, map_at(spec, "submitterPodTemplate") or _SUBMITTER)


def _mpi_job(spec: Manifest) -> Iterator[PodSet]:
    for role, replica in sorted(map_at(spec, "mpiReplicaSpecs").items()):
        if not isinstance(replica, Mapping):
            raise ShapeError(f"mpiReplicaSpecs.{role} must be a map (got {replica!r})")
        yield PodSet(role.lower(), _replicas(replica), map_at(replica, "template"))


def _train_job(spec: Manifest) -> Iterator[PodSet]:
    """Yields the pods of a TrainJob's trainer.

    The training runtime defines the pods' requests, unless the TrainJob overrides them.
    """
    trainer = map_at(spec, "trainer")
    resources = map_at(trainer, "resourcesPerNode")
    if not resources:
        raise ShapeError("spec.trainer.resourcesPerNode is missing, and the runtime's requests are not known here")
    pod_spec = {"containers": [{"name": "node", "resources": resources}]}
    yield PodSet("node", whole(value_or(trainer, "numNodes", 1)), {"spec": pod_spec})


def _replicas(part: Manifest) -> int:
    return whole(value_or(part, "replicas", 1))


def _name(part: Manifest, default: str, field: str = "name") -> str:
    return str(value_or(part, field, default))


_SETS: Mapping[FrameworkName, Callable[[Manifest], Iterator[PodSet]]] = {
    FrameworkName.JOBSET: _jobset,
    FrameworkName.LEADER_WORKER_SET: _leader_worker_set,
    FrameworkName.RAY_CLUSTER: _ray_cluster,
    FrameworkName.RAY_JOB: _ray_job,
    FrameworkName.MPI_JOB: _mpi_job,
    FrameworkName.TRAIN_JOB: _train_job,
}
