"""Tests on a real API server that no agent's account has more rights than the policy pack allows."""

from collections.abc import Iterable

import pytest

from policy.rules.rbac import ALLOWED, Grant
from tenancy import names
from tests.support.e2e.access import may
from tests.support.e2e.rollout import SYSTEM, Object, Rollout

NODES = names.node_agent_namespace(SYSTEM)
ELSEWHERE = "kube-system"
Right = tuple[str, str, str, str]  # A right has a verb, an API group, a resource and a resource name.

GATED = {"tts", "ebook2audiobook", "ytdlp"}
# Maps an agent and a resource to the only namespaces in which the agent has rights on it.
ONLY: dict[str, dict[str, set[str]]] = {
    names.WATCHDOG: {"pods/eviction": {"immich", "llama-swap", "frigate", "portal-stt"}},
    names.GATE: {"deployments/scale": GATED, "events": GATED},
}
OF_THE_SYSTEM = ("configmaps", "leases", "resourceclaims")

# Maps an account to a Kubernetes user with the same rights.
LIKE = {names.SCHEDULER: "system:kube-scheduler"}


def home(account: str) -> str:
    return NODES if account in (names.EXPORTER, names.GUARD) else SYSTEM


def rights(prod: Rollout, account: str, namespace: str, where: str) -> set[Right]:
    others = [_user(namespace, "nobody"), *([LIKE[account]] if account in LIKE else [])]
    held = set(_listed(prod, _user(namespace, account), where))
    return held.difference(*(_listed(prod, other, where) for other in others))


def _user(namespace: str, account: str) -> str:
    return f"system:serviceaccount:{namespace}:{account}"


def _listed(prod: Rollout, user: str, where: str) -> Iterable[Right]:
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectRulesReview",
        "spec": {"namespace": where},
    }
    answer = prod.cluster.api.request(
        "POST",
        "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews",
        review,
        user=user,
    )
    assert answer.refusal is None, answer.refusal
    status = answer.body["status"]
    assert status["incomplete"] is False
    for rule in status["resourceRules"]:
        yield from _rights(rule)
    for rule in status["nonResourceRules"]:
        yield from ((verb, "", path, "*") for verb in rule["verbs"] for path in rule["nonResourceURLs"])


def _rights(rule: Object) -> Iterable[Right]:
    for verb in rule["verbs"]:
        for group in rule["apiGroups"]:
            for resource in rule["resources"]:
                for name in rule.get("resourceNames") or ["*"]:
                    yield verb, group, resource, name


# prod has no board.
OF_PROD = sorted(ALLOWED.keys() - {names.BOARD})


@pytest.mark.parametrize("account", OF_PROD)
def test_an_agent_has_no_right_that_the_gate_does_not_allow(prod: Rollout, account: str) -> None:
    given: dict[str, set[str]] = {}
    for where in sorted(item["metadata"]["name"] for item in prod.items("/api/v1/namespaces")):
        for verb, group, resource, name in rights(prod, account, home(account), where):
            assert Grant(group, resource, verb, named=name != "*") in ALLOWED[account], (where, verb, resource, name)
            given.setdefault(resource, set()).add(where)
    assert given
    for resource, namespaces in ONLY.get(account, {}).items():
        assert given[resource] == namespaces
    assert set().union(*(given.get(resource, set()) for resource in OF_THE_SYSTEM)) <= {SYSTEM}


def test_a_service_account_without_a_binding_may_do_nothing(prod: Rollout) -> None:
    assert rights(prod, "default", SYSTEM, SYSTEM) == set()


KUEUE = "kueue-system", "kueue-controller-manager"


def test_the_gate_knows_every_account_that_the_stack_makes(prod: Rollout) -> None:
    """Kueue's rights come from its chart, and another test checks them."""
    accounts = {
        (item["metadata"]["namespace"], item["metadata"]["name"])
        for item in prod.items("/api/v1/serviceaccounts")
        if item["metadata"]["namespace"] != ELSEWHERE and item["metadata"]["name"] != "default"
    }
    assert accounts == {(home(account), account) for account in OF_PROD} | {KUEUE}


@pytest.mark.parametrize(
    ("verb", "group", "resource"),
    [
        ("get", "", "secrets"),
        ("get", "", "configmaps"),
        ("create", "", "pods"),
        ("create", "", "pods/exec"),
        ("patch", "", "nodes"),
        ("patch", "", "nodes/status"),
        ("patch", "", "namespaces"),
        ("patch", "", "resourcequotas"),
        ("create", "", "serviceaccounts/token"),
        ("create", "rbac.authorization.k8s.io", "rolebindings"),
        ("create", "rbac.authorization.k8s.io", "clusterrolebindings"),
        ("patch", "admissionregistration.k8s.io", "validatingadmissionpolicies"),
        ("patch", "scheduling.k8s.io", "priorityclasses"),
    ],
)
def test_kueue_may_not_touch_what_holds_the_tenants(prod: Rollout, verb: str, group: str, resource: str) -> None:
    namespace, account = KUEUE
    user = f"system:serviceaccount:{namespace}:{account}"
    groups = ["system:serviceaccounts", f"system:serviceaccounts:{namespace}", "system:authenticated"]
    for where in (SYSTEM, "team-a", "immich"):
        assert not may(prod.cluster.api, user, verb, resource, group=group, namespace=where, groups=groups)


PEOPLE = {
    ("create", "batch", "jobs", "team-a"): True,
    ("delete", "", "pods", "team-a"): True,
    ("create", "", "secrets", "team-a"): True,
    ("create", "batch", "jobs", "team-b"): False,
    ("list", "", "pods", "team-b"): False,
    ("get", "", "secrets", SYSTEM): False,
    ("get", "", "configmaps", SYSTEM): False,
    ("patch", "", "configmaps", SYSTEM): False,
    ("delete", "", "resourcequotas", "team-a"): False,
    ("patch", "", "resourcequotas", "team-a"): False,
    ("patch", "", "namespaces", "team-a"): False,
    ("create", "rbac.authorization.k8s.io", "rolebindings", "team-a"): False,
    ("create", "kueue.x-k8s.io", "localqueues", "team-a"): False,
    ("patch", "kueue.x-k8s.io", "workloads", "team-a"): False,
    ("patch", "kueue.x-k8s.io", "clusterqueues", "team-a"): False,
    ("create", "", "pods/binding", "team-a"): False,
    ("patch", "", "nodes/status", ""): False,
    ("list", "", "nodes", ""): False,
}


@pytest.mark.parametrize(("verb", "group", "resource", "where"), PEOPLE)
def test_the_people_of_a_tenant_edit_their_namespace_and_not_what_holds_it(
    prod: Rollout, verb: str, group: str, resource: str, where: str
) -> None:
    groups = ["team-a", "system:authenticated"]
    allowed = may(prod.cluster.api, "anna", verb, resource, group=group, namespace=where, groups=groups)
    assert allowed is PEOPLE[verb, group, resource, where]
