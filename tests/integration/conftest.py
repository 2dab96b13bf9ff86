"""Serves a fake cluster over TLS for clients in any process."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.api_server import ServedOverTls, make_certificates, served_over_tls
from tests.support.fake_cluster import FakeCluster


@pytest.fixture(scope="session")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("certificates")
    make_certificates(folder)
    return folder


@pytest.fixture
def served(certificates: Path, tmp_path: Path) -> Iterator[ServedOverTls]:
    with served_over_tls(FakeCluster(), certificates, tmp_path / "serviceaccount") as served:
        yield served
