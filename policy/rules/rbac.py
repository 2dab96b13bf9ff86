"""The rule on roles: each agent has only the rights in ALLOWED, and only trusted accounts have rights in RESERVED."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from policy.finding import Finding, first_items, judge_each, unproven
from policy.graph import Graph, runs_pods
from policy.objects import Object, text_at, texts_at
from policy.rule import Example, an_object, rule
from policy.rules.writers import (
    ANYWHERE,
    BINDINGS,
    RBAC,
    ROLES,
    RightScope,
    Subject,
    agents_namespaces,
    are_no_tenants,
    how_to_allow,
    own_namespaces,
    places_of,
    reserved_rights,
    subjects_of,
    untrusted,
    wildcards,
)
from policy.unknown import is_unknown
from tenancy import names
from tenancy.frameworks import FRAMEWORKS
from tenancy.policy_names import GUARDS
from tenancy.workload import map_at, maps_at, value_or

_ADMISSION = "admissionregistration.k8s.io"
_POLICY = f"ValidatingAdmissionPolicy.{_ADMISSION}"
_BINDING = f"ValidatingAdmissionPolicyBinding.{_ADMISSION}"
_OWN = "resourceNames"
_OF_AGENTS = ("ConfigMap", "Lease.coordination.k8s.io", "Secret", "ServiceAccount")
_OF_ACCOUNT = "kubernetes.io/service-account-token"
_ADMINISTRATOR = "cluster-admin"
# Kueue's roles with these suffixes give no right to write queues and quotas.
_HARMLESS = ("-viewer-role", "-batch-user-role")
# If a ClusterRole has one of these labels, Kubernetes adds its rules to the role view, edit or admin, which tenants
# have.
_AGGREGATED = tuple(f"{RBAC}/aggregate-to-{role}" for role in ("view", "edit", "admin"))


@dataclass(frozen=True)
class Grant:
    """The right to use the verb `verb` on the resource `resource` of an API group. If `named` is True, the right is
    limited by resourceNames."""

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
# Rights that RBAC cannot restrict enough: a ValidatingAdmissionPolicy on the resource must limit them.
_LIMITED: Mapping[Grant, str] = {
    _NODE_STATUS: "the right to patch nodes/status is the right to rewrite a node",
    **dict.fromkeys(_WRITE_SLICES, "the right to write resourceslices is the right to make up any node's devices"),
}
_KUEUE = names.KUEUE_API.partition("/")[0]
# All rights of each agent. A right without resourceNames includes the same right with resourceNames. This list repeats
# the roles in components/ on purpose. If the list were derived from the roles, the rule would accept every right that
# somebody adds to a role.
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
            Grant(_KUEUE, "workloads", "get"),
            Grant(_KUEUE, "workloads", "patch"),
            Grant("batch", "jobs", "get"),
            Grant("jobset.x-k8s.io", "jobsets", "get"),
            Grant("ray.io", "rayclusters", "get"),
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
    names.GUARD: frozenset({_PODS, Grant("", "pods", "watch"), Grant("", "nodes", "get"), _EVENTS}),
    names.GATE: frozenset(
        {
            _READ_LEDGER,
            Grant("", "configmaps", "patch", named=True),
            *(Grant("", resource, verb) for resource in ("pods", "nodes") for verb in ("list", "watch")),
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
    names.BOARD: frozenset(
        {
            _READ_LEDGER,
            _NODES,
            _PODS,
            Grant("", "events", "list"),
            Grant("apps", "deployments", "get"),
            Grant("apps", "replicasets", "list"),
            Grant("batch", "cronjobs", "get", named=True),
            Grant(_DEVICES, "resourceslices", "list"),
            *(Grant(_KUEUE, resource, "list") for resource in ("clusterqueues", "workloads")),
            *(Grant(each.group, each.resource, "get") for each in FRAMEWORKS.values() if each.resource != "pods"),
        }
    ),
}
# Maps an account to the built-in roles of Kubernetes that it may have. The graph does not contain the built-in roles of
# Kubernetes.
BUILT_IN: Mapping[str, frozenset[str]] = {
    names.SCHEDULER: frozenset({*names.KUBE_SCHEDULER_ROLES, names.AUTHENTICATION_READER}),
}


@rule(
    "rbac",
    Example("rules.0.resources", ["secrets"], ["configmaps"], of=f"Role gpu-tenancy-system/{names.WATCHDOG}"),
    Example(
        "subjects",
        [{"kind": "ServiceAccount", "name": "detector", "namespace": "monitoring"}],
        [{"kind": "ServiceAccount", "name": "detector", "namespace": "kube-system"}],
        of=an_object(
            f"{RBAC}/v1", "ClusterRoleBinding", "detector", roleRef={"kind": "ClusterRole", "name": "cluster-admin"}
        ),
        instead="Write a role that lists the needed rights, or add `monitoring` to `admission.trusted_namespaces`.",
    ),
    Example(
        "rules",
        [{"apiGroups": [""], "resources": ["resourcequotas"], "verbs": ["patch"]}],
        [{"apiGroups": [""], "resources": ["resourcequotas"], "verbs": ["get"]}],
        of=an_object(f"{RBAC}/v1", "Role", "quotas", "immich"),
        instead="Remove the right: no account of a tenant may have it.",
        is_beside=True,
    ),
)
def rbac(graph: Graph) -> Iterator[Finding]:
    """Only the platform's agents and accounts that the stack trusts may write the objects on which budgets depend. Each
    agent has only its listed rights, without a wildcard."""
    yield from judge_each(graph.of(*ROLES) if graph.ledger_objects else (), _no_wildcard)
    yield from judge_each(graph.of(*ROLES), lambda role: _writes_ours(graph, role))
    yield from judge_each((o for o in graph.objects if o.group == _ADMISSION), lambda found: _in_force(graph, found))
    if graph.ledger is not None and not graph.ledger_objects:
        yield from judge_each(graph.of(*_OF_AGENTS), lambda found: _in_own_namespace(graph, found))
        yield from judge_each(graph.workloads, lambda found: _in_own_namespace(graph, found))
    yield from judge_each(graph.of(*BINDINGS), lambda binding: _binding(graph, binding))


def _no_wildcard(role: Object) -> Iterator[Finding]:
    """Reports a wildcard in a role of the platform's program, because the platform's roles list each right."""
    for listed in maps_at(role.manifest, "rules"):
        fields: dict[str, str] = {}
        for field, value in wildcards(listed):
            fields.setdefault(field, value)
        for field, value in fields.items():
            yield Finding(f"{role}: {field} holds {value!r}; list what is needed", role.urn)


def _writes_ours(graph: Graph, role: Object) -> Iterator[Finding]:
    """Yields a finding for a role with a right in RESERVED. Without a ledger, the function judges only rules with a
    wildcard."""
    rules = [rule for rule in maps_at(role.manifest, "rules") if graph.ledger or any(wildcards(rule))]
    for whom, places, strangers in _given(graph, role):
        guarded = graph.ledger is not None and role.kind == "ClusterRole" and are_no_tenants(graph, strangers)
        if rights := reserved_rights(rules, places, guarded=guarded):
            allow = how_to_allow(graph, strangers)
            yield Finding(
                f"{role}: lets {whom} {first_items(rights)}, and so bypass every budget; take it away, or {allow}",
                role.urn,
            )
            return


def _given(graph: Graph, role: Object) -> Iterator[tuple[str, frozenset[RightScope], Sequence[Subject]]]:
    bound = [(binding, untrusted(graph, subjects_of(binding))) for binding in _bindings_of(graph, role)]
    strangers = list(dict.fromkeys(subject for _, found in bound for subject in found))
    places = frozenset(place for binding, found in bound if found for place in places_of(graph, binding))
    yield first_items(strangers), places, strangers
    label = next((label for label in _AGGREGATED if text_at(role.labels, label) == "true"), None)
    if label is not None:
        yield f"accounts with the role {label.rpartition('-')[2]}, by the label {label},", ANYWHERE, ()
    elif not bound:
        yield "every account that it is bound to", places_of(graph, role), ()


def _bindings_of(graph: Graph, role: Object) -> Iterator[Object]:
    called = [role.name, *(other.name for other in graph.of(f"ClusterRole.{RBAC}") if _takes_in(other, role))]
    for binding in graph.beside(role, *BINDINGS) if role.kind == "Role" else graph.of(*BINDINGS):
        kind, name = _role_ref(binding)
        if kind == role.kind and name in called and (kind == "ClusterRole" or _are_together(role, binding)):
            yield binding


def _takes_in(other: Object, role: Object) -> bool:
    selectors = maps_at(other.manifest, "aggregationRule", "clusterRoleSelectors")
    return role.kind == "ClusterRole" and any(
        (wanted := map_at(selector, "matchLabels"))
        and all(role.labels.get(key) == value for key, value in wanted.items())
        for selector in selectors
    )


def _are_together(role: Object, binding: Object) -> bool:
    """Returns True if both objects are in the same namespace. Two unknown namespaces count as the same namespace."""
    if is_unknown(role.namespace) or is_unknown(binding.namespace):
        return is_unknown(role.namespace) and is_unknown(binding.namespace)
    return bool(role.namespace == binding.namespace)


def _role_ref(binding: Object) -> tuple[str, str]:
    ref = map_at(binding.manifest, "roleRef")
    return text_at(ref, "kind"), text_at(ref, "name")


def _is_enough(graph: Graph, policy: str, actions: Sequence[str]) -> bool:
    """Returns True if the policy's actions deny a request. While admission observes, the action Warn is enough. The
    policies that protect the agents' data must deny in every mode."""
    observes = graph.ledger is not None and "admission" in graph.ledger.observes and policy not in GUARDS
    return "Deny" in actions or (observes and "Warn" in actions)


def _in_force(graph: Graph, found: Object) -> Iterator[Finding]:
    name = text_at(map_at(found.manifest, "metadata"), "name")
    if not name.startswith(f"{names.PROJECT}-"):
        return
    actions = texts_at(map_at(found.manifest, "spec"), "validationActions")
    if found.kind.endswith("Patch") or not graph.ledger_objects:
        yield Finding(f"{found}: {name} is the platform's own, which this program would change; remove it", found.urn)
    elif found.kind == "ValidatingAdmissionPolicyBinding" and not _is_enough(graph, name, actions):
        yield Finding(f"{found}: validationActions is {actions}, so that nothing is refused; write Deny", found.urn)


def _in_own_namespace(graph: Graph, found: Object) -> Iterator[Finding]:
    """Reports objects and workloads that another program declares in the platform's namespaces. If the namespace is
    unknown, the function decides by the object's name."""
    if is_unknown(found.namespace) and (
        runs_pods(found) or is_unknown(found.name) or not found.name.startswith(names.OURS)
    ):
        return  # The rule `admission` reports a workload with an unknown namespace.
    own = own_namespaces(graph)
    trusted = graph.ledger.trusted_namespaces if graph.ledger else ()
    if found.namespace not in own - {*trusted}:
        return
    if runs_pods(found):
        what = "its pods may have any account there"
    elif text_at(found.manifest, "type") == _OF_ACCOUNT:
        what = "it becomes an account's token"
    elif found.name.startswith(names.OURS):
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
    yield from _of_elsewhere(graph, binding, untrusted(graph, subjects), ours)
    for subject in ours:
        if subject.name is None:
            yield Finding(f"{binding}: binds every account of the agents' namespace; bind one", binding.urn)
        else:
            yield from _account(graph, binding, subject)


def _of_elsewhere(graph: Graph, binding: Object, strangers: list[Subject], ours: list[Subject]) -> Iterator[Finding]:
    kind, name = _role_ref(binding)
    allow = f"bind a role that lists what is needed, or {how_to_allow(graph, strangers)}"
    if name == _ADMINISTRATOR and (strangers or ours):
        yield Finding(f"{binding}: binds cluster-admin, which may do everything; {allow}", binding.urn)
        return
    is_ours = name.startswith(names.OURS) and not name.endswith(_HARMLESS)
    if is_ours and strangers and graph.ledger is not None and _declared(graph, binding) is None:
        yield unproven(binding, f"{first_items(strangers)} gets {kind} {name}, which is not in the graph; {allow}")


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
    """Returns the danger of the right as text, if no admission policy limits the right. If a policy limits the right,
    or if the right needs no policy, returns None."""
    reach = next((words for limited, words in _LIMITED.items() if limited == replace(grant, named=False)), None)
    return None if reach is None or _is_limited(graph, grant.resource, user) else reach


def _named(grant: Grant) -> Grant:
    return Grant(grant.group, grant.resource, grant.verb, named=True)


def _grants(role: Mapping[str, Any]) -> Iterator[Grant]:
    for listed in maps_at(role, "rules"):
        for group in texts_at(listed, "apiGroups"):
            for resource in texts_at(listed, "resources"):
                for verb in texts_at(listed, "verbs"):
                    yield Grant(group, resource, verb, named=bool(texts_at(listed, _OWN)))


def _is_limited(graph: Graph, resource: str, user: str) -> bool:
    """Returns True if a denying policy applies to the given user and resource."""
    enforced = {
        text_at(map_at(binding.manifest, "spec"), "policyName")
        for binding in graph.of(_BINDING)
        if "Deny" in texts_at(map_at(binding.manifest, "spec"), "validationActions")
    }
    for policy in graph.of(_POLICY):
        spec = map_at(policy.manifest, "spec")
        about_it = any(
            resource in texts_at(rule, "resources") for rule in maps_at(spec, "matchConstraints", "resourceRules")
        )
        concerns = any(
            user in text_at(condition, "expression") and "!" not in text_at(condition, "expression")
            for condition in maps_at(spec, "matchConditions")
        )
        if (
            policy.name in enforced
            and about_it
            and concerns
            and maps_at(spec, "validations")
            and value_or(spec, "failurePolicy", "Fail") == "Fail"
        ):
            return True
    return False
