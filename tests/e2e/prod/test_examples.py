"""Rolls out the examples next to prod, with the commands of their READMEs."""

import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.e2e.rollout import (
    GPUMEM,
    Object,
    Rollout,
    await_running,
    await_schemas,
    await_waiting,
    complete,
    jobs,
    pods,
    running_pods,
    workload,
)
from tests.support.paths import ROOT
from tests.support.waiting import eventually
from tests.support.workspace import Outcome

# A program that declares the same Deployment as examples/consumer, but without our component.
PLAIN = ROOT / "tests" / "support" / "plain_consumer.py"


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


def test_a_budget_above_the_seat_and_a_rollout_that_the_server_defaults_are_refused(consumer: Example) -> None:
    budget = {"resources": {kind: {GPUMEM: "13000"} for kind in ("limits", "requests")}}
    selector = {"nvidia.com/gpu.sharing-strategy": "time-slicing"}
    consumer.configure("platform", None)
    consumer.configure("stanza", {"namespace": "immich", "nodeSelector": selector, **budget})
    program = consumer.folder / "__main__.py"
    program.write_text(PLAIN.read_text().replace('"strategy": {"type": "Recreate"},', ""))
    outcome = consumer.type("pulumi preview --policy-pack $root/policy --policy-pack-config ledger.json")
    assert outcome.code != 0
    assert "seats: Deployment immich/immich-ml" in outcome.text
    assert "13000" in outcome.text
    assert "rollout: Deployment immich/immich-ml" in outcome.text


@pytest.fixture
def demo(prod: Rollout) -> Iterator[Example]:
    demo = example(prod, "kueue-demo")
    yield demo
    destroyed = demo.type("pulumi destroy --yes --skip-preview")
    assert destroyed.code == 0, destroyed.text
    kinds = (jobs, pods, workloads)
    eventually(
        lambda: not any(prod.items(kind(team)) for team in ("team-a", "team-b") for kind in kinds),
        "nothing of the demo is left",
    )


def test_two_teams_take_turns_at_one_gpu(prod: Rollout, demo: Example) -> None:
    """On a busy machine, Kueue may receive all three Jobs at the same time. Then a Job waits because the quota is used,
    or because it no longer fits after another one, and Kueue leaves this message until something changes."""
    assert "✅ gpu-tenancy" in demo.follow_readme()
    await_running(prod, "team-b", "high-priority")
    preempted = {job for job in EQUALS if "Preempted" in conditions(workload(prod, *job))}
    assert len(preempted) <= 1
    for each in preempted:
        assert conditions(workload(prod, *each))["Preempted"] == ("True", "InClusterQueue")
        assert running_pods(prod, *each) == []
    for each in EQUALS - preempted:
        await_waiting(prod, *each)
    complete(prod, "team-b", "high-priority")

    def running() -> list[tuple[str, str]]:
        return [job for job in EQUALS if running_pods(prod, *job)]

    (turn,) = eventually(running, "one of the two runs")
    (last,) = EQUALS - {turn}
    assert running_pods(prod, *last) == []
    complete(prod, *turn)
    await_running(prod, *last)
    complete(prod, *last)
    failed = [prod.get(jobs(*job))["status"].get("failed") for job in (turn, last, ("team-b", "high-priority"))]
    assert failed == [None, None, None]


EQUALS = {("team-a", "low-priority"), ("team-b", "second")}


def conditions(found: Object) -> dict[str, tuple[str, str]]:
    entries = found.get("status", {}).get("conditions", [])
    return {entry["type"]: (entry["status"], entry["reason"]) for entry in entries}


def workloads(team: str) -> str:
    return f"/apis/kueue.x-k8s.io/v1beta2/namespaces/{team}/workloads"
