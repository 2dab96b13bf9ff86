"""Tests that each package imports only packages of lower layers."""

import sys
from collections.abc import Iterable
from pathlib import Path

import pytest

from tests.support.imports import PACKAGES, imported, is_there, modules, packages
from tests.support.paths import ROOT

MAY_IMPORT = {
    "tenancy": set(),
    "agents": {"tenancy"},
    "components": {"tenancy"},
    "stacks": {"agents", "components", "tenancy"},
    "gpu_tenancy": {"components", "stacks", "tenancy"},
    "policy": {"tenancy"},
    "gpumem": {"agents", "tenancy"},
    "toolchain": {*PACKAGES},  # It builds, packs and shows what the others are.
}
# These install and start what the others need, so they import none of them, nor the rest of the toolchain.
ALONE = ("toolchain/installer", "toolchain/cluster")
# The packages in agents/ that each agent may import.
SHARED = {"runtime", "kube", "telemetry"}
AGENT_LAYERS: dict[str, set[str]] = {
    "runtime": set(),
    "kube": {"runtime"},
    "node": {"runtime", "kube"},
    "telemetry": {"runtime", "kube"},
    "reconcile": SHARED,
    "watchdog": SHARED,
    "gate": SHARED,
    "extender": SHARED,
    "exporter": {*SHARED, "node"},
    "guard": {*SHARED, "node"},
}
# These modules import the packages only inside functions: the archive of the kubectl plugin does not contain the first
# ones, and only a rollout with a change needs the report of preflight.
WHEN_ASKED = {
    "gpumem/checkout.py": {"policy", "stacks", "yaml"},
    "gpumem/init/manifests.py": {"yaml"},
    "stacks/__main__.py": {"gpumem"},  # the command line, which stands above all packages
}
# The kubectl plugin also uses these modules. They never act on the cluster.
OF_AGENTS = (
    "agents.extender.cache.",
    "agents.gate.config.",
    "agents.kube.",
    "agents.runtime.errors.",
    "agents.runtime.clock.",
    "agents.runtime.http_client.",
    "agents.runtime.http_message.",
    "agents.runtime.items.",
    "agents.runtime.http_server.",
    "agents.runtime.settings.",
    "agents.telemetry.",
)
STANDARD_LIBRARY_ONLY = ("tenancy", "agents", "gpumem")
VENDORED = {"nvml.py": {"pynvml"}}  # Only the zipapp of the node's agents contains pynvml.
# Only these modules may import pulumi_policy.
POLICY_SDK = {"pack.py", "view.py", "__main__.py"}


def needed(path: Path) -> set[str]:
    lacking = WHEN_ASKED.get(path.relative_to(ROOT).as_posix(), set())
    return packages(path) - (lacking - packages(path, at_once=True))


def of_agents(path: Path) -> set[str]:
    return {name for name in imported(path) if name.startswith("agents.")}


def unexpected(found: Iterable[tuple[Path, set[str]]]) -> dict[str, list[str]]:
    return {str(path.relative_to(ROOT)): sorted(names) for path, names in found if names}


@pytest.mark.parametrize("package", MAY_IMPORT)
def test_a_package_imports_only_the_layers_below_it(package: str) -> None:
    upward = {*MAY_IMPORT, "tests"} - {package} - MAY_IMPORT[package]
    assert modules(package)
    assert unexpected((path, needed(path) & upward) for path in modules(package)) == {}


@pytest.mark.parametrize("package", [*PACKAGES, "toolchain", "tests"])
def test_no_module_imports_a_private_name_of_another(package: str) -> None:
    assert (
        unexpected(
            (path, {name for name in imported(path) if "._" in name.replace("__main__", "")})
            for path in modules(package)
        )
        == {}
    )


def test_what_a_module_imports_of_ours_is_there() -> None:
    """mypy reads no tests, and a test is only imported when it runs."""
    ours = {*PACKAGES, "toolchain", "tests"}
    assert (
        unexpected(
            (path, {name for name in imported(path) if name.partition(".")[0] in ours and not is_there(name)})
            for package in ours
            for path in modules(package)
        )
        == {}
    )


@pytest.mark.parametrize("layer", AGENT_LAYERS)
def test_inside_agents_a_package_imports_only_the_layers_below_it(layer: str) -> None:
    allowed = {layer, *AGENT_LAYERS[layer]}
    assert modules(f"agents/{layer}")
    assert (
        unexpected(
            (path, {name.split(".")[1] for name in of_agents(path)} - allowed) for path in modules(f"agents/{layer}")
        )
        == {}
    )


def test_every_package_inside_agents_has_its_layer() -> None:
    assert {path.parent.name for path in (ROOT / "agents").glob("*/__init__.py")} == set(AGENT_LAYERS)
    assert {name.split(".")[1] for name in of_agents(ROOT / "agents" / "__main__.py")} == {"runtime"}


def test_the_plugin_imports_only_modules_of_agents_that_never_act() -> None:
    acting = {name for path in modules("gpumem") for name in of_agents(path) if not f"{name}.".startswith(OF_AGENTS)}
    assert acting == set()


@pytest.mark.parametrize("folder", ALONE)
def test_the_installer_and_the_local_cluster_import_nothing_else_of_ours(folder: str) -> None:
    ours = tuple(f"{package}." for package in MAY_IMPORT)
    found = [(path, {name for name in imported(path) if name.startswith(ours)}) for path in modules(folder)]
    own = f"{folder.replace('/', '.')}."
    assert unexpected((path, {name for name in names if not name.startswith(own)}) for path, names in found) == {}


@pytest.mark.parametrize("package", STANDARD_LIBRARY_ONLY)
def test_what_runs_in_privileged_pods_needs_only_the_standard_library(package: str) -> None:
    allowed = {*sys.stdlib_module_names, *PACKAGES}
    foreign = {path.name: found for path in modules(package) if (found := needed(path) - allowed)}
    assert foreign == (VENDORED if package == "agents" else {})


def test_only_the_exporter_needs_what_is_vendored_for_it() -> None:
    def importers(module: str) -> list[str]:
        found = [path for path in modules("agents") if any(name.startswith(module) for name in imported(path))]
        return [str(path.relative_to(ROOT)) for path in found]

    assert importers("agents.exporter.nvml.") == ["agents/exporter/main.py"]
    assert importers("agents.exporter.main.") == []


def test_rules_know_nothing_of_the_policy_sdk() -> None:
    assert {path.name for path in modules("policy") if "pulumi_policy" in packages(path)} <= POLICY_SDK
    assert "pulumi" not in {name for path in modules("policy/rules") for name in packages(path)}


def test_no_test_module_imports_another() -> None:
    """If several test modules use the same code, the code must be in tests/support."""
    others = {path: {name for name in imported(path) if ".test_" in name} for path in modules("tests")}
    assert unexpected(others.items()) == {}


def test_only_the_settings_and_the_provider_read_the_configuration() -> None:
    ours = [path for package in PACKAGES for path in modules(package)]
    readers = [path for path in ours if any(each in path.read_text() for each in ("get_config_env", "pulumi.Config("))]
    assert readers == [ROOT / "stacks" / "provider.py", ROOT / "stacks" / "settings.py"]
