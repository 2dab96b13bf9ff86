"""Compares the state of a stack, its program and the cluster."""

import json
from collections.abc import Iterator

from stacks.existing.leftovers import KINDS
from tenancy.names import PROJECT, STACK, stack_mark
from tests.support.e2e.rollout import Object, Rollout, changes
from toolchain.cluster.api import ClusterApi


def expect_one_state(rollout: Rollout) -> None:
    """The state, the program and the cluster have the same objects, and each object has one field manager of ours."""
    rollout.expect_no_changes()
    drift = rollout.drift()
    assert drift.code == 0, drift.text
    assert changes(drift).keys() <= {"unchanged"}
    expect_equal(json.loads(rollout.export().read_text()), rollout.cluster.api, stack_mark(PROJECT, "prod"))


def expect_equal(exported: Object, api: ClusterApi, mark: str) -> None:
    """The cluster has the objects of an exported state and no other, and each has one field manager of ours."""
    objects = [each for each in exported["deployment"].get("resources") or () if _is_object(each)]
    in_state = {(each["inputs"]["kind"], each["id"]): each["outputs"]["metadata"]["uid"] for each in objects}
    in_cluster, managers = {}, {}
    for kind, each in of_stack(api, mark):
        metadata = each["metadata"]
        key = kind, "/".join(filter(None, (metadata.get("namespace"), metadata["name"])))
        in_cluster[key] = metadata["uid"]
        managers[key] = [entry["manager"] for entry in metadata["managedFields"] if _is_pulumis(entry)]
    differing = {*in_cluster.items()} ^ {*in_state.items()}
    assert not differing, f"differs: {sorted(differing)}"
    assert {key: found for key, found in managers.items() if len(found) != 1} == {}


def of_stack(api: ClusterApi, mark: str) -> Iterator[tuple[str, Object]]:
    """Yields the objects with this mark of a stack, and their kinds."""
    for version in filter(_is_final, KINDS):
        group = f"/apis/{version}" if "/" in version else f"/api/{version}"
        for served in (api.get(group) or {}).get("resources", ()):
            if served["kind"] in KINDS[version] and "/" not in served["name"]:
                for each in (api.get(f"{group}/{served['name']}") or {}).get("items", ()):
                    metadata = each["metadata"]
                    if metadata.get("annotations", {}).get(STACK) == mark and "ownerReferences" not in metadata:
                        yield served["kind"], each


def _is_pulumis(entry: Object) -> bool:
    return str(entry["manager"]).startswith((f"{PROJECT}/", "pulumi"))


def _is_object(resource: Object) -> bool:
    annotations = (resource.get("inputs") or {}).get("metadata", {}).get("annotations", {})
    return str(resource["type"]).startswith("kubernetes:") and STACK in annotations


def _is_final(api: str) -> bool:
    """The prereleases of admission's kinds name the same objects."""
    return api == "admissionregistration.k8s.io/v1" or not api.startswith("admissionregistration")
