"""Node capacity: only the reconcile account may write it, and it may write nothing else, nor another ledger.

The right to patch nodes/status is the right to rewrite a node's labels, annotations and conditions as well
(pkg/registry/core/node/strategy.go), and RBAC cannot narrow it to two keys. These policies do.
"""

from components.admission import cel
from components.admission.policy import ResourceRule, Scope, validating, within
from components.base.manifest import Manifest
from tenancy import names
from tenancy.names import Names

_COMPONENT = "capacity"
_NODE_STATUS = (ResourceRule("UPDATE", ("nodes/status",)),)  # a PATCH is an UPDATE

_MAPS = ("capacity", "allocatable")
_METADATA = ("labels", "annotations", "ownerReferences", "finalizers")
# NodeStatus of Kubernetes 1.36 (k8s.io/api core/v1) without the two maps. What both objects lack compares as equal.
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
    """Policy: the reconcile agent changes the two capacity keys of a node and nothing else, alike in both maps.

    It may also remove those of another domain: after a change of domain it retires the old ones under this policy.
    """
    keys, agent = _spoken(resources), names.RECONCILE
    unchanged = [*(f"metadata.{field}" for field in _METADATA), *(f"status.{field}" for field in STATUS)]
    return validating(
        _COMPONENT,
        names.RECONCILE_WRITES,
        Scope(
            namespaces={},
            conditions={"is-reconcile": f"request.userInfo.username == {_account(namespace)}"},
            rules=_NODE_STATUS,
        ),
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
    )


def ledger_writes(namespace: str) -> Manifest:
    """Policy: of the ledger the reconcile agent changes the finalizers, which it takes off when the nodes are clean.

    The right to patch a ConfigMap is the right to write other budgets into it, which every agent would believe.
    """
    same = [f"object.?{field} == oldObject.?{field}" for field in ("data", "binaryData", "immutable")]
    same += [_unchanged(f"metadata.{field}") for field in ("labels", "annotations", "ownerReferences")]
    return validating(
        _COMPONENT,
        names.LEDGER_WRITES,
        Scope(
            namespaces=within([namespace]),
            conditions={
                "is-reconcile": f"request.userInfo.username == {_account(namespace)}",
                "is-the-ledger": f"object.metadata.name == {cel.text(names.LEDGER)}",
            },
            rules=(ResourceRule("UPDATE", ("configmaps",)),),
        ),
        {" && ".join(same): f"{names.RECONCILE} may change only metadata.finalizers of the ledger"},
    )


def capacity_writers(resources: Names, namespace: str) -> Manifest:
    """Policy: nobody but reconcile, the nodes themselves and kube-system's controllers changes the two keys.

    system:masters is left alone: it is the way in when all else fails, and could delete this policy anyway. Every other
    administrator is sent to the stack, whose next reconcile would undo the change in any case.
    """
    allowed = (
        f"request.userInfo.username == {_account(namespace)}",
        "request.userInfo.username.startsWith('system:serviceaccount:kube-system:')",
        "request.userInfo.?groups.orValue([]).exists(g, g in ['system:nodes', 'system:masters'])",
    )
    same = " && ".join(f"object.?status.{field}[?k] == oldObject.?status.{field}[?k]" for field in _MAPS)
    advice = f"{_spoken(resources)} are advertised by {names.RECONCILE}; change gpu-tenancy:pools in the stack instead"
    return validating(
        _COMPONENT,
        names.CAPACITY_WRITERS,
        Scope(namespaces={}, conditions={"is-not-allowed": f"!({' || '.join(allowed)})"}, rules=_NODE_STATUS),
        {f"{_keys(resources)}.all(k, {same})": advice},
    )


def _account(namespace: str) -> str:
    """CEL: the user name of the reconcile agent's ServiceAccount."""
    return cel.text(f"system:serviceaccount:{namespace}:{names.RECONCILE}")


def _keys(resources: Names) -> str:
    """CEL: the list of the two keys."""
    return f"[{cel.text(resources.gpumem)}, {cel.text(resources.gpu_count)}]"


def _spoken(resources: Names) -> str:
    return f"{resources.gpumem} and {resources.gpu_count}"


def _keeps_foreign_keys(field: str) -> str:
    """CEL: the map is the same but for our keys, and for keys of their kind that are gone."""
    new, old = f"variables.{field}New", f"variables.{field}Old"
    retired = " || ".join(f"k.endsWith({cel.text(suffix)})" for suffix in (names.GPUMEM_SUFFIX, names.GPU_COUNT_SUFFIX))
    return (
        f"{new}.all(k, k in variables.ours || (k in {old} && {new}[k] == {old}[k]))"
        f" && {old}.all(k, k in variables.ours || k in {new} || {retired})"
    )


def _unchanged(path: str) -> str:
    """CEL: the field is as it was, or absent as it was."""
    top, _, field = path.partition(".")
    return f"object.?{top}.{field} == oldObject.?{top}.{field}"
