"""Tests that `up` says why no agent can run and goes on waiting, and that `destroy` ends without one.

Each test continues with the cluster and the state of the test before it.
"""

import json
import os
import signal
import subprocess
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from components.base.zipapp import build, build_for_nodes
from tenancy import names
from tests.support.e2e.lab import NAMESPACES, Lab
from tests.support.e2e.remains import left_behind
from tests.support.e2e.rollout import GPU_COUNT, GPUMEM, SYSTEM, Rollout, pods
from tests.support.prod import raw
from tests.support.waiting import becomes, eventually
from tests.support.workspace import workspace
from toolchain.cluster import image
from toolchain.cluster.cluster import HeldCluster
from toolchain.cluster.control_plane import NODE
from toolchain.cluster.node import TAINT
from toolchain.cluster.paths import program

REGISTRY = "registry.invalid"
ABSENT_IMAGE = f"{REGISTRY}/python:3.13.9-slim-bookworm"
CONFIG_MAPS = f"{NAMESPACES}/{SYSTEM}/configmaps"
T4_NODE, REAL_NODE = "/api/v1/nodes/k8s-node1", f"/api/v1/nodes/{NODE}"
CONFIG = yaml.safe_dump(
    {
        "cluster": raw()["cluster"],
        "pools": {"t4": raw()["pools"]["t4"]},
        "tenants": {"immich": {}},
        "reconcile": {},
    }
)


@pytest.fixture(scope="module")
def lab(real_cluster: HeldCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """A stack on a cluster in which only the real node takes pods."""
    found = (real_cluster.api.get("/api/v1/nodes") or {})["items"]
    simulated = [f"/api/v1/nodes/{name}" for each in found if (name := each["metadata"]["name"]) != NODE]
    for node in simulated:
        cordon(real_cluster, node, on=True)
    yield Lab(real_cluster, workspace(tmp_path_factory.mktemp("lab")), config=CONFIG)
    for node in (*simulated, REAL_NODE):
        cordon(real_cluster, node, on=False)


def cordon(running: HeldCluster, node: str, *, on: bool) -> None:
    running.api.patch(node, {"spec": {"unschedulable": on}})


def ends(lab: Lab, command: str, code: int) -> str:
    outcome = lab.run(command)
    assert outcome.code == code, outcome.text
    return outcome.text


def pulls(lab: Lab) -> int:
    events = lab.items(f"{NAMESPACES}/{SYSTEM}/events?fieldSelector=reason%3DPulling")
    return max((each["count"] for each in events), default=0)


def advertised(lab: Lab) -> set[str]:
    return {key for key in (GPUMEM, GPU_COUNT) if key in lab.found(T4_NODE)["status"]["capacity"]}


def test_an_image_that_cannot_be_pulled_is_told_until_ctrl_c_and_a_repaired_up_goes_on(lab: Lab) -> None:
    tolerations = [{"key": TAINT}]
    lab.write(lambda config: config["cluster"].update(agent_image=ABSENT_IMAGE, agent_tolerations=tolerations))
    log = lab.space.folder / "waiting.log"
    command, place = lab.command("up"), {"cwd": lab.space.project, "env": lab.environment}
    with (
        log.open("w") as out,
        subprocess.Popen(command, stdout=out, stderr=out, start_new_session=True, **place) as run,
    ):  # type: ignore[call-overload]
        try:
            reason = f"the cluster says of Pod {SYSTEM}/{names.RECONCILE}-"
            eventually(lambda: reason in log.read_text(), "the reason is told")
            eventually(lambda: pulls(lab) > 1, "the kubelet tries again", lambda: pulls(lab))
            assert run.poll() is None, log.read_text()
            os.killpg(run.pid, signal.SIGINT)
            assert run.wait(60) not in (0, -signal.SIGINT)
        except BaseException:
            os.killpg(run.pid, signal.SIGKILL)
            raise
    said = log.read_text()
    assert f"lookup {REGISTRY}" in said, said
    assert said.count("It goes on when this passes.") == 1, said
    assert "Pulumi completes the steps that it has begun." in said, said
    assert "make up has failed with " in said, said
    assert advertised(lab) == set()
    lab.write()
    lab.succeed("up")
    assert advertised(lab) == {GPUMEM, GPU_COUNT}


def test_the_agents_run_from_an_image_with_their_code_and_not_from_one_with_other_code(
    lab: Lab, tmp_path: Path
) -> None:
    def run_from(image: str) -> Callable[[dict[str, Any]], None]:
        given = {"agent_image": image, "agent_image_has_code": True, "agent_tolerations": [{"key": TAINT}]}
        return lambda config: config["cluster"].update(given)

    plain, with_code = imported(lab, tmp_path)
    lab.write(run_from(plain))
    assert f"can't open file '{build().image_path}'" in ends(lab, "up", code=1)
    lab.write(run_from(with_code))
    lab.succeed("up")
    assert advertised(lab) == {GPUMEM, GPU_COUNT}
    assert code(lab) == []


def code(lab: Lab) -> list[str]:
    return [each["metadata"]["name"] for each in lab.items(CONFIG_MAPS) if "binaryData" in each]


def imported(lab: Lab, folder: Path) -> Iterator[str]:
    """Loads an image of Python and one with the agents' code into the node. Yields their names with digests."""
    base, made = folder / "base.tar", folder / "made.tar"
    image.write_python(base)
    image.write_python(made, {each.image_path: each.content for each in (build(), build_for_nodes())})
    enter = ("nsenter", f"--target={lab.cluster.pid_on_node(program('kubelet'))}", "--mount")
    ctr = (program("ctr"), "--address=/run/containerd.sock", "--namespace=k8s.io")
    for archive in (base, made):
        name = f"docker.io/library/{archive.stem}"
        loads = ("image", "import", "--local", "--digests", f"--base-name={name}", str(archive))
        subprocess.run([*enter, *ctr, *loads], check=True)
        with tarfile.open(archive) as tar, tar.extractfile("index.json") as index:  # type: ignore[union-attr]
            (entry,) = json.load(index)["manifests"]
        yield f"{name}@{entry['digest']}"


def test_destroy_without_a_node_removes_the_gpumem_itself_and_leaves_nothing(lab: Lab) -> None:
    cordon(lab.cluster, REAL_NODE, on=True)
    for pod in lab.items(pods(SYSTEM)):
        lab.cluster.api.request("DELETE", f"{pods(SYSTEM, pod['metadata']['name'])}?gracePeriodSeconds=0")
    assert advertised(lab) == {GPUMEM, GPU_COUNT}
    said = ends(lab, "destroy", code=0)
    assert said.index("\nlab removes its gpumem from the nodes ") < said.index("\nDestroy lab: ")
    assert f"No agent runs, so make removes {GPUMEM} from the nodes itself (1 have it)." in said
    assert advertised(lab) == set()
    becomes(lambda: left_behind(Rollout(lab.cluster, lab.space)), set(), "all is gone")
    assert lab.resources() == 0
