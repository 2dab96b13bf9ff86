"""Returns the pods that Kueue admits together, for each kind of work that it queues.

Manifests are plain JSON-like data in the form of the API, as in tenancy.workload. Source: PodSets in
pkg/controller/jobs of sigs.k8s.io/kueue.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from tenancy.frameworks import FrameworkName
from tenancy.quantity import whole
from tenancy.workload import Manifest, ShapeError, at, given, maps_at, pod_request, pod_template, pods_of


@dataclass(frozen=True)
class PodSet:
    """Counts pods of one template. `template` has their metadata and spec."""

    name: str
    count: int
    template: Manifest

    def request(self, resource: str) -> int:
        """Returns what the pods request together. Raises QuantityError and ShapeError."""
        return self.count * pod_request(at(self.template, "spec"), resource)


def pod_sets(manifest: Manifest, framework: FrameworkName) -> list[PodSet]:
    """Returns the pod sets of one Workload of Kueue. A Deployment has a Workload for each pod.

    Raises ShapeError for a shape that the API refuses or that does not state its pods, QuantityError and
    UnboundedError.
    """
    if framework in _SETS:
        return list(_SETS[framework](at(manifest, "spec")))
    template = pod_template(manifest) or {}
    single = framework in (FrameworkName.DEPLOYMENT, FrameworkName.POD)
    return [PodSet("main", 1 if single else pods_of(manifest, nodes=0), template)]


def _jobset(spec: Manifest) -> Iterator[PodSet]:
    for number, part in enumerate(maps_at(spec, "replicatedJobs")):
        job = at(part, "template")
        pods = pods_of({**job, "kind": "Job"}, nodes=0)
        yield PodSet(_name(part, f"replicatedJobs.{number}"), _replicas(part) * pods, at(job, "spec", "template"))


def _leader_worker_set(spec: Manifest) -> Iterator[PodSet]:
    """Yields the pods of one group. Kueue admits the groups one by one."""
    group = at(spec, "leaderWorkerTemplate")
    size, workers = whole(given(group, "size", 1)), at(group, "workerTemplate")
    yield PodSet("leader", 1, at(group, "leaderTemplate") or workers)
    if size > 1:
        yield PodSet("worker", size - 1, workers)


def _ray_cluster(spec: Manifest) -> Iterator[PodSet]:
    yield PodSet("head", 1, at(spec, "headGroupSpec", "template"))
    for number, group in enumerate(maps_at(spec, "workerGroupSpecs")):
        pods = whole(given(group, "replicas", 0)) * whole(given(group, "numOfHosts", 1))
        yield PodSet(_name(group, f"workerGroupSpecs.{number}", "groupName"), pods, at(group, "template"))


def _ray_job(spec: Manifest) -> Iterator[PodSet]:
    if at(spec, "clusterSelector"):
        return  # It runs in a RayCluster that is there already.
    yield from _ray_cluster(at(spec, "rayClusterSpec"))


def _mpi_job(spec: Manifest) -> Iterator[PodSet]:
    for role, replica in sorted(at(spec, "mpiReplicaSpecs").items()):
        if not isinstance(replica, Mapping):
            raise ShapeError(f"mpiReplicaSpecs.{role} must be a map (got {replica!r})")
        yield PodSet(role.lower(), _replicas(replica), at(replica, "template"))


def _train_job(spec: Manifest) -> Iterator[PodSet]:
    """Yields the trainer's pods. The requests are in the runtime, unless the TrainJob replaces them."""
    trainer = at(spec, "trainer")
    resources = at(trainer, "resourcesPerNode")
    if not resources:
        raise ShapeError("spec.trainer.resourcesPerNode is missing, and the runtime's requests are not known here")
    pod_spec = {"containers": [{"name": "node", "resources": resources}]}
    yield PodSet("node", whole(given(trainer, "numNodes", 1)), {"spec": pod_spec})


def _replicas(part: Manifest) -> int:
    return whole(given(part, "replicas", 1))


def _name(part: Manifest, default: str, field: str = "name") -> str:
    return str(given(part, field, default))


_SETS: Mapping[FrameworkName, Callable[[Manifest], Iterator[PodSet]]] = {
    FrameworkName.JOBSET: _jobset,
    FrameworkName.LEADER_WORKER_SET: _leader_worker_set,
    FrameworkName.RAY_CLUSTER: _ray_cluster,
    FrameworkName.RAY_JOB: _ray_job,
    FrameworkName.MPI_JOB: _mpi_job,
    FrameworkName.TRAIN_JOB: _train_job,
}
