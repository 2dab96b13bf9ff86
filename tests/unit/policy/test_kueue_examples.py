"""The policy pack accepts the examples of queued work in their stacks."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from stacks import settings, stackfile
from tenancy.frameworks import FrameworkName, framework_of
from tenancy.ledger import Ledger
from tests.support import prod
from tests.support.graphs import Manifest, judge
from tests.support.paths import ROOT

FOLDER = ROOT / "examples" / "kueue-demo"
WORK = sorted((FOLDER / "work").glob("*.yaml"))


def values(stack: str = "two-teams") -> dict[str, Any]:
    return dict(stackfile.read(FOLDER / f"{stack}.yaml").values)


def ledger() -> Ledger:
    return settings.parse(values()).ledger()


def manifests(file: Path) -> list[Manifest]:
    return list(yaml.safe_load_all(file.read_text()))


@pytest.mark.parametrize("stack", ["two-teams", "manager", "worker"])
def test_each_stack_is_accepted(stack: str) -> None:
    assert judge(prod.declared(values(stack))) == []


def test_the_manager_and_the_worker_have_the_same_local_queue_and_promise() -> None:
    manager, worker = (values(stack)["queues"] for stack in ("manager", "worker"))
    assert worker["local_queues"]["team-a-gpu"] == manager["local_queues"]["team-a-gpu"]
    (quota,) = worker["cluster_queues"]["team-a"]["quotas"].values()
    assert {name: each["nominal"] for name, each in quota.items()} == manager["clusters"]["east"]["promises"]


@pytest.mark.no_cover
@pytest.mark.parametrize("file", WORK, ids=lambda file: file.stem)
def test_each_example_of_work_passes_with_the_two_teams_ledger(file: Path) -> None:
    program = {str(number): manifest for number, manifest in enumerate(manifests(file))}
    assert judge(program, {"ledger": ledger().to_data()}) == []


def test_every_kind_that_kueue_queues_has_an_example_and_is_switched_on() -> None:
    shown = {
        framework_of(each["kind"], each["apiVersion"].rpartition("/")[0]) for file in WORK for each in manifests(file)
    }
    assert shown == set(FrameworkName) == set(ledger().frameworks)
