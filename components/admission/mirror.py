"""Mirrors of static pods: only a node's kubelet makes them.

NodeRestriction keeps a node to mirrors of its own, and nobody else from any: who may create pods may write the
annotation, an owner and a hash of his choice. Agents take the hash for the name of the pod's control group.
"""

from collections.abc import Iterable

from components.admission import cel
from components.admission.policy import Scope, outside, validating
from components.base.manifest import Manifest
from tenancy.names import MIRROR_ANNOTATION, MIRROR_PODS

_COMPONENT = "admission"


def mirror_pods(exempt: Iterable[str]) -> Manifest:
    """Policy: nobody but a node creates a pod with the annotation, which the API lets nobody add later.

    system:masters is left alone, as in node_status.py: on some clusters it is the group of the kubelets.
    """
    annotation = cel.text(MIRROR_ANNOTATION)
    groups = "request.userInfo.?groups.orValue([])"
    conditions = {
        "is-a-mirror": f"object.metadata.?annotations[?{annotation}].hasValue()",
        "is-no-node": f"!{groups}.exists(g, g in ['system:nodes', 'system:masters'])",
    }
    message = f"the annotation {MIRROR_ANNOTATION} is for kubelets, which mirror static pods by it: remove it"
    return validating(_COMPONENT, MIRROR_PODS, Scope(outside(exempt), conditions), {"false": message})
