"""Tests the agents' image on small bases. tests/e2e/test_no_agent.py runs an image on a real node."""

import importlib.util
import json
import platform
import sys
import tarfile
from io import BytesIO
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import pytest

from tests.support import image_layouts
from toolchain import agent_image
from toolchain.agent_image import ImageError

SHORT = f"{sys.version_info.major}.{sys.version_info.minor}"
LIBRARY = f"usr/local/lib/python{SHORT}"
STATUS = b"Package: libc6\nStatus: install ok installed\nVersion: 2.36-9\n\nPackage: zlib1g\nVersion: 1:1.2.13\n"
FILES = {f"{LIBRARY}/json/__init__.py": b"x = 1\n", f"{LIBRARY}/test/bad.py": b"x = (\n", "var/lib/dpkg/status": STATUS}
URL = "https://example.com/gpu-tenancy"


def based(folder: Path, *architectures: str, python: str = platform.python_version()) -> Path:
    return image_layouts.write(folder / "base", dict.fromkeys(architectures, FILES), python=python)


class Archive:
    def __init__(self, path: Path) -> None:
        with tarfile.open(path) as tar:
            self.files = {member.name: tar.extractfile(member).read() for member in tar}  # type: ignore[union-attr]

    def read(self, entry: dict[str, Any]) -> Any:
        return json.loads(self.files[f"blobs/sha256/{entry['digest'][7:]}"])

    def layer(self, entry: dict[str, Any]) -> dict[str, bytes]:
        with tarfile.open(fileobj=BytesIO(self.files[f"blobs/sha256/{entry['digest'][7:]}"])) as tar:
            return {member.name: tar.extractfile(member).read() for member in tar}  # type: ignore[union-attr]


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Archive, agent_image.Built]:
    folder = tmp_path_factory.mktemp("image")
    made = agent_image.build(based(folder, "amd64", "arm64", "s390x"), folder / "made.tar", "0.1.0", URL)
    return Archive(folder / "made.tar"), made


def test_the_image_is_for_both_platforms_on_their_bases(built: tuple[Archive, agent_image.Built]) -> None:
    archive, made = built
    (top,) = json.loads(archive.files["index.json"])["manifests"]
    assert top["digest"] == made.digest
    entries = archive.read(top)["manifests"]
    assert [each["platform"]["architecture"] for each in entries] == ["amd64", "arm64"]
    for entry in entries:
        manifest = archive.read(entry)
        config = archive.read(manifest["config"])
        assert config["architecture"] == entry["platform"]["architecture"]
        assert len(config["rootfs"]["diff_ids"]) == len(manifest["layers"]) == 2
        assert archive.layer(manifest["layers"][0]) == FILES
        assert config["config"]["Labels"]["org.opencontainers.image.source"] == URL


def test_the_layer_has_the_code_and_bytecode_that_python_loads_without_the_source(
    built: tuple[Archive, agent_image.Built],
) -> None:
    archive, _ = built
    (top,) = json.loads(archive.files["index.json"])["manifests"]
    layer = archive.layer(archive.read(archive.read(top)["manifests"][0])["layers"][1])
    codes = {each.image_path.removeprefix("/"): each for each in agent_image.codes()}
    cached = f"{LIBRARY}/json/__pycache__/__init__.{sys.implementation.cache_tag}.pyc"
    assert layer.keys() == {*codes, cached}
    assert len(codes) == 3
    unchecked = importlib.util.MAGIC_NUMBER + b"\1\0\0\0"  # PEP 552
    assert layer[cached].startswith(unchecked)
    for path, code in codes.items():
        with ZipFile(BytesIO(layer[path])) as made, ZipFile(BytesIO(code.content)) as plain:
            assert {*made.namelist()} == {name for each in plain.namelist() for name in (each, f"{each}c")}
            for name in plain.namelist():
                assert made.read(name) == plain.read(name)
                assert made.read(f"{name}c").startswith(unchecked)


def test_the_packages_are_those_of_the_base_and_of_the_code(built: tuple[Archive, agent_image.Built]) -> None:
    _, made = built
    found = {(name, kind): version for name, version, kind in made.packages}
    assert found["libc6", "deb/debian"] == "2.36-9"
    assert found["zlib1g", "deb/debian"] == "1:1.2.13"
    assert found["gpu-tenancy", "pypi"] == "0.1.0"
    assert found["python", "generic"] == platform.python_version()
    assert ("nvidia-ml-py", "pypi") in found


def test_two_builds_are_equal(built: tuple[Archive, agent_image.Built], tmp_path: Path) -> None:
    made = agent_image.build(based(tmp_path, "amd64", "arm64"), tmp_path / "made.tar", "0.1.0", URL)
    assert made == built[1]


def test_a_base_without_a_platform_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ImageError, match=r"the base has no image for linux/arm64; .* --all"):
        agent_image.build(based(tmp_path, "amd64"), tmp_path / "made.tar", "0.1.0", URL)


def test_a_base_with_another_python_is_refused(tmp_path: Path) -> None:
    base = based(tmp_path, "amd64", "arm64", python="3.9.1")
    with pytest.raises(ImageError, match=rf"the base has Python 3\.9\.1, .* the bytecode of Python {SHORT}; "):
        agent_image.build(base, tmp_path / "made.tar", "0.1.0", URL)


def test_a_base_with_other_content_than_its_digest_is_refused(tmp_path: Path) -> None:
    base = based(tmp_path, "amd64", "arm64")
    for path in (base / "blobs" / "sha256").iterdir():
        path.write_bytes(path.read_bytes() + b" ")
    with pytest.raises(ImageError, match=r"other content than its digest sha256:\w+; copy it again"):
        agent_image.build(base, tmp_path / "made.tar", "0.1.0", URL)


def test_a_folder_that_is_no_layout_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ImageError, match=r"is no image layout of OCI; write it with skopeo copy --all"):
        agent_image.build(tmp_path, tmp_path / "made.tar", "0.1.0", URL)
