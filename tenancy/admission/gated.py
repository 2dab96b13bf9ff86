"""On-demand workloads: only pods of a Deployment that the demand gate starts use a GPU of their tenant.

The gate scales a Deployment to zero while there is no headroom. The quota of the tenant does not tell its pods apart,
so without these policies any other pod of the namespace could take the device while the gate keeps the Deployment
closed. A tenant can write any owner into a pod, but cannot fake the account of a request. Therefore a pod must come
from the controller of ReplicaSets, and only the controller of Deployments makes the ReplicaSets of a gated Deployment.
"""

from collections.abc import Mapping, Sequence

from tenancy.admission import cel
from tenancy.admission.policy import Manifest, ResourceRule, Scope, in_namespaces, validating
from tenancy.names import DEPLOYMENT_CONTROLLERS, REPLICA_SET_CONTROLLERS, Names
from tenancy.policy_names import GATED_PODS, GATED_REPLICA_SETS

_REPLICA_SETS = (
    ResourceRule("CREATE", ("replicasets",), group="apps"),
    ResourceRule("UPDATE", ("replicasets", "replicasets/scale"), group="apps"),
)


def gated(names: Names, deployments: Mapping[str, Sequence[str]]) -> list[Manifest]:
    """Returns the policies for the Deployments of each on-demand tenant."""
    return [_pods(names, deployments), _replica_sets(deployments)] if deployments else []


def _pods(names: Names, deployments: Mapping[str, Sequence[str]]) -> Manifest:
    """Denies a pod without a budget that reaches a GPU, unless a gated Deployment makes it."""
    owner = f"o.kind == 'ReplicaSet' && o.?controller.orValue(false) && ({_is_of(deployments, 'o.name')})"
    holds = (
        f"request.userInfo.username in {cel.quoted_list(REPLICA_SET_CONTROLLERS)} && "
        f"object.metadata.?ownerReferences.orValue([]).exists(o, {owner})"
    )
    conditions = {
        "reaches-a-gpu": cel.reaches_gpu(names),
        "has-no-budget": f"!{cel.asks_for_gpumem(names)}",
    }
    listed = ", ".join(
        f"{cel.quoted(tenant)}: {cel.quoted(', '.join(of))}" for tenant, of in sorted(deployments.items())
    )
    why = cel.quoted(
        ", which the demand gate starts: use it, or list this workload under residents, unbudgeted or on_demand of the "
        "stack"
    )
    message = f"'the GPU of this namespace is for Deployment ' + {{{listed}}}[?request.namespace].orValue('') + {why}"
    return validating(
        GATED_PODS, Scope(in_namespaces(deployments), conditions), {holds: message}, message_key="messageExpression"
    )


def _replica_sets(deployments: Mapping[str, Sequence[str]]) -> Manifest:
    """Denies a new ReplicaSet that would pass for one of a gated Deployment, and another number of its replicas."""
    before = "oldObject.spec.?replicas.orValue(0)"
    conditions = {
        "is-of-a-gated-deployment": _is_of(deployments, "object.metadata.name"),
        "changes-the-replicas": f"oldObject == null || object.spec.?replicas.orValue(0) != {before}",
    }
    holds = f"request.userInfo.username in {cel.quoted_list(DEPLOYMENT_CONTROLLERS)}"
    message = (
        "this ReplicaSet is of a Deployment that the demand gate starts: scale the Deployment, or take another name"
    )
    return validating(
        GATED_REPLICA_SETS, Scope(in_namespaces(deployments), conditions, _REPLICA_SETS), {holds: message}
    )


def _is_of(deployments: Mapping[str, Sequence[str]], name: str) -> str:
    """Returns CEL: the name of a ReplicaSet is the name of a gated Deployment and a hash, which has no hyphen."""
    patterns = {tenant: f"^({'|'.join(of)})-[^-]+$" for tenant, of in sorted(deployments.items())}
    return " || ".join(
        f"request.namespace == {cel.quoted(tenant)} && {name}.matches({cel.quoted(pattern)})"
        for tenant, pattern in patterns.items()
    )
