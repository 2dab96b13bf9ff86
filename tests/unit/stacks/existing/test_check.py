"""Tests that a rollout never takes over objects of other owners without the operator's consent."""

from collections.abc import Mapping
from typing import Any

import pytest

from stacks.existing.check import Changes, Verdict, check
from tenancy import names
from tests.support.cluster_objects import Objects, namespace
from tests.support.streams import Event, events, step, urn

OURS = {names.STACK: "gpu-tenancy/lab"}
TENANT = {names.LABEL_COMPONENT: "tenant", names.LABEL_PART_OF: "gpu-tenancy", names.POD_SECURITY_ENFORCE: "baseline"}
IMMICH = {**namespace("immich", labels=TENANT, annotations=OURS)}
CLASS = {
    "apiVersion": "scheduling.k8s.io/v1",
    "kind": "PriorityClass",
    "metadata": {"name": "gpu-workload", "annotations": OURS},
    "value": 5,
    "preemptionPolicy": "PreemptLowerPriority",
}
CLASSES = "/apis/scheduling.k8s.io/v1/priorityclasses"
NAMESPACES = "/api/v1/namespaces"
NOT_GONE = "namespace kueue-system has 1 PersistentVolumeClaim (data) of somebody else; move or delete them first"
QUOTA = {
    "apiVersion": "v1",
    "kind": "ResourceQuota",
    "metadata": {"name": "gpumem-seats", "namespace": "immich", "annotations": OURS},
}


def change(op: str, manifest: Mapping[str, Any], *, patch: bool = False, before: Any = None, **old: Any) -> Event:
    at = urn(f"{manifest['kind']}{'Patch' if patch else ''}", f"{manifest['metadata']['name']}-x")
    if op == "delete":
        return step(op, at, old={"inputs": manifest, **old})
    given = {"old": {"inputs": before}} if before else {}
    return step(op, at, new={"inputs": manifest}, **given)


def verdict(*changes: Event, **lists: list[Any]) -> Verdict:
    there = {{"namespaces": NAMESPACES, "classes": CLASSES}.get(name, name): found for name, found in lists.items()}
    return check(Changes.of(events(*changes).resources.values()), Objects(there))


def problems(*changes: Event, **lists: list[Any]) -> list[str]:
    return list(verdict(*changes, **lists).problems)


def test_a_namespace_that_is_there_is_named_with_what_to_write() -> None:
    assert problems(change("create", IMMICH), namespaces=[namespace("immich")]) == [
        "Namespace immich: is there already; write create_namespace: false under gpu-tenancy:tenants.immich; "
        "`destroy` then leaves it"
    ]


def test_all_that_is_there_is_listed_at_once() -> None:
    lines = problems(
        change("create", IMMICH),
        change("create", CLASS),
        change("create", QUOTA),
        namespaces=[namespace("immich")],
        classes=[{**CLASS, "metadata": {"name": "gpu-workload"}}],
        **{"/api/v1/namespaces/immich/resourcequotas": [{"metadata": {"namespace": "immich", "name": "gpumem-seats"}}]},
    )
    assert [line.partition(":")[0] for line in lines] == [
        "Namespace immich",
        "PriorityClass gpu-workload",
        "ResourceQuota immich/gpumem-seats",
    ]
    assert lines[2].endswith("kubectl delete resourcequota gpumem-seats -n immich")


def test_a_namespace_that_stayed_from_this_stack_is_used_again() -> None:
    assert verdict(change("create", IMMICH), namespaces=[IMMICH]) == Verdict(
        notes=("uses again what this stack made earlier: Namespace immich",)
    )


def test_create_namespace_false_does_not_delete_a_namespace_that_had_delete_true() -> None:
    left = {**IMMICH, "metadata": {"name": "immich", "labels": {names.POD_SECURITY_ENFORCE: "baseline"}}}
    pvc = {"metadata": {"name": "photos", "namespace": "immich"}}
    lines = problems(
        change("delete", IMMICH),
        change("create", left, patch=True),
        namespaces=[IMMICH],
        **{
            "/api/v1/namespaces/immich/persistentvolumeclaims": [pvc],
            "/api/v1/namespaces/immich/pods": [],
        },
    )
    assert "Namespace immich: was made by this stack, which would delete it; write neither create_namespace" in lines[0]


@pytest.mark.parametrize(
    "steps", [("create-replacement", "replace", "delete-replaced"), ("delete-replaced", "replace")]
)
def test_another_name_takes_over_no_namespace_and_says_what_it_deletes(steps: tuple[str, ...]) -> None:
    old, new = (namespace(name, annotations=OURS) for name in ("kueue-system", "queueing"))
    states = {"old": {"inputs": old}, "new": {"inputs": new}}
    of = {"create-replacement": ("new", "old"), "replace": ("old", "new"), "delete-replaced": ("old",)}
    at = urn("Namespace", "kueue-namespace")
    found = verdict(
        *(step(op, at, **{side: states[side] for side in of[op]}) for op in steps),
        namespaces=[old, namespace("queueing", labels={"owner": "somebody"})],
        **{
            "/api/v1/namespaces/kueue-system/persistentvolumeclaims": [{"metadata": {"name": "data"}}],
            "/api/v1/namespaces/kueue-system/pods": [],
        },
    )
    assert [line.partition(":")[0] for line in found.problems] == ["Namespace queueing", NOT_GONE]
    assert found.notes == ("deletes namespace kueue-system with 1 PersistentVolumeClaim (data), no running pods",)


def test_a_replacement_under_the_same_name_is_neither_a_creation_nor_a_deletion() -> None:
    old = {**CLASS, "value": 4}
    replaced = step("replace", urn("PriorityClass", "x"), old={"inputs": old}, new={"inputs": CLASS})
    assert verdict(replaced, classes=[old]) == Verdict()


def test_a_namespace_of_another_stack_is_refused() -> None:
    other = namespace("immich", annotations={names.STACK: "gpu-tenancy/prod"})
    assert problems(change("create", IMMICH), namespaces=[other]) == [
        "Namespace immich: is of the stack gpu-tenancy/prod; two stacks cannot have the same object"
    ]


def test_an_object_of_a_rollout_whose_state_is_lost_can_be_handed_over() -> None:
    found = namespace("immich", labels={names.LABEL_PART_OF: "gpu-tenancy"})
    (line,) = problems(change("create", IMMICH), namespaces=[found])
    assert line.endswith("kubectl annotate namespace immich gpu-tenancy/stack=gpu-tenancy/lab")


def test_a_namespace_that_is_going_is_waited_for() -> None:
    going = namespace("immich", annotations=OURS, deletionTimestamp="2026-11-25T00:00:00Z")
    assert problems(change("create", IMMICH), namespaces=[going]) == [
        "Namespace immich: is being deleted; wait until it is gone, and run this again"
    ]


def test_a_class_with_the_same_value_is_to_be_named() -> None:
    found = {**CLASS, "metadata": {"name": "gpu-workload"}, "description": "mine"}
    assert problems(change("create", CLASS), classes=[found]) == [
        "PriorityClass gpu-workload: is there already, with the same value; write create: false under "
        "gpu-tenancy:priorities.gpu-workload"
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


LEVEL = namespace("immich", labels={names.POD_SECURITY_ENFORCE: "baseline"})


def test_a_named_namespace_is_accepted_with_the_level_or_without_any() -> None:
    for found in (namespace("immich", labels={"owner": "me"}), LEVEL):
        assert problems(change("create", LEVEL, patch=True), namespaces=[found]) == []


def test_a_label_of_a_named_namespace_is_never_changed() -> None:
    found = namespace("immich", labels={names.POD_SECURITY_ENFORCE: "restricted"})
    (line,) = problems(change("create", LEVEL, patch=True), namespaces=[found])
    assert "its label pod-security.kubernetes.io/enforce is restricted, and would be baseline; change it:" in line
    assert line.endswith("or write pod_security: restricted under gpu-tenancy:tenants.immich")


def test_the_label_that_this_stack_set_may_be_changed() -> None:
    strict = namespace("immich", labels={names.POD_SECURITY_ENFORCE: "restricted"})
    assert problems(change("update", strict, patch=True, before=LEVEL), namespaces=[LEVEL]) == []
    other = namespace("immich", labels={names.POD_SECURITY_ENFORCE: "privileged"})
    assert len(problems(change("update", strict, patch=True, before=LEVEL), namespaces=[other])) == 1


def test_a_named_namespace_must_be_there() -> None:
    assert problems(change("create", LEVEL, patch=True)) == [
        "Namespace immich: is not there; remove create_namespace: false under gpu-tenancy:tenants.immich"
    ]


RELEASE = "urn:pulumi:lab::gpu-tenancy::x:y:Kueue$kubernetes:helm.sh/v3:Release::kueue-release"
INSTALL = step("create", RELEASE, new={"inputs": {"namespace": "kueue-system", "name": "kueue"}})
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


@pytest.mark.parametrize(
    ("status", "told"),
    [
        ("deployed", "Helm has installed it already; remove gpu-tenancy:kueue, or uninstall it"),
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


def test_a_namespace_that_a_run_deletes_is_listed_with_what_is_lost() -> None:
    gone = change("delete", IMMICH)
    lists = {
        "/api/v1/namespaces/immich/persistentvolumeclaims": [{"metadata": {"name": "photos"}}],
        "/api/v1/namespaces/immich/pods": [{"metadata": {"name": "web"}}],
    }
    assert verdict(gone, **lists) == Verdict(
        notes=("deletes namespace immich with 1 PersistentVolumeClaim (photos), 1 running pod (web)",)
    )
    assert verdict(change("delete", IMMICH, retainOnDelete=True), **lists) == Verdict()


def test_a_namespace_of_a_state_of_an_earlier_release_is_not_deleted_with_its_volumes() -> None:
    gone = change("delete", namespace("immich", labels=TENANT))
    claims = {"/api/v1/namespaces/immich/persistentvolumeclaims": [{"metadata": {"name": "photos"}}]}
    (line,) = problems(gone, **claims)
    assert "an earlier release wrote the state; run make up first" in line
    assert problems(gone) == []


JOB = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "reconcile-1", "namespace": "gpu-tenancy-system"}}
NODES = "/api/v1/nodes"


def node(ready: str, **annotations: str) -> dict[str, Any]:
    status = {"conditions": [{"type": "MemoryPressure", "status": "False"}, {"type": "Ready", "status": ready}]}
    return {"metadata": {"annotations": annotations}, "status": status}


SIMULATED = node("True", **{"kwok.x-k8s.io/node": "fake"})


@pytest.mark.parametrize(
    ("nodes", "found"),
    [([], "none"), ([SIMULATED, SIMULATED, node("Unknown")], "2 simulated by kwok, 1 not Ready")],
)
def test_a_rollout_that_waits_for_an_agent_needs_a_node_that_can_run_it(nodes: list[Any], found: str) -> None:
    line = f"no node of the cluster can run the agents ({found}); add a node, or repair one"
    assert problems(change("create", JOB), **{NODES: nodes}) == [line]
    assert problems(change("create", IMMICH), **{NODES: nodes}) == []
    assert problems(change("create", JOB), **{NODES: [*nodes, node("True")]}) == []
