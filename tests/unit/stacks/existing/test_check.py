"""Tests that a rollout never takes over objects of other owners without the operator's consent."""

from collections.abc import Mapping
from typing import Any

import pytest

from stacks.existing.check import Verdict, check
from stacks.existing.leftovers import look
from tenancy import names
from tests.support.cluster_objects import Objects, namespace
from tests.support.streams import Event, events, step, urn

OURS = {names.STACK: "gpu-tenancy/lab"}
PATCHED = {names.FIELD_MANAGER: "gpu-tenancy/lab"}
LEVEL = namespace("immich", labels={names.POD_SECURITY_ENFORCE: "baseline"}, annotations=PATCHED)
SYSTEM = namespace("queueing", labels=names.labels("kueue"), annotations=PATCHED)
CLASS = {
    "apiVersion": "scheduling.k8s.io/v1",
    "kind": "PriorityClass",
    "metadata": {"name": "gpu-workload", "annotations": OURS},
    "value": 5,
    "preemptionPolicy": "PreemptLowerPriority",
}
CLASSES = "/apis/scheduling.k8s.io/v1/priorityclasses"
NAMESPACES, QUOTAS = "/api/v1/namespaces", "/api/v1/resourcequotas"
QUOTA = {
    "apiVersion": "v1",
    "kind": "ResourceQuota",
    "metadata": {"name": "gpumem-seats", "namespace": "immich", "annotations": OURS, "labels": names.labels("tenant")},
}


def change(op: str, manifest: Mapping[str, Any], *, patch: bool = False, before: Any = None, **old: Any) -> Event:
    at = urn(f"{manifest['kind']}{'Patch' if patch else ''}", f"{manifest['metadata']['name']}-x")
    if op == "delete":
        return step(op, at, old={"inputs": manifest, **old})
    given = {"old": {"inputs": before}} if before else {}
    return step(op, at, new={"inputs": manifest}, **given)


def verdict(*changes: Event, **lists: list[Any]) -> Verdict:
    """Compares with a cluster, in a state that has what the steps had before."""
    world = Objects({{"namespaces": NAMESPACES, "classes": CLASSES}.get(name, name): x for name, x in lists.items()})
    resources = events(*changes).resources.values()
    state = [{"urn": each.urn, "type": each.type, "inputs": each.before} for each in resources if each.before]
    return check(resources, look({"deployment": {"resources": state}}, "gpu-tenancy/lab", world), world)


def problems(*changes: Event, **lists: list[Any]) -> list[str]:
    return list(verdict(*changes, **lists).problems)


def test_all_that_is_there_is_listed_at_once() -> None:
    lines = problems(
        change("create", CLASS),
        change("create", QUOTA),
        namespaces=[namespace("immich")],
        classes=[{**CLASS, "metadata": {"name": "gpu-workload"}}],
        **{QUOTAS: [{"metadata": {"namespace": "immich", "name": "gpumem-seats"}}]},
    )
    assert [line.partition(":")[0] for line in lines] == [
        "PriorityClass gpu-workload",
        "ResourceQuota immich/gpumem-seats",
    ]
    assert lines[1].endswith("kubectl delete resourcequota gpumem-seats -n immich")


def test_an_object_that_stayed_from_this_stack_is_used_again() -> None:
    there = {QUOTAS: [QUOTA]}
    assert verdict(change("create", QUOTA), namespaces=[LEVEL], **there) == Verdict(
        notes=("uses again what this stack made earlier: ResourceQuota immich/gpumem-seats",)
    )


def test_a_namespace_that_is_not_there_is_announced() -> None:
    assert verdict(change("create", LEVEL, patch=True)) == Verdict(
        notes=("creates the namespaces immich; no command of ours deletes a namespace",)
    )


@pytest.mark.parametrize(
    "steps", [("create-replacement", "replace", "delete-replaced"), ("delete-replaced", "replace")]
)
def test_another_name_takes_over_no_namespace_that_people_use(steps: tuple[str, ...]) -> None:
    old = namespace("kueue-system", labels=names.labels("kueue"), annotations=PATCHED)
    states = {"old": {"inputs": old}, "new": {"inputs": SYSTEM}}
    of = {"create-replacement": ("new", "old"), "replace": ("old", "new"), "delete-replaced": ("old",)}
    at = urn("NamespacePatch", "kueue-namespace")
    renamed = [step(op, at, **{side: states[side] for side in of[op]}) for op in steps]
    things = {
        "/api/v1/namespaces/queueing/persistentvolumeclaims": [{"metadata": {"name": "data"}}],
        "/api/v1/namespaces/queueing/pods": [{"metadata": {"name": "web"}}],
    }
    lists: dict[str, list[Any]] = {"namespaces": [old, namespace("queueing")]}
    assert problems(*renamed, **lists) == []
    assert problems(*renamed, **lists, **things) == [
        "Namespace queueing: is in use by PersistentVolumeClaim data, pod web; write another name under "
        "gpu-tenancy:kueue.namespace"
    ]
    assert problems(*renamed, namespaces=[old, SYSTEM], **things) == []


def test_a_replacement_under_the_same_name_is_neither_a_creation_nor_a_deletion() -> None:
    old = {**CLASS, "value": 4}
    replaced = step("replace", urn("PriorityClass", "x"), old={"inputs": old}, new={"inputs": CLASS})
    assert verdict(replaced, classes=[old]) == Verdict()


def test_a_namespace_of_another_stack_is_refused() -> None:
    other = namespace("immich", annotations={names.FIELD_MANAGER: "gpu-tenancy/prod"})
    assert problems(change("create", LEVEL, patch=True), namespaces=[other]) == [
        "Namespace immich: is of the stack gpu-tenancy/prod; two stacks cannot label the same namespace"
    ]


def test_an_object_of_a_rollout_whose_state_is_lost_can_be_handed_over() -> None:
    left = {"name": "gpumem-seats", "namespace": "immich", "labels": {names.LABEL_PART_OF: "gpu-tenancy"}}
    there = {QUOTAS: [{"metadata": left}]}
    (line,) = problems(change("create", QUOTA), namespaces=[LEVEL], **there)
    assert line.endswith("kubectl annotate resourcequota gpumem-seats -n immich gpu-tenancy/stack=gpu-tenancy/lab")


def test_a_namespace_that_is_going_is_waited_for() -> None:
    going = namespace("immich", deletionTimestamp="2026-11-25T00:00:00Z")
    assert problems(change("create", LEVEL, patch=True), namespaces=[going]) == [
        "Namespace immich: is being deleted; wait until it is gone, and run this again"
    ]


def test_a_class_with_the_same_value_is_to_be_named() -> None:
    found = {**CLASS, "metadata": {"name": "gpu-workload"}, "description": "mine"}
    assert problems(change("create", CLASS), classes=[found]) == [
        "PriorityClass gpu-workload: is there already, with the same value; write that under "
        "gpu-tenancy:priorities.gpu-workload and create: false, or choose another name"
    ]


def test_a_class_of_this_stack_is_made_again() -> None:
    assert verdict(change("create", CLASS), classes=[CLASS]).problems == ()


def test_a_class_with_another_value_is_shown_with_it() -> None:
    found = {"metadata": {"name": "gpu-workload"}, "value": 7, "preemptionPolicy": "Never"}
    (line,) = problems(change("create", CLASS), classes=[found])
    assert "is there already, with value 7 and preemptionPolicy Never; write that under" in line


def test_a_named_class_is_accepted_with_the_same_value_alone() -> None:
    patch = change("create", CLASS, patch=True)
    found = {"metadata": {"name": "gpu-workload"}, "value": 5}
    assert problems(patch, classes=[found]) == []
    assert "is there with value 6; write that" in problems(patch, classes=[{**found, "value": 6}])[0]
    assert "is not there; remove create: false" in problems(patch)[0]


def test_a_class_of_this_stack_is_not_handed_over_as_the_run_would_delete_it() -> None:
    changes = (change("create", CLASS, patch=True), change("delete", CLASS))
    (line,) = problems(*changes, classes=[CLASS])
    assert "was made by this stack, which would delete it; remove create: false" in line


def test_a_named_namespace_is_accepted_with_the_level_or_without_any() -> None:
    for found in (namespace("immich", labels={"owner": "me"}), LEVEL):
        assert problems(change("create", LEVEL, patch=True), namespaces=[found]) == []


def test_a_label_of_a_named_namespace_is_never_changed() -> None:
    found = namespace("immich", labels={names.POD_SECURITY_ENFORCE: "restricted"})
    (line,) = problems(change("create", LEVEL, patch=True), namespaces=[found])
    assert "its label pod-security.kubernetes.io/enforce is restricted, and would be baseline; change it:" in line
    assert line.endswith("or write pod_security: restricted under gpu-tenancy:tenants.immich")


def test_the_label_that_this_stack_set_may_be_changed() -> None:
    labels = {names.POD_SECURITY_ENFORCE: "baseline"}
    fields = {"f:metadata": {"f:labels": {f"f:{names.POD_SECURITY_ENFORCE}": {}}}}
    ours = [{"manager": "gpu-tenancy/lab", "fieldsV1": fields}]
    strict = namespace("immich", labels={names.POD_SECURITY_ENFORCE: "restricted"}, annotations=PATCHED)
    step = change("update", strict, patch=True, before=LEVEL)
    assert problems(step, namespaces=[namespace("immich", labels=labels, managedFields=ours)]) == []
    assert len(problems(step, namespaces=[namespace("immich", labels=labels)])) == 1


RELEASE = "urn:pulumi:lab::gpu-tenancy::x:y:Kueue$kubernetes:helm.sh/v3:Release::kueue-release"
INSTALL = step("create", RELEASE, new={"inputs": {"namespace": "kueue-system", "name": "kueue"}})
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


@pytest.mark.parametrize(
    ("status", "told"),
    [
        ("deployed", "let Helm forget it: kubectl -n kueue-system delete secret -l owner=helm,name=kueue"),
        ("pending-install", "kubectl -n kueue-system delete secret -l owner=helm,name=kueue"),
    ],
)
def test_a_release_that_helm_has_is_refused(status: str, told: str) -> None:
    secret = {"metadata": {"name": "sh.helm.release.v1.kueue.v1", "labels": {"status": status}}}
    (line,) = problems(INSTALL, **{"/api/v1/namespaces/kueue-system/secrets": [secret]})
    assert line.startswith("Release kueue-system/kueue: ")
    assert line.endswith(told)


@pytest.mark.parametrize(("owner", "refused"), [(None, True), ("other", True), ("kueue", False)])
def test_kueue_from_elsewhere_is_refused_and_what_an_uninstalled_release_left_is_not(
    owner: str | None, refused: bool
) -> None:
    annotations = {"meta.helm.sh/release-name": owner, "meta.helm.sh/release-namespace": "kueue-system"}
    found = {"metadata": {"name": "clusterqueues.kueue.x-k8s.io", **({"annotations": annotations} if owner else {})}}
    assert bool(problems(INSTALL, **{DEFINITIONS: [found]})) is refused
