"""Arrows point down only, read from the imports themselves."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("tenancy", "agents", "components", "stacks", "policy")
MAY_IMPORT = {
    "tenancy": set(),
    "agents": {"tenancy"},
    "components": {"tenancy"},
    "stacks": {"components", "tenancy"},
    "policy": {"tenancy"},
}
STANDARD_LIBRARY_ONLY = ("tenancy", "agents")
VENDORED = {"nvml.py": {"pynvml"}}  # for the exporter, whose zipapp alone carries it
# pulumi_policy stays at the edge, so that rules run and are tested without an engine.
POLICY_SDK = {"pack.py", "view.py", "__main__.py"}


def modules(package: str) -> list[Path]:
    return sorted((ROOT / package).rglob("*.py"))


def imported(path: Path) -> set[str]:
    """The top-level packages that a module imports."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import; write the whole name"
            found.add((node.module or "").partition(".")[0])
    return found


@pytest.mark.parametrize("package", PACKAGES)
def test_a_package_imports_only_the_layers_below_it(package: str) -> None:
    ours = set(PACKAGES) - {package}
    upward = {
        str(path.relative_to(ROOT)): sorted(imported(path) & (ours - MAY_IMPORT[package]))
        for path in modules(package)
        if imported(path) & (ours - MAY_IMPORT[package])
    }
    assert modules(package)
    assert upward == {}


@pytest.mark.parametrize("package", STANDARD_LIBRARY_ONLY)
def test_what_runs_in_privileged_pods_needs_only_the_standard_library(package: str) -> None:
    allowed = set(sys.stdlib_module_names) | set(PACKAGES)
    foreign = {path.name: imported(path) - allowed for path in modules(package) if imported(path) - allowed}
    assert foreign == (VENDORED if package == "agents" else {})


def test_only_the_exporter_needs_what_is_vendored_for_it() -> None:
    assert {path.name for path in modules("agents") if "agents.nvml" in path.read_text()} == {"exporter.py"}
    assert {path.name for path in modules("agents") if "agents.exporter" in path.read_text()} == set()


def test_rules_know_nothing_of_the_policy_sdk() -> None:
    users = {path.name for path in modules("policy") if "pulumi_policy" in imported(path)}
    assert users <= POLICY_SDK
    assert "pulumi" not in set().union(*(imported(path) for path in (ROOT / "policy" / "rules").rglob("*.py")))


def test_only_the_settings_read_the_configuration() -> None:
    readers = {
        str(path.relative_to(ROOT))
        for package in PACKAGES
        for path in modules(package)
        if "get_config_env" in path.read_text() or "pulumi.Config(" in path.read_text()
    }
    assert readers == {"stacks/settings.py"}


def test_the_program_is_at_most_fifteen_lines() -> None:
    lines = [line for line in (ROOT / "__main__.py").read_text().splitlines() if line.strip()]
    assert len(lines) <= 15


def test_importing_a_module_does_nothing() -> None:
    names = [
        str(path.relative_to(ROOT).with_suffix("")).replace("/", ".")
        for package in PACKAGES
        for path in modules(package)
        if path.name != "__main__.py"
    ]
    code = "import importlib, sys\nfor name in sys.argv[1:]: importlib.import_module(name)"
    run = subprocess.run(
        [sys.executable, "-c", code, *names], cwd=ROOT, env={"PATH": ""}, capture_output=True, text=True, check=False
    )
    assert (run.returncode, run.stdout, run.stderr) == (0, "", "")
