from typing import Any

import pytest

from components.readers import Readers, ReadersArgs, ReadersSpec, operator_role, viewer_role
from tenancy import names
from tests.support.engine import Graph
from tests.support.given import declared

SPEC = ReadersSpec(viewers=["team-b", "team-a"], operators=["platform"])
READS = {"get", "list"}


def graph_of(spec: ReadersSpec = SPEC, *, measured: bool = True) -> Graph:
    args = ReadersArgs(spec=spec, exporters="gpu-tenancy-system-nodes" if measured else None)
    return declared(Readers, "readers", args)


def rights(role: Any) -> set[tuple[str, str]]:
    return {(verb, resource) for rule in role["rules"] for verb in rule["verbs"] for resource in rule["resources"]}


def test_groups_get_the_role_that_the_settings_say() -> None:
    found = {
        (o["kind"], o["roleRef"]["name"], tuple(s["name"] for s in o["subjects"]))
        for o in graph_of().objects()
        if o["kind"].endswith("Binding")
    }
    assert found == {
        ("ClusterRoleBinding", names.VIEWER, ("team-a", "team-b")),
        ("ClusterRoleBinding", names.OPERATOR, ("platform",)),
        ("RoleBinding", names.OPERATOR, ("platform",)),
    }


def test_without_groups_the_roles_are_there_to_be_bound_and_nobody_has_them() -> None:
    found = [o["kind"] for o in graph_of(ReadersSpec()).objects()]
    assert sorted(found) == ["ClusterRole", "ClusterRole", "Role"]


def test_without_exporters_there_is_no_role_in_their_namespace() -> None:
    assert {o["kind"] for o in graph_of(measured=False).objects()} == {"ClusterRole", "ClusterRoleBinding"}


def test_a_viewer_reads_no_pod_and_of_config_maps_the_ledger_alone() -> None:
    assert {resource for _, resource in rights(viewer_role())} == {
        "configmaps",
        "nodes",
        "resourceslices",
        "clusterqueues",
    }
    (ledger,) = (rule for rule in viewer_role()["rules"] if "configmaps" in rule["resources"])
    assert (ledger["resourceNames"], ledger["verbs"]) == ([names.LEDGER], ["get"])


@pytest.mark.parametrize("role", [viewer_role(), operator_role()], ids=["viewer", "operator"])
def test_nobody_writes_and_nobody_reads_secrets(role: Any) -> None:
    assert {verb for verb, _ in rights(role)} <= READS
    assert not {resource for _, resource in rights(role)} & {"secrets", "serviceaccounts/token", "pods/exec"}
