"""Node capacity: only reconcile may write a node's gpumem capacity, and reconcile may write nothing else in a node's
status.

The right to patch nodes/status includes a node's labels, annotations and conditions
(pkg/registry/core/node/strategy.go). RBAC cannot limit the right to patch nodes/status to two keys, so admission
policies limit it.
"""

from components.base.manifest import Manifest
from tenancy import names, policy_names
from tenancy.admission import cel
from tenancy.admission.policy import ResourceRule, Scope, in_namespaces, validating
from tenancy.names import Names

_COMPONENT = "capacity"
_NODE_STATUS = (ResourceRule("UPDATE", ("nodes/status",)),)  # The API server handles a PATCH as an UPDATE.

_MAPS = ("capacity", "allocatable")
_METADATA = ("labels", "annotations", "ownerReferences", "finalizers")
# All fields of NodeStatus in Kubernetes 1.36 (k8s.io/api core/v1) except the maps capacity and allocatable. A field
# that is absent in the old and in the new node counts as unchanged.
STATUS = (
    "addresses",
    "conditions",
    "config",
    "daemonEndpoints",
    "declaredFeatures",
    "features",
    "images",
    "nodeInfo",
    "phase",
    "runtimeHandlers",
    "volumesAttached",
    "volumesInUse",
)


def reconcile_writes(resources: Names, namespace: str) -> Manifest:
    """Allows reconcile to change a node's gpumem and gpu-count only, with the same values in capacity and in
    allocatable.

    reconcile may also remove the keys of another resource domain. reconcile removes these old keys after the stack has
    changed the domain.
    """
    keys, agent = _spoken(resources), names.RECONCILE
    unchanged = [*(f"metadata.{field}" for field in _METADATA), *(f"status.{field}" for field in STATUS)]
    return validating(
        policy_names.RECONCILE_WRITES,
        Scope({}, _is_reconcile(namespace), _NODE_STATUS),
        {
            **{_keeps_foreign_keys(field): f"{agent} may change only {keys} in status.{field}" for field in _MAPS},
            "variables.ours.all(k, object.?status.capacity[?k] == object.?status.allocatable[?k])": (
                f"{agent} must write {keys} alike into status.capacity and status.allocatable"
            ),
            **{_unchanged(path): f"{agent} may not change {path}" for path in unchanged},
        },
        {
            "ours": _keys(resources),
            **{f"{field}New": f"object.?status.{field}.orValue({{}})" for field in _MAPS},
            **{f"{field}Old": f"oldObject.?status.{field}.orValue({{}})" for field in _MAPS},
        },
        component=_COMPONENT,
    )


def ledger_writes(namespace: str) -> Manifest:
    """Protects the ledger, the journals and the agents' code from accounts with a right to all ConfigMaps.

    Many operators have the right to write ConfigMaps in every namespace. Only the agents, the controllers of
    kube-system, and accounts that may change admission policies write the protected ConfigMaps. Reconcile may change
    only the finalizers of the ledger. Reconcile removes its finalizer when no node has the capacity keys any more.
    """
    same = [f"object.?{field} == oldObject.?{field}" for field in ("data", "binaryData", "immutable")]
    same += [_unchanged(f"metadata.{field}") for field in ("labels", "annotations", "ownerReferences")]
    name = "(object == null ? oldObject : object).metadata.name"
    other = f"request.operation != 'UPDATE' || {name} != {cel.quoted(names.LEDGER)}"
    known = " || ".join(
        f"request.userInfo.username.startsWith('system:serviceaccount:{home}:')" for home in (namespace, "kube-system")
    )
    may = (
        "authorizer.group('admissionregistration.k8s.io').resource('validatingadmissionpolicies')"
        f".name({cel.quoted(policy_names.LEDGER_WRITES)}).check('update').allowed()"
    )
    is_ours = " || ".join(f"{name}.startsWith({cel.quoted(prefix)})" for prefix in names.OURS)
    homes = in_namespaces([namespace, names.node_agent_namespace(namespace)])
    return validating(
        policy_names.LEDGER_WRITES,
        Scope(homes, {"is-ours": is_ours}, (ResourceRule("*", ("configmaps",)),)),
        {
            f"!({_by_reconcile(namespace)}) || {other} || ({' && '.join(same)})": (
                f"{names.RECONCILE} may change only metadata.finalizers of the ledger"
            ),
            f"{known} || {may}": (
                "only the agents, and accounts that may change admission policies, write the ConfigMaps of this "
                "namespace; change the stack instead"
            ),
        },
        component=_COMPONENT,
    )


def capacity_writers(resources: Names, namespace: str) -> Manifest:
    """Allows only reconcile, the nodes themselves and the controllers of kube-system to change gpumem and gpu-count on
    a node.

    The policy also allows system:masters, because an operator needs this group in an emergency. The group
    system:masters can also delete the policy. Without the policy, another account could change gpumem until the next
    run of reconcile.
    """
    allowed = (
        f"request.userInfo.username == {cel.quoted_account(namespace, names.RECONCILE)}",
        "request.userInfo.username.startsWith('system:serviceaccount:kube-system:')",
        "request.userInfo.?groups.orValue([]).exists(g, g in ['system:nodes', 'system:masters'])",
    )
    same = " && ".join(f"object.?status.{field}[?k] == oldObject.?status.{field}[?k]" for field in _MAPS)
    advice = f"{_spoken(resources)} are advertised by {names.RECONCILE}; change gpu-tenancy:pools in the stack instead"
    return validating(
        policy_names.CAPACITY_WRITERS,
        Scope({}, {"is-not-allowed": f"!({' || '.join(allowed)})"}, _NODE_STATUS),
        {f"{_keys(resources)}.all(k, {same})": advice},
        component=_COMPONENT,
    )


def _is_reconcile(namespace: str) -> dict[str, str]:
    return {"is-reconcile": _by_reconcile(namespace)}


def _by_reconcile(namespace: str) -> str:
    return f"request.userInfo.username == {cel.quoted_account(namespace, names.RECONCILE)}"


def _keys(resources: Names) -> str:
    return cel.quoted_list((resources.gpumem, resources.gpu_count))


def _spoken(resources: Names) -> str:
    return f"{resources.gpumem} and {resources.gpu_count}"


def _keeps_foreign_keys(field: str) -> str:
    new, old = f"variables.{field}New", f"variables.{field}Old"
    retired = " || ".join(
        f"k.endsWith({cel.quoted(suffix)})" for suffix in (names.GPUMEM_SUFFIX, names.GPU_COUNT_SUFFIX)
    )
    return (
        f"{new}.all(k, k in variables.ours || (k in {old} && {new}[k] == {old}[k]))"
        f" && {old}.all(k, k in variables.ours || k in {new} || {retired})"
    )


def _unchanged(path: str) -> str:
    top, _, field = path.partition(".")
    return f"object.?{top}.{field} == oldObject.?{top}.{field}"
