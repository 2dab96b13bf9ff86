"""Serves a fake cluster over TLS for clients in any process, starts a browser, and waits for slow peers.

If Python has no ensurepip, uv makes the Python environments of Pulumi.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import browser
from tests.support.api_server import ServedOverTls, make_certificates, served_over_tls
from tests.support.browser import Browser
from tests.support.environments import environments_by_uv
from tests.support.fake_cluster import FakeCluster
from tests.support.waiting import PATIENCE_SECONDS


@pytest.fixture(scope="session", autouse=True)
def environments(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        for name, value in environments_by_uv(tmp_path_factory.mktemp("python")).items():
            patch.setenv(name, value)
        yield


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """The agents leave a slow peer after seconds. On a busy machine, each peer of these tests may be slow."""
    for limit in ("http_client.TIMEOUT_SECONDS", "http_client.TOTAL_SECONDS", "http_server._SILENT_SECONDS"):
        monkeypatch.setattr(f"agents.runtime.{limit}", PATIENCE_SECONDS)


@pytest.fixture(scope="session")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("certificates")
    make_certificates(folder)
    return folder


@pytest.fixture
def served(certificates: Path, tmp_path: Path) -> Iterator[ServedOverTls]:
    with served_over_tls(FakeCluster(), certificates, tmp_path / "serviceaccount") as served:
        yield served


@pytest.fixture(scope="module")
def tab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    program = browser.found()
    if program is None:
        pytest.skip("NO BROWSER: python3 toolchain/install.py browser")
    with browser.running(program, tmp_path_factory.mktemp("profile")) as tab:
        yield tab
