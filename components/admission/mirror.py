"""Mirrors of static pods: only a node's kubelet creates mirror pods.

NodeRestriction holds a node to mirrors of its own, and does not judge anybody else: every other creator of pods could
write the annotation, an owner and any hash. The agents derive the name of the pod's control group from the hash.
"""

from components.admission import cel
from components.admission.policy import Scope, outside, validating
from components.base.manifest import Manifest
from tenancy.names import MIRROR_ANNOTATION
from tenancy.policy_names import MIRROR_PODS


def mirror_pods() -> Manifest:
    """Denies a new pod with the annotation to everybody but nodes; the API server lets nobody add it later.

    system:masters is allowed: on some clusters the kubelets are in that group.
    """
    annotation = cel.text(MIRROR_ANNOTATION)
    groups = "request.userInfo.?groups.orValue([])"
    conditions = {
        "is-a-mirror": f"object.metadata.?annotations[?{annotation}].hasValue()",
        "is-no-node": f"!{groups}.exists(g, g in ['system:nodes', 'system:masters'])",
    }
    message = f"the annotation {MIRROR_ANNOTATION} is for kubelets, which mirror static pods by it: remove it"
    return validating(MIRROR_PODS, Scope(outside(), conditions), {"false": message})
