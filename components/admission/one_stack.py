"""An object belongs to one stack: nobody replaces a stack's mark by another stack's (docs/adr/0034).

A second stack, a bare `pulumi up` with force, Flux with another stack's manifests and a race all send an update that
contains the mark of their own stack. Without the policy, force would win over the field manager of the first stack.
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
    """Denies an update that replaces the mark of a stack. A person may remove the mark, or give one to an object that
    has none, which hands an object over. The policy judges no deletion, because a deletion names no stack.
    """
    mark = f"metadata.?annotations[?{cel.quoted(names.STACK)}].orValue('')"
    policy = validating(
        policy_names.ONE_STACK,
        Scope({}, {"has-a-stack": f"oldObject.{mark} != ''"}, _EVERY_UPDATE),
        {
            f"object.{mark} in ['', oldObject.{mark}]": (
                f"the object belongs to the stack in its annotation {names.STACK}, and two stacks cannot have the same "
                f"object; to hand it over, remove the annotation first: kubectl annotate … {names.STACK}-"
            )
        },
        component="system",
    )
    policy["spec"]["matchConstraints"]["objectSelector"] = _OURS
    return policy
