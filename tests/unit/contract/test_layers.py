"""Arrows point down only, read from the imports themselves."""

import ast
import re
import sys
from collections import Counter
from pathlib import Path

import pytest

from tests.support.paths import ROOT

PACKAGES = ("tenancy", "agents", "components", "stacks", "gpu_tenancy", "policy", "simulation", "gpumem")
MAY_IMPORT = {
    "tenancy": set(),
    "agents": {"tenancy"},
    "components": {"tenancy"},
    "stacks": {"components", "tenancy"},
    "gpu_tenancy": {"components", "stacks", "tenancy"},
    "policy": {"tenancy"},
    "simulation": {"agents", "components", "stacks", "tenancy"},
    "gpumem": {"agents", "tenancy"},
}
# What kubectl's plugin takes of an agent is what counts and what is said, never what acts.
OF_AGENTS = {
    "agents.extender.cache",
    "agents.gate.config",
    "agents.kube",
    "agents.runtime.errors",
    "agents.telemetry",
}
# What the plugin lacks: each imported by one module, when it is asked for.
WHEN_ASKED = {
    "checkout.py": {"components", "policy", "simulation", "stacks", "yaml"},
    "plot.py": {"matplotlib"},
}
# What each package inside agents/ may import of the others.
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
STANDARD_LIBRARY_ONLY = ("tenancy", "agents", "gpumem")
VENDORED = {"nvml.py": {"pynvml"}}  # for the exporter, whose zipapp alone carries it
# Two classes of one name, which mean one thing: what the settings say of it, and the component that declares it.
SAME_THING = {"Seat", "Tenant"}
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


def imported_when_asked(path: Path) -> set[str]:
    """The top-level packages that only functions of a module import."""
    tree = ast.parse(path.read_text())
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
    inner = {id(node) for function in functions for node in ast.walk(function)}
    froms = [node for node in ast.walk(tree) if isinstance(node, ast.Import | ast.ImportFrom)]

    def packages(node: ast.Import | ast.ImportFrom) -> set[str]:
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else [node.module or ""]
        return {name.partition(".")[0] for name in names}

    at_once = {name for node in froms if id(node) not in inner for name in packages(node)}
    return {name for node in froms for name in packages(node)} - at_once


def allowed_when_asked(path: Path) -> set[str]:
    """What the plugin lacks and this module of its imports when it is asked for."""
    return imported_when_asked(path) & WHEN_ASKED.get(path.name, set()) if path.parent.name == "gpumem" else set()


def agent_layers(path: Path) -> set[str]:
    """The packages inside agents/ that a module imports."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        else:
            continue
        found |= {name.split(".")[1] for name in names if name.startswith("agents.")}
    return found


@pytest.mark.parametrize("package", PACKAGES)
def test_a_package_imports_only_the_layers_below_it(package: str) -> None:
    ours = set(PACKAGES) - {package}
    found = {
        path: imported(path) & (ours - MAY_IMPORT[package]) - allowed_when_asked(path) for path in modules(package)
    }
    assert modules(package)
    assert {str(path.relative_to(ROOT)): sorted(upward) for path, upward in found.items() if upward} == {}


@pytest.mark.parametrize("layer", AGENT_LAYERS)
def test_inside_agents_a_package_imports_only_the_layers_below_it(layer: str) -> None:
    """Agents are independent of one another: none is in another's set."""
    upward = {
        str(path.relative_to(ROOT)): sorted(agent_layers(path) - AGENT_LAYERS[layer] - {layer})
        for path in modules(f"agents/{layer}")
        if agent_layers(path) - AGENT_LAYERS[layer] - {layer}
    }
    assert modules(f"agents/{layer}")
    assert upward == {}


def test_the_plugin_takes_of_the_agents_what_counts_and_not_what_acts() -> None:
    def modules_of_agents(path: Path) -> set[str]:
        froms = (node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.ImportFrom))
        named = {f"{node.module}.{alias.name}" for node in froms for alias in node.names}
        return {name for name in named if name.startswith("agents.")}

    used = {name for path in modules("gpumem") for name in modules_of_agents(path)}
    assert {name for name in used if not any(f"{name}.".startswith(f"{each}.") for each in OF_AGENTS)} == set()
    assert {each for each in OF_AGENTS if not any(f"{name}.".startswith(f"{each}.") for name in used)} == set()


def test_of_the_toolchain_only_what_shows_what_is_shipped_imports_it() -> None:
    """And nothing of it the tests, which use it."""
    users = {
        path.relative_to(ROOT / "toolchain").parts[0]: imported(path) & {*PACKAGES, "tests"}
        for path in modules("toolchain")
        if imported(path) & {*PACKAGES, "tests"}
    }
    assert users.keys() == {"plugin.py", "demo", "pages.py"}
    assert users.pop("pages.py") == {"gpu_tenancy"}
    assert set().union(*users.values()) <= {"agents", "gpumem", "tenancy"}


def test_every_package_inside_agents_has_its_layer() -> None:
    assert {path.parent.name for path in (ROOT / "agents").glob("*/__init__.py")} == set(AGENT_LAYERS)
    assert agent_layers(ROOT / "agents" / "__main__.py") == {"runtime"}  # it imports an agent by name


def test_an_arrow_that_points_up_is_found(tmp_path: Path) -> None:
    module = tmp_path / "module.py"
    module.write_text("import agents.gate.main\nfrom agents import guard\nfrom agents.kube.client import Api\n")
    assert agent_layers(module) == {"gate", "guard", "kube"}


@pytest.mark.parametrize("package", STANDARD_LIBRARY_ONLY)
def test_what_runs_in_privileged_pods_needs_only_the_standard_library(package: str) -> None:
    allowed = set(sys.stdlib_module_names) | set(PACKAGES)
    foreign = {path.name: imported(path) - allowed - allowed_when_asked(path) for path in modules(package)}
    assert {name: found for name, found in foreign.items() if found} == (VENDORED if package == "agents" else {})


def test_what_the_plugin_lacks_is_imported_by_one_module_and_when_it_is_asked_for(tmp_path: Path) -> None:
    assert {name: allowed_when_asked(ROOT / "gpumem" / name) for name in WHEN_ASKED} == WHEN_ASKED
    module = tmp_path / "gpumem" / "checkout.py"
    module.parent.mkdir()
    module.write_text("import yaml\n\ndef f():\n    import yaml\n    from stacks import settings\n")
    assert allowed_when_asked(module) == {"stacks"}


def test_only_the_exporter_needs_what_is_vendored_for_it() -> None:
    def importers(module: str) -> set[str]:
        found = (path for path in modules("agents") if re.search(rf"^from {module} import", path.read_text(), re.M))
        return {str(path.relative_to(ROOT)) for path in found}

    assert importers("agents.exporter.nvml") == {"agents/exporter/main.py"}
    assert importers("agents.exporter.main") == set()


def test_rules_know_nothing_of_the_policy_sdk() -> None:
    users = {path.name for path in modules("policy") if "pulumi_policy" in imported(path)}
    assert users <= POLICY_SDK
    assert "pulumi" not in set().union(*(imported(path) for path in (ROOT / "policy" / "rules").rglob("*.py")))


def test_a_public_class_name_means_one_thing() -> None:
    """An agent's `Settings` is of its package. The simulation's classes have the names of what they stand for."""
    defined = Counter(
        node.name
        for package in {*PACKAGES, "toolchain"} - {"simulation"}
        for path in modules(package)
        for node in ast.parse(path.read_text()).body
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
    )
    several = {name for name, times in defined.items() if times > 1}
    assert several == {*SAME_THING, "Settings"}


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
