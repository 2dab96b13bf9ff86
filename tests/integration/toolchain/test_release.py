"""Builds and uses the artifacts of a release, as `make release-dry-run` does."""

import hashlib
import json
import platform
import shutil
import tarfile
from pathlib import Path

import pytest
import yaml

from tests.support import image_layouts
from toolchain import release
from toolchain.cluster import image
from toolchain.cluster.paths import TOOLCHAIN

# The messages of pip, npm, go and the release without an index or without a compiler.
UNREACHABLE = (
    "Failed to establish a new connection",
    "NameResolutionError",
    "npm error network",
    "dial tcp",
    "npm is not installed",
    "go is not installed",
)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    for host in ("nodejs", "go"):
        if not list((TOOLCHAIN / "pulumi-home" / "plugins").glob(f"language-{host}-v*")):
            pytest.skip(f"pulumi-language-{host} is not installed: a release is NOT built (make integration)")
    site = tmp_path_factory.mktemp("site")
    (site / "index.html").write_text("<!doctype html>")  # tests/integration/docs/test_site.py builds the real site
    folder = tmp_path_factory.mktemp("release") / "made"
    base = tmp_path_factory.mktemp("base")
    image.write_python(base / "base.tar")
    shutil.unpack_archive(base / "base.tar", base)
    (other,) = {*image.ARCHITECTURES.values()} - {image.ARCHITECTURES[platform.machine()]}
    image_layouts.add_architecture(base, other)
    try:
        release.main(folder, "", base, site)
    except release.ReleaseError as error:
        if any(each in str(error) for each in UNREACHABLE):
            pytest.skip(f"NO PACKAGE INDEX can be reached; a release is NOT built: {error}")
        raise
    return folder


def test_every_artifact_is_there_with_its_sum(made: Path) -> None:
    sums = dict(reversed(line.split("  ")) for line in (made / release.SUMS).read_text().splitlines())
    assert sums == {
        path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in made.iterdir() if path.name != release.SUMS
    }
    starts = ("docs", "policy", "sdk-go", "sdk-nodejs", "template")
    for start in (*(f"gpu-tenancy-{each}" for each in starts), "gpu_tenancy", "kubectl-gpumem"):
        assert any(name.startswith(f"{start}-") for name in sums), start
    assert {release.KREW, release.NOTES, release.SBOM} < sums.keys()


def test_krew_finds_the_plugin_in_its_archive(made: Path) -> None:
    (platform,) = yaml.safe_load((made / release.KREW).read_text())["spec"]["platforms"]
    (files,) = platform["files"]
    with tarfile.open(made / platform["uri"].rpartition("/")[2]) as archive:
        member = archive.getmember(files["from"].replace("*", platform["bin"]))
    assert member.mode & 0o111


def test_the_sbom_lists_what_a_new_environment_gets(made: Path) -> None:
    found = json.loads((made / release.SBOM).read_text())
    names = {each["name"] for each in found["packages"]}
    assert {"gpu-tenancy", "pulumi", "pydantic", "nvidia-ml-py", "kueue"} <= names
    assert len(found["relationships"]) == len(found["packages"])


def test_the_image_has_an_sbom_and_the_notes_have_its_digest(made: Path) -> None:
    (archive,), (sbom,) = made.glob("gpu-tenancy-agents-*.oci.tar"), made.glob("gpu-tenancy-agents-*.spdx.json")
    with tarfile.open(archive) as tar:
        (top,) = json.loads(tar.extractfile("index.json").read())["manifests"]  # type: ignore[union-attr]
    assert f"gpu-tenancy-agents@{top['digest']}`" in (made / release.NOTES).read_text()
    names = {each["name"] for each in json.loads(sbom.read_text())["packages"]}
    assert names == {"gpu-tenancy", "nvidia-ml-py", "python"}


def test_the_sdks_have_the_components(made: Path) -> None:
    (go,) = made.glob("gpu-tenancy-sdk-go-*.tar.gz")
    with tarfile.open(go) as archive:
        names = {Path(name).name for name in archive.getnames()}
    assert {"go.mod", "platform.go", "seat.go", "seatedDeployment.go", "queue.go"} <= names


def test_an_sdk_that_does_not_compile_ends_the_release(tmp_path: Path) -> None:
    if shutil.which("go") is None:
        pytest.skip("NO GO: it is not installed; a program in Go is NOT tested")
    (tmp_path / "sdk").mkdir()
    with pytest.raises(release.ReleaseError, match=r"go build .* failed"):
        release.use_in_go(tmp_path, tmp_path / "sdk")
