"""Tests that the policy pack works as a package of its own."""

import sys
import tomllib
from pathlib import Path

import yaml

from tests.support.imports import packages
from tests.support.paths import ROOT
from toolchain import pack

INSTALLED_AS = {
    "yaml": "pyyaml",
    "pulumi_policy": "pulumi-policy",
    "pulumi": "pulumi",
    "cel_expr_python": "cel-expr-python",
    "google": "protobuf",
}


def test_it_imports_itself_and_what_it_requires(tmp_path: Path) -> None:
    made = pack.build(tmp_path)
    needed = (made / "requirements.txt").read_text()
    for path in made.rglob("*.py"):
        for name in packages(path):
            if name not in (*pack.PACKAGES, *sys.stdlib_module_names):
                assert INSTALLED_AS[name] in needed, f"{path}: {name}"


def test_it_says_its_version_and_its_own_environment(tmp_path: Path) -> None:
    made = pack.build(tmp_path)
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    declared = yaml.safe_load((made / "PulumiPolicy.yaml").read_text())
    assert (declared["version"], made.name) == (version, f"gpu-tenancy-policy-{version}")
    assert declared["runtime"]["options"]["virtualenv"] == "venv"
