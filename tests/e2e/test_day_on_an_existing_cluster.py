"""Follows the steps of an operator on the cluster of record 0000, from the first command to the removal.

Pods restart only if the operator restarts them, and no object is lost. The steps are in
docs/howto/from-the-records-cluster.md. `make attempts` kills many times.
"""

import json
from collections.abc import Iterator, Sequence

import pytest
import yaml

from tests.support.e2e.history import history
from tests.support.e2e.lab import Lab
from tests.support.e2e.records_world import USE_MIB, World, namespace_of, records_world
from tests.support.given_clusters import GPU
from tests.support.waiting import becomes, eventually
from tests.support.workspace import workspace
from toolchain.cluster.cluster import HeldCluster

GPUMEM = "viktorbarzin.me/gpumem"


@pytest.fixture(scope="module")
def world(real_cluster: HeldCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with records_world(real_cluster, tmp_path_factory.mktemp("files")) as found:
        yield found


@pytest.fixture(scope="module")
def lab(world: World, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    found = Lab(world.cluster, workspace(tmp_path_factory.mktemp("mine")), "mine")
    with history(world) as address:
        done = found.gpumem("init", "--stack", "mine", "--from", address)
    assert done.code == 0, done.text
    edit(found, "example.com # assumed: write a DNS name of yours", "viktorbarzin.me")
    yield found
    if found.resources():
        found.succeed("destroy")


def edit(lab: Lab, old: str, new: str) -> None:
    text = lab.stack_file().read_text()
    assert old in text
    lab.stack_file().write_text(text.replace(old, new))


def denied(lab: Lab) -> set[tuple[str, str]]:
    done = lab.preflight()
    assert done.code in (0, 1), done.text
    return {(row["namespace"], row["name"]) for row in json.loads(done.text)["denies"]}


def workloads(apps: Sequence[str]) -> set[tuple[str, str]]:
    return {(namespace_of(app), app) for app in apps}


def test_a_day_from_the_records_cluster_to_a_stack_that_enforces_and_back(world: World, lab: Lab) -> None:
    before = world.snapshot()
    config = yaml.safe_load(lab.stack_file().read_text())["config"]
    budgets = {app: seat["gpumem_mib"] for app, seat in config["gpu-tenancy:residents"].items()}
    assert budgets.keys() == USE_MIB.keys()
    assert all(mib >= USE_MIB[app] for app, mib in budgets.items())

    said = lab.succeed("up")
    assert "✅ gpu-tenancy accepts mine" in said
    assert world.pods() == before.pods
    assert denied(lab) == workloads([*budgets])
    assert world.stamp("tts", {GPU: "1"}) == ("tier-2-gpu", True)

    for number, (app, mib) in enumerate(budgets.items(), 1):
        running = world.pods()
        world.limit(app, {GPU: "1", GPUMEM: str(mib)})
        assert {name for name, pod in world.pods().items() if pod != running[name]} == {app}
        if number in (1, len(budgets)):
            assert denied(lab) == workloads([*budgets][number:])

    world.retire_the_stand_in()
    edit(lab, "mode: observe", "mode: enforce")
    running = world.pods()
    said = lab.succeed("up")
    assert "\npolicies begin to change pods: gpu-tenancy-" in said
    assert "\ntenants get a quota: android-emulator, frigate, immich, llama-swap, portal-stt, tts\n" in said
    assert world.pods() == running
    eventually(
        lambda: "reaches a GPU without a budget" in str(world.created("frigate", {GPU: "1"}).refusal),
        "a pod without a budget is denied",
    )

    def restarted() -> tuple[str | None, bool]:
        world.restart("tts")
        return world.stamped("tts")

    becomes(restarted, ("tier-2-gpu", False), "the policies of the stack stamp")

    running = world.pods()
    said = lab.destroy()
    assert "\nmine leaves namespaces android-emulator, frigate, gpu-tenancy-system, " in said
    assert "\nmine leaves 7 pods (" in said
    becomes(lambda: before.changes(world.snapshot(pods=before.pods)), [], "all is as it was before the stack")
    assert world.pods() == running
    becomes(lambda: world.stamp("immich", {GPU: "1"}), ("gpu-workload", True), "the stand-in stamps again")
    world.limit("tts", {GPU: "1", GPUMEM: None})
    assert world.stamped("tts") == ("tier-2-gpu", True)
