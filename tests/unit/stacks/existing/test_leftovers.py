"""Tests what a killed run has left in the cluster, and what is done with it."""

import base64
import gzip
import json
from collections.abc import Mapping
from typing import Any

import pytest
import yaml

from stacks.existing.leftovers import KINDS, Leftovers, clear, look
from stacks.existing.objects import Declared, Identity, identity
from tenancy import names
from tests.support.cluster_objects import PLURALS, Objects
from tests.support.prod import ROOT

MARK = "gpu-tenancy/lab"
PART = {names.LABEL_PART_OF: "gpu-tenancy"}
LISTS = {
    "Namespace": "/api/v1/namespaces",
    "ConfigMap": "/api/v1/configmaps",
    "ResourceQuota": "/api/v1/resourcequotas",
    "PriorityClass": "/apis/scheduling.k8s.io/v1/priorityclasses",
    "ValidatingAdmissionPolicy": "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies",
    "ClusterQueue": "/apis/kueue.x-k8s.io/v1beta2/clusterqueues",
    "CronJob": "/apis/batch/v1/cronjobs",
    "DaemonSet": "/apis/apps/v1/daemonsets",
    "Secret": "/api/v1/namespaces/{}/secrets",
}
Found = dict[str, Any]


@pytest.fixture(autouse=True)
def _policies(monkeypatch: pytest.MonkeyPatch) -> None:
    policies = {"ValidatingAdmissionPolicy": "validatingadmissionpolicies"}
    monkeypatch.setitem(PLURALS, "admissionregistration.k8s.io/v1", policies)
    monkeypatch.setitem(PLURALS, "apps/v1", {"DaemonSet": "daemonsets"})
    monkeypatch.setitem(PLURALS, "batch/v1", {"CronJob": "cronjobs"})
    monkeypatch.setitem(PLURALS, "kueue.x-k8s.io/v1beta2", {"ClusterQueue": "clusterqueues"})


def found(kind: str, name: str, namespace: str = "", *, mark: str = MARK, time: str = "1", **metadata: Any) -> Found:
    """Returns an object of the stack `mark`."""
    (version,) = (api for api, kinds in KINDS.items() if kind in kinds)
    home = {"namespace": namespace} if namespace else {}
    given = {
        "name": name,
        **home,
        "uid": f"{kind}-{name}",
        "labels": PART,
        "annotations": {names.STACK: mark},
        "managedFields": [{"manager": names.field_manager(mark), "time": time}],
        **metadata,
    }
    return {"apiVersion": version, "kind": kind, "metadata": given}


def patched(name: str, time: str = "1", component: str = "") -> Found:
    labels = {names.LABEL_COMPONENT: component} if component else {}
    fields = [{"manager": names.field_manager(MARK), "time": time}, {"manager": "somebody", "time": "9"}]
    return {**found("Namespace", name, labels=labels, annotations={}, managedFields=fields)}


def record(revision: int, status: str, namespace: str = "kueue-system", manager: str = "pulumi-kubernetes") -> Found:
    manifest = yaml.safe_dump({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "manager"}})
    packed = base64.b64encode(gzip.compress(json.dumps({"manifest": f"{manifest}---\n"}).encode()))
    labels = {"version": str(revision), "status": status}
    metadata = {"name": f"v{revision}", "namespace": namespace, "labels": labels, "uid": f"{revision}"}
    metadata["managedFields"] = [{"manager": manager}]
    return {"kind": "Secret", "metadata": metadata, "data": {"release": base64.b64encode(packed).decode()}}


def in_state(each: Found, *, patch: bool = False) -> Found:
    token = f"kubernetes:core/v1:{each['kind']}{'Patch' if patch else ''}"
    return {"urn": f"urn::{each['metadata']['name']}", "type": token, "inputs": each, "outputs": each}


def release(revision: int = 1, status: str = "deployed") -> Found:
    outputs = {"status": {"revision": revision, "status": status}}
    return {
        "urn": "urn::kueue",
        "type": "kubernetes:helm.sh/v3:Release",
        "inputs": {"name": "kueue"},
        "outputs": outputs,
    }


def cluster(*there: Found) -> Objects:
    lists: dict[str, list[Mapping[str, Any]]] = {}
    for each in there:
        path = LISTS[each["kind"]].format(each["metadata"].get("namespace"))
        lists.setdefault(path, []).append(each)
    return Objects(lists)


def looked(*there: Found, state: tuple[Found, ...] = ()) -> Leftovers:
    return look({"deployment": {"resources": [*state]}}, MARK, cluster(*there))


def declaration(each: Found) -> Declared:
    return Declared(identity(each), each, is_patch=each["kind"] == "Namespace")


QUOTA, CLASS = found("ResourceQuota", "seats", "immich"), found("PriorityClass", "gpu")
HOME = patched("kueue-system", component="kueue")
LEDGER = found("ConfigMap", names.LEDGER, "gpu-tenancy-system")
POLICY = found("ValidatingAdmissionPolicy", "p")


def test_every_kind_of_the_goldens_is_looked_for() -> None:
    declared = set()
    for file in (ROOT / "tests" / "golden").glob("*.objects.yaml"):
        for each in yaml.load_all(file.read_text(), yaml.CSafeLoader):
            inputs = each.get("inputs") or each
            if names.STACK in ((inputs.get("metadata") or {}).get("annotations") or {}):
                declared.add((inputs["apiVersion"], inputs["kind"]))
    assert len(declared) > 20
    assert declared <= {(version, kind) for version, kinds in KINDS.items() for kind in kinds}


def test_a_clean_stack_has_left_nothing() -> None:
    there = (HOME, QUOTA, CLASS, record(1, "deployed"))
    state = (*map(in_state, (QUOTA, CLASS)), in_state(HOME, patch=True), release())
    left = looked(*there, state=state)
    assert (left.unknown, left.stale, left.ending) == ({}, [], [])


@pytest.mark.parametrize(
    "there",
    [
        (),
        (found("ResourceQuota", "seats", "immich", uid="another"),),
        (found("ResourceQuota", "seats", "immich", time="2"),),
    ],
    ids=["deleted", "made again", "changed"],
)
def test_what_a_killed_run_deleted_replaced_or_changed_is_read_again(there: tuple[Found, ...]) -> None:
    assert looked(*there, state=(in_state(QUOTA),)).stale == ["urn::seats"]


def test_a_change_of_others_is_no_reason_to_read_again() -> None:
    fields = [*QUOTA["metadata"]["managedFields"], {"manager": "kube-controller-manager", "time": "7"}]
    assert looked(found("ResourceQuota", "seats", "immich", managedFields=fields), state=(in_state(QUOTA),)).stale == []
    users = {**QUOTA, "metadata": {**QUOTA["metadata"], "labels": {}}}
    assert looked(state=(in_state(users),)).stale == []


def test_an_object_whose_kind_was_unknown_at_its_creation_is_known() -> None:
    """The provider gave it the namespace `default`."""
    queue = found("ClusterQueue", "gpu")
    given = {**queue, "metadata": {**queue["metadata"], "namespace": "default"}}
    left = looked(queue, state=({**in_state(queue), "inputs": given},))
    assert (left.unknown, left.stale) == ({}, [])
    assert looked(queue).orphans([Declared(identity(given), given)]) == []


def test_what_a_killed_removal_is_deleting_is_waited_for() -> None:
    going = found("ResourceQuota", "seats", "immich", deletionTimestamp="now")
    assert [each.name for each in looked(going, state=(in_state(QUOTA),)).ending] == ["seats"]
    assert looked(going).ending == []


def test_only_objects_with_exactly_this_stacks_mark_are_removed() -> None:
    others = (
        found("ResourceQuota", "other", "immich", mark="gpu-tenancy/lab2"),
        found("ResourceQuota", "users", "immich", annotations={}),
        found("ResourceQuota", "unlabelled", "immich", labels={}),
        found("ResourceQuota", "owned", "immich", ownerReferences=[{"uid": "x"}]),
    )
    world = cluster(QUOTA, CLASS, LEDGER, POLICY, *others)
    clear(look({"deployment": {}}, MARK, world), world, ())
    assert world.changes == [
        "delete ValidatingAdmissionPolicy p",
        f"delete ConfigMap {names.LEDGER} --wait=false",
        *("delete ValidatingAdmissionPolicy p", "delete PriorityClass gpu"),
        *(f"delete ConfigMap {names.LEDGER}", "delete ResourceQuota seats"),
    ]


def test_a_namespace_is_removed_by_nothing_whatever_its_mark() -> None:
    world = cluster(found("Namespace", "immich"))
    clear(look({"deployment": {}}, MARK, world), world, ())
    assert world.changes == ["give back Namespace immich of gpu-tenancy/lab"]


def test_agents_and_their_pods_are_gone_before_the_ledger_is_retired() -> None:
    """An agent that still runs would act on the ledger meanwhile."""
    agents = found("DaemonSet", "exporter", "nodes"), found("CronJob", "reconcile", "gpu-tenancy-system")
    world = cluster(LEDGER, QUOTA, *agents)
    clear(look({"deployment": {}}, MARK, world), world, ())
    assert world.changes[:3] == [
        "delete DaemonSet exporter --cascade=foreground",
        "delete CronJob reconcile --cascade=foreground",
        f"delete ConfigMap {names.LEDGER} --wait=false",
    ]


def test_what_is_declared_stays_and_its_class_is_made_again() -> None:
    world = cluster(QUOTA, CLASS, patched("nvidia"))
    declared = [declaration(each) for each in (QUOTA, CLASS, patched("nvidia"))]
    left = look({"deployment": {}}, MARK, world)
    clear(left, world, declared)
    assert world.changes == ["delete PriorityClass gpu"]
    assert [*left.lines(declared)] == []


def test_the_fields_of_a_patch_that_nothing_declares_are_given_back() -> None:
    world = cluster(patched("nvidia"))
    left = look({"deployment": {}}, MARK, world)
    clear(left, world, ())
    assert world.changes == ["give back Namespace nvidia of gpu-tenancy/lab"]


def test_what_is_removed_and_what_stays_is_told() -> None:
    left = looked(QUOTA, HOME)
    assert [*left.lines(())] == [
        "removes what a run that ended before its time has left: ResourceQuota immich/seats, "
        "the patch of Namespace kueue-system"
    ]
    assert [*left.namespaces] == ["kueue-system"]


@pytest.mark.parametrize(
    ("keeps", "changes"),
    [(True, ["delete Secret v1"]), (False, ["delete Deployment manager", "delete Secret v1"])],
    ids=["up", "destroy"],
)
def test_the_record_of_a_chart_that_the_state_lacks_is_forgotten_or_the_chart_is_removed(
    keeps: bool, changes: list[str]
) -> None:
    others = record(4, "deployed", namespace="elsewhere"), record(3, "deployed", manager="helm")
    world = cluster(HOME, record(1, "pending-install"), *others)
    chart = Declared(Identity("Release", "kueue-system", "kueue", ""), {})
    declared = [declaration(HOME), chart] if keeps else []
    clear(look({"deployment": {}}, MARK, world), world, declared)
    assert world.changes == [*changes, *(() if keeps else ["give back Namespace kueue-system of gpu-tenancy/lab"])]


@pytest.mark.parametrize(
    ("last", "changes"),
    [
        ((1, "deployed"), []),
        ((2, "pending-upgrade"), ["delete Secret v2"]),
        ((2, "uninstalling"), ["delete Deployment manager", "delete Secret v2", "delete Secret v1"]),
    ],
)
def test_an_upgrade_is_forgotten_and_a_removal_is_completed(last: tuple[int, str], changes: list[str]) -> None:
    secrets = [record(*last)] if last[0] == 1 else [record(1, "deployed"), record(*last)]
    world = cluster(HOME, *secrets)
    left = look({"deployment": {"resources": [in_state(HOME, patch=True), release()]}}, MARK, world)
    assert left.stale == (["urn::kueue"] if changes else [])
    assert left.kueue.settle(world) is bool(changes)
    assert world.changes == changes


@pytest.mark.parametrize("secrets", [(), (record(1, "deployed", manager="helm"),)])
def test_a_chart_without_any_record_is_noticed(secrets: tuple[Found, ...]) -> None:
    world = cluster(HOME, *secrets)
    annotations = {"meta.helm.sh/release-namespace": "kueue-system"}
    definition = {"metadata": {"name": "clusterqueues.kueue.x-k8s.io", "annotations": annotations}}
    world.lists["/apis/apiextensions.k8s.io/v1/customresourcedefinitions"] = [definition]
    assert look({"deployment": {}}, MARK, world).kueue.is_unrecorded is not bool(secrets)
