"""A version lives in one place; whoever repeats it must agree."""

import re
import subprocess
import tomllib
from importlib import metadata
from pathlib import Path

import pytest
import yaml

from components.scheduler import SchedulerSpec

ROOT = Path(__file__).resolve().parents[2]
BIN = ROOT / ".toolchain" / "bin"


def pins() -> dict[str, str]:
    """Exact pins of pyproject.toml, the one place for Python packages."""
    document = tomllib.loads((ROOT / "pyproject.toml").read_text())
    requirements = [*document["project"]["dependencies"], *document["dependency-groups"]["dev"]]
    return dict(match.groups() for match in (re.fullmatch(r"([\w-]+)==([\w.]+)", r) for r in requirements) if match)


def module_version(module: str, required: str) -> str:
    """The version of a Go module as toolchain/<module>/go.mod pins it."""
    text = (ROOT / "toolchain" / module / "go.mod").read_text()
    match = re.search(rf"^\s*(?:require )?{re.escape(required)} v(\S+)", text, re.MULTILINE)
    assert match, f"{required} is not in toolchain/{module}/go.mod"
    return match.group(1)


@pytest.mark.parametrize("package", sorted(pins()))
def test_the_installed_python_packages_are_the_pinned_ones(package: str) -> None:
    assert metadata.version(package) == pins()[package]


def test_the_lock_file_holds_the_pins_and_no_address() -> None:
    lock = (ROOT / "requirements.lock").read_text()
    for package, version in pins().items():
        assert re.search(rf"^{re.escape(package)}=={re.escape(version)}\b", lock, re.MULTILINE | re.IGNORECASE)
    assert "://" not in lock


def test_the_engine_is_as_new_as_its_python_sdk() -> None:
    assert module_version("pulumi", "github.com/pulumi/pulumi/pkg/v3") == pins()["pulumi"]


def test_the_built_engine_is_the_pinned_one() -> None:
    out = subprocess.run([BIN / "pulumi", "version"], capture_output=True, text=True, check=True).stdout
    assert out.strip() == f"v{pins()['pulumi']}"


def test_the_provider_plugin_is_the_one_of_the_python_package() -> None:
    plugins = ROOT / ".toolchain" / "pulumi-home" / "plugins"
    assert (plugins / f"resource-kubernetes-v{pins()['pulumi-kubernetes']}").is_dir()


def test_the_scheduler_is_of_the_kubernetes_that_the_toolchain_builds() -> None:
    image = SchedulerSpec.model_fields["image"].default
    assert image == f"registry.k8s.io/kube-scheduler:v{module_version('kube', 'k8s.io/kubernetes')}"


def test_prod_pins_the_kueue_that_the_toolchain_builds_and_whose_chart_it_has() -> None:
    prod = yaml.safe_load((ROOT / "Pulumi.prod.yaml").read_text())["config"]["gpu-tenancy:kueue"]["version"]
    chart = yaml.safe_load((ROOT / ".toolchain" / "charts" / "kueue" / "Chart.yaml").read_text())
    assert prod == module_version("kueue", "sigs.k8s.io/kueue")
    assert prod in (chart["version"].lstrip("v"), chart["appVersion"].lstrip("v"))


def test_the_docs_name_the_pinned_versions() -> None:
    readme = (ROOT / "README.md").read_text()
    for named in re.findall(r"Pulumi (\d+\.\d+\.\d+)", readme):
        assert named == pins()["pulumi"]
    for named in re.findall(r"Kueue (\d+\.\d+\.\d+)", readme):
        assert named == module_version("kueue", "sigs.k8s.io/kueue")
    assert f"Pulumi {pins()['pulumi']}" in readme
