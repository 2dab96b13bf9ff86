"""Rights of other programs: what leads past the budgets is refused, by whichever way, what a cluster runs on is not."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policy.rules import past
from tenancy import names
from tests.support import graphs, search
from tests.support.graphs import RBAC, SYSTEM, UNKNOWN, Manifest, Program, an_object, judge
from tests.support.graphs import rule as on
from tests.unit.policy.test_foreign import FULL, workload

OWN = (SYSTEM, "kueue-system")
LEDGER = replace(
    FULL,
    exempt_namespaces=("gpu-tenancy-system-nodes", "kube-system", "nvidia"),
    admission=replace(FULL.admission, own=OWN) if FULL.admission else None,
)
CONFIG = {"ledger": LEDGER.to_data()}
TRUSTING = {"ledger": replace(LEDGER, trusted_namespaces=("kyverno", "monitoring")).to_data()}
KUEUE, DEVICES, ADMISSION, CERTIFICATES = (
    "kueue.x-k8s.io",
    "resource.k8s.io",
    "admissionregistration.k8s.io",
    "certificates.k8s.io",
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
    """The rules in the whole cluster, for an account of the namespace."""
    return {"role": cluster_role(*rules), "binding": binding("x", account(to))}


def within(namespace: str, *rules: Manifest, to: str = "web") -> Program:
    """The rules in one namespace, for an account of another."""
    role = an_object(f"{RBAC}/v1", "Role", "x", namespace, rules=list(rules))
    return {"role": role, "binding": binding("x", account(to), within=namespace, kind="Role")}


EDIT = (
    on("serviceaccounts", "impersonate", "create"),
    on("serviceaccounts/token", "create"),
    on("pods", "create", "update", "patch", "delete"),
    on("pods/exec", "create", "get"),
    on("secrets", "create", "get", "patch"),
    on("configmaps", "create", "update", "delete"),
    on("deployments", "create", "patch", group="apps"),
    on("jobs", "create", "patch", group="batch"),
    on("leases", "create", "update", group="coordination.k8s.io"),
)
ANYTHING = {"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}

# The program, and a part of the one line that it gets. In `web`, which is nobody's, and in tenants' namespaces.
REFUSED: dict[str, tuple[Program, str]] = {
    # What the budgets are kept by.
    "a node's labels": (
        everywhere(on("nodes", "get", "patch")),
        "lets web/x patch nodes, and so past every budget; t",
    ),
    "a node's status": (everywhere(on("nodes/status", "update")), f"take it away, {ADD}"),
    "a tenant's account": (
        everywhere(on("nodes", "patch"), to="immich"),
        f"lets immich/x patch nodes, and so past every budget; take it away, or bind it, in this program, to accounts "
        f"of namespaces under {SETTING} alone",
    ),
    "a quota": (everywhere(on("resourcequotas", "delete")), "delete resourcequotas"),
    "a tenant's quota": (within("immich", on("resourcequotas", "patch")), "Role immich/x: lets web/x patch resourceq"),
    "what a quota has counted": (everywhere(on("resourcequotas/status", "patch")), "patch resourcequotas/status"),
    "a ClusterQueue": (everywhere(on("clusterqueues", "patch", group=KUEUE)), "patch clusterqueues"),
    "a cohort": (everywhere(on("cohorts", "create", group=KUEUE)), "create cohorts"),
    "a tenant's LocalQueue": (within("team-a", on("localqueues", "create", group=KUEUE), to="team-a"), "team-a/x crea"),
    "its own admission": (within("team-a", on("workloads/status", "update", group=KUEUE), to="team-a"), "workloads/s"),
    "a tenant's binding of pods": (within("immich", on("pods/binding", "create"), to="immich"), "create pods/binding"),
    "a class of devices": (everywhere(on("deviceclasses", "create", group=DEVICES)), "create deviceclasses"),
    "a taint of devices": (everywhere(on("devicetaintrules", "create", group=DEVICES)), "create devicetaintrules"),
    "a claim's devices": (within("immich", on("resourceclaims/status", "update", group=DEVICES)), "resourceclaims/st"),
    "a policy": (everywhere(on("mutatingadmissionpolicies", "create", group=ADMISSION)), "mutatingadmissionpolicies"),
    # To become who has it.
    "escalate": (everywhere(on("clusterroles", "escalate", "bind", group=RBAC)), "lets web/x escalate/bind clusterr"),
    "bind in a tenant": (within("immich", on("clusterroles", "bind", group=RBAC), to="immich"), "bind clusterroles"),
    "impersonate": (everywhere(on("users", "impersonate")), "impersonate users"),
    "impersonate, as of 1.36": (
        everywhere(on("users", "impersonate:user-info", group="authentication.k8s.io")),
        "impersonate users",
    ),
    "anybody's token": (
        everywhere(on("serviceaccounts/token", "create")),
        "create serviceaccounts/token, also where admission refuses nothing, such as in kube-system, and so past every "
        f"budget; bind it where it is needed by RoleBindings, {ADD}",
    ),
    "the kubelet": (everywhere(on("nodes/proxy", "get")), "get nodes/proxy"),
    "a certificate of the API server's": (
        everywhere(on("signers", "approve", group=CERTIFICATES, only="kubernetes.io/kube-apiserver-client")),
        "approve signers",
    ),
    "the host's path as a volume": (everywhere(on("persistentvolumes", "create")), "create persistentvolumes"),
    # What `edit` gives, where nothing is refused.
    "the ledger": (within(SYSTEM, on("configmaps", "patch"), to="immich"), f"Role {SYSTEM}/x: lets immich/x patch con"),
    "the ledger by its name": (within(SYSTEM, on("configmaps", "patch", only=names.LEDGER)), "patch configmaps"),
    "the ledger, wherever it is": (everywhere(on("configmaps", "update")), "update configmaps, also where admission"),
    "a journal": (everywhere(on("configmaps", "update", only=names.journal(names.WATCHDOG))), "update configmaps"),
    "who is who on EKS": (within("kube-system", on("configmaps", "patch", only="aws-auth")), "patch configmaps"),
    "a Lease": (within(SYSTEM, on("leases", "update", group="coordination.k8s.io")), "update leases"),
    "an agent": (within(SYSTEM, on("cronjobs", "delete", group="batch")), "delete cronjobs"),
    "an agent's token": (within(SYSTEM, on("serviceaccounts/token", "create", only=names.RECONCILE)), "token"),
    "a node agent's pod": (within("gpu-tenancy-system-nodes", on("pods/exec", "get")), "get pods/exec"),
    "a pod that is exempt": (within("kube-system", on("pods", "create"), to="immich"), "create pods"),
    "an account that is trusted": (within("nvidia", on("secrets", "create")), "create secrets"),
    "pods everywhere": (everywhere(on("deployments", "create", group="apps")), "create deployments, also where"),
    # By a role that Kubernetes brings.
    "edit, everywhere": (
        {"a": binding("edit", account("web"))},
        "lets web/x impersonate serviceaccounts, create serviceaccounts/token, ",
    ),
    "admin, where nothing is refused": ({"a": binding("admin", account("immich"), within="nvidia")}, "as admin, and"),
    "a system's": (
        {"a": binding("system:node-problem-detector", account("web"))},
        f"whose rights reach past every budget; bind a role that lists what is needed, {ADD}",
    ),
    "cluster-admin": ({"a": binding("cluster-admin", account("web"))}, "may do everything; bind a role that lists wh"),
    "the administrators' for a tenant": (
        {"a": binding("cluster-admin", account("immich"), within="immich")},
        "binds cluster-admin, which may do everything",
    ),
    # By another way.
    "a role of elsewhere": (
        {"a": binding(names.RECONCILE, account("web"))},
        f"cannot be proven: web/x gets ClusterRole {names.RECONCILE}, which is not in the graph; bind a role that",
    ),
    "a role that says no rules": (
        {"a": an_object(f"{RBAC}/v1", "ClusterRole", "x"), "b": binding("x", account("web"))},
        "lets web/x create/update/patch nodes, ",
    ),
    "a role that is there already": (
        {"a": cluster_role(name="system:node"), "b": binding("system:node", account("web"))},
        "binds system:node",
    ),
    "a user's name for an account": (
        {"a": cluster_role(on("nodes", "patch")), "b": binding("x", called("User", "system:serviceaccount:immich:x"))},
        "lets immich/x patch nodes",
    ),
    "every account of a namespace": (
        {"a": cluster_role(on("nodes", "patch")), "b": binding("x", called("Group", "system:serviceaccounts:web"))},
        f"lets every account of web patch nodes, and so past every budget; take it away, {ADD}",
    ),
    "everybody": (
        {"a": cluster_role(on("nodes", "patch")), "b": binding("x", called("Group", "system:authenticated"))},
        "lets Group system:authenticated patch nodes",
    ),
    "one of several": (
        {"a": cluster_role(on("nodes", "patch")), "b": binding("x", account("nvidia"), account("immich"))},
        "lets immich/x patch nodes",
    ),
    "not bound": ({"a": cluster_role(on("nodes", "patch"))}, "lets whoever it is bound to patch nodes"),
    "aggregated from others": (
        {
            "a": cluster_role(aggregationRule={"clusterRoleSelectors": [{"matchLabels": {"a": "b"}}]}),
            "b": binding("x", account("web")),
        },
        "lets web/x what every ClusterRole may that aggregationRule selects",
    ),
    "aggregated to every tenant": (
        {"a": cluster_role(on("localqueues", "create", group=KUEUE), labels={LABEL: "true"})},
        f"lets whoever has the role edit, by the label {LABEL}, create localqueues, and so past every budget; take it",
    ),
    "aggregated to every tenant, bound to one who may": (
        {
            "a": cluster_role(on("resourcequotas", "delete"), labels={LABEL: "true"}),
            "b": binding("x", account("kube-system")),
        },
        "delete resourcequotas",
    ),
    # By a wildcard.
    "every verb": (everywhere(on("nodes", "*")), "lets web/x create/update/patch nodes"),
    "every group": (everywhere({"apiGroups": ["*"], "resources": ["workloads"], "verbs": ["update"]}), "workloads"),
    "every resource": (everywhere(on("*", "patch")), "patch nodes, patch nodes/status, patch pods/binding"),
    "every status": (everywhere(on("*/status", "patch", group="*")), "patch nodes/status"),
    "every resource of Kueue's": (everywhere(on("*", "patch", group=KUEUE)), "patch clusterqueues"),
    "reading everything": (everywhere(on("*", "get", group="*")), "get nodes/proxy, get pods/exec"),
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
    "what editors have for those who look": (
        {
            "a": cluster_role(on("secrets", "create"), labels={f"{RBAC}/aggregate-to-view": "true"}),
            "b": binding("view", account("immich")),
        },
        "lets whoever has the role view, by the label rbac.authorization.k8s.io/aggregate-to-view, create secrets",
    ),
    "a role that others know as harmless": (
        {
            "a": cluster_role(on("nodes", "patch"), name="kueue-x-viewer-role"),
            "b": binding("kueue-x-viewer-role", account("immich"), within="immich"),
        },
        "lets whoever has the role kueue-x-viewer-role, also from another program, patch nodes",
    ),
    "priorities": (everywhere(on("priorityclasses", "create", group="scheduling.k8s.io")), "create priorityclasses"),
    "a namespace that is not known": (within(UNKNOWN, on("resourcequotas", "patch")), "patch resourcequotas"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_leads_past_the_budgets_is_refused_in_one_line(case: str) -> None:
    program, message = REFUSED[case]
    reported = judge(program, CONFIG)
    assert len(reported) == 1, reported
    assert message in reported[0]


DETECTOR = (on("nodes", "get"), on("nodes/status", "patch"), on("events", "create", "patch"))
PROMETHEUS_OPERATOR = (
    on("prometheuses", "*", group="monitoring.coreos.com"),
    on("alertmanagers", "*", group="monitoring.coreos.com"),
    on("statefulsets", "*", group="apps"),
    on("configmaps", "*"),
    on("secrets", "*"),
    on("pods", "list", "delete"),
    on("services", "get", "create", "update", "delete"),
    on("nodes", "list", "watch"),
)
KYVERNO = {"rbac.kyverno.io/aggregate-to-admission-controller": "true"}

ACCEPTED: dict[str, Program] = {
    "the driver": everywhere(*DETECTOR, to="nvidia"),
    "what is in kube-system": everywhere(*DETECTOR, to="kube-system"),
    "a cloud's controllers, by the name that others give them everything under": {
        "role": cluster_role(on("nodes", "patch"), name="system:cloud-controller-manager"),
        "binding": binding("system:cloud-controller-manager", account("kube-system")),
    },
    "a reader": everywhere(
        on("pods", "list", "watch"), on("secrets", "get"), on("nodes", "list"), on("configmaps", "get")
    ),
    "its metrics": everywhere({"nonResourceURLs": ["/metrics", "*"], "verbs": ["get"]}, on("nodes/metrics", "get")),
    "its own groups": everywhere(on("*", "*", group="monitoring.coreos.com"), on("alertmanagers", "*", group="*")),
    "a scaler of everything": everywhere(on("*/scale", "get", "patch", "update", group="*")),
    "an ingress": everywhere(on("ingresses/status", "update", group="networking.k8s.io"), on("services", "*")),
    "its own Lease": everywhere(on("leases", "update", group="coordination.k8s.io", only="cert-manager-controller")),
    "its own ConfigMap": everywhere(on("configmaps", "update", only="cluster-status")),
    "a Lease in kube-system": within("kube-system", on("leases", "create", "update", group="coordination.k8s.io")),
    "a scrape of the agents": within(
        SYSTEM, on("pods", "list", "watch"), on("services", "get"), on("endpoints", "get")
    ),
    "its own signer": everywhere(
        on("signers", "approve", "sign", group=CERTIFICATES, only="issuers.cert-manager.io/*")
    ),
    "its own namespace": within("web", ANYTHING),
    "its own namespace by a ClusterRole": {
        "a": cluster_role(*EDIT),
        "b": binding("x", account("web"), within="web"),
    },
    "a tenant as editor of his own": {"a": binding("edit", called("Group", "ml"), within="immich")},
    "a tenant's people who run Jobs": {"a": binding("kueue-batch-user-role", called("Group", "ml"), within="team-a")},
    "somebody who looks at queues": {"a": binding("kueue-workload-viewer-role", called("Group", "ml"))},
    "a tenant as admin of his own": {"a": binding("admin", account("immich"), within="immich")},
    "what a tenant as editor has": within("immich", *EDIT, to="immich"),
    "somebody who sees all": {"a": binding("view", called("Group", "ml"))},
    "a metrics API": {
        "a": binding("system:auth-delegator", account("web")),
        "b": binding("extension-apiserver-authentication-reader", account("web"), within="kube-system", kind="Role"),
    },
    "an add-on's role of a system's name": {
        "a": cluster_role(on("nodes/metrics", "get"), name="system:metrics-server"),
        "b": binding("system:metrics-server", account("monitoring", "metrics-server")),
    },
    "edit for its own kinds": {
        "a": cluster_role(on("certificates", "*", group="cert-manager.io"), labels={LABEL: "true"})
    },
    "what others bind in namespaces": {"a": cluster_role(*EDIT)},
    "a role for nobody": {"a": cluster_role(), "b": binding("x", account("web"))},
    "the control plane": {
        "a": cluster_role(on("nodes", "patch")),
        "b": binding("x", called("Group", "system:nodes"), called("User", "system:kube-controller-manager")),
    },
}


@pytest.mark.parametrize("case", ACCEPTED)
def test_what_does_not_passes(case: str) -> None:
    assert judge(ACCEPTED[case], CONFIG) == []


OF_OPERATORS: dict[str, Program] = {
    "node-problem-detector": everywhere(*DETECTOR, to="monitoring"),
    "prometheus-operator": everywhere(*PROMETHEUS_OPERATOR, to="monitoring"),
    "its administrator": {"a": binding("cluster-admin", account("monitoring"))},
    "a role that Kubernetes brings": {"a": binding("system:node-problem-detector", account("monitoring"))},
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


def home(kind: str, name: str, api_version: str = "v1", **fields: Any) -> Manifest:
    return an_object(api_version, kind, name, SYSTEM, **fields)


# What another program declares where the agents are, and a part of the one line that it gets.
AT_HOME: dict[str, tuple[Manifest, str]] = {
    "a pod with an agent's account": (workload(SYSTEM), f"Deployment {SYSTEM}/x: is in the platform's namespace, and"),
    "a node agent": (workload("gpu-tenancy-system-nodes", kind="DaemonSet"), "its pods may have any account there"),
    "a pod with Kueue's account": (
        workload("kueue-system"),
        "Deployment kueue-system/x: is in the platform's namespace",
    ),
    "Kueue's token": (
        an_object("v1", "Secret", "x", "kueue-system", type="kubernetes.io/service-account-token"),
        "it becomes an account's token",
    ),
    "Kueue's configuration": (
        an_object("v1", "ConfigMap", "kueue-manager-config", "kueue-system"),
        "its name is the platform's",
    ),
    "an agent's token": (
        home("Secret", "x", type="kubernetes.io/service-account-token"),
        "it becomes an account's tok",
    ),
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
def test_what_is_beside_the_platforms_own_passes(manifest: Manifest) -> None:
    assert judge({"x": manifest}, CONFIG) == []


@pytest.mark.parametrize(
    ("spec", "refused"),
    [
        ({"hostPath": {"path": "/dev/nvidia0"}, "claimRef": {"namespace": "immich"}}, True),
        ({"local": {"path": "/"}}, True),
        ({"local": {"path": "/mnt/disks/a"}}, False),
        ({"csi": {"driver": "example.com"}}, False),
        ({"hostPath": {"path": "/dev"}, "claimRef": {"namespace": "nvidia"}}, False),
    ],
)
def test_no_volume_behind_a_claim_is_the_device(spec: Manifest, refused: bool) -> None:
    reported = judge({"x": an_object("v1", "PersistentVolume", "x", spec=spec)}, CONFIG)
    assert [line.partition(" the host's ")[0] for line in reported] == [
        "admission: PersistentVolume x: gives who claims it"
    ] * refused


PATCHES: dict[str, tuple[Manifest, str]] = {
    "a tenant's": (
        an_object("apps/v1", "DeploymentPatch", "x", "immich", spec={"replicas": 3}),
        "it changes a Deployment that the graph does not hold; declare the whole object",
    ),
    "an agent": (
        an_object("batch/v1", "CronJobPatch", names.WATCHDOG, SYSTEM, spec={"suspend": True}),
        "it changes a CronJob that the graph does not hold",
    ),
    "gpumem": (
        an_object("apps/v1", "DeploymentPatch", "x", "kube-system", spec={"template": graphs.pod(500)}),
        "it changes a Deployment that the graph does not hold",
    ),
    "the host": (
        an_object(
            "apps/v1",
            "DeploymentPatch",
            "x",
            "web",
            spec={"template": {"spec": {"volumes": [{"name": "v", "hostPath": {"path": "/dev/nvidia0"}}]}}},
        ),
        "volume v mounts the host's /dev/nvidia0 and so reaches a GPU without a budget",
    ),
}


@pytest.mark.parametrize("case", PATCHES)
def test_a_patch_of_what_rules_read_is_refused(case: str) -> None:
    manifest, message = PATCHES[case]
    (line,) = judge({"x": manifest}, CONFIG)
    assert message in line


@pytest.mark.parametrize("namespace", ["kube-system", "web"])
def test_a_patch_of_what_is_no_tenants_passes_where_it_shows_all_that_is_judged(namespace: str) -> None:
    template = {"spec": {"tolerations": [{"operator": "Exists"}], "nodeSelector": {"a": "b"}}}
    for spec in ({"replicas": 3}, {"template": template}):
        assert judge({"x": an_object("apps/v1", "DeploymentPatch", "coredns", namespace, spec=spec)}, CONFIG) == []


GROUPS = ("", "apps", "batch", RBAC, KUEUE, DEVICES, ADMISSION, CERTIFICATES, "monitoring.coreos.com")
RESOURCES = (
    *("pods", "pods/exec", "pods/binding", "nodes", "nodes/status", "nodes/proxy", "configmaps", "secrets", "users"),
    *("deployments", "deployments/scale", "cronjobs", "clusterroles", "clusterqueues", "workloads", "workloads/status"),
    *("resourceslices", "validatingadmissionpolicies", "signers", "serviceaccounts/token", "prometheuses"),
)
VERBS = ("get", "list", "create", "update", "patch", "delete", "bind", "escalate", "impersonate", "approve")
NAMES = (names.LEDGER, "mine", "kubernetes.io/x", "*")
HOMES = (SYSTEM, "kube-system", "nvidia", "immich", "team-a", "web", UNKNOWN)


def some(values: tuple[str, ...], *more: str) -> st.SearchStrategy[list[str]]:
    return st.lists(st.sampled_from([*values, *more]), max_size=3)


@st.composite
def rules(draw: st.DrawFn) -> Manifest:
    found: Manifest = {
        "apiGroups": draw(some(GROUPS, "*", "*.k8s.io")),
        "resources": draw(some(RESOURCES, "*", "*/status", "*/*", "nodes/*")),
        "verbs": draw(some(VERBS, "*")),
    }
    return found | ({"resourceNames": draw(some(NAMES))} if draw(st.booleans()) else {})


def covered(rule: Manifest) -> Iterator[Manifest]:
    """Every right of a rule by itself, as RBAC reads it."""
    wide = {"apiGroups": GROUPS, "verbs": VERBS}
    groups, verbs = (wide[key] if "*" in rule[key] else rule[key] for key in ("apiGroups", "verbs"))
    ends = [written.removeprefix("*/") for written in rule["resources"] if written.startswith("*/")]
    named = {key: rule[key] for key in ("resourceNames",) if key in rule}
    for group, resource, verb in product(groups, RESOURCES, verbs):
        if "*" in rule["resources"] or resource in rule["resources"] or resource.partition("/")[2] in ends:
            yield {"apiGroups": [group], "resources": [resource], "verbs": [verb], **named}


def test_a_wildcard_of_each_kind_covers_each_right() -> None:
    for right in past.ALL:
        for resource, verb, place in product(right.resources, right.verbs, right.places):
            end = resource.partition("/")[2]
            groups, verbs, resources = (right.group, "*"), (verb, "*"), (resource, "*", *([f"*/{end}"] if end else []))
            for written in product(groups, resources, verbs):
                rule = dict(zip(("apiGroups", "resources", "verbs"), ([each] for each in written), strict=True))
                assert f"{verb} {resource}" in right_by_right(past.past([rule], frozenset({place}))), (right, written)


def right_by_right(rights: list[str]) -> set[str]:
    return {f"{verb} {right.partition(' ')[2]}" for right in rights for verb in right.partition(" ")[0].split("/")}


def is_refused(namespace: str | None, *found: Manifest) -> bool:
    program = everywhere(*found) if namespace is None else within(namespace, *found)
    return bool(judge(program, CONFIG))


@search.examples(25, soak=5_000)
@given(st.lists(rules(), max_size=2), st.none() | st.sampled_from(HOMES[:-1]), st.data())
def test_who_has_more_is_never_judged_milder(found: list[Manifest], namespace: str | None, data: st.DataObject) -> None:
    """One of the rights alone; then more verbs, no names, another rule, the whole cluster."""
    rights = [right for rule in found for right in covered(rule)]
    less = [data.draw(st.sampled_from(rights))] if rights else []
    if is_refused(namespace, *less):
        assert is_refused(namespace, *found), (less, found)
    if is_refused(namespace, *found):
        assert is_refused(namespace, *found, data.draw(rules()))
        assert is_refused(None, *found)
        assert is_refused(namespace, *({**rule, "verbs": ["*"], "resourceNames": []} for rule in found))
        assert is_refused(namespace, *({**rule, "apiGroups": ["*"], "resources": ["*"]} for rule in found))


subjects = st.fixed_dictionaries(
    {"kind": st.sampled_from(["ServiceAccount", "User", "Group", "", UNKNOWN])},
    optional={
        "name": st.sampled_from(
            ["x", names.WATCHDOG, "system:serviceaccount:", "system:serviceaccounts:immich", UNKNOWN]
        ),
        "namespace": st.sampled_from(HOMES),
    },
)


@search.examples(40, soak=10_000)
@given(st.lists(rules() | st.just({}) | st.just(UNKNOWN), max_size=3), st.lists(subjects, max_size=3), st.data())
def test_roles_and_bindings_of_any_shape_end_in_a_verdict(
    found: list[Any], who: list[Manifest], data: st.DataObject
) -> None:
    namespace, other = data.draw(st.sampled_from(HOMES)), data.draw(st.sampled_from(HOMES))
    name = data.draw(st.sampled_from(["x", "edit", "cluster-admin", "system:node", "elsewhere", UNKNOWN]))
    labels = data.draw(st.sampled_from([{}, {LABEL: "true"}, {LABEL: UNKNOWN}, UNKNOWN]))
    selectors = data.draw(st.sampled_from([None, [{}], [{"matchLabels": {LABEL: "true"}}], UNKNOWN]))
    role = cluster_role(*found, name=name, labels=labels or None)
    role |= {} if selectors is None else {"aggregationRule": {"clusterRoleSelectors": selectors}}
    program = {
        "role": role,
        "local": an_object(f"{RBAC}/v1", "Role", name, namespace, rules=found),
        "everywhere": binding(name, *who),
        "within": binding(name, *who, within=other, kind=data.draw(st.sampled_from(["Role", "ClusterRole"]))),
    }
    for config in (CONFIG, None):
        assert all(line.startswith("rbac: ") for line in judge(program, config))
