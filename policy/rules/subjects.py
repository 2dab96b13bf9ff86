"""Who a binding gives a role to, where, and who of them is trusted with every GPU."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from policy.graph import Graph
from policy.objects import Object, text
from policy.rules.past import ANYWHERE, RBAC, UsableIn
from policy.unknown import is_unknown
from tenancy import names
from tenancy.workload import maps_at

ROLES = (f"Role.{RBAC}", f"ClusterRole.{RBAC}")
BINDINGS = (f"RoleBinding.{RBAC}", f"ClusterRoleBinding.{RBAC}")
# Who may do all of it anyway.
_CONTROL_PLANE = (
    ("User", "system:kube-controller-manager"),
    ("User", "system:kube-scheduler"),
    ("Group", "system:masters"),
    ("Group", "system:nodes"),
)
# The user name of an account, and the group of all accounts of a namespace.
_ACCOUNT, _ACCOUNTS = "system:serviceaccount:", "system:serviceaccounts:"


@dataclass(frozen=True)
class Subject:
    """`namespace` is that of accounts, whichever way they are written; `name` is None where it is all of them."""

    kind: str
    name: str | None
    namespace: str | None = None

    def __str__(self) -> str:
        if self.namespace is None:
            return f"{self.kind} {self.name}"
        return f"every account of {self.namespace}" if self.name is None else f"{self.namespace}/{self.name}"


def subjects_of(binding: Object) -> Iterator[Subject]:
    for found in maps_at(binding.manifest, "subjects"):
        kind, name = text(found, "kind"), text(found, "name")
        if kind == "ServiceAccount":
            yield Subject(kind, name, text(found, "namespace") or binding.namespace)
        elif kind == "User" and name.startswith(_ACCOUNT):
            namespace, _, account = name.removeprefix(_ACCOUNT).partition(":")
            yield Subject(kind, account, namespace)
        elif kind == "Group" and name.startswith(_ACCOUNTS):
            yield Subject(kind, None, name.removeprefix(_ACCOUNTS))
        else:
            yield Subject(kind, name)


def agents_namespaces(graph: Graph) -> set[str]:
    """Where our agents run: the ledger's namespace and that of the node agents."""
    homes = {found.namespace for found in graph.ledger_objects}
    if not homes and graph.ledger is not None and graph.ledger.admission is not None:
        homes = set(graph.ledger.admission.own[:1])
    return homes | {names.node_agent_namespace(home) for home in homes}


def untrusted(graph: Graph, subjects: Iterable[Subject]) -> list[Subject]:
    """Those who are neither the stack's own, nor Kubernetes', nor of a namespace whose accounts are trusted."""
    homes = own_namespaces(graph) | _trusted(graph)
    people = {("Group", group) for group in graph.ledger.trusted_groups} if graph.ledger else set()
    return [
        subject
        for subject in subjects
        if subject.namespace not in homes
        and (subject.kind, subject.name) not in (*_CONTROL_PLANE, *people)
        and not (subject.kind == "User" and (subject.name or "").startswith("system:node:"))
    ]


def places_of(graph: Graph, found: Object) -> frozenset[UsableIn]:
    """Where a binding gives its role's rights, or where a Role has them."""
    if found.kind in ("ClusterRole", "ClusterRoleBinding"):
        return ANYWHERE
    if is_unknown(found.namespace):
        return ANYWHERE - {UsableIn.CLUSTER}
    tenants = set(graph.ledger.tenants_by_name) if graph.ledger else set()
    which = {UsableIn.TENANT: tenants, UsableIn.OWN: own_namespaces(graph), UsableIn.TRUSTED: _trusted(graph)}
    return frozenset(place for place, namespaces in which.items() if found.namespace in namespaces)


def how_to_allow(graph: Graph, strangers: Sequence[Subject]) -> str:
    """What an operator changes who means it; no tenant is trusted."""
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


def own_namespaces(graph: Graph) -> set[str]:
    """The agents', and Kueue's."""
    ledger = graph.ledger
    return agents_namespaces(graph) | set(ledger.admission.own if ledger and ledger.admission else ())


def _trusted(graph: Graph) -> set[str]:
    ledger = graph.ledger
    return {names.EXEMPT_BY_NAME, *((*ledger.exempt_namespaces, *ledger.trusted_namespaces) if ledger else ())}
