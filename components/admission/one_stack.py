"""An object belongs to one stack: nobody takes another stack's object, or somebody else's, for a stack (docs/adr/0034).

A second stack, `pulumi up` alone, Flux with another stack's manifests and a race all send an update that contains the
mark of their own stack. Without the policy, force would win over the field manager of the first stack, and an object of
somebody else would be taken over without any force.
"""

from components.base.manifest import Manifest
from tenancy import names, policy_names
from tenancy.admission import cel
from tenancy.admission.policy import ResourceRule, Scope, validating

# The selector keeps the policy away from all objects of others. It selects a request if the old or the new object has
# the label. The kinds of admission policies themselves are never judged by a policy.
_OURS = {"matchLabels": {names.LABEL_PART_OF: names.PROJECT}}
_EVERY_UPDATE = (ResourceRule("UPDATE", ("*",), group="*", version="*"),)


def one_stack() -> Manifest:
    """Denies an update that gives the mark of a stack to an object with another mark, or without our label.

    A person may remove a mark, and may give one to an object of ours that has none, which hands an object over. The
    policy judges no deletion, because a deletion names no stack.
    """
    mark = f"metadata.?annotations[?{cel.quoted(names.STACK)}].orValue('')"
    is_ours = f"oldObject.metadata.?labels[?{cel.quoted(names.LABEL_PART_OF)}].orValue('') == '{names.PROJECT}'"
    policy = validating(
        policy_names.ONE_STACK,
        Scope({}, {"gets-a-mark": f"!(object.{mark} in ['', oldObject.{mark}])"}, _EVERY_UPDATE),
        {
            f"oldObject.{mark} == ''": (
                f"the object belongs to the stack in its annotation {names.STACK}, and two stacks cannot have the same "
                f"object; to hand it over, remove the annotation first: kubectl annotate … {names.STACK}-"
            ),
            f"oldObject.{mark} != '' || {is_ours}": (
                "somebody else has made the object; delete it if nobody needs it, or hand it over first: "
                f"kubectl annotate … {names.STACK}=PROJECT/STACK"
            ),
        },
        component="system",
    )
    policy["spec"]["matchConstraints"]["objectSelector"] = _OURS
    return policy
