"""Tests that all places with the same version agree."""

import re
import tomllib
from importlib import metadata

import pytest
import yaml

from components.agents.scheduler import SchedulerSpec
from gpumem.version import VERSION
from tests.support.paths import ROOT
from tests.support.pins import module_version, pins
from tests.support.released import objects


@pytest.mark.parametrize("package", sorted(pins()))
def test_the_installed_python_packages_are_the_pinned_ones(package: str) -> None:
    assert metadata.version(package) == pins()[package]


@pytest.mark.parametrize(
    ("group", "file"),
    [("dev", "requirements.lock"), ("docs", "requirements-docs.lock")],
)
def test_a_lock_file_holds_the_pins_and_no_address(group: str, file: str) -> None:
    lock = (ROOT / file).read_text()
    for package, version in pins(group).items():
        assert re.search(rf"^{re.escape(package)}=={re.escape(version)}\b", lock, re.MULTILINE | re.IGNORECASE)
    assert "://" not in lock


def test_the_engine_is_as_new_as_its_python_sdk() -> None:
    assert module_version("pulumi", "github.com/pulumi/pulumi/pkg/v3") == pins()["pulumi"]


def test_the_scheduler_is_of_the_kubernetes_that_the_toolchain_builds() -> None:
    image = SchedulerSpec.model_fields["image"].default
    assert image == f"registry.k8s.io/kube-scheduler:v{module_version('kube', 'k8s.io/kubernetes')}"


def test_the_changelog_begins_with_our_version_and_its_objects_are_what_the_next_one_is_tried_over() -> None:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    headings = re.findall(r"^## \[([0-9.]+)\] - \d{4}-\d\d-\d\d$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert (headings[0], objects.version()) == (version, version)


def test_the_plugin_is_of_our_version() -> None:
    assert tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"] == VERSION


def test_the_policy_pack_is_of_our_version() -> None:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert yaml.safe_load((ROOT / "policy" / "PulumiPolicy.yaml").read_text())["version"] == version
