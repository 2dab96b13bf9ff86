"""Mirrors of static pods: only a node's kubelet creates mirror pods.

NodeRestriction allows a node to create mirror pods only of its own static pods. NodeRestriction does not judge other
accounts. Each account that may create pods could write the annotation, an owner and any hash. The agents derive the
name of the pod's control group from this hash.
"""

from components.admission import cel
from components.admission.policy import Scope, outside_namespaces, validating
from components.base.manifest import Manifest
from tenancy.names import MIRROR_ANNOTATION
from tenancy.policy_names import MIRROR_PODS


def mirror_pods() -> Manifest:
    """Denies a new pod with the mirror annotation unless a node creates the pod. The API server lets nobody add the
    annotation later.

    The policy allows system:masters, because on some clusters the kubelets are in that group.
    """
    annotation = cel.quoted(MIRROR_ANNOTATION)
    groups = "request.userInfo.?groups.orValue([])"
    conditions = {
        "is-a-mirror": f"object.metadata.?annotations[?{annotation}].hasValue()",
        "is-no-node": f"!{groups}.exists(g, g in ['system:nodes', 'system:masters'])",
    }
    message = f"the annotation {MIRROR_ANNOTATION} is for kubelets, which mirror static pods by it: remove it"
    return validating(MIRROR_PODS, Scope(outside_namespaces(), conditions), {"false": message})
