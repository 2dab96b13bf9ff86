"""Tests on a real API server what Kueue, and the people of a tenant, may do in the cluster of prod.

Kueue's rights come from its chart, and a tenant's from the role `edit`. For the rights of our agents, see
tests/integration/agents/test_rights.py.
"""

import pytest

from tests.support.e2e.access import may
from tests.support.e2e.rollout import SYSTEM, Rollout

KUEUE = "system:serviceaccount:kueue-system:kueue-controller-manager"
ANNA = "anna"
GROUPS = {
    KUEUE: ("system:serviceaccounts", "system:serviceaccounts:kueue-system", "system:authenticated"),
    ANNA: ("team-a", "system:authenticated"),
}
RBAC = "rbac.authorization.k8s.io"
# A user, a verb, an API group, a resource, namespaces, and whether the user may.
Right = tuple[str, str, str, str, tuple[str, ...], bool]
RIGHTS: list[Right] = [
    *(
        (KUEUE, verb, group, resource, (SYSTEM, "team-a", "immich"), False)
        for verb, group, resource in (
            ("get", "", "secrets"),
            ("get", "", "configmaps"),
            ("create", "", "pods"),
            ("create", "", "pods/exec"),
            ("patch", "", "nodes"),
            ("patch", "", "nodes/status"),
            ("patch", "", "namespaces"),
            ("patch", "", "resourcequotas"),
            ("create", "", "serviceaccounts/token"),
            ("create", RBAC, "rolebindings"),
            ("create", RBAC, "clusterrolebindings"),
            ("patch", "admissionregistration.k8s.io", "validatingadmissionpolicies"),
            ("patch", "scheduling.k8s.io", "priorityclasses"),
        )
    ),
    (ANNA, "create", "batch", "jobs", ("team-a",), True),
    (ANNA, "delete", "", "pods", ("team-a",), True),
    (ANNA, "create", "", "secrets", ("team-a",), True),
    (ANNA, "create", "batch", "jobs", ("team-b",), False),
    (ANNA, "list", "", "pods", ("team-b",), False),
    (ANNA, "get", "", "secrets", (SYSTEM,), False),
    (ANNA, "get", "", "configmaps", (SYSTEM,), False),
    (ANNA, "patch", "", "configmaps", (SYSTEM,), False),
    (ANNA, "delete", "", "resourcequotas", ("team-a",), False),
    (ANNA, "patch", "", "resourcequotas", ("team-a",), False),
    (ANNA, "patch", "", "namespaces", ("team-a",), False),
    (ANNA, "create", RBAC, "rolebindings", ("team-a",), False),
    (ANNA, "create", "kueue.x-k8s.io", "localqueues", ("team-a",), False),
    (ANNA, "patch", "kueue.x-k8s.io", "workloads", ("team-a",), False),
    (ANNA, "patch", "kueue.x-k8s.io", "clusterqueues", ("team-a",), False),
    (ANNA, "create", "", "pods/binding", ("team-a",), False),
    (ANNA, "patch", "", "nodes/status", ("",), False),
    (ANNA, "list", "", "nodes", ("",), False),
]


@pytest.mark.parametrize("right", RIGHTS)
def test_nobody_writes_what_holds_the_tenants_and_a_tenant_edits_its_namespace(prod: Rollout, right: Right) -> None:
    user, verb, group, resource, namespaces, allowed = right
    for namespace in namespaces:
        found = may(prod.cluster.api, user, verb, resource, group=group, namespace=namespace, groups=GROUPS[user])
        assert found is allowed
