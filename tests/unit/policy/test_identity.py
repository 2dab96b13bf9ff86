"""Tests that a program declares each object of the cluster once."""

import pytest

from policy.rule import an_object
from tests.support import graphs
from tests.support.graphs import UNKNOWN, Manifest, judge, judged

OBJECTS = [
    graphs.kueue("LocalQueue", "x", "team-a", spec={"clusterQueue": "gpu-cq"}),
    an_object("v1", "ConfigMap", "x", "web"),
    an_object("cert-manager.io/v1", "Certificate", "x", "web", spec={}),
    an_object("rbac.authorization.k8s.io/v1", "ClusterRole", "x", rules=[]),
]


@pytest.mark.parametrize("found", OBJECTS, ids=lambda found: str(found["kind"]))
def test_two_resources_of_one_object_are_refused(found: Manifest) -> None:
    assert [line for line in judge({"a": found, "b": found}) if "is declared by a and by b, so that removing" in line]


def test_what_differs_in_kind_namespace_or_cluster_is_another_object() -> None:
    one = an_object("v1", "ConfigMap", "x", "web")
    others = [an_object("v1", "Secret", "x", "web"), an_object("v1", "ConfigMap", "x", "other")]
    others += [an_object("v1", "ConfigMapPatch", "x", "web"), an_object("v1", "ConfigMap", UNKNOWN, "web")]
    for other in others:
        assert judge({"a": one, "b": other}) == []
    assert judged({"a": one, "b": one}, None, {"a": {"kubeconfig": UNKNOWN}}) == []
