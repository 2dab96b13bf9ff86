"""Tests the parts of a release that are only text."""

import hashlib
from pathlib import Path

import pytest
import yaml

from toolchain import release

CHANGELOG = """# Changelog

## [Unreleased]

- new

## [0.2.0] - 2026-12-01

### Added

- one

## [0.1.0] - 2026-11-22

- old
"""


def test_the_notes_are_the_changelogs_section_of_the_version() -> None:
    assert release.notes(CHANGELOG, "0.2.0") == "### Added\n\n- one\n"
    assert release.notes(CHANGELOG, "0.1.0") == "- old\n"


def test_a_version_without_a_section_is_refused() -> None:
    with pytest.raises(release.ReleaseError, match=r"no section \[0\.3\.0\]; rename \[Unreleased\]"):
        release.notes(CHANGELOG, "0.3.0")


def test_a_tag_of_another_version_is_refused_before_a_folder_is_removed(tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    kept.touch()
    with pytest.raises(release.ReleaseError, match=r"the tag v9\.9\.9 is not v"):
        release.main(tmp_path, "v9.9.9")
    assert kept.exists()


def test_krew_gets_the_sum_and_the_address_of_the_archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GITHUB_REPOSITORY", "acme/gpu-tenancy")
    archive = tmp_path / "kubectl-gpumem-0.2.0.tar.gz"
    archive.write_bytes(b"x")
    (platform,) = yaml.safe_load(release.krew(archive, "0.2.0"))["spec"]["platforms"]
    assert platform["sha256"] == hashlib.sha256(b"x").hexdigest()
    assert platform["uri"] == f"https://github.com/acme/gpu-tenancy/releases/download/v0.2.0/{archive.name}"
