"""Fixtures of the cluster tests."""

from collections.abc import Iterator

import pytest

from tests.cluster.api_server import ApiServer, api_server, missing_tools


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiServer]:
    if missing := missing_tools():
        pytest.skip(f"{', '.join(missing)} not installed: make cluster-toolchain")
    with api_server(tmp_path_factory.mktemp("cluster")) as running:
        yield running
