"""Rolls out one stack for all modules of this folder. Its cluster is the worker cluster of test_multikueue."""

from collections.abc import Iterator

import pytest

from tenancy.names import GPU
from tests.support.e2e import apart, autoscaler, controllers
from tests.support.e2e.queued_stack import ELASTIC, LABELS, SINGLES, settings
from tests.support.e2e.queueing import rolled_out
from tests.support.e2e.rollout import Rollout
from toolchain.cluster import cluster, paths
from toolchain.cluster.extent import Extent


@pytest.fixture(scope="package")
def stack(installed: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rollout]:
    if lacking := paths.missing(controllers.PROGRAMS):
        pytest.skip(f"{', '.join(lacking)} not installed: make cluster-toolchain")
    if not autoscaler.DEFINITION.is_file():
        pytest.skip("the kind ProvisioningRequest is not installed: python3 toolchain/install.py oracle")
    if reason := apart.why_not():
        pytest.skip(reason)
    with (
        cluster.running(tmp_path_factory.mktemp("queues"), extent=Extent.SIMULATED) as running,
        controllers.controllers(running),
    ):
        autoscaler.define(running.api)
        for name in SINGLES:
            if name != ELASTIC:
                running.add_node(name, labels=LABELS, resources={GPU: "1"})
        yield rolled_out(running, tmp_path_factory.mktemp("stack"), **settings())
