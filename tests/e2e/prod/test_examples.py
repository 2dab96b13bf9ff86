"""Rolls out the examples next to prod, with the commands of their READMEs."""

import re
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.e2e.rollout import GPUMEM, Rollout, await_schemas, pods
from tests.support.paths import ROOT
from tests.support.waiting import eventually
from tests.support.workspace import Outcome


@dataclass(frozen=True)
class Example:
    prod: Rollout
    folder: Path

    def follow_readme(self) -> str:
        commands = re.findall(r"^pulumi [^\n#]*", (self.folder / "README.md").read_text(), flags=re.MULTILINE)
        said = []
        for command in commands:
            outcome = self.type(command.replace("pulumi up", "pulumi up --yes"))
            assert outcome.code == 0, f"{command}\n{outcome.text}"
            said.append(outcome.text)
        assert any("pulumi up" in command for command in commands)
        return "\n".join(said)

    def type(self, command: str) -> Outcome:
        await_schemas(self.prod.cluster.api)
        script = f"root={ROOT}\n{command.strip()}"
        return self.prod.workspace.run(
            "bash",
            "-c",
            script,
            cwd=self.folder,
            KUBECONFIG=str(self.prod.cluster.kubeconfig),
            PYTHONPATH=str(ROOT),
        )

    def configure(self, key: str, value: Any) -> None:
        stack = self.folder / "Pulumi.dev.yaml"
        document = yaml.safe_load(stack.read_text())
        name = f"{yaml.safe_load((self.folder / 'Pulumi.yaml').read_text())['name']}:{key}"
        document["config"].pop(name, None)
        if value is not None:
            document["config"][name] = value
        stack.write_text(yaml.safe_dump(document))


def example(prod: Rollout, name: str) -> Example:
    space = prod.workspace
    virtualenv = space.folder / ".venv"
    if not virtualenv.exists():
        virtualenv.symlink_to(ROOT / ".venv")
    return Example(prod, Path(shutil.copytree(ROOT / "examples" / name, space.folder / "examples" / name)))


@pytest.fixture(scope="module")
def consumer(prod: Rollout) -> Example:
    return example(prod, "consumer")


def test_the_consumer_is_rolled_out_with_the_seat_of_the_platforms_stack(consumer: Example) -> None:
    consumer.configure("stanza", None)
    consumer.configure("platform", "organization/gpu-tenancy/prod")
    assert "✅ gpu-tenancy" in consumer.follow_readme()
    (pod,) = consumer.prod.items(pods("immich"))
    assert (pod["spec"]["nodeName"], pod["spec"]["priorityClassName"]) == ("k8s-node1", "gpu-workload")
    assert pod["spec"]["containers"][0]["resources"]["requests"] == {GPUMEM: "3k", "nvidia.com/gpu": "0"}


def test_the_destroyed_consumer_leaves_nothing(consumer: Example) -> None:
    assert consumer.type("pulumi destroy --yes --skip-preview").code == 0
    assert consumer.prod.items("/apis/apps/v1/namespaces/immich/deployments") == []
    eventually(lambda: not consumer.prod.items(pods("immich")), "the consumer's pod is gone")
