"""The rights to write the objects that enforce budgets, and the accounts that may have these rights (docs/adr/0032)."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

from policy.graph import Graph
from policy.objects import Object, text_at, texts_at
from policy.unknown import is_unknown
from tenancy import names
from tenancy.workload import maps_at

RBAC = "rbac.authorization.k8s.io"
ROLES = (f"Role.{RBAC}", f"ClusterRole.{RBAC}")
BINDINGS = (f"RoleBinding.{RBAC}", f"ClusterRoleBinding.{RBAC}")
_DEVICES = names.RESOURCE_API.partition("/")[0]
_KUEUE = names.KUEUE_API.partition("/")[0]
_CHANGES = ("create", "update", "patch")
_WRITES = (*_CHANGES, "delete", "deletecollection")
# Prefixes of a ServiceAccount's user name, and of the group of all ServiceAccounts in a namespace.
_ACCOUNT, _ACCOUNTS = "system:serviceaccount:", "system:serviceaccounts:"
_CONTROL_PLANE = (
    ("User", "system:kube-controller-manager"),
    ("User", "system:kube-scheduler"),
    ("Group", "system:masters"),
    ("Group", "system:nodes"),
)


class RightScope(Enum):
    """The kind of place in which a right is valid. A right in the whole cluster is valid in all places."""

    CLUSTER = "objects without a namespace"
    TENANT = "a tenant's namespace"
    OWN = "the platform's own namespaces"


ANYWHERE = frozenset(RightScope)
_CLUSTER, _TENANT = frozenset({RightScope.CLUSTER}), frozenset({RightScope.TENANT})
_IN_NAMESPACES = ANYWHERE - _CLUSTER


@dataclass(frozen=True)
class Right:
    """The right to use one of `verbs` on one of `resources`, in the given places. `called` has name prefixes: a rule
    with resourceNames gives the right only if one of its names has one of the prefixes. If `is_guarded`, an admission
    policy protects the named objects from a right to every object of the resource."""

    group: str
    resources: tuple[str, ...]
    verbs: tuple[str, ...]
    places: frozenset[RightScope]
    called: tuple[str, ...] = ()
    is_guarded: bool = False


def _with_status(*resources: str) -> tuple[str, ...]:
    return tuple(f"{resource}{end}" for resource in resources for end in ("", "/status"))


_POLICIES = tuple(f"{kind}admissionpolic{end}" for kind in ("validating", "mutating") for end in ("ies", "ybindings"))
RESERVED = (
    # A node's labels decide its pool, and its status contains the advertised memory.
    Right("", _with_status("nodes"), _CHANGES, _CLUSTER),
    Right(_DEVICES, ("resourceslices", "deviceclasses", "devicetaintrules"), _WRITES, _CLUSTER),
    Right(_DEVICES, ("resourceclaims/status", "resourceclaims/binding"), _WRITES, _TENANT),
    Right("", ("pods/binding", "bindings"), _WRITES, _IN_NAMESPACES),
    Right("", _with_status("resourcequotas"), _WRITES, _IN_NAMESPACES),
    Right("", ("configmaps",), _WRITES, frozenset({RightScope.OWN}), called=names.OURS, is_guarded=True),
    Right(_KUEUE, _with_status("clusterqueues", "cohorts", "resourceflavors"), _WRITES, _CLUSTER),
    Right(_KUEUE, _with_status("localqueues", "workloads"), _WRITES, _TENANT),
    Right("admissionregistration.k8s.io", _POLICIES, _WRITES, _CLUSTER),
    # Pods of a class above gpu_priority preempt pods with seats.
    Right("scheduling.k8s.io", ("priorityclasses",), _CHANGES, _CLUSTER),
)


def reserved_rights(
    rules: Sequence[Mapping[str, Any]], places: frozenset[RightScope], *, guarded: bool = False
) -> list[str]:
    """Returns the rights of RESERVED that the rules give in these places, as `verb/verb resource`.

    If `guarded` is True, a rule without resourceNames gives no right to objects that admission protects. Many operators
    have a rule without resourceNames, for example for the ConfigMaps of all namespaces.
    """
    rights = [right for right in RESERVED if right.places & places]
    named = [rule for rule in rules if texts_at(rule, "resourceNames")] if guarded else rules
    judged = ((rule, right) for right in rights for rule in (named if right.is_guarded else rules))
    return list(dict.fromkeys(found for rule, right in judged for found in _covered(rule, right)))


def wildcards(rule: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yields the field and the value of each wildcard in the rule."""
    for field in ("apiGroups", "resources", "verbs", "nonResourceURLs"):
        yield from ((field, value) for value in texts_at(rule, field) if "*" in value)


def _covered(rule: Mapping[str, Any], right: Right) -> Iterator[str]:
    called = texts_at(rule, "resourceNames")
    if called and right.called and not any(name.startswith(right.called) for name in called):
        return
    if not any("*" in group or group == right.group for group in texts_at(rule, "apiGroups")):
        return
    resources, verbs = texts_at(rule, "resources"), texts_at(rule, "verbs")
    for resource in right.resources:
        has = [verb for verb in right.verbs if verb in verbs or "*" in verbs]
        if has and any(_stands_for(listed, resource) for listed in resources):
            yield f"{'/'.join(has)} {resource}"


def _stands_for(listed: str, resource: str) -> bool:
    """Returns True if the rule's entry covers the resource, like ResourceMatches in
    pkg/apis/rbac/v1/evaluation_helpers.go. An entry such as `pods/*` counts as an entry for every resource."""
    if "*" not in listed:
        return listed == resource
    subresource = listed.removeprefix("*/")
    return "*" in subresource or subresource == resource.partition("/")[2]


@dataclass(frozen=True)
class Subject:
    """A subject of a binding. `namespace` is set only for ServiceAccounts. `name` is None for all ServiceAccounts of a
    namespace."""

    kind: str
    name: str | None
    namespace: str | None = None

    def __str__(self) -> str:
        if self.namespace is None:
            return f"{self.kind} {self.name}"
        return f"every account of {self.namespace}" if self.name is None else f"{self.namespace}/{self.name}"


def subjects_of(binding: Object) -> Iterator[Subject]:
    for found in maps_at(binding.manifest, "subjects"):
        kind, name = text_at(found, "kind"), text_at(found, "name")
        if kind == "ServiceAccount":
            yield Subject(kind, name, text_at(found, "namespace") or binding.namespace)
        elif kind == "User" and name.startswith(_ACCOUNT):
            namespace, _, account = name.removeprefix(_ACCOUNT).partition(":")
            yield Subject(kind, account, namespace)
        elif kind == "Group" and name.startswith(_ACCOUNTS):
            yield Subject(kind, None, name.removeprefix(_ACCOUNTS))
        else:
            yield Subject(kind, name)


def untrusted(graph: Graph, subjects: Iterable[Subject]) -> list[Subject]:
    """Returns the subjects that are not trusted. The stack, Kubernetes itself, exempt namespaces, trusted namespaces
    and trusted groups contain only trusted subjects."""
    ledger = graph.ledger
    homes = own_namespaces(graph) | {names.EXEMPT_BY_NAME}
    homes |= {*ledger.exempt_namespaces, *ledger.trusted_namespaces} if ledger else set()
    people = {("Group", group) for group in ledger.trusted_groups} if ledger else set()
    return [
        subject
        for subject in subjects
        if subject.namespace not in homes
        and (subject.kind, subject.name) not in (*_CONTROL_PLANE, *people)
        and not (subject.kind == "User" and (subject.name or "").startswith("system:node:"))
    ]


def how_to_allow(graph: Graph, strangers: Sequence[Subject]) -> str:
    """Names the setting that allows these rights to these subjects. No setting allows them to a tenant's account."""
    tenants = graph.ledger.tenants_by_name if graph.ledger else {}
    homes = {subject.namespace for subject in strangers}
    listed = sorted(home for home in homes if home is not None and home not in tenants)
    people = [s.name for s in strangers if s.kind == "Group" and s.name and not s.name.startswith("system:")]
    stack = "of the platform's stack"
    if listed and len(listed) == len(homes):
        return f"add {', '.join(listed)} to admission.trusted_namespaces {stack}"
    if people and len(people) == len(strangers):
        return f"add {', '.join(people)} to admission.trusted_groups {stack}"
    return f"bind it, in this program, to accounts of namespaces under admission.trusted_namespaces {stack} alone"


def are_no_tenants(graph: Graph, subjects: Sequence[Subject]) -> bool:
    """Returns True if all subjects are ServiceAccounts in namespaces that belong to no tenant."""
    tenants = graph.ledger.tenants_by_name if graph.ledger else {}
    return bool(subjects) and all(s.namespace is not None and s.namespace not in tenants for s in subjects)


def places_of(graph: Graph, found: Object) -> frozenset[RightScope]:
    """Returns the places in which a binding or a role gives its rights."""
    if found.kind in ("ClusterRole", "ClusterRoleBinding"):
        return ANYWHERE
    if is_unknown(found.namespace):
        return _IN_NAMESPACES
    tenants = set(graph.ledger.tenants_by_name) if graph.ledger else set()
    which = {RightScope.TENANT: tenants, RightScope.OWN: own_namespaces(graph)}
    return frozenset(place for place, namespaces in which.items() if found.namespace in namespaces)


def agents_namespaces(graph: Graph) -> set[str]:
    """Returns the namespaces of our agents: the ledger's namespace, and the namespace of the node agents."""
    homes = {found.namespace for found in graph.ledger_objects}
    if not homes and graph.ledger is not None and graph.ledger.admission is not None:
        homes = set(graph.ledger.admission.own[:1])
    return homes | {names.node_agent_namespace(home) for home in homes}


def own_namespaces(graph: Graph) -> set[str]:
    """Returns the namespaces of our agents and of Kueue."""
    ledger = graph.ledger
    return agents_namespaces(graph) | set(ledger.admission.own if ledger and ledger.admission else ())
