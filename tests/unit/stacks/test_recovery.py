"""Tests the recovery after a killed command."""

import json
from pathlib import Path
from typing import Any

import pytest

from stacks.recovery import rollout, state
from stacks.recovery.lock import Lock, locks
from stacks.recovery.state import Operation
from tests.support.pulumi_state import HERE, VALUES, applied, deployment, quota, release


def resources(given: state.Deployment) -> list[Any]:
    assert state.is_clean(given)
    return list(given["deployment"]["resources"])


CREATING_QUOTA = Operation("creating", quota())
CREATING_RELEASE = Operation("creating", release())


def test_a_state_without_operations_is_clean() -> None:
    assert state.is_clean({"version": 3, "deployment": {"resources": []}})
    assert not state.is_clean(deployment(pending=[("creating", quota())]))


def test_components_and_providers_are_in_no_cluster_and_are_forgotten() -> None:
    component = {"urn": "urn:c", "type": "gputenancy:index:Tenant", "custom": False}
    provider = {"urn": "urn:p", "type": "pulumi:providers:kubernetes", "custom": True}
    given = deployment(quota(), pending=[("creating", component), ("creating", provider), ("updating", quota())])
    assert [(each.kind, each.title) for each in state.interrupted(given)] == [("updating", "ResourceQuota tts/seats")]
    assert resources(state.with_creations(given, state.interrupted(given))) == [quota()]


@pytest.mark.parametrize(
    ("resource", "identity"),
    [
        (quota(), "tts/seats"),
        ({**quota(), "inputs": {"metadata": {"name": "gpu-workload"}}}, "gpu-workload"),
        (release(), "kueue-system/kueue"),
    ],
)
def test_what_was_being_created_is_entered_under_the_name_that_it_has_in_the_cluster(
    resource: dict[str, Any], identity: str
) -> None:
    entered = state.with_creations(deployment(quota("other")), [Operation("creating", resource)])
    assert resources(entered) == [quota("other"), {**resource, "id": identity, "outputs": {}}]


def test_what_was_being_updated_or_deleted_is_a_resource_already() -> None:
    given = deployment(quota(id="tts/seats"), pending=[("updating", quota()), ("deleting", quota())])
    assert resources(state.with_creations(given, state.interrupted(given))) == [quota(id="tts/seats")]


@pytest.mark.parametrize(
    ("old", "left"),
    [
        (quota(id="tts/older"), [quota(id="tts/older", delete=True)]),
        (quota(id="tts/seats"), []),
        (quota(id="tts/older", pendingReplacement=True), []),
    ],
)
def test_a_replacement_comes_next_to_what_it_replaces_or_in_its_place(
    old: dict[str, Any], left: list[dict[str, Any]]
) -> None:
    entered = resources(state.with_creations(deployment(old, quota("other")), [CREATING_QUOTA]))
    fresh = quota(id="tts/seats", outputs={})
    assert entered == ([*left, quota("other"), fresh] if left else [fresh, quota("other")])


@pytest.mark.parametrize("manager", ["pulumi-kubernetes-1", "pulumi-kubernetes"])
def test_the_field_manager_is_the_one_that_wrote_the_object(manager: str) -> None:
    found = quota(outputs=applied(manager))
    (settled,) = resources(state.without_foreign(deployment(found), deployment(), [CREATING_QUOTA]))
    assert settled == {**found, "outputs": {**found["outputs"], "__fieldManager": manager}}


@pytest.mark.parametrize(
    "found",
    [
        quota(outputs=applied("kubectl")),
        quota(outputs=applied("pulumi-kubernetes-1", labels={})),
        release(outputs={}, inputs={"values": {}}),
    ],
)
def test_what_somebody_else_made_under_the_same_name_is_left_out(found: dict[str, Any]) -> None:
    operations = [CREATING_QUOTA, CREATING_RELEASE]
    assert resources(state.without_foreign(deployment(quota("other"), found), deployment(), operations)) == [
        quota("other")
    ]


def test_a_chart_that_was_being_upgraded_is_as_before_so_that_the_next_up_upgrades_it() -> None:
    before, refreshed = release(outputs={"values": {}}), release(outputs={"values": VALUES})
    upgrade = Operation("updating", release())
    assert resources(state.without_foreign(deployment(refreshed), deployment(before), [upgrade])) == [before]
    assert resources(state.without_foreign(deployment(), deployment(before), [upgrade])) == []


def test_the_id_of_a_created_object_has_the_namespace_that_the_object_has() -> None:
    """The plan gives a ResourceFlavor the namespace `default` if the cluster lacks Kueue's CRDs."""
    found = quota("default", id="default/seats", outputs=applied("pulumi-kubernetes-1", name="seats"))
    creating = Operation("creating", quota("default"))
    assert resources(state.without_foreign(deployment(found), deployment(), [creating])) == [
        {**found, "id": "seats", "outputs": {**found["outputs"], "__fieldManager": "pulumi-kubernetes-1"}}
    ]


def test_only_objects_of_interrupted_creations_are_compared() -> None:
    found = quota(outputs=applied("kubectl"))
    assert resources(state.without_foreign(deployment(found), deployment(), [Operation("updating", quota())])) == [
        found
    ]


@pytest.mark.parametrize(
    ("kind", "status", "half_installed", "half_upgraded"),
    [
        ("creating", "deployed", False, False),
        ("creating", "pending-install", True, False),
        ("creating", "failed", True, False),
        ("deleting", "uninstalling", True, False),
        ("updating", "failed", False, False),
        ("updating", "pending-upgrade", False, True),
        ("updating", "pending-rollback", False, True),
    ],
)
def test_a_chart_is_removed_only_if_its_installation_or_removal_was_interrupted(
    kind: str, status: str, half_installed: bool, half_upgraded: bool
) -> None:
    found = release(outputs={"status": {"status": status}})
    assert state.is_half_installed(found, Operation(kind, release())) is half_installed
    assert state.is_half_upgraded(found) is half_upgraded


def test_an_object_is_no_chart() -> None:
    found = quota(outputs=applied("pulumi-kubernetes-1"))
    assert not state.is_half_installed(found, CREATING_QUOTA)
    assert not state.is_half_upgraded(found)


def test_the_way_out_of_a_half_upgrade_names_helms_record_of_it() -> None:
    status = {"status": "pending-upgrade", "name": "kueue", "namespace": "kueue-system", "revision": 3}
    assert state.deletion_command(release(outputs={"status": status})) == (
        "kubectl -n kueue-system delete secret sh.helm.release.v1.kueue.v3"
    )


def test_what_waits_for_its_finalizers_is_terminating() -> None:
    assert state.is_terminating(quota(outputs=applied("x", deletionTimestamp="2026-11-21T01:00:00Z")))
    assert not state.is_terminating(quota(outputs=applied("x")))
    assert not state.is_terminating(release(outputs={"status": {"status": "deployed"}}))


def test_a_replaced_resource_is_not_returned() -> None:
    given = deployment(quota(id="tts/older", delete=True))
    assert list(state.with_resources(given, [CREATING_QUOTA])) == []


def test_locks_are_those_of_the_stack_in_the_folder_that_the_backend_is(tmp_path: Path) -> None:
    for stack, pid in (("prod", 17), ("lab", 18)):
        folder = tmp_path / ".pulumi" / "locks" / "organization" / "gpu-tenancy" / stack
        folder.mkdir(parents=True)
        (folder / "5d3c.json").write_text(json.dumps({"pid": pid, **HERE}))
    assert locks(f"file://{tmp_path}?no_tmp_dir=true", "gpu-tenancy", "prod") == [Lock(17, **HERE)]
    assert locks(f"file://{tmp_path}", "gpu-tenancy", "other") == []
    assert locks("s3://bucket", "gpu-tenancy", "prod") == []


TENANT, PROVIDER = "urn:tenant", "urn:provider"


def plan(**steps: Any) -> dict[str, Any]:
    """Returns a plan with a component, a provider, and quotas with these steps by namespace, in the wrong order."""
    quotas = {
        quota(namespace)["urn"]: {
            "goal": {
                "type": quota()["type"],
                "custom": True,
                "parent": TENANT,
                "provider": f"{PROVIDER}::unknown",
                "inputDiff": {"adds": quota(namespace)["inputs"]},
            },
            "steps": given,
        }
        for namespace, given in steps.items()
    }
    tenant = {"goal": {"type": "gputenancy:index:Tenant", "custom": False, "inputDiff": {}}, "steps": ["create"]}
    provider = {"goal": {"type": "pulumi:providers:kubernetes", "custom": True, "inputDiff": {}}, "steps": ["create"]}
    return {"resourcePlans": {**quotas, TENANT: tenant, PROVIDER: provider}}


def test_a_plan_has_the_operations_of_a_rollout_with_parents_and_providers_first() -> None:
    before = deployment(quota("b", id="b/seats"), quota("c", id="c/seats"), quota("d", id="d/seats"))
    given = plan(a=["create"], b=["update"], c=["same"], d=["create-replacement", "replace", "delete-replaced"])
    given["resourcePlans"][quota("gone")["urn"]] = {"steps": ["delete"]}
    operations = state.planned(given, before)
    assert [(each.kind, each.urn.rpartition("::")[2].rpartition(":")[2]) for each in operations] == [
        ("creating", "tenant"),
        ("creating", "provider"),
        ("creating", "a"),
        ("updating", "b"),
        ("updating", "d"),
    ]


def test_a_planned_deletion_is_of_the_resource_in_the_state() -> None:
    gone = quota("gone", id="gone/seats")
    given = {"resourcePlans": {gone["urn"]: {"steps": ["delete"]}}}
    assert state.planned(given, deployment(gone)) == [Operation("deleting", gone)]


def test_a_planned_creation_is_entered_under_its_parent_with_the_id_of_its_new_provider() -> None:
    tenant, provider, seats = resources(
        state.with_creations(deployment(), state.planned(plan(a=["create"]), deployment()))
    )
    assert "id" not in tenant
    assert seats == {
        **quota("a"),
        "id": "a/seats",
        "parent": TENANT,
        "provider": f"{PROVIDER}::{provider['id']}",
        "outputs": {},
    }


def test_a_component_without_objects_is_left_out_because_it_could_keep_a_half_installed_chart() -> None:
    operations = state.planned(plan(a=["create"]), deployment())
    entered = state.with_creations(deployment(), operations)
    tenant, provider, seats = resources(entered)
    found = {**seats, "outputs": applied("pulumi-kubernetes-1")}
    settled = resources(state.without_foreign(deployment(tenant, provider, found), entered, operations))
    assert [each["urn"] for each in settled] == [TENANT, PROVIDER, found["urn"]]
    assert resources(state.without_foreign(deployment(tenant, provider), entered, operations)) == []


def test_a_component_without_objects_is_left_out_after_a_killed_removal() -> None:
    tenant, other = ({"urn": urn, "type": "gputenancy:index:Tenant", "custom": False} for urn in (TENANT, "urn:other"))
    left, gone = quota("left", id="left/seats", parent=TENANT), quota("gone", id="gone/seats", parent="urn:other")
    before = deployment(tenant, other, left, gone)
    operations = state.planned(rollout.removal(before), before)
    assert [each.kind for each in operations] == ["deleting"] * 4
    assert resources(state.without_foreign(deployment(tenant, other, left), before, operations)) == [tenant, left]


def test_a_resource_depends_on_no_object_that_is_not_ours() -> None:
    foreign, ours = quota(outputs=applied("kubectl")), quota("other", outputs=applied("pulumi-kubernetes-1"))
    needs = {**ours, "dependencies": [foreign["urn"]], "propertyDependencies": {"spec": [foreign["urn"]]}}
    (left,) = resources(state.without_foreign(deployment(foreign, needs), deployment(), [CREATING_QUOTA]))
    assert left == {**ours, "dependencies": [], "propertyDependencies": {"spec": []}}
