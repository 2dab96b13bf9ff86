"""Tests our components in programs of other languages: the plugin, the SDKs that Pulumi generates, and the examples."""

import json
import os
import shutil
import signal
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pulumi
import pytest
import yaml

from stacks.platform import pod_stanzas
from stacks.settings import load_file
from tests.support.deployed import import_platform
from tests.support.paths import ROOT
from tests.support.prod import PROD
from tests.support.workspace import Outcome, Workspace, workspace
from toolchain import wheel
from toolchain.cluster.paths import TOOLCHAIN
from toolchain.release import GO_SDK, complete

PLUGIN = Path("gpu_tenancy") / "plugin"
# The files that the installation of the plugin needs.
CLONED = (
    *(*wheel.PACKAGES, "gpu_tenancy", "toolchain"),
    *("pyproject.toml", "requirements.lock", "README.md", "LICENSE"),
)
CACHES = {"PIP_CACHE_DIR": str(Path.home() / ".cache" / "pip"), "npm_config_cache": str(Path.home() / ".npm")}
GO = {
    "GOMODCACHE": str(Path.home() / "go" / "pkg" / "mod"),
    "GOCACHE": str(Path.home() / ".cache" / "go-build"),
    "GOFLAGS": "-mod=mod -trimpath",
}
UNCHECKED = {"PULUMI_NODEJS_TRANSPILE_ONLY": "true"}  # A test checks the types by tsc.
PYTHON = """
from gpu_tenancy import Platform, SeatedDeployment

platform = Platform("platform", settings=%s)
SeatedDeployment("llm", image="docker.io/library/busybox:1.37.0", residents=platform.residents)
"""


@dataclass(frozen=True)
class Previewed:
    """The text of a preview, and the planned inputs of each resource, without the providers."""

    text: str
    objects: Mapping[str, Any]


@dataclass(frozen=True)
class Installed:
    folder: Path
    schema_file: Path

    def component(self, name: str) -> Mapping[str, Any]:
        schema = json.loads(self.schema_file.read_text())
        found: Mapping[str, Any] = schema["resources"][f"gputenancy:index:{name}"]
        return found


@pytest.fixture(scope="module")
def space(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Workspace]:
    folder = tmp_path_factory.mktemp("space")
    found = workspace(folder)
    yield replace(found, env={**found.env, **UNCHECKED, "PYTHONPATH": str(Path(pulumi.__file__).parents[1])})
    home = f"HOME={folder}".encode()
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if home in (process / "environ").read_bytes().split(b"\0"):
                os.kill(int(process.name), signal.SIGTERM)


@pytest.fixture(scope="module")
def plugin(space: Workspace, tmp_path_factory: pytest.TempPathFactory) -> Installed:
    clone = tmp_path_factory.mktemp("clone")
    for name in CLONED:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, clone / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(ROOT / name, clone)
    shutil.copytree(TOOLCHAIN / "charts", clone / ".toolchain" / "charts")
    schema = clone / "schema.json"
    command = f"pulumi package get-schema {clone / PLUGIN} > {schema}"
    outcome = space.run("sh", "-c", command, cwd=clone, **CACHES)
    assert outcome.code == 0, outcome.text
    return Installed(clone / PLUGIN, schema)


def needs(host: str) -> None:
    if not list((TOOLCHAIN / "pulumi-home" / "plugins").glob(f"language-{host}-v*/pulumi-language-{host}")):
        pytest.skip(
            f"pulumi-language-{host} is not installed: programs of that language are NOT tested (make integration)"
        )


def example(space: Workspace, plugin: Installed, name: str, called: str = "") -> Path:
    project = Path(shutil.copytree(ROOT / "examples" / name, space.folder / "examples" / (called or name)))
    document = yaml.safe_load((project / "Pulumi.yaml").read_text())
    assert (ROOT / "examples" / name / document["packages"]["gputenancy"]).resolve() == ROOT / PLUGIN
    document["packages"]["gputenancy"] = str(plugin.folder)
    (project / "Pulumi.yaml").write_text(yaml.safe_dump(document))
    return project


def sdk(space: Workspace, plugin: Installed, language: str, into: Path) -> Path:
    needs(language)
    command = ("package", "gen-sdk", str(plugin.schema_file), "--language", language, "--out", str(into))
    outcome = space.pulumi(*command, cwd=space.folder)
    assert outcome.code == 0, outcome.text
    complete(into / language, language)
    return into / language


@pytest.fixture(scope="module")
def in_yaml(space: Workspace, plugin: Installed) -> Previewed:
    needs("yaml")
    return previewed(space, example(space, plugin, "yaml"))


def test_a_platform_and_an_application_in_yaml_pass_the_gate(in_yaml: Previewed) -> None:
    assert "judged by this ledger: ConfigMap gpu-tenancy-system/gpu-tenancy-ledger of this program" in in_yaml.text
    assert "kubernetes:apps/v1:Deployment llm-deployment create" in in_yaml.text
    assert len([urn for urn in in_yaml.objects if "kubernetes:" in urn]) > 10


def test_settings_in_yaml_that_are_wrong_are_refused_in_the_settings_words(space: Workspace, plugin: Installed) -> None:
    needs("yaml")
    project = example(space, plugin, "yaml", "wrong")
    file = project / "Pulumi.yaml"
    file.write_text(file.read_text().replace("gpumem_mib: 4096", "gpumem_mib: 0"))
    outcome = space.preview(project=project, stack="dev")
    assert outcome.code != 0
    assert "gputenancy:index:Platform resource 'platform' has a problem: Platform platform is refused:" in outcome.text
    assert "residents.photo-search.gpumem_mib: must be at least 1 (got 0)" in outcome.text
    assert "File " not in outcome.text


def test_an_application_in_typescript_reads_its_seat_from_the_platforms_stack(
    space: Workspace, typescript: Path, ledger: Path
) -> None:
    prod = load_file(PROD)
    import_platform(space, {"residents": pod_stanzas(prod, prod.ledger())})
    outcome = space.preview("--policy-pack-config", str(ledger), project=typescript, stack="dev")
    assert outcome.code == 0, outcome.text
    assert "kubernetes:apps/v1:Deployment immich-ml-deployment create" in outcome.text


@pytest.fixture(scope="module")
def typescript(space: Workspace, plugin: Installed) -> Path:
    """A copy of the example in TypeScript, with its SDK and packages."""
    project = example(space, plugin, "typescript")
    written = sdk(space, plugin, "nodejs", space.folder / "sdk")
    (project / "sdks").mkdir()
    written.rename(project / "sdks" / "gputenancy")
    install_packages(space, project)
    outcome = compiled(space, project, "sdks/gputenancy")
    assert outcome.code == 0, outcome.text
    return project


def install_packages(space: Workspace, project: Path) -> None:
    if shutil.which("npm") is None:
        pytest.skip("NO NPM: it is not installed; a program in TypeScript is NOT tested")
    install = ("npm", "install", "--no-audit", "--no-fund", "--ignore-scripts", "--prefer-offline")
    outcome = space.run(*install, cwd=project, **CACHES)
    if "npm error network" in outcome.text:
        pytest.skip("NO NPM REGISTRY can be reached; a program in TypeScript is NOT tested")
    assert outcome.code == 0, outcome.text


def compiled(space: Workspace, project: Path, folder: str) -> Outcome:
    return space.run("node_modules/.bin/tsc", "-p", folder, "--skipLibCheck", cwd=project)


def golang(space: Workspace, plugin: Installed) -> Path:
    """Returns a copy of the example in Go, with its SDK and with the pinned modules of Pulumi's language host."""
    needs("go")
    if shutil.which("go", path=space.env["PATH"]) is None:
        pytest.skip("NO GO: it is not installed; a program in Go is NOT tested")
    project = example(space, plugin, "go")
    (project / "sdks").mkdir()
    sdk(space, plugin, "go", space.folder / "sdk").rename(project / "sdks" / "gputenancy")
    pinned = (ROOT / "toolchain" / "languages" / "go.mod").read_text()
    require = f"require {GO_SDK} v0.0.0\nreplace {GO_SDK} => ./sdks/gputenancy\n"
    (project / "go.mod").write_text(f"{pinned}\n{require}")
    shutil.copy(ROOT / "toolchain" / "languages" / "go.sum", project)
    return project


def built(space: Workspace, project: Path) -> Outcome:
    outcome = space.run("go", "build", "-o", "program", ".", cwd=project, **GO)
    if "dial tcp" in outcome.text:
        pytest.skip("NO GO PROXY can be reached; a program in Go is NOT tested")
    return outcome


def settings_of_the_example() -> Any:
    document = yaml.safe_load((ROOT / "examples" / "yaml" / "Pulumi.yaml").read_text())
    return document["resources"]["platform"]["properties"]["settings"]


def previewed(space: Workspace, project: Path) -> Previewed:
    file = project / "Pulumi.yaml"
    document = yaml.safe_load(file.read_text())
    config = {"kubernetes:enableConfigMapMutable": True}
    file.write_text(yaml.safe_dump({**document, "name": "same", "config": config}))
    outcome = space.preview("--save-plan", "plan.json", project=project, stack="dev", **GO)
    assert outcome.code == 0, outcome.text
    plans = json.loads((project / "plan.json").read_text())["resourcePlans"]
    planned = {urn: plan["goal"]["inputDiff"] for urn, plan in plans.items() if "::pulumi:" not in urn}
    return Previewed(outcome.text, planned)


def test_the_same_stack_in_python_is_the_same_objects(space: Workspace, in_yaml: Previewed) -> None:
    assert previewed(space, python(space, settings_of_the_example())).objects == in_yaml.objects


def test_the_same_stack_in_go_is_the_same_objects_and_a_misspelled_key_is_refused(
    space: Workspace, plugin: Installed, in_yaml: Previewed
) -> None:
    project = golang(space, plugin)
    outcome = built(space, project)
    assert outcome.code == 0, outcome.text
    assert previewed(space, project).objects == in_yaml.objects
    program = project / "main.go"
    program.write_text(program.read_text().replace("Memory_mib:", "Memory_mb:"))
    outcome = built(space, project)
    assert outcome.code != 0
    assert "unknown field Memory_mb in struct literal of type gputenancy.PoolSpecArgs" in outcome.text


def python(space: Workspace, settings: Any) -> Path:
    project = space.folder / "python"
    project.mkdir()
    runtime = {"name": "python", "options": {"toolchain": "pip", "virtualenv": str(ROOT / ".venv")}}
    (project / "Pulumi.yaml").write_text(yaml.safe_dump({"runtime": runtime}))
    (project / "__main__.py").write_text(f"import sys\nsys.path.insert(0, {str(ROOT)!r})\n{PYTHON % repr(settings)}")
    return project
