"""Rules over roles: no wildcard anywhere, and for our agents nothing beyond a list."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from policy.finding import Finding, each, unproven
from policy.graph import Graph
from policy.objects import Object, text, texts
from tenancy import names
from tenancy.workload import at, given, maps_at

_API = "rbac.authorization.k8s.io"
_ADMISSION = "admissionregistration.k8s.io"
_POLICY = f"ValidatingAdmissionPolicy.{_ADMISSION}"
_BINDING = f"ValidatingAdmissionPolicyBinding.{_ADMISSION}"
_OWN = "resourceNames"
# Rights that no budget stands against, whoever has them; the slices and the status of a node say what there is.
_WRITES = ("create", "update", "patch", "delete", "deletecollection")
_PAST = (
    "nodes/status",
    "pods/binding",
    "bindings",
    "resourceslices",
    *(f"{kind}admissionpolic{end}" for kind in ("validating", "mutating") for end in ("ies", "ybindings")),
)
_OF_THE_SYSTEM = ("system:node", "system:kube-scheduler", "system:kube-controller-manager")


@dataclass(frozen=True)
class Grant:
    """The right to `verb` a `resource` of a group. `named`: on listed objects only."""

    group: str
    resource: str
    verb: str
    named: bool = False


_READ_LEDGER = Grant("", "configmaps", "get", named=True)
_NODES = Grant("", "nodes", "list")
_PODS = Grant("", "pods", "list")
_NODE_STATUS = Grant("", "nodes/status", "patch")
_EVENTS = Grant("events.k8s.io", "events", "create")
_DEVICES = names.RESOURCE_API.partition("/")[0]
_WRITE_SLICES = frozenset({Grant(_DEVICES, "resourceslices", verb) for verb in ("create", "patch")})
# Rights that reach further than RBAC can say: a ValidatingAdmissionPolicy on the resource must limit who has them.
_LIMITED: Mapping[Grant, str] = {
    _NODE_STATUS: "the right to patch nodes/status is the right to rewrite a node",
    **dict.fromkeys(_WRITE_SLICES, "the right to write resourceslices is the right to make up any node's devices"),
}
_KUEUE = names.KUEUE_API.partition("/")[0]
# What each agent may do, and all that it may do. A grant on listed objects is within the same grant on all. Written
# again, on purpose, and not imported from components/: this list judges those rules. Were it derived from them, a right
# too many would allow itself; and the pack judges graphs that other programs made.
ALLOWED: Mapping[str, frozenset[Grant]] = {
    names.RECONCILE: frozenset(
        {
            _READ_LEDGER,
            Grant("", "configmaps", "watch", named=True),
            Grant("", "configmaps", "patch", named=True),
            _NODES,
            Grant("", "nodes", "watch"),
            _NODE_STATUS,
            _PODS,
            Grant("", "pods", "watch"),
            _EVENTS,
        }
    ),
    names.WATCHDOG: frozenset(
        {
            _READ_LEDGER,
            Grant("", "configmaps", "patch", named=True),
            _NODES,
            _PODS,
            _EVENTS,
            Grant("", "pods/eviction", "create"),
            Grant("", "pods", "delete"),
            Grant(_KUEUE, "workloads", "get"),
            Grant(_KUEUE, "workloads", "patch"),
        }
    ),
    names.EXPORTER: frozenset(
        {
            *(Grant("", "configmaps", verb, named=True) for verb in ("list", "watch")),
            *(Grant("", resource, verb) for resource in ("pods", "nodes") for verb in ("list", "watch")),
            *(Grant(_DEVICES, "resourceslices", verb) for verb in ("list", "watch")),
            *_WRITE_SLICES,
        }
    ),
    names.GUARD: frozenset({_PODS, Grant("", "pods", "watch"), _EVENTS}),
    names.GATE: frozenset(
        {
            _READ_LEDGER,
            Grant("", "configmaps", "patch", named=True),
            _NODES,
            _PODS,
            Grant("apps", "deployments", "get", named=True),
            Grant("apps", "deployments/scale", "patch", named=True),
            Grant("autoscaling", "horizontalpodautoscalers", "list"),
            Grant("keda.sh", "scaledobjects", "list"),
            Grant("events.k8s.io", "events", "create"),
        }
    ),
    names.SCHEDULER: frozenset(
        {
            _READ_LEDGER,
            *(Grant("", resource, verb) for resource in ("pods", "nodes") for verb in ("list", "watch")),
            Grant("", "pods", "get"),
            Grant("", "pods/binding", "create"),
            _EVENTS,
            *(Grant(_DEVICES, "resourceslices", verb) for verb in ("list", "watch")),
            Grant(_DEVICES, "resourceclaims", "patch", named=True),
            *(Grant("coordination.k8s.io", "leases", verb, named=True) for verb in ("get", "list", "watch", "update")),
        }
    ),
}
# Roles that Kubernetes brings, which the graph does not hold, and the account that may have them.
BUILT_IN: Mapping[str, frozenset[str]] = {
    names.SCHEDULER: frozenset({*names.KUBE_SCHEDULER_ROLES, names.AUTHENTICATION_READER}),
}


def rbac(graph: Graph) -> Iterator[Finding]:
    """No role holds a wildcard, and the accounts of our agents hold what their list allows."""
    roles = graph.of(f"Role.{_API}", f"ClusterRole.{_API}")
    yield from each(roles, _no_wildcard)
    yield from each(roles, lambda role: _reaches_past(graph, role))
    yield from each((o for o in graph.objects if o.group == _ADMISSION), lambda found: _in_force(graph, found))
    yield from each(graph.of(f"RoleBinding.{_API}", f"ClusterRoleBinding.{_API}"), lambda b: _binding(graph, b))


def _no_wildcard(role: Object) -> Iterator[Finding]:
    for rule in maps_at(role.manifest, "rules"):
        for field in ("apiGroups", "resources", "verbs", "nonResourceURLs"):
            wild = [value for value in texts(rule, field) if "*" in value]
            if wild:
                yield Finding(f"{role}: {field} holds {wild[0]!r}; list what is needed", role.urn)


def _reaches_past(graph: Graph, role: Object) -> Iterator[Finding]:
    """Whoever writes a node's status, a device's slice or a policy is past every budget, where there are budgets."""
    if graph.ledger is None:
        return
    rights = {f"{g.verb} {g.resource}" for g in _grants(role.manifest) if g.verb in _WRITES and g.resource in _PAST}
    if rights and not _is_trusted(graph, role):
        yield Finding(
            f"{role}: lets its accounts {', '.join(sorted(rights))}, and so past every budget; take it away, or bind "
            "the role, in this program, to accounts of exempt namespaces alone (admission.exempt_namespaces)",
            role.urn,
        )


def _is_trusted(graph: Graph, role: Object) -> bool:
    """Whether it is bound, and to our agents' accounts and those of exempt namespaces alone."""
    return _are_trusted(
        graph,
        [
            subject
            for binding in graph.of(f"RoleBinding.{_API}", f"ClusterRoleBinding.{_API}")
            if text(at(binding.manifest, "roleRef"), "name") == role.name
            for subject in maps_at(binding.manifest, "subjects")
        ],
    )


def _are_trusted(graph: Graph, subjects: Sequence[Mapping[str, Any]]) -> bool:
    exempt = {names.EXEMPT_BY_NAME, *(graph.ledger.exempt_namespaces if graph.ledger else ())}
    homes = _system_namespaces(graph) | exempt
    return bool(subjects) and all(
        text(s, "kind") == "ServiceAccount" and text(s, "namespace") in homes for s in subjects
    )


def _in_force(graph: Graph, found: Object) -> Iterator[Finding]:
    """Our admission policies are the platform's to declare, and deny."""
    name = text(at(found.manifest, "metadata"), "name")
    if not name.startswith(f"{names.PROJECT}-"):
        return
    actions = texts(at(found.manifest, "spec"), "validationActions")
    if found.kind.endswith("Patch") or not graph.ledger_objects:
        yield Finding(f"{found}: {name} is the platform's own, which this program would change; remove it", found.urn)
    elif found.kind == "ValidatingAdmissionPolicyBinding" and "Deny" not in actions:
        yield Finding(f"{found}: validationActions is {actions}, so that nothing is refused; write Deny", found.urn)


def _binding(graph: Graph, binding: Object) -> Iterator[Finding]:
    role = text(at(binding.manifest, "roleRef"), "name")
    if role == "cluster-admin":
        yield Finding(f"{binding}: binds cluster-admin, which may do everything; bind a role that lists", binding.urn)
    subjects = maps_at(binding.manifest, "subjects")
    if _is_systems(role) and graph.ledger is not None and not _are_trusted(graph, subjects):
        yield Finding(
            f"{binding}: binds {role}, whose rights reach past every budget; bind a role that lists what is needed",
            binding.urn,
        )
    homes = _system_namespaces(graph)
    for subject in subjects:
        kind, name = text(subject, "kind"), text(subject, "name")
        home = (text(subject, "namespace") or binding.namespace) if kind == "ServiceAccount" else None
        if home in homes:
            yield from _account(graph, binding, home, name)
        elif kind == "Group" and name in {f"system:serviceaccounts:{home}" for home in homes}:
            yield Finding(f"{binding}: binds every account of the agents' namespace; bind one", binding.urn)


def _is_systems(role: str) -> bool:
    """Whether a role that Kubernetes brings may write nodes, pods' bindings or their status."""
    return role in _OF_THE_SYSTEM or role.startswith("system:controller:")


def _system_namespaces(graph: Graph) -> set[str]:
    """Where our agents run: the ledger's namespace and that of the node agents."""
    homes = {found.namespace for found in graph.ledger_objects}
    return homes | {names.node_agent_namespace(home) for home in homes}


def _account(graph: Graph, binding: Object, namespace: str, account: str) -> Iterator[Finding]:
    ref = at(binding.manifest, "roleRef")
    kind, name = text(ref, "kind"), text(ref, "name")
    role = graph.named(f"{kind}.{_API}", name, binding.namespace if kind == "Role" else None)
    if role is None and name in BUILT_IN.get(account, ()):
        return
    if role is None:
        yield unproven(binding, f"{account} gets {kind} {name}, which is not in the graph")
        return
    allowed = ALLOWED.get(account, frozenset())
    for grant in _grants(role.manifest):
        if grant not in allowed and Grant(grant.group, grant.resource, grant.verb) not in allowed:
            names_only = f", and only with {_OWN}" if _named(grant) in allowed else ""
            yield Finding(
                f"{role}: lets {account} {grant.verb} {grant.resource}, which is not on its list{names_only}; "
                "take it away",
                role.urn,
            )
        elif reach := _unlimited(graph, grant, f"system:serviceaccount:{namespace}:{account}"):
            yield Finding(f"{role}: {reach}; add the ValidatingAdmissionPolicy that limits {account}", role.urn)


def _unlimited(graph: Graph, grant: Grant, user: str) -> str | None:
    """How far a right reaches that nothing limits; None for every other right."""
    reach = next((words for limited, words in _LIMITED.items() if limited == replace(grant, named=False)), None)
    return None if reach is None or _is_limited(graph, grant.resource, user) else reach


def _named(grant: Grant) -> Grant:
    return Grant(grant.group, grant.resource, grant.verb, named=True)


def _grants(role: Mapping[str, Any]) -> Iterator[Grant]:
    for rule in maps_at(role, "rules"):
        for group in texts(rule, "apiGroups"):
            for resource in texts(rule, "resources"):
                for verb in texts(rule, "verbs"):
                    yield Grant(group, resource, verb, named=bool(texts(rule, _OWN)))


def _is_limited(graph: Graph, resource: str, user: str) -> bool:
    """Whether a policy on the resource that is in force speaks of this user, and refuses."""
    enforced = {
        text(at(binding.manifest, "spec"), "policyName")
        for binding in graph.of(_BINDING)
        if "Deny" in texts(at(binding.manifest, "spec"), "validationActions")
    }
    for policy in graph.of(_POLICY):
        spec = at(policy.manifest, "spec")
        about_it = any(
            resource in texts(rule, "resources") for rule in maps_at(spec, "matchConstraints", "resourceRules")
        )
        concerns = any(
            user in text(condition, "expression") and "!" not in text(condition, "expression")
            for condition in maps_at(spec, "matchConditions")
        )
        if (
            policy.name in enforced
            and about_it
            and concerns
            and maps_at(spec, "validations")
            and given(spec, "failurePolicy", "Fail") == "Fail"
        ):
            return True
    return False
