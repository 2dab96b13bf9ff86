"""Tests that preflight lists objects of other owners before a rollout."""

from pathlib import Path

from gpumem import checkout, survey
from gpumem.init.propose import find_gpus, propose
from gpumem.init.stack_text import stack_text
from gpumem.preflight.report import Preflight, preflight
from tests.support.given_clusters import Cluster, Object, record_0000
from tests.support.paths import ROOT

LEVEL = "pod-security.kubernetes.io/enforce"


def report(folder: Path, cluster: Cluster, old: str = "", new: str = "") -> Preflight:
    proposed = survey.read(record_0000().api())
    text = stack_text(propose(proposed, find_gpus(proposed), {})).replace("mode: observe", "mode: enforce")
    assert old in text
    (folder / "Pulumi.mine.yaml").write_text(text.replace(old, new, 1))
    return preflight(survey.read(cluster.api()), checkout.declared_parts("mine", folder))


def quota(name: str, namespace: str) -> Object:
    return {"metadata": {"name": name, "namespace": namespace}}


def test_a_stack_that_init_proposes_takes_nothing_over(tmp_path: Path) -> None:
    found = report(tmp_path, record_0000())
    assert found.takes_over == ()
    assert f"Namespace immich: {LEVEL}=baseline" in found.labels
    assert "Namespace nvidia: gpu-tenancy/exempt=true" in found.labels
    assert {"Namespace gpu-tenancy-system", "ResourceQuota immich/gpumem-seats"} <= {*found.creates}
    assert "PriorityClass gpu-workload" not in found.creates


def test_objects_of_an_earlier_rollout_are_its_own(tmp_path: Path) -> None:
    cluster = record_0000()
    cluster.namespaces |= {"gpu-tenancy-system": {}, "gpu-tenancy-system-nodes": {}}
    cluster.stacks = {"gpu-tenancy-system": "gpu-tenancy/mine", "gpu-tenancy-system-nodes": "gpu-tenancy/other"}
    (line,) = report(tmp_path, cluster).takes_over
    assert "Namespace gpu-tenancy-system-nodes: is of the stack gpu-tenancy/other" in line


def test_queues_of_prod_that_are_there_are_named() -> None:
    cluster = record_0000()
    cluster.groups = {"kueue.x-k8s.io": ("v1beta2",)}
    cluster.cluster_queues = [{"metadata": {"name": "gpu-cq"}}, {"metadata": {"name": "other"}}]
    cluster.local_queues = [quota("team-a-gpu", "team-a")]
    declared = checkout.declared_parts("prod", ROOT)
    lines = [line for line in preflight(survey.read(cluster.api()), declared).takes_over if "Queue" in line]
    assert [line.partition(":")[0] for line in lines] == ["ClusterQueue gpu-cq", "LocalQueue team-a/team-a-gpu"]
