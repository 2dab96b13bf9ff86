"""Rules over roles: nobody gets past the budgets whom the stack does not trust, and our agents get what is listed."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from policy.finding import Finding, each, folded, unproven
from policy.graph import Graph, runs_pods
from policy.objects import Object, text, texts
from policy.rules.past import (
    ANYWHERE,
    EVERYTHING,
    OURS,
    RBAC,
    Rule,
    UsableIn,
    past,
    rules_of_built_in,
    wildcards,
    with_wildcards,
)
from policy.rules.subjects import (
    BINDINGS,
    ROLES,
    Subject,
    agents_namespaces,
    how_to_allow,
    own_namespaces,
    places_of,
    subjects_of,
    untrusted,
)
from policy.unknown import is_unknown
from tenancy import names
from tenancy.workload import at, given, maps_at

_ADMISSION = "admissionregistration.k8s.io"
_POLICY = f"ValidatingAdmissionPolicy.{_ADMISSION}"
_BINDING = f"ValidatingAdmissionPolicyBinding.{_ADMISSION}"
_OWN = "resourceNames"
_OF_AGENTS = ("ConfigMap", "Lease.coordination.k8s.io", "Secret", "ServiceAccount")
_OF_ACCOUNT = "kubernetes.io/service-account-token"
# With this label its rules become those of the role that every tenant has.
_AGGREGATED = tuple(f"{RBAC}/aggregate-to-{role}" for role in ("view", "edit", "admin"))
_AGGREGATES = "what every ClusterRole may that aggregationRule selects, of which the graph may lack some"


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
            *(Grant(_DEVICES, "resourceslices", verb) for verb in ("list", "watch")),
            *(Grant(_DEVICES, "resourceclaims", verb) for verb in ("list", "watch")),
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
    """Rights over what the budgets are kept by, to become who has them, or to do where admission refuses nothing what
    `edit` gives a tenant in his own namespace, are for the platform's agents, each by its list and without a wildcard,
    and for accounts of namespaces that the stack trusts."""
    yield from each(graph.of(*ROLES) if graph.ledger_objects else (), _no_wildcard)
    yield from each(graph.of(*ROLES), lambda role: _reaches_past(graph, role))
    yield from each((o for o in graph.objects if o.group == _ADMISSION), lambda found: _in_force(graph, found))
    if graph.ledger is not None and not graph.ledger_objects:
        yield from each(graph.of(*_OF_AGENTS), lambda found: _in_own_namespace(graph, found))
        yield from each(graph.workloads, lambda found: _in_own_namespace(graph, found))
    yield from each(graph.of(*BINDINGS), lambda binding: _binding(graph, binding))


def _no_wildcard(role: Object) -> Iterator[Finding]:
    """The platform's own program lists what each agent needs."""
    for rule in maps_at(role.manifest, "rules"):
        fields: dict[str, str] = {}
        for field, value in wildcards(rule):
            fields.setdefault(field, value)
        for field, value in fields.items():
            yield Finding(f"{role}: {field} holds {value!r}; list what is needed", role.urn)


def _reaches_past(graph: Graph, role: Object) -> Iterator[Finding]:
    """Without a ledger there is nothing to get past, and what is refused is a wildcard."""
    rules = _rules_of(role) if graph.ledger else with_wildcards(role.manifest)
    if not past(rules, places_of(graph, role)):
        return
    for given_to in _given(graph, role):
        if rights := past(rules, given_to.places, beyond_edit=given_to.beyond_edit):
            what = _AGGREGATES if at(role.manifest, "aggregationRule") else folded(rights)
            yield Finding(f"{role}: {_lets(graph, given_to, rules, what)}", role.urn)
            return


def _lets(graph: Graph, given_to: "_Given", rules: Sequence[Rule], what: str) -> str:
    where, instead = "", "take it away"
    if given_to.places == ANYWHERE and not past(rules, ANYWHERE, beyond_edit=True):
        where = f", also where admission refuses nothing, such as in {names.EXEMPT_BY_NAME}"
        instead = "bind it where it is needed by RoleBindings"
    allow = how_to_allow(graph, given_to.strangers)
    return f"lets {given_to.whom} {what}{where}, and so past every budget; {instead}, or {allow}"


def _rules_of(role: Object) -> list[Rule]:
    """Any where another role's become its own; and where it has none written, of a role that may be there already."""
    if at(role.manifest, "aggregationRule") or role.manifest.get("rules") is None:
        return [*EVERYTHING]
    return [*maps_at(role.manifest, "rules")]


@dataclass(frozen=True)
class _Given:
    """To whom a role gives its rights, where, and who of them is not trusted."""

    whom: str
    places: frozenset[UsableIn]
    strangers: Sequence[Subject] = ()
    beyond_edit: bool = False


def _given(graph: Graph, role: Object) -> Iterator[_Given]:
    bound = [(binding, who) for binding in _bindings_of(graph, role) if (who := [*subjects_of(binding)])]
    strangers = [(binding, found) for binding, who in bound if (found := untrusted(graph, who))]
    everybody = list(dict.fromkeys(subject for _, found in strangers for subject in found))
    reached = frozenset(place for binding, _ in strangers for place in places_of(graph, binding))
    yield _Given(folded(everybody), reached, everybody)
    label = next((label for label in _AGGREGATED if text(role.labels, label) == "true"), None)
    if label is not None:
        whom = f"whoever has the role {label.rpartition('-')[2]}, by the label {label},"
        yield _Given(whom, places_of(graph, role), beyond_edit=not label.endswith("-view"))
    elif role.kind == "ClusterRole" and rules_of_built_in(role.name) not in (None, EVERYTHING):
        yield _Given(f"whoever has the role {role.name}, also from another program,", ANYWHERE)
    elif not bound:
        yield _Given("whoever it is bound to", places_of(graph, role), beyond_edit=True)


def _bindings_of(graph: Graph, role: Object) -> Iterator[Object]:
    """Those that give the role, or a ClusterRole that takes its rules in."""
    called = [role.name, *(other.name for other in graph.of(f"ClusterRole.{RBAC}") if _takes_in(other, role))]
    for binding in graph.beside(role, *BINDINGS) if role.kind == "Role" else graph.of(*BINDINGS):
        kind, name = _role_ref(binding)
        if kind == role.kind and name in called and (kind == "ClusterRole" or _are_together(role, binding)):
            yield binding


def _takes_in(other: Object, role: Object) -> bool:
    """Whether its aggregationRule selects the role by labels alone."""
    selectors = maps_at(other.manifest, "aggregationRule", "clusterRoleSelectors")
    return role.kind == "ClusterRole" and any(
        (wanted := at(selector, "matchLabels")) and all(role.labels.get(key) == value for key, value in wanted.items())
        for selector in selectors
    )


def _are_together(role: Object, binding: Object) -> bool:
    """In one namespace; not known of both, they are given it by one value."""
    if is_unknown(role.namespace) or is_unknown(binding.namespace):
        return is_unknown(role.namespace) and is_unknown(binding.namespace)
    return bool(role.namespace == binding.namespace)


def _role_ref(binding: Object) -> tuple[str, str]:
    ref = at(binding.manifest, "roleRef")
    return text(ref, "kind"), text(ref, "name")


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


def _in_own_namespace(graph: Graph, found: Object) -> Iterator[Finding]:
    """Another program does itself there what it may let nobody do. Of an unknown namespace an own name is asked."""
    if is_unknown(found.namespace) and (runs_pods(found) or is_unknown(found.name) or not found.name.startswith(OURS)):
        return  # of workloads said by the rule on admission
    own = own_namespaces(graph)
    trusted = graph.ledger.trusted_namespaces if graph.ledger else ()
    if found.namespace not in own - {*trusted}:
        return
    if runs_pods(found):
        what = "its pods may have any account there"
    elif text(found.manifest, "type") == _OF_ACCOUNT:
        what = "it becomes an account's token"
    elif found.name.startswith(OURS):
        what = "its name is the platform's"
    else:
        return
    instead = "declare it in another namespace"
    if found.namespace not in agents_namespaces(graph):
        instead += (
            f", or add {found.namespace} to admission.trusted_namespaces of the platform's stack if it is Kueue's"
        )
    yield Finding(f"{found}: is in the platform's namespace, and {what}; {instead}", found.urn)


def _binding(graph: Graph, binding: Object) -> Iterator[Finding]:
    subjects, agents = [*subjects_of(binding)], agents_namespaces(graph)
    ours = [subject for subject in subjects if subject.namespace in agents]
    yield from _not_declared(graph, binding, untrusted(graph, subjects), ours)
    for subject in ours:
        if subject.name is None:
            yield Finding(f"{binding}: binds every account of the agents' namespace; bind one", binding.urn)
        else:
            yield from _account(graph, binding, subject)


def _not_declared(graph: Graph, binding: Object, strangers: list[Subject], ours: list[Subject]) -> Iterator[Finding]:
    """A role of Kubernetes, of which it is known what it may, or one of elsewhere, which may have any right."""
    kind, name = _role_ref(binding)
    allow = f"bind a role that lists what is needed, or {how_to_allow(graph, strangers)}"
    if name == "cluster-admin" and (strangers or ours):
        yield Finding(f"{binding}: binds cluster-admin, which may do everything; {allow}", binding.urn)
        return
    rules = rules_of_built_in(name) if kind == "ClusterRole" else () if name == names.AUTHENTICATION_READER else None
    if not strangers or graph.ledger is None or (rules is None and _declared(graph, binding) is not None):
        return
    places = places_of(graph, binding)
    rights = past(EVERYTHING if rules is None else rules, places)
    if rights and rules is None:
        yield unproven(binding, f"{folded(strangers)} gets {kind} {name}, which is not in the graph; {allow}")
    elif rights and rules is EVERYTHING:
        yield Finding(f"{binding}: binds {name}, whose rights reach past every budget; {allow}", binding.urn)
    elif rights:
        given_to = _Given(folded(strangers), places, strangers)
        said = _lets(graph, given_to, rules or (), f"{folded(rights)} as {name}")
        yield Finding(f"{binding}: {said}", binding.urn)


def _declared(graph: Graph, binding: Object) -> Object | None:
    kind, name = _role_ref(binding)
    if kind == "ClusterRole":
        return graph.named(f"{kind}.{RBAC}", name)
    roles = graph.beside(binding, f"{kind}.{RBAC}")
    return next((o for o in roles if o.name == name and _are_together(o, binding)), None)


def _account(graph: Graph, binding: Object, subject: Subject) -> Iterator[Finding]:
    (kind, name), account = _role_ref(binding), subject.name or ""
    role = _declared(graph, binding)
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
        elif reach := _unlimited(graph, grant, f"system:serviceaccount:{subject.namespace}:{account}"):
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
