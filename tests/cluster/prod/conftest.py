"""One rollout, in each process, for all that only looks at prod; what changes it comes last."""

from collections.abc import Iterator

import pytest

from tests.cluster.rollout import Rollout, rolled_out
from toolchain.cluster.cluster import HeldCluster


@pytest.fixture(scope="package")
def prod(real_cluster: HeldCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rollout]:
    """Prod, rolled out once."""
    with rolled_out(real_cluster, tmp_path_factory.mktemp("prod")) as rollout:
        yield rollout
