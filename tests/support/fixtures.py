"""A served cluster for each test; certificates and the zipapp once for all."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from components.zipapp import NVML, build
from tests.agents import fake_nvml
from tests.agents.cluster import TOKEN, FakeCluster, Served, make_certificates, serve
from tests.agents.fake_nvml import FakeNvml

ROOT = Path(__file__).resolve().parents[2]
# How long a machine that runs other tests beside these may take for what is promised within 2 s.
LOADED_SECONDS = 60


@pytest.fixture(scope="session")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("certificates")
    make_certificates(folder)
    return folder


@pytest.fixture
def served(certificates: Path, tmp_path: Path) -> Iterator[Served]:
    mount = tmp_path / "serviceaccount"
    mount.mkdir()
    shutil.copy(certificates / "ca.crt", mount / "ca.crt")
    (mount / "token").write_text(f"{TOKEN}\n")
    cluster = FakeCluster()
    server, thread = serve(cluster, certificates)
    served = Served(cluster=cluster, port=server.server_address[1], mount=mount)
    yield served
    cluster.end_watches()
    for api in served.closing:
        api.close()
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture(scope="session")
def zipapp(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The agents as they are shipped."""
    path = tmp_path_factory.mktemp("zipapp") / "agents.pyz"
    path.write_bytes(build().content)
    return path


@pytest.fixture(scope="session")
def node_zipapp(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The agents as they are shipped to the nodes, with NVML's bindings."""
    path = tmp_path_factory.mktemp("node-zipapp") / "agents.pyz"
    path.write_bytes(build(vendored=NVML).content)
    return path


@pytest.fixture(scope="session")
def nvml_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the fake library is."""
    folder = tmp_path_factory.mktemp("nvml")
    if not fake_nvml.build(folder):
        pytest.skip("NO C COMPILER: the exporter's way to NVML is not tested here")
    return folder


@pytest.fixture
def nvml(nvml_folder: Path, tmp_path: Path) -> FakeNvml:
    return FakeNvml(nvml_folder, tmp_path / "card")
