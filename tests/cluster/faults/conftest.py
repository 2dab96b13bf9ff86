"""One rollout for all faults."""

from collections.abc import Iterator

import pytest

from tests.cluster.rollout import Rollout, rolled_out
from toolchain.cluster.cluster import HeldCluster


@pytest.fixture(scope="package")
def prod(real_cluster: HeldCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rollout]:
    """Prod, rolled out once: each test leaves it as a further `up` can use it."""
    with rolled_out(real_cluster, tmp_path_factory.mktemp("prod")) as rollout:
        yield rollout
