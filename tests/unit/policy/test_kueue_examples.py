"""The examples of queued work pass the pack with the ledger of their stack."""

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


def values() -> dict[str, Any]:
    return dict(stackfile.read_either(FOLDER / "two-teams.yaml").values)


def ledger() -> Ledger:
    return settings.parse(values()).ledger()


def manifests(file: Path) -> list[Manifest]:
    return list(yaml.safe_load_all(file.read_text()))


def test_the_stack_of_the_two_teams_is_accepted() -> None:
    assert judge(prod.declared(values())) == []


@pytest.mark.parametrize("file", WORK, ids=lambda file: file.stem)
def test_each_example_of_work_passes_with_the_two_teams_ledger(file: Path) -> None:
    program = {str(number): manifest for number, manifest in enumerate(manifests(file))}
    assert judge(program, {"ledger": ledger().to_data()}) == []


def test_every_kind_that_kueue_queues_has_an_example_and_is_switched_on() -> None:
    shown = {
        framework_of(each["kind"], each["apiVersion"].rpartition("/")[0]) for file in WORK for each in manifests(file)
    }
    assert shown == set(FrameworkName) == set(ledger().frameworks)
