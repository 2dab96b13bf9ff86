"""Mirrors of static pods: only a node's kubelet creates mirror pods.

NodeRestriction allows a node to create mirror pods only of its own static pods. NodeRestriction judges only the
accounts of nodes. Without a policy, each account that may create pods could write the mirror annotation, an owner and
any hash. The agents derive the name of the pod's control group from the hash in the mirror annotation.
"""

from tenancy.admission import cel
from tenancy.admission.policy import Manifest, Scope, outside_namespaces, validating
from tenancy.names import MIRROR_ANNOTATION
from tenancy.policy_names import MIRROR_PODS


def mirror_pods() -> Manifest:
    """Denies a new pod with the mirror annotation unless a node creates the pod. The API server lets nobody add the
    mirror annotation to an existing pod.

    The policy allows system:masters, because the kubelets of some clusters are in this group.
    """
    annotation = cel.quoted(MIRROR_ANNOTATION)
    groups = "request.userInfo.?groups.orValue([])"
    conditions = {
        "is-a-mirror": f"object.metadata.?annotations[?{annotation}].hasValue()",
        "is-no-node": f"!{groups}.exists(g, g in ['system:nodes', 'system:masters'])",
    }
    message = f"the annotation {MIRROR_ANNOTATION} is for kubelets, which mirror static pods by it: remove it"
    return validating(MIRROR_PODS, Scope(outside_namespaces(), conditions), {"false": message})
