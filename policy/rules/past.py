"""Which rights lead past the budgets, and where each of them does.

What `edit` gives in a namespace that admission holds is anybody's: it is what a tenant has in his own. Past the budgets
is a right over what they are kept by, the right to become who has it, and what `edit` gives where admission refuses
nothing. Rights on other groups than Kubernetes' and Kueue's are never past them.

Not here is what changes objects on their way, as many operators do: webhooks, APIServices, conversions (SECURITY.md).
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

from policy.objects import texts
from tenancy import names
from tenancy.workload import maps_at

Rule = Mapping[str, Any]

RBAC = "rbac.authorization.k8s.io"
_DEVICES = names.RESOURCE_API.partition("/")[0]
_KUEUE = names.KUEUE_API.partition("/")[0]
_AUTHENTICATION = "authentication.k8s.io"
_CHANGES = ("create", "update", "patch")
_WRITES = (*_CHANGES, "delete", "deletecollection")
# In a process of the pod; a GET is enough, as a websocket.
_ENTERS = ("create", "get")


class UsableIn(Enum):
    """Where a right is good for something. Who has it in the whole cluster has it in all of these."""

    CLUSTER = "what is in no namespace"
    TENANT = "a tenant's namespace"
    OWN = "the platform's own namespaces"
    TRUSTED = "the namespaces whose accounts are trusted"


ANYWHERE = frozenset(UsableIn)
_IN_NAMESPACES = ANYWHERE - {UsableIn.CLUSTER}
_UNHELD = frozenset({UsableIn.OWN, UsableIn.TRUSTED})


@dataclass(frozen=True)
class _Right:
    """To do one of `verbs` to one of `resources`. `edits`: the role `edit` has it, too. With `called`, a rule that
    lists resourceNames has it where one of them begins so."""

    group: str
    resources: tuple[str, ...]
    verbs: tuple[str, ...]
    places: frozenset[UsableIn]
    edits: bool = False
    called: tuple[str, ...] = ()


def _with_status(*resources: str) -> tuple[str, ...]:
    return tuple(f"{resource}{end}" for resource in resources for end in ("", "/status"))


_CLUSTER, _TENANT, _OWN = frozenset({UsableIn.CLUSTER}), frozenset({UsableIn.TENANT}), frozenset({UsableIn.OWN})
# ConfigMaps of kube-system that say who is who, or what a node is.
_OF_KUBE_SYSTEM = ("aws-auth", "extension-apiserver-authentication", "kube")
# What the names of the platform's ConfigMaps and Leases begin with, and those of Kueue in its namespace.
OURS = (f"{names.PROJECT}-", names.KUEUE, names.RECONCILE, names.WATCHDOG, names.GATE, names.EXPORTER, names.GUARD)
_POLICIES = tuple(f"{kind}admissionpolic{end}" for kind in ("validating", "mutating") for end in ("ies", "ybindings"))
_KEPT_BY = (
    # Labels say which pool a node is of, its status what it has.
    _Right("", _with_status("nodes"), _CHANGES, _CLUSTER),
    _Right(_DEVICES, ("resourceslices", "deviceclasses", "devicetaintrules"), _WRITES, _CLUSTER),
    _Right(_DEVICES, ("resourceclaims/status", "resourceclaims/binding"), _WRITES, _TENANT),
    _Right("", ("pods/binding", "bindings"), _WRITES, _IN_NAMESPACES),
    _Right("", _with_status("resourcequotas"), _WRITES, frozenset({UsableIn.TENANT, UsableIn.OWN})),
    _Right(_KUEUE, _with_status("clusterqueues", "cohorts", "resourceflavors"), _WRITES, _CLUSTER),
    _Right(_KUEUE, _with_status("localqueues", "workloads"), _WRITES, _TENANT),
    _Right("admissionregistration.k8s.io", _POLICIES, _WRITES, _CLUSTER),
    # Pods of a class above the GPU's preempt seats.
    _Right("scheduling.k8s.io", ("priorityclasses",), _CHANGES, _CLUSTER),
)
_BECOMES = (
    _Right(RBAC, ("roles", "clusterroles"), ("escalate", "bind"), _IN_NAMESPACES),
    _Right("", ("users", "groups"), ("impersonate",), _CLUSTER),
    _Right(_AUTHENTICATION, ("users", "groups", "nodes"), ("impersonate",), _CLUSTER),
    _Right("certificates.k8s.io", ("signers",), ("approve", "sign"), _CLUSTER, called=("kubernetes.io/",)),
    # The node's own processes, and its files as a volume.
    _Right("", ("nodes/proxy",), ("get", *_WRITES), _CLUSTER),
    _Right("", ("persistentvolumes",), _CHANGES, _CLUSTER),
)
_OF_EDIT = (
    _Right("", ("serviceaccounts",), ("impersonate",), _UNHELD, edits=True),
    _Right(_AUTHENTICATION, ("serviceaccounts",), ("impersonate",), _UNHELD),
    _Right("", ("serviceaccounts/token",), ("create",), _UNHELD, edits=True),
    _Right("", ("secrets",), _WRITES, _UNHELD, edits=True),
    _Right("", ("pods",), _CHANGES, _UNHELD, edits=True),
    _Right("", ("pods/exec", "pods/attach"), _ENTERS, _UNHELD, edits=True),
    _Right("", ("pods/ephemeralcontainers",), _CHANGES, _UNHELD),
    _Right("", ("replicationcontrollers",), _WRITES, _UNHELD, edits=True),
    _Right("apps", ("daemonsets", "deployments", "replicasets", "statefulsets"), _WRITES, _UNHELD, edits=True),
    _Right("batch", ("cronjobs", "jobs"), _WRITES, _UNHELD, edits=True),
    _Right("", ("configmaps",), _WRITES, _UNHELD, edits=True, called=(*OURS, *_OF_KUBE_SYSTEM)),
    _Right("coordination.k8s.io", ("leases",), _WRITES, _OWN, edits=True, called=OURS),
)
ALL = (*_KEPT_BY, *_BECOMES, *_OF_EDIT)

EVERYTHING: tuple[Rule, ...] = ({"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]},)
_EDIT: tuple[Rule, ...] = tuple(
    {"apiGroups": [right.group], "resources": list(right.resources), "verbs": list(right.verbs)}
    for right in _OF_EDIT
    if right.edits
)
# Of the roles that Kubernetes brings, those without such a right; every other `system:` has some.
_HARMLESS = (
    "view",
    *(f"system:{role}" for role in ("aggregate-to-view", "auth-delegator", "basic-user", "discovery", "heapster")),
    *(f"system:{role}" for role in ("kube-aggregator", "kube-dns", "monitoring", "node-bootstrapper", "node-proxier")),
    *(f"system:{role}" for role in ("public-info-viewer", "service-account-issuer-discovery")),
)
# Add-ons bring these under such a name.
_OF_ADD_ONS = ("system:aggregated-metrics-reader", "system:coredns", "system:metrics-server")
# The last is Kueue's for who runs Jobs.
_LIKE_EDIT = (
    "admin",
    "edit",
    "system:aggregate-to-admin",
    "system:aggregate-to-edit",
    f"{names.KUEUE}-batch-user-role",
)


def rules_of_built_in(role: str) -> Sequence[Rule] | None:
    """What of its rules matters here, of a ClusterRole that Kubernetes or Kueue brings; None for every other name."""
    if role in _HARMLESS or (role.startswith(f"{names.KUEUE}-") and role.endswith("-viewer-role")):
        return ()
    if role in _LIKE_EDIT:
        return _EDIT
    if role in _OF_ADD_ONS:
        return None
    return EVERYTHING if role == "cluster-admin" or role.startswith("system:") else None


def past(rules: Sequence[Rule], places: frozenset[UsableIn], *, beyond_edit: bool = False) -> list[str]:
    """The rights by which these rules lead past the budgets, for who has them there, as `verb/verb resource`; without
    those that `edit` has where `beyond_edit`. Whoever adds to a rule, or to the places, gets no fewer."""
    rights = [right for right in ALL if right.places & places and not (beyond_edit and right in _OF_EDIT)]
    return list(dict.fromkeys(found for rule in rules for right in rights for found in _covered(rule, right)))


def with_wildcards(role: Mapping[str, Any]) -> list[Rule]:
    """The rules of a role that hold one."""
    return [rule for rule in maps_at(role, "rules") if any(True for _ in wildcards(rule))]


def wildcards(rule: Rule) -> Iterator[tuple[str, str]]:
    """Each field with a value that is one, or has one in it."""
    for field in ("apiGroups", "resources", "verbs", "nonResourceURLs"):
        yield from ((field, value) for value in texts(rule, field) if "*" in value)


def _covered(rule: Rule, right: _Right) -> Iterator[str]:
    called = texts(rule, "resourceNames")
    if called and right.called and not any(name.startswith(right.called) for name in called):
        return
    if not any("*" in group or group == right.group for group in texts(rule, "apiGroups")):
        return
    resources, verbs = texts(rule, "resources"), [verb.partition(":")[0] for verb in texts(rule, "verbs")]
    for resource in right.resources:
        has = [verb for verb in right.verbs if verb in verbs or "*" in verbs]
        if has and any(_stands_for(written, resource) for written in resources):
            yield f"{'/'.join(has)} {resource}"


def _stands_for(written: str, resource: str) -> bool:
    """As RBAC reads it (ResourceMatches in pkg/apis/rbac/v1/evaluation_helpers.go); what it does not read as a wildcard
    stands for everything here."""
    if "*" not in written:
        return written == resource
    subresource = written.removeprefix("*/")
    return "*" in subresource or subresource == resource.partition("/")[2]
