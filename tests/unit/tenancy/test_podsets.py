"""Tests that the pods of each kind of work are counted as Kueue counts them."""

import pytest

from tenancy.frameworks import FrameworkName
from tenancy.names import GPU
from tenancy.podsets import pod_sets
from tenancy.workload import ShapeError
from tests.support.queued_work import Manifest, work

EXPECTED = {
    FrameworkName.JOB: {"main": (2, 6)},
    FrameworkName.JOBSET: {"workers": (2, 6)},
    FrameworkName.LEADER_WORKER_SET: {"leader": (1, 0), "worker": (2, 6)},
    FrameworkName.RAY_CLUSTER: {"head": (1, 0), "gpus": (2, 6)},
    FrameworkName.RAY_JOB: {"head": (1, 0), "gpus": (2, 6), "submitter": (1, 0)},
    FrameworkName.TRAIN_JOB: {"node": (2, 6)},
    FrameworkName.MPI_JOB: {"launcher": (1, 0), "worker": (2, 6)},
    FrameworkName.POD: {"main": (1, 3)},
    FrameworkName.DEPLOYMENT: {"main": (1, 3)},
    FrameworkName.STATEFUL_SET: {"main": (2, 6)},
}


@pytest.mark.parametrize("framework", FrameworkName)
def test_each_kind_is_counted_with_all_its_pods(framework: FrameworkName) -> None:
    sets = pod_sets(work(framework, gpus=3), framework)
    assert {each.name: (each.count, each.request(GPU)) for each in sets} == EXPECTED[framework]


def test_a_ray_job_on_a_cluster_that_is_there_has_no_pods_with_gpus() -> None:
    job = work(FrameworkName.RAY_JOB)
    job["spec"]["clusterSelector"] = {"ray.io/cluster": "mine"}
    assert pod_sets(job, FrameworkName.RAY_JOB) == []


@pytest.mark.parametrize("size", [1, 3])
def test_a_group_without_a_template_of_its_leader_is_admitted_as_one_set(size: int) -> None:
    group = work(FrameworkName.LEADER_WORKER_SET)
    group["spec"]["leaderWorkerTemplate"] |= {"size": size, "leaderTemplate": None}
    (pods,) = pod_sets(group, FrameworkName.LEADER_WORKER_SET)
    assert (pods.name, pods.count, pods.request(GPU)) == ("main", size, size)


WRONG: dict[str, tuple[FrameworkName, Manifest, str]] = {
    "no resources": (FrameworkName.TRAIN_JOB, {"trainer": {}}, "spec.trainer.resourcesPerNode is missing"),
    "no map": (FrameworkName.MPI_JOB, {"mpiReplicaSpecs": {"Worker": 3}}, "mpiReplicaSpecs.Worker must be a map"),
    "no list": (FrameworkName.JOBSET, {"replicatedJobs": {"a": 1}}, "must be a list of maps"),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_states_no_pods_is_an_error(case: str) -> None:
    framework, spec, message = WRONG[case]
    with pytest.raises(ShapeError, match=message):
        pod_sets({**work(framework), "spec": spec}, framework)
