"""What each agent's account may do, asked of the API server: exactly its table, in every namespace."""

from collections.abc import Iterable

import pytest

from tenancy import names
from tests.e2e.rollout import SYSTEM, Object, Rollout

NODES = names.node_agent_namespace(SYSTEM)
ELSEWHERE = "kube-system"
Right = tuple[str, str, str, str]  # verb, API group, resource, name

PODS: Right = ("list", "", "pods", "*")
NODE_LIST: Right = ("list", "", "nodes", "*")
EVENTS: Right = ("create", "events.k8s.io", "events", "*")
LEDGER: Right = ("get", "", "configmaps", names.LEDGER)
EVICTION: Right = ("create", "", "pods/eviction", "*")
JOURNAL = names.journal(names.WATCHDOG)


def _journal(agent: str) -> set[Right]:
    return {(verb, "", "configmaps", names.journal(agent)) for verb in ("get", "patch")}


def _gated(deployment: str) -> set[Right]:
    """What the armed gate may do in the namespace of a Deployment."""
    return {
        EVENTS,
        ("get", "apps", "deployments", deployment),
        ("patch", "apps", "deployments/scale", deployment),
        ("list", "autoscaling", "horizontalpodautoscalers", "*"),
        ("list", "keda.sh", "scaledobjects", "*"),
    }


def _slices(verb: str) -> Right:
    return verb, "resource.k8s.io", "resourceslices", "*"


# Account, its namespace, its rights everywhere, and those in single namespaces besides.
RIGHTS: dict[str, tuple[str, set[Right], dict[str, set[Right]]]] = {
    names.RECONCILE: (
        SYSTEM,
        {
            PODS,
            ("watch", "", "pods", "*"),
            NODE_LIST,
            ("watch", "", "nodes", "*"),
            ("patch", "", "nodes/status", "*"),
            EVENTS,
        },
        {
            SYSTEM: {
                LEDGER,
                *((verb, "", "configmaps", names.LEDGER) for verb in ("watch", "patch")),
                *_journal(names.RECONCILE),
            }
        },
    ),
    names.WATCHDOG: (
        SYSTEM,
        {NODE_LIST, PODS, EVENTS},
        {
            SYSTEM: {LEDGER, ("get", "", "configmaps", JOURNAL), ("patch", "", "configmaps", JOURNAL)},
            "immich": {EVICTION},
            "llama-swap": {EVICTION},
            "frigate": {EVICTION},
            "inference": {EVICTION},
            "portal-stt": {EVICTION},
        },
    ),
    names.GATE: (
        SYSTEM,
        {NODE_LIST, PODS},
        {
            SYSTEM: {LEDGER, *_journal(names.GATE)},
            **{tenant: _gated(tenant) for tenant in ("tts", "ebook2audiobook", "ytdlp")},
        },
    ),
    names.SCHEDULER: (
        SYSTEM,
        set(),
        {
            SYSTEM: {
                LEDGER,
                ("patch", "resource.k8s.io", "resourceclaims", names.SCHEDULER),
                *(
                    (verb, "coordination.k8s.io", "leases", names.SCHEDULER)
                    for verb in ("get", "list", "watch", "update")
                ),
            },
        },
    ),
    names.EXPORTER: (
        NODES,
        {
            *((verb, "", resource, "*") for resource in ("pods", "nodes") for verb in ("list", "watch")),
            *(_slices(verb) for verb in ("list", "watch", "create", "patch")),
        },
        {SYSTEM: {(verb, "", "configmaps", name) for name in (names.LEDGER, JOURNAL) for verb in ("list", "watch")}},
    ),
    names.GUARD: (NODES, {PODS, ("watch", "", "pods", "*"), EVENTS}, {}),
}


# Whose rights an account has besides its table: Kubernetes' own roles for a scheduler.
LIKE = {names.SCHEDULER: "system:kube-scheduler"}


def rights(prod: Rollout, account: str, namespace: str, where: str) -> set[Right]:
    """Every right of the account there, but for those that all accounts have, or the user like whom it is."""
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


@pytest.mark.parametrize("account", RIGHTS)
def test_an_agent_may_do_what_its_table_says_and_nothing_else(prod: Rollout, account: str) -> None:
    namespace, everywhere, somewhere = RIGHTS[account]
    found = {item["metadata"]["name"] for item in prod.items("/api/v1/namespaces")}
    assert {SYSTEM, NODES, ELSEWHERE, *somewhere} <= found
    for where in sorted(found):
        assert rights(prod, account, namespace, where) == everywhere | somewhere.get(where, set()), where


def test_a_service_account_without_a_binding_may_do_nothing(prod: Rollout) -> None:
    assert rights(prod, "default", SYSTEM, SYSTEM) == set()


KUEUE = "kueue-system", "kueue-controller-manager"


def test_every_account_that_the_stack_makes_has_its_table(prod: Rollout) -> None:
    """Kueue's is its chart's own; what it may not do to us is below."""
    accounts = {
        (item["metadata"]["namespace"], item["metadata"]["name"])
        for item in prod.items("/api/v1/serviceaccounts")
        if item["metadata"]["namespace"] != ELSEWHERE and item["metadata"]["name"] != "default"
    }
    assert accounts == {(namespace, account) for account, (namespace, _, _) in RIGHTS.items()} | {KUEUE}


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
        assert not may(prod, user, groups, (verb, group, resource), where)


PEOPLE = {
    ("create", "batch", "jobs", "team-a"): True,
    ("delete", "", "pods", "team-a"): True,
    ("create", "", "secrets", "team-a"): True,
    ("create", "batch", "jobs", "team-b"): False,
    ("list", "", "pods", "team-b"): False,
    ("get", "", "secrets", SYSTEM): False,
    ("get", "", "configmaps", SYSTEM): False,
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
    allowed = may(prod, "anna", ["team-a", "system:authenticated"], (verb, group, resource), where)
    assert allowed is PEOPLE[verb, group, resource, where]


def may(prod: Rollout, user: str, groups: list[str], what: tuple[str, str, str], where: str) -> bool:
    """Whether the API server lets the user do it there; in the whole cluster where that is empty."""
    verb, group, resource = what
    kind, _, subresource = resource.partition("/")
    attributes = {"verb": verb, "group": group, "resource": kind, "subresource": subresource, "namespace": where}
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SubjectAccessReview",
        "spec": {"user": user, "groups": groups, "resourceAttributes": attributes},
    }
    answer = prod.create("/apis/authorization.k8s.io/v1/subjectaccessreviews", review)
    assert answer.refusal is None, answer.refusal
    return bool(answer.body["status"]["allowed"])
