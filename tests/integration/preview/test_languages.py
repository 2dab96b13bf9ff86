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
from toolchain import wheel
from toolchain.cluster.paths import TOOLCHAIN
from toolchain.workspace import Outcome, Workspace, workspace

PLUGIN = Path("gpu_tenancy") / "plugin"
# The files that the installation of the plugin needs.
CLONED = (
    *(*wheel.PACKAGES, "gpu_tenancy", "toolchain"),
    *("pyproject.toml", "requirements.lock", "README.md", "LICENSE"),
)
CACHES = {"PIP_CACHE_DIR": str(Path.home() / ".cache" / "pip"), "npm_config_cache": str(Path.home() / ".npm")}


@dataclass(frozen=True)
class Installed:
    folder: Path
    schema_file: Path

    def component(self, name: str) -> Mapping[str, Any]:
        schema = json.loads(self.schema_file.read_text())
        found: Mapping[str, Any] = schema["resources"][f"gputenancy:index:{name}"]
        return found


def beside_the_checkout(folder: Path) -> Workspace:
    space = workspace(folder)
    return replace(space, env={**space.env, "PYTHONPATH": str(Path(pulumi.__file__).parents[1])})


@pytest.fixture
def space(tmp_path: Path) -> Iterator[Workspace]:
    yield beside_the_checkout(tmp_path)
    home = f"HOME={tmp_path}".encode()
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if home in (process / "environ").read_bytes().split(b"\0"):
                os.kill(int(process.name), signal.SIGTERM)


@pytest.fixture(scope="module")
def plugin(tmp_path_factory: pytest.TempPathFactory) -> Installed:
    clone, space = tmp_path_factory.mktemp("clone"), beside_the_checkout(tmp_path_factory.mktemp("space"))
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


def example(space: Workspace, plugin: Installed, name: str) -> Path:
    project = Path(shutil.copytree(ROOT / "examples" / name, space.folder / "examples" / name))
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
    return into / language


@pytest.mark.parametrize("component", ["Platform", "Seat", "SeatedDeployment", "Queue"])
def test_the_schema_says_of_each_argument_and_output_what_it_is(plugin: Installed, component: str) -> None:
    described = plugin.component(component)
    assert described["description"]
    properties = {**described["inputProperties"], **described["properties"]}
    assert {name for name, each in properties.items() if not each.get("description")} == set()


def test_the_schema_says_which_arguments_are_required_and_of_what_type(plugin: Installed) -> None:
    platform, seated = plugin.component("Platform"), plugin.component("SeatedDeployment")
    assert "requiredInputs" not in platform
    assert platform["inputProperties"]["settings"].items() >= {"type": "object", "plain": True}.items()
    assert seated["requiredInputs"] == ["image"]
    types = {name: each["type"] for name, each in seated["inputProperties"].items()}
    assert (types["image"], types["replicas"], types["pod"]) == ("string", "integer", "object")


def test_a_platform_and_an_application_in_yaml_pass_the_gate(space: Workspace, plugin: Installed) -> None:
    needs("yaml")
    outcome = space.preview(project=example(space, plugin, "yaml"), stack="dev")
    assert outcome.code == 0, outcome.text
    assert "judged by this ledger: ConfigMap gpu-tenancy-system/gpu-tenancy-ledger of this program" in outcome.text
    assert "kubernetes:apps/v1:Deployment llm-deployment create" in outcome.text


def test_settings_in_yaml_that_are_wrong_are_refused_in_the_settings_words(space: Workspace, plugin: Installed) -> None:
    needs("yaml")
    project = example(space, plugin, "yaml")
    file = project / "Pulumi.yaml"
    file.write_text(file.read_text().replace("gpumem_mib: 4096", "gpumem: 4096"))
    outcome = space.preview(project=project, stack="dev")
    assert outcome.code != 0
    assert "gputenancy:index:Platform resource 'platform' has a problem: Platform platform is refused:" in outcome.text
    assert "residents.photo-search.gpumem: unknown key; did you mean gpumem_mib?" in outcome.text
    assert "File " not in outcome.text


def test_an_application_in_typescript_reads_its_seat_from_the_platforms_stack(
    space: Workspace, plugin: Installed, ledger: Path
) -> None:
    project = example(space, plugin, "typescript")
    written = sdk(space, plugin, "nodejs", space.folder / "sdk")
    (project / "sdks").mkdir()
    written.rename(project / "sdks" / "gputenancy")
    install_packages(space, project)
    outcome = compiled(space, project, "sdks/gputenancy")
    assert outcome.code == 0, outcome.text
    prod = load_file(PROD)
    import_platform(space, {"residents": pod_stanzas(prod, prod.ledger())})
    outcome = space.preview("--policy-pack-config", str(ledger), project=project, stack="dev")
    assert outcome.code == 0, outcome.text
    assert "kubernetes:apps/v1:Deployment immich-ml-deployment create" in outcome.text
    program = project / "index.ts"
    program.write_text(program.read_text().replace("image:", "picture:"))
    outcome = compiled(space, project, ".")
    assert outcome.code != 0
    assert "'picture' does not exist in type 'SeatedDeploymentArgs'" in outcome.text


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


def test_the_go_sdk_has_the_components(space: Workspace, plugin: Installed) -> None:
    written = sdk(space, plugin, "go", space.folder / "sdk")
    code = (written / "gputenancy" / "seatedDeployment.go").read_text()
    assert "func NewSeatedDeployment(ctx *pulumi.Context," in code
    assert "Image pulumi.StringInput" in code
