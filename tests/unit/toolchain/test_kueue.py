"""Shows the pods of Kueue's Deployment as ready only while Kueue's process is the one of this Deployment."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from toolchain.cluster import simulated
from toolchain.cluster.api import ClusterApi
from toolchain.cluster.kueue import unready_pods

READY, NEW = "kueue-1", "kueue-2"


@dataclass(frozen=True)
class ClusterOf(ClusterApi):
    """A cluster with the given Deployment, and with a ready and an unready pod of Kueue."""

    deployment: Mapping[str, Any] | None

    def get(self, path: str) -> Mapping[str, Any]:
        if "/deployments?" in path:
            return {"items": [self.deployment] if self.deployment else []}
        ready = {"name": READY, "annotations": {simulated.READY: "true"}}
        return {"items": [{"metadata": ready}, {"metadata": {"name": NEW}}]}


def deployment(*, uid: str = "a", generation: int = 1) -> dict[str, Any]:
    return {"metadata": {"namespace": "kueue-system", "uid": uid, "generation": generation}}


def test_a_pod_of_an_unchanged_deployment_becomes_ready() -> None:
    assert unready_pods(ClusterOf(Path(), deployment()), deployment()) == [
        f"/api/v1/namespaces/kueue-system/pods/{NEW}"
    ]


@pytest.mark.parametrize("current", [deployment(generation=2), deployment(uid="b")])
def test_a_pod_of_a_changed_deployment_waits_for_its_own_process(current: Mapping[str, Any]) -> None:
    assert unready_pods(ClusterOf(Path(), current), deployment()) == []


def test_a_pod_of_a_removed_deployment_does_not_become_ready() -> None:
    assert unready_pods(ClusterOf(Path(), None), deployment()) == []
