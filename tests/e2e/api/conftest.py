"""Starts one API server for all tests of this folder. Each test module starts without the objects of earlier test
modules.
"""

from collections.abc import Iterator

import pytest

from tests.support.e2e.server import ApiServer, api_server


@pytest.fixture(scope="package")
def one_server(installed: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiServer]:
    with api_server(tmp_path_factory.mktemp("api")) as running:
        yield running


@pytest.fixture(scope="module")
def server(one_server: ApiServer) -> Iterator[ApiServer]:
    yield one_server
    one_server.clear()
