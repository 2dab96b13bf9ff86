"""Tests that other programs get no right to write the objects that enforce budgets (docs/adr/0032)."""

from dataclasses import replace
from itertools import product
from typing import Any

import pytest

from policy.rule import an_object
from policy.rules import writers
from tenancy import names
from tests.support import graphs
from tests.support.consumers import FULL, workload
from tests.support.graphs import RBAC, SYSTEM, UNKNOWN, Manifest, Program, judge
from tests.support.graphs import rule as on

OWN = (SYSTEM, "kueue-system")
LEDGER = replace(
    FULL,
    exempt_namespaces=("gpu-tenancy-system-nodes", "kube-system", "nvidia"),
    admission=replace(FULL.admission, own=OWN) if FULL.admission else None,
)
CONFIG = {"ledger": LEDGER.to_data()}
TRUSTING = {"ledger": replace(LEDGER, trusted_namespaces=("kyverno", "monitoring")).to_data()}
KUEUE, DEVICES, ADMISSION = (
    "kueue.x-k8s.io",
    "resource.k8s.io",
    "admissionregistration.k8s.io",
)
SETTING = "admission.trusted_namespaces of the platform's stack"
ADD = f"or add web to {SETTING}"
LABEL = f"{RBAC}/aggregate-to-edit"


def account(namespace: str, name: str = "x") -> Manifest:
    return {"kind": "ServiceAccount", "name": name, "namespace": namespace}


def called(kind: str, name: str) -> Manifest:
    return {"kind": kind, "name": name, "apiGroup": RBAC}


def cluster_role(*rules: Manifest, name: str = "x", labels: Manifest | None = None, **fields: Any) -> Manifest:
    found = an_object(f"{RBAC}/v1", "ClusterRole", name, rules=list(rules), **fields)
    return found | ({"metadata": {"name": name, "labels": labels}} if labels else {})


def binding(role: str, *subjects: Manifest, within: str | None = None, kind: str = "ClusterRole") -> Manifest:
    ref = {"apiGroup": RBAC, "kind": kind, "name": role}
    bound = "ClusterRoleBinding" if within is None else "RoleBinding"
    return an_object(f"{RBAC}/v1", bound, "x", within, roleRef=ref, subjects=list(subjects))


def everywhere(*rules: Manifest, to: str = "web") -> Program:
    return {"role": cluster_role(*rules), "binding": binding("x", account(to))}


def within(namespace: str, *rules: Manifest, to: str = "web") -> Program:
    role = an_object(f"{RBAC}/v1", "Role", "x", namespace, rules=list(rules))
    return {"role": role, "binding": binding("x", account(to), within=namespace, kind="Role")}


ANYTHING = {"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}

# Each case has a program, and a part of its only finding.
REFUSED: dict[str, tuple[Program, str]] = {
    # The programs may write the objects in RESERVED.
    "a node's labels": (
        everywhere(on("nodes", "get", "patch")),
        "lets web/x patch nodes, and so bypass every budget; t",
    ),
    "a node's status": (everywhere(on("nodes/status", "update")), f"take it away, {ADD}"),
    "a tenant's account": (
        everywhere(on("nodes", "patch"), to="immich"),
        "lets immich/x patch nodes, and so bypass every budget; take it away, or bind it, in this program, to accounts "
        f"of namespaces under {SETTING} alone",
    ),
    "a quota": (everywhere(on("resourcequotas", "delete")), "delete resourcequotas"),
    "a tenant's quota": (within("immich", on("resourcequotas", "patch")), "Role immich/x: lets web/x patch resourceq"),
    "a tenant's LocalQueue": (within("team-a", on("localqueues", "create", group=KUEUE), to="team-a"), "team-a/x crea"),
    "a tenant's binding of pods": (within("immich", on("pods/binding", "create"), to="immich"), "create pods/binding"),
    # The ledger.
    "the ledger": (within(SYSTEM, on("configmaps", "patch"), to="immich"), f"Role {SYSTEM}/x: lets immich/x patch con"),
    "the ledger by its name": (within(SYSTEM, on("configmaps", "patch", only=names.LEDGER)), "patch configmaps"),
    "the ledger, wherever it is, for a tenant": (
        everywhere(on("configmaps", "update"), to="immich"),
        "update configmaps, and so bypass every",
    ),
    "a journal": (everywhere(on("configmaps", "update", only=names.journal(names.WATCHDOG))), "update configmaps"),
    # The programs have rights from a built-in role of Kubernetes.
    "cluster-admin": ({"a": binding("cluster-admin", account("web"))}, "may do everything; bind a role that lists wh"),
    "the administrators' for a tenant": (
        {"a": binding("cluster-admin", account("immich"), within="immich")},
        "binds cluster-admin, which may do everything",
    ),
    # By another way.
    "a role of our agents'": (
        {"a": binding(names.RECONCILE, account("web"))},
        f"cannot be proven: web/x gets ClusterRole {names.RECONCILE}, which is not in the graph; bind a role that",
    ),
    "a role of Kueue's": (
        {"a": binding("kueue-manager-role", account("web"))},
        "cannot be proven: web/x gets ClusterRole",
    ),
    "a user's name for an account": (
        {"a": cluster_role(on("nodes", "patch")), "b": binding("x", called("User", "system:serviceaccount:immich:x"))},
        "lets immich/x patch nodes",
    ),
    "every account of a namespace": (
        {"a": cluster_role(on("nodes", "patch")), "b": binding("x", called("Group", "system:serviceaccounts:web"))},
        f"lets every account of web patch nodes, and so bypass every budget; take it away, {ADD}",
    ),
    "everybody": (
        {"a": cluster_role(on("nodes", "patch")), "b": binding("x", called("Group", "system:authenticated"))},
        "lets Group system:authenticated patch nodes",
    ),
    "one of several": (
        {"a": cluster_role(on("nodes", "patch")), "b": binding("x", account("nvidia"), account("immich"))},
        "lets immich/x patch nodes",
    ),
    "not bound": ({"a": cluster_role(on("nodes", "patch"))}, "lets every account that it is bound to patch nodes"),
    "aggregated to every tenant": (
        {"a": cluster_role(on("localqueues", "create", group=KUEUE), labels={LABEL: "true"})},
        f"lets accounts with the role edit, by the label {LABEL}, create localqueues, and so bypass every budget; take",
    ),
    "aggregated to every tenant, bound to one who may": (
        {
            "a": cluster_role(on("resourcequotas", "delete"), labels={LABEL: "true"}),
            "b": binding("x", account("kube-system")),
        },
        "delete resourcequotas",
    ),
    # By a wildcard.
    "every resource": (everywhere(on("*", "patch")), "patch nodes, patch nodes/status, patch pods/binding"),
    "everything in a tenant": (within("immich", ANYTHING, to="immich"), "lets immich/x"),
    # By a patch.
    "a subject more": (
        {"a": an_object(f"{RBAC}/v1", "ClusterRoleBindingPatch", "x", subjects=[account("immich")])},
        "counted: ClusterRoleBindingPatch x: cannot be proven: it changes a ClusterRoleBinding that the graph does not",
    ),
    "a rule more": (
        {"a": an_object(f"{RBAC}/v1", "RolePatch", "x", SYSTEM, rules=[ANYTHING])},
        f"counted: RolePatch {SYSTEM}/x: cannot be proven",
    ),
    "an agent's account": (
        {"a": binding("edit", account(SYSTEM, names.WATCHDOG), within="immich")},
        f"cannot be proven: {names.WATCHDOG} gets ClusterRole edit, which is not in the graph",
    ),
    "an agent's account by its user's name": (
        {"a": binding("edit", called("User", f"system:serviceaccount:{SYSTEM}:{names.WATCHDOG}"), within="immich")},
        f"cannot be proven: {names.WATCHDOG} gets ClusterRole edit, which is not in the graph",
    ),
    "a namespace that is not known": (within(UNKNOWN, on("resourcequotas", "patch")), "patch resourcequotas"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_leads_past_the_budgets_is_refused_in_one_line(case: str) -> None:
    program, message = REFUSED[case]
    reported = judge(program, CONFIG)
    assert len(reported) == 1, reported
    assert message in reported[0]


DETECTOR = (on("nodes", "get"), on("nodes/status", "patch"), on("events", "create", "patch"))
KYVERNO = {"rbac.kyverno.io/aggregate-to-admission-controller": "true"}
# Programs without rights on the platform's objects.
ACCEPTED: dict[str, Program] = {
    "the driver": everywhere(*DETECTOR, to="nvidia"),
    "what is in kube-system": everywhere(*DETECTOR, to="kube-system"),
    "a reader": everywhere(on("*", "get", "list", "watch", group="*")),
    "pods and Secrets everywhere": everywhere(
        on("pods", "*"), on("secrets", "*"), on("deployments", "*", group="apps")
    ),
    "to become somebody": everywhere(on("users", "impersonate"), on("clusterroles", "escalate", "bind", group=RBAC)),
    "its own groups": everywhere(on("*", "*", group="monitoring.coreos.com"), on("alertmanagers", "*", group="*")),
    "a scaler of everything": everywhere(on("*/scale", "get", "patch", "update", group="*")),
    "its own ConfigMap": everywhere(on("configmaps", "update", only="cluster-status")),
    "every ConfigMap, of which admission protects ours": everywhere(on("configmaps", "create", "update", "delete")),
    "ConfigMaps of a tenant": within("immich", on("configmaps", "*")),
    "its own namespace": within("web", ANYTHING),
    "its own namespace by a ClusterRole": {
        "a": cluster_role(*DETECTOR),
        "b": binding("x", account("web"), within="web"),
    },
    "a tenant as editor of its own": {"a": binding("edit", called("Group", "ml"), within="immich")},
    "a tenant's people who run Jobs": {"a": binding("kueue-batch-user-role", called("Group", "ml"), within="team-a")},
    "somebody who looks at queues": {"a": binding("kueue-workload-viewer-role", called("Group", "ml"))},
    "a role of Kubernetes'": {"a": binding("system:auth-delegator", account("web"))},
    "a role of elsewhere": {"a": binding("elsewhere", account("web"))},
    "edit for its own kinds": {
        "a": cluster_role(on("certificates", "*", group="cert-manager.io"), labels={LABEL: "true"})
    },
    "the control plane": {
        "a": cluster_role(on("nodes", "patch")),
        "b": binding("x", called("Group", "system:nodes"), called("User", "system:kube-controller-manager")),
    },
}


@pytest.mark.parametrize("case", ACCEPTED)
def test_what_writes_nothing_of_ours_passes(case: str) -> None:
    assert judge(ACCEPTED[case], CONFIG) == []


OF_OPERATORS: dict[str, Program] = {
    "node-problem-detector": everywhere(*DETECTOR, to="monitoring"),
    "its administrator": {"a": binding("cluster-admin", account("monitoring"))},
    "kyverno, by aggregation": {
        "role": cluster_role(aggregationRule={"clusterRoleSelectors": [{"matchLabels": KYVERNO}]}),
        "core": cluster_role(on("*", "create", group=ADMISSION), name="core", labels=KYVERNO),
        "binding": binding("x", account("kyverno")),
    },
}


@pytest.mark.parametrize("case", OF_OPERATORS)
def test_an_operator_allows_it_by_the_setting_that_the_line_names(case: str) -> None:
    refused = judge(OF_OPERATORS[case], CONFIG)
    home = "kyverno" if "kyverno" in case else "monitoring"
    assert refused
    assert all(line.endswith(f"or add {home} to {SETTING}") for line in refused), refused
    assert judge(OF_OPERATORS[case], TRUSTING) == []


def test_people_are_allowed_by_their_group() -> None:
    program = {"a": binding("cluster-admin", called("Group", "sre"))}
    (line,) = judge(program, CONFIG)
    assert line.endswith("or add sre to admission.trusted_groups of the platform's stack")
    assert judge(program, {"ledger": replace(LEDGER, trusted_groups=("sre",)).to_data()}) == []


def test_no_ledger_leaves_only_wildcards_to_refuse() -> None:
    assert judge(everywhere(on("nodes/status", "patch"))) == []
    assert judge(everywhere(on("*", "*", group="monitoring.coreos.com"))) == []
    assert "lets web/x create/update/patch nodes" in judge(everywhere(ANYTHING))[0]


def test_the_platforms_own_program_holds_no_wildcard() -> None:
    role = cluster_role(on("prometheuses", "*", group="monitoring.coreos.com"))
    assert judge(graphs.platform() | {"x": role}) == ["rbac: ClusterRole x: verbs holds '*'; list what is needed"]


def test_the_roles_that_kubernetes_made_for_a_scheduler_are_the_schedulers_alone() -> None:
    program = graphs.platform()
    bound = program[f"{names.SCHEDULER} ClusterRoleBinding"]
    kube = {**bound, "metadata": {"name": "kube"}, "roleRef": {"kind": "ClusterRole", "name": "system:kube-scheduler"}}
    assert judge(program | {"kube": kube}) == []
    other = {**kube, "subjects": [{"kind": "ServiceAccount", "name": names.WATCHDOG, "namespace": SYSTEM}]}
    assert judge(program | {"kube": other}) == [
        "rbac: ClusterRoleBinding kube: cannot be proven: gpu-vram-watchdog gets ClusterRole system:kube-scheduler, "
        "which is not in the graph"
    ]


def home(kind: str, name: str, api_version: str = "v1", **fields: Any) -> Manifest:
    return an_object(api_version, kind, name, SYSTEM, **fields)


# Each case has an object that another program adds to an agents' namespace, and a part of the only finding.
AT_HOME: dict[str, tuple[Manifest, str]] = {
    "a pod with an agent's account": (workload(SYSTEM), f"Deployment {SYSTEM}/x: is in the platform's namespace, and"),
    "Kueue's configuration": (
        an_object("v1", "ConfigMap", "kueue-manager-config", "kueue-system"),
        "its name is the platform's",
    ),
    "an agent's token": (home("Secret", "x", type="kubernetes.io/service-account-token"), "it becomes an account's"),
    "a journal": (
        home("ConfigMap", names.journal(names.WATCHDOG)),
        "its name is the platform's; declare it in another",
    ),
    "who leads": (home("Lease", names.SCHEDULER, "coordination.k8s.io/v1"), "its name is the platform's"),
    "an account": (home("ServiceAccount", names.RECONCILE), "its name is the platform's"),
}


@pytest.mark.parametrize("case", AT_HOME)
def test_no_other_program_does_itself_what_it_may_let_nobody_do(case: str) -> None:
    manifest, message = AT_HOME[case]
    (line,) = judge({"x": manifest}, CONFIG)
    assert line.startswith("rbac: ")
    assert message in line
    elsewhere = {**manifest, "metadata": {**manifest["metadata"], "namespace": "web"}}
    assert judge({"x": elsewhere}, CONFIG) == []


def test_who_installs_kueue_by_a_program_says_so_in_the_settings() -> None:
    trusting = replace(LEDGER, trusted_namespaces=("kueue-system",)).to_data()
    assert judge({"x": workload("kueue-system")}, {"ledger": trusting}) == []


@pytest.mark.parametrize(
    "manifest",
    [
        home("Secret", "alerts-webhook", type="Opaque"),
        home("ConfigMap", "dashboard"),
        an_object("v1", "ConfigMap", "dashboard", "kueue-system"),
        home("ServiceMonitor", names.EXPORTER, "monitoring.coreos.com/v1"),
        an_object("v1", "ConfigMap", "x", UNKNOWN),
        an_object("v1", "Secret", UNKNOWN, UNKNOWN),
    ],
    ids=lambda manifest: str(manifest["kind"]),
)
def test_what_is_next_to_the_platforms_own_passes(manifest: Manifest) -> None:
    assert judge({"x": manifest}, CONFIG) == []


def test_a_wildcard_of_each_kind_covers_each_right() -> None:
    for right in writers.RESERVED:
        for resource, verb, place in product(right.resources, right.verbs, right.places):
            end = resource.partition("/")[2]
            groups, verbs, resources = (right.group, "*"), (verb, "*"), (resource, "*", *([f"*/{end}"] if end else []))
            for written in product(groups, resources, verbs):
                rule = dict(zip(("apiGroups", "resources", "verbs"), ([each] for each in written), strict=True))
                assert f"{verb} {resource}" in right_by_right(writers.reserved_rights([rule], frozenset({place}))), (
                    right,
                    written,
                )


def right_by_right(rights: list[str]) -> set[str]:
    return {f"{verb} {right.partition(' ')[2]}" for right in rights for verb in right.partition(" ")[0].split("/")}
