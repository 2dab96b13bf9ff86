"""Provides a fake cluster in memory for each test, and builds the zipapps once."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.fake_cluster import TOKEN, FakeCluster, Served
from toolchain.cluster import fake_nvml
from toolchain.cluster.fake_nvml import FakeNvml


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    mount = tmp_path / "serviceaccount"
    mount.mkdir()
    (mount / "token").write_text(f"{TOKEN}\n")
    served = Served(cluster=FakeCluster(), mount=mount)
    yield served
    served.close()


@pytest.fixture(scope="session")
def zipapp(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("zipapp") / "agents.pyz"
    from components.base.zipapp import build  # noqa: PLC0415 (it imports Pulumi, which most tests do not need)

    path.write_bytes(build().content)
    return path


@pytest.fixture(scope="session")
def node_zipapp(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("node-zipapp") / "agents.pyz"
    from components.base.zipapp import build_for_nodes  # noqa: PLC0415

    path.write_bytes(build_for_nodes().content)
    return path


@pytest.fixture(scope="session")
def nvml_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("nvml")
    if not fake_nvml.can_build():
        pytest.skip("NO C COMPILER: the exporter's way to NVML is not tested here")
    fake_nvml.build(folder)
    return folder


@pytest.fixture
def nvml(nvml_folder: Path, tmp_path: Path) -> FakeNvml:
    return FakeNvml(nvml_folder, tmp_path / "card")
