"""Exemptions: which namespaces are out of the other policies, and who says so.

A name is no proof: whoever may make namespaces could make one that an operator has only meant. A label is none either,
unless somebody watches who sets it.
"""

from components.admission import cel
from components.admission.policy import ResourceRule, Scope, validating
from components.base.manifest import Manifest
from tenancy import names

_COMPONENT = "admission"
# A namespace's labels are changed by way of its subresources as well (pkg/registry/core/namespace/strategy.go).
_RULES = (
    ResourceRule("CREATE", ("namespaces",)),
    ResourceRule("UPDATE", ("namespaces", "namespaces/status", "namespaces/finalize")),
)


def exemption(namespace: str) -> Manifest:
    """What a namespace has that is exempt."""
    labels = {names.EXEMPT: names.EXEMPT_VALUE}
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace, "labels": labels}}


def exemptions() -> Manifest:
    """Policy: the label is set by who may change this very policy.

    So nobody gains anything by it: who passes could take the policies away. The account that rolls out the stack may.
    A list of names here would keep the stack from ever adding one: the label comes before the policies change.
    """
    label = cel.text(names.EXEMPT)
    may = (
        "authorizer.group('admissionregistration.k8s.io').resource('validatingadmissionpolicies')"
        f".name({cel.text(names.EXEMPTIONS)}).check('update').allowed()"
    )
    before = f"oldObject == null ? '' : oldObject.metadata.?labels[?{label}].orValue('')"
    after = f"object.metadata.?labels[?{label}].orValue('')"
    return validating(
        _COMPONENT,
        names.EXEMPTIONS,
        Scope({}, {"changes-the-label": f"({before}) != {after}"}, _RULES),
        {
            may: f"the label {names.EXEMPT} takes a namespace out of admission: only who may change admission policies "
            "sets or removes it; list the namespace under admission.exempt_namespaces of the stack",
        },
    )
