"""Tests our policy pack on the examples, and on programs that use the platform with a mistake."""

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import yaml

from stacks.settings import load_file
from tenancy.choices import Enforce
from tenancy.names import POLICY
from tests.support.paths import ROOT
from tests.support.workspace import Outcome, Workspace
from toolchain import pack

# A program that uses the platform without our component.
PLAIN = ROOT / "tests" / "support" / "plain_consumer.py"
# Two more Deployments, in a namespace without a free seat. One sets a variable of the driver's cap, and the budget of
# the other is unknown until the update.
MORE = """
def changed(**change):
    spec = pod_spec(pulumi.Config().require("image"), seat(pulumi.Config()))
    for container in spec["containers"]:
        container.update(change)
    return spec


def deployment(name, spec):
    k8s.apps.v1.Deployment(
        name,
        metadata={"name": name, "namespace": "frigate"},
        spec={
            "selector": {"matchLabels": {"app": name}},
            "strategy": {"type": "Recreate"},
            "template": {"metadata": {"labels": {"app": name}}, "spec": spec},
        },
    )


deployment("stray", changed(env=[{"name": "NVIDIA_GPU_MEMORY_LIMIT", "value": "16000"}]))
unknown = k8s.core.v1.ConfigMap("other", data={}).id
deployment("late", changed(resources={"limits": {"viktorbarzin.me/gpumem": unknown}}))
"""


def example(space: Workspace, name: str) -> Path:
    (space.folder / ".venv").symlink_to(ROOT / ".venv")
    return Path(shutil.copytree(ROOT / "examples" / name, space.folder / "examples" / name))


def consume(space: Workspace, ledger: Path, project: Path | None = None, **stanza: Any) -> Outcome:
    project = project or example(space, "consumer")
    stack = project / "Pulumi.dev.yaml"
    document = yaml.safe_load(stack.read_text())
    document["config"]["gpu-consumer:stanza"].update(stanza)
    stack.write_text(yaml.safe_dump(document))
    return space.preview("--policy-pack-config", str(ledger), project=project, stack="dev", PYTHONPATH=str(ROOT))


def budget(amount: str) -> dict[str, dict[str, str]]:
    return {kind: {"viktorbarzin.me/gpumem": amount} for kind in ("limits", "requests")}


def test_a_consumer_within_its_seat_passes_the_pack_that_stands_alone(space: Workspace, ledger: Path) -> None:
    """The policy pack is outside the checkout."""
    alone = pack.build(space.folder / "elsewhere")
    (alone / "venv").symlink_to(ROOT / ".venv")
    project = example(space, "consumer")
    program = project / "__main__.py"
    program.write_text(PLAIN.read_text().replace('{"type": "Recreate"}', '{"type": "RollingUpdate"}'))
    given = json.loads(ledger.read_text())
    given[POLICY]["rules"] = {"rollout": {"level": "advisory", "reason": "there is a seat to spare until May"}}
    ledger.write_text(json.dumps(given))
    outcome = space.preview("--policy-pack-config", str(ledger), project=project, stack="dev", policy=alone)
    assert outcome.code == 0, outcome.text
    for told in (
        "judged by this ledger: the pack's configuration",
        "warning: the rule rollout is advisory: there is a seat to spare until May",
        "advisory: rollout: Deployment immich/immich-ml",
    ):
        assert told in outcome.text, told


def test_a_consumer_above_its_seat_another_without_one_and_an_unknown_budget_are_refused(
    space: Workspace, ledger: Path
) -> None:
    """Each mistake violates another rule, and one preview reports all mistakes."""
    prod = load_file(ROOT / "Pulumi.prod.yaml").ledger()
    pools = tuple(replace(pool, enforce=Enforce.DRIVER) for pool in prod.pools)
    ledger.write_text(json.dumps({POLICY: {"ledger": replace(prod, pools=pools).to_data()}}))
    project = example(space, "consumer")
    program = project / "__main__.py"
    right = PLAIN.read_text().replace('{"type": "Recreate"}', '{"type": "RollingUpdate"}')
    program.write_text(f"{right}\n{MORE}")
    outcome = consume(space, ledger, project, resources=budget("3001"))
    assert outcome.code != 0
    for told in (
        "rollout: Deployment immich/immich-ml",
        "3001",
        "seats: Deployment frigate/stray",
        "add residents.stray",
        "admission: Deployment frigate/stray: the variables NVIDIA_GPU_MEMORY_LIMIT and",
        "counted: Deployment frigate/late: cannot be proven",
    ):
        assert told in outcome.text, told


def test_the_consumer_passes_with_the_seat_that_it_has(space: Workspace, ledger: Path) -> None:
    outcome = consume(space, ledger)
    assert outcome.code == 0, outcome.text
    assert "gputenancy:index:SeatedDeployment immich-ml create" in outcome.text


def test_the_kueue_demo_passes(space: Workspace, ledger: Path) -> None:
    outcome = space.preview("--policy-pack-config", str(ledger), project=example(space, "kueue-demo"), stack="dev")
    assert outcome.code == 0, outcome.text
