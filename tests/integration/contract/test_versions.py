"""Tests that the installed tools have the pinned versions."""

import subprocess

import yaml

from tests.support.paths import ROOT
from tests.support.pins import module_version, pins

BIN = ROOT / ".toolchain" / "bin"


def test_the_built_engine_is_the_pinned_one() -> None:
    out = subprocess.run([BIN / "pulumi", "version"], capture_output=True, text=True, check=True).stdout
    assert out.strip() == f"v{pins()['pulumi']}"


def test_the_provider_plugin_is_the_one_of_the_python_package() -> None:
    plugins = ROOT / ".toolchain" / "pulumi-home" / "plugins"
    assert (plugins / f"resource-kubernetes-v{pins()['pulumi-kubernetes']}").is_dir()


def test_prod_pins_the_kueue_that_the_toolchain_builds_and_whose_chart_it_has() -> None:
    prod = yaml.safe_load((ROOT / "Pulumi.prod.yaml").read_text())["config"]["gpu-tenancy:kueue"]["version"]
    chart = yaml.safe_load((ROOT / ".toolchain" / "charts" / "kueue" / "Chart.yaml").read_text())
    assert prod == module_version("kube", "sigs.k8s.io/kueue")
    assert prod in (chart["version"].lstrip("v"), chart["appVersion"].lstrip("v"))
