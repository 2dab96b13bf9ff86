"""Rolls out a stack on a cluster that already has objects. The rollout loses no object.

Each test continues with the cluster and the state of the test before it.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tenancy import names
from tests.support.e2e.lab import CLASSES, NAMESPACES, Lab
from tests.support.waiting import eventually
from tests.support.workspace import workspace
from toolchain.cluster import cluster
from toolchain.cluster.api import MERGE
from toolchain.cluster.extent import Extent

CONFIG = """
cluster: {resource_domain: example.com, agent_image: "docker.io/library/python:3.13.9-slim-bookworm"}
pools:
  gpu: {node_selector: {gpu: present}, nodes: 1, device_count: 1, memory_mib: 24564, reserve_mib: 1524}
tenants: {immich: {}, scratch: {}}
priorities: {gpu-workload: {value: 1000000}}
"""
IMMICH, PHOTOS = f"{NAMESPACES}/immich", f"{NAMESPACES}/immich/configmaps/photos"
CLAIM = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
HOMES = ("immich", "scratch", "gpu-tenancy-system")
SYSTEM = f"{NAMESPACES}/gpu-tenancy-system"
LEDGER = f"{SYSTEM}/configmaps/{names.LEDGER}"


@pytest.fixture(scope="module")
def lab(installed: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    with cluster.running(tmp_path_factory.mktemp("existing"), extent=Extent.SIMULATED) as running:
        yield Lab(running, workspace(tmp_path_factory.mktemp("lab")), config=CONFIG)


def put_there(lab: Lab, value: int) -> None:
    lab.cluster.api.create(NAMESPACES, {"metadata": {"name": "immich", "labels": {"owner": "me"}}})
    lab.cluster.api.create(f"{IMMICH}/configmaps", {"metadata": {"name": "photos"}, "data": {"a": "b"}})
    lab.cluster.api.create(CLASSES, {"metadata": {"name": "gpu-workload"}, "value": value, "description": "mine"})


def by_name(config: dict[str, Any]) -> None:
    config["priorities"]["gpu-workload"].update(value=7, create=False)


def test_existing_objects_are_refused_or_used_by_name(lab: Lab) -> None:
    put_there(lab, value=7)
    before, uids = lab.versions(), uids_of(lab, [IMMICH, PHOTOS])
    lab.write()
    refused = lab.run("up")
    assert refused.code == 1
    assert "\nlab creates the namespaces gpu-tenancy-system, scratch; no command of ours deletes a" in refused.text
    assert "\n  PriorityClass gpu-workload: is there already, with value 7; write that under" in refused.text
    assert lab.versions() == before

    lab.write(by_name)
    said = lab.succeed("up")
    assert said.index("\nstack lab on a cluster of Kubernetes ") < said.index("\nApply lab: ")
    assert lab.found(IMMICH)["metadata"]["labels"][names.POD_SECURITY_ENFORCE] == "baseline"
    assert uids_of(lab, [IMMICH, PHOTOS]) == uids


def test_each_command_stops_at_the_state_of_another_cluster(lab: Lab, tmp_path: Path) -> None:
    before, file = lab.versions(), tmp_path / "state.json"
    stack = ("--stack", lab.stack, "--file", str(file))
    assert lab.space.pulumi("stack", "export", *stack, cwd=lab.space.project).code == 0
    uid = lab.found(f"{NAMESPACES}/kube-system")["metadata"]["uid"]
    own = file.read_text()
    file.write_text(own.replace(uid, "another"))
    assert lab.space.pulumi("stack", "import", *stack, cwd=lab.space.project).code == 0
    for command in ("up", "destroy", "refresh"):
        said = lab.run(command)
        assert said.code == 1
        assert said.text.startswith("The state of lab is of another cluster than "), said.text
    assert lab.versions() == before
    file.write_text(own)
    assert lab.space.pulumi("stack", "import", *stack, cwd=lab.space.project).code == 0


def test_destroy_leaves_existing_objects_as_they_were(lab: Lab) -> None:
    uids = uids_of(lab, [IMMICH, PHOTOS])
    said = lab.destroy()
    assert "\nlab leaves namespaces gpu-tenancy-system, immich, scratch, and removes its labels from them\n" in said
    assert "are empty now; if nobody needs them: kubectl delete namespace gpu-tenancy-system scratch\n" in said
    assert uids_of(lab, [IMMICH, PHOTOS]) == uids
    assert lab.found(IMMICH)["metadata"]["labels"] == {"owner": "me", names.LABEL_NAMESPACE: "immich"}
    assert lab.found(f"{CLASSES}/gpu-workload")["description"] == "mine"
    assert lab.found(f"{IMMICH}/resourcequotas")["items"] == []
    for path in (IMMICH, f"{CLASSES}/gpu-workload"):
        lab.cluster.api.request("DELETE", path)
    eventually(lambda: lab.cluster.api.get(IMMICH) is None, "the namespace is gone")


def test_a_namespace_that_stayed_is_used_again_and_what_people_put_there_stays(lab: Lab) -> None:
    lab.write()
    lab.succeed("up")
    claims = [f"{NAMESPACES}/{home}/persistentvolumeclaims" for home in HOMES]
    for path in claims:
        lab.cluster.api.create(path, {"metadata": {"name": "data"}, "spec": CLAIM})
    uids = uids_of(lab, [f"{path}/data" for path in claims])

    assert "are empty now" not in lab.succeed("destroy")
    refused = lab.run("up")
    assert refused.code == 1
    assert "Namespace gpu-tenancy-system: is in use by PersistentVolumeClaim data; write another name" in refused.text
    remove_claim(lab, f"{claims.pop()}/data")
    lab.write(lambda config: config["tenants"]["immich"].update(pod_security="restricted"))
    assert "\nlab uses again" not in lab.succeed("up")
    assert lab.found(IMMICH)["metadata"]["labels"][names.POD_SECURITY_ENFORCE] == "restricted"
    assert uids_of(lab, [f"{path}/data" for path in claims]) == uids[:2]


def test_a_second_stack_is_refused_and_its_engine_alone_changes_no_object(lab: Lab) -> None:
    lab.write(name="other")
    before = [lab.found(path)["metadata"] for path in (SYSTEM, LEDGER, IMMICH)]
    refused = lab.run("up", stack="other")
    assert refused.code == 1
    # The API server denies the dry run of the preview.
    assert "the object belongs to the stack in its annotation gpu-tenancy/stack, and two stacks cannot" in refused.text
    alone = ("up", "--yes", "--skip-preview", "--stack", "other")
    assert lab.space.pulumi(*alone, cwd=lab.space.project, **lab.kubeconfig).code != 0
    assert [lab.found(path)["metadata"] for path in (SYSTEM, LEDGER, IMMICH)] == before


def test_no_command_deletes_a_namespace_or_what_people_put_there(lab: Lab) -> None:
    """Also after a lost state, a rename, a removed tenant, and with Pulumi alone."""
    paths = [path for home in HOMES for path in (f"{NAMESPACES}/{home}", f"{NAMESPACES}/{home}/configmaps/mine")]
    for path in paths[1::2]:
        lab.cluster.api.create(path.rpartition("/")[0], {"metadata": {"name": "mine"}})
    uids = uids_of(lab, paths)
    forget(lab)
    assert "\nlab uses again what this stack made earlier: " in lab.succeed("up")

    def renamed(config: dict[str, Any]) -> None:
        config["cluster"]["system_namespace"] = "elsewhere"
        del config["tenants"]["immich"]

    lab.write(renamed)
    plainly(lab, "up")
    assert lab.cluster.api.get(LEDGER) is None
    assert names.POD_SECURITY_ENFORCE not in lab.found(IMMICH)["metadata"]["labels"]
    plainly(lab, "destroy")
    assert uids_of(lab, paths) == uids


def uids_of(lab: Lab, paths: list[str]) -> list[str]:
    return [lab.found(path)["metadata"]["uid"] for path in paths]


def plainly(lab: Lab, command: str) -> None:
    """Runs Pulumi alone."""
    given = (command, "--yes", "--skip-preview", "--stack", lab.stack)
    done = lab.space.pulumi(*given, cwd=lab.space.project, **lab.kubeconfig)
    assert done.code == 0, done.text


def forget(lab: Lab) -> None:
    given = ("stack", "rm", lab.stack, "--force", "--preserve-config", "--yes")
    done = lab.space.pulumi(*given, cwd=lab.space.project)
    assert done.code == 0, done.text


def remove_claim(lab: Lab, path: str) -> None:
    lab.cluster.api.request("DELETE", path)
    lab.cluster.api.request("PATCH", path, {"metadata": {"finalizers": None}}, content_type=MERGE)
    eventually(lambda: lab.cluster.api.get(path) is None, "the claim is gone")
