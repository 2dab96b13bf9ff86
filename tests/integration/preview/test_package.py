"""Tests the wheel in a new Python environment, with programs outside the checkout."""

import hashlib
import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

from components.base import zipapp
from stacks import platform, settings
from tests.support.deployed import import_platform
from tests.support.paths import ROOT
from tests.support.prod import PROD
from tests.support.workspace import Workspace

ARCHIVES = """
import hashlib
from gpu_tenancy.components.base import zipapp
for built in (zipapp.build(), zipapp.build_for_nodes()):
    print(built.config_map, hashlib.sha256(built.content).hexdigest())
"""
PLATFORM = """
from gpu_tenancy import Platform

Platform("gpu", file="stack.yaml").export()
"""
APPLICATION = """
from gpu_tenancy import Queue, SeatedDeployment

SeatedDeployment("immich-ml", platform="organization/gpu-tenancy/prod", image="docker.io/library/busybox:1.37.0")
Queue("team-a-gpu", platform="organization/gpu-tenancy/prod")
"""


@dataclass(frozen=True)
class Environment:
    folder: Path

    @property
    def python(self) -> Path:
        return self.folder / "bin" / "python"

    def project(self, folder: Path, program: str) -> Path:
        folder.mkdir()
        (folder / "venv").symlink_to(self.folder)
        (folder / "__main__.py").write_text(program)
        project = {
            "name": "mine",
            "runtime": {"name": "python", "options": {"toolchain": "pip", "virtualenv": "venv"}},
            "config": {"kubernetes:enableConfigMapMutable": {"value": True}},
        }
        (folder / "Pulumi.yaml").write_text(yaml.safe_dump(project))
        return folder


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Environment:
    folder = tmp_path_factory.mktemp("package")
    before = {path.name for path in ROOT.iterdir()}
    run(sys.executable, "-m", "toolchain.wheel", str(folder))
    assert {path.name for path in ROOT.iterdir()} == before
    (made,) = folder.glob("gpu_tenancy-*.whl")
    environment = Environment(folder / "venv")
    run(sys.executable, "-m", "venv", "--without-pip", str(environment.folder))
    (packages,) = environment.folder.glob("lib/*/site-packages")
    (lent,) = (ROOT / ".venv").glob("lib/*/site-packages")
    (packages / "lent.pth").write_text(f"{lent}\n")
    uv = str(ROOT / ".toolchain" / "bin" / "uv")
    run(uv, "pip", "install", "--offline", "--no-index", "--no-deps", "--python", str(environment.python), str(made))
    return environment


def run(*command: str, cwd: Path = ROOT) -> str:
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_it_brings_the_agents_of_the_checkout_to_the_byte(installed: Environment, tmp_path: Path) -> None:
    ours = [zipapp.build(), zipapp.build_for_nodes()]
    lines = [f"{built.config_map} {hashlib.sha256(built.content).hexdigest()}" for built in ours]
    assert run(str(installed.python), "-c", ARCHIVES, cwd=tmp_path).splitlines() == lines


STARTED = """
import gpu_tenancy.gpumem.cli, sys

assert "pulumi" not in sys.modules
"""


def test_kubectl_gpumem_starts_without_pulumi(installed: Environment, tmp_path: Path) -> None:
    run(str(installed.python), "-c", STARTED, cwd=tmp_path)


def test_an_empty_folder_judges_a_stack_file(installed: Environment, tmp_path: Path) -> None:
    (tmp_path / "stack.yaml").write_text(PROD.read_text().replace("gpumem_mib: 5000", "gpumem_mib: 4900"))
    arguments = ("fit", "4000", "--stack", "stack.yaml", "--pool", "t4")
    outcomes = [
        subprocess.run([*command, *arguments], cwd=tmp_path, env=env, capture_output=True, text=True, check=False)
        for command, env in (
            ((str(installed.folder / "bin" / "kubectl-gpumem"),), {}),
            ((sys.executable, "-m", "gpumem"), {"PYTHONPATH": str(ROOT)}),
        )
    ]
    (ours, theirs) = ((done.returncode, done.stdout, done.stderr) for done in outcomes)
    assert ours == theirs
    assert ours[0] in (0, 3), ours
    assert len(ours[1].splitlines()) > 5


def test_an_empty_folder_previews_the_whole_platform_under_the_pack(installed: Environment, space: Workspace) -> None:
    """The preview works offline, because the wheel contains Kueue's chart."""
    project = installed.project(space.folder / "mine", PLATFORM)
    (project / "stack.yaml").write_text(PROD.read_text())
    outcome = space.preview(project=project, stack="dev")
    assert outcome.code == 0, outcome.text
    for said in ("gputenancy:index:Platform gpu", "helm.sh/v3:Release gpu-kueue-release", "✅ gpu-tenancy"):
        assert said in outcome.text, said


def test_an_application_reads_its_seat_from_the_platforms_stack(
    installed: Environment, space: Workspace, ledger: Path
) -> None:
    parsed = settings.load_file(PROD)
    residents = platform.pod_stanzas(parsed, parsed.ledger())
    import_platform(space, {"ledger": json.loads(ledger.read_text()), "residents": residents})
    project = installed.project(space.folder / "mine", APPLICATION)
    outcome = space.preview("--policy-pack-config", str(ledger), "--diff", project=project, stack="dev")
    assert outcome.code == 0, outcome.text
    for said in ('viktorbarzin.me/gpumem: "3k"', 'priorityClassName: "gpu-workload"', "Policy Packs run"):
        assert said in outcome.text, said
