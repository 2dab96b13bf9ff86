"""Builds the artifacts of a release, as `make release-dry-run` does. The tests of each artifact use it."""

import hashlib
import tarfile
from pathlib import Path

import pytest
import yaml

from toolchain import release
from toolchain.cluster.paths import TOOLCHAIN


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    for host in release.LANGUAGES:
        if not list((TOOLCHAIN / "pulumi-home" / "plugins").glob(f"language-{host}-v*")):
            pytest.skip(f"pulumi-language-{host} is not installed: a release is NOT built (make integration)")
    site = tmp_path_factory.mktemp("site")
    (site / "index.html").write_text("<!doctype html>")  # tests/integration/docs/test_site.py builds the real site
    folder = tmp_path_factory.mktemp("release") / "made"
    release.main(folder, "", site)
    return folder


def test_every_artifact_is_there_with_its_sum(made: Path) -> None:
    sums = dict(reversed(line.split("  ")) for line in (made / release.SUMS).read_text().splitlines())
    assert sums == {
        path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in made.iterdir() if path.name != release.SUMS
    }
    starts = ("agents", "docs", "policy", "sdk-go", "sdk-nodejs", "template")
    for start in (*(f"gpu-tenancy-{each}" for each in starts), "gpu_tenancy", "kubectl-gpumem"):
        assert any(name.startswith(f"{start}-") for name in sums), start
    assert {release.KREW, release.NOTES} < sums.keys()


def test_krew_finds_the_plugin_in_its_archive(made: Path) -> None:
    (platform,) = yaml.safe_load((made / release.KREW).read_text())["spec"]["platforms"]
    (files,) = platform["files"]
    with tarfile.open(made / platform["uri"].rpartition("/")[2]) as archive:
        member = archive.getmember(files["from"].replace("*", platform["bin"]))
    assert member.mode & 0o111
