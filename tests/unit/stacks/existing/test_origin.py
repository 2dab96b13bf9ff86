"""Tests that a state of another cluster is found by the uid of kube-system."""

from typing import Any

import pytest

from stacks.existing.origin import is_of_another_cluster
from tests.support.cluster_objects import Objects, namespace

PATCH = "kubernetes:core/v1:NamespacePatch"
CLUSTER = Objects({"/api/v1/namespaces": [namespace("kube-system", uid="1"), namespace("immich", uid="2")]})


def patched(name: str, **metadata: Any) -> dict[str, Any]:
    return {"type": PATCH, "outputs": namespace(name, **metadata)}


@pytest.mark.parametrize(
    ("state", "is_of_another"),
    [
        ([patched("kube-system", uid="1")], False),
        ([patched("immich", uid="2"), patched("kube-system", uid="3")], True),
        ([patched("immich", uid="4")], False),
        ([{"type": PATCH}, patched("kube-system"), {"type": "kubernetes:core/v1:Secret"}], False),
    ],
    ids=["the same", "another", "no cluster", "not yet rolled out"],
)
def test_the_uid_of_kube_system_identifies_the_cluster(state: list[Any], is_of_another: bool) -> None:
    assert is_of_another_cluster(state, CLUSTER) is is_of_another
