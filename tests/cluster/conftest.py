"""Fixtures of the cluster tests.

Where a part of the cluster cannot be had, the tests that need it are skipped and say so; in CI they fail.
"""

import os
from collections.abc import Iterator

import pytest

from tests.cluster.api_server import ApiServer, api_server
from tests.cluster.rollout import Rollout, rolled_out
from toolchain.cluster import cluster, node, paths
from toolchain.cluster.cluster import HeldCluster
from toolchain.cluster.extent import Extent


@pytest.fixture(scope="session")
def installed() -> None:
    """The programs of a control plane are there."""
    if lacking := paths.missing(paths.CONTROL_PLANE):
        _cannot(f"{', '.join(lacking)} not installed: make cluster-toolchain")


@pytest.fixture(scope="module")
def server(installed: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiServer]:
    """An API server of the module's own."""
    with api_server(tmp_path_factory.mktemp("api")) as running:
        yield running


@pytest.fixture(scope="session")
def real_cluster(installed: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[HeldCluster]:
    """A whole cluster, whose real node runs the agents. All tests of a process share it."""
    if reason := node.why_not():
        _cannot(reason)
    with cluster.running(tmp_path_factory.mktemp("cluster"), extent=Extent.REAL_NODE) as running:
        yield running


@pytest.fixture(scope="module")
def prod(real_cluster: HeldCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rollout]:
    """Prod, rolled out on the cluster; taken off it after the module."""
    with rolled_out(real_cluster, tmp_path_factory.mktemp("prod")) as rollout:
        yield rollout


def _cannot(reason: str) -> None:
    if os.environ.get("CI"):
        pytest.fail(reason)
    pytest.skip(reason)
