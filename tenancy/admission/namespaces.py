"""Namespaces: exempt namespaces, namespaces that may ask for GPUs, and the Pod Security level of each tenant's
namespace.

A label exempts a namespace from admission, and only the operator's account may set the label. An exemption by the
namespace's name would not be safe. An account that may create namespaces could create an exempt namespace before the
operator does.
"""

from collections.abc import Collection, Iterable

from tenancy import names, policy_names
from tenancy.admission import cel
from tenancy.admission.policy import (
    Manifest,
    ResourceRule,
    Scope,
    in_namespaces,
    narrowed_by_label,
    outside_namespaces,
    validating,
)
from tenancy.choices import PodSecurity
from tenancy.ledger import Tenant
from tenancy.names import Names
from tenancy.reach import COUNTED_RESOURCES, GPU_RESOURCES

# An account can change a namespace's labels through the namespace's subresources too
# (pkg/registry/core/namespace/strategy.go).
_LABELS = (
    ResourceRule("CREATE", ("namespaces",)),
    ResourceRule("UPDATE", ("namespaces", "namespaces/status", "namespaces/finalize")),
)
_STARTS = (ResourceRule("CREATE", ("pods",)), ResourceRule("UPDATE", ("pods/ephemeralcontainers",)))


def exemption(namespace: str) -> Manifest:
    """Returns the label of an exempt namespace."""
    labels = {names.EXEMPT: names.EXEMPT_VALUE}
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace, "labels": labels}}


def exemptions() -> Manifest:
    """Allows only accounts that may update this policy to set or remove the label of an exempt namespace.

    An account that may update the policy can also delete it, so the right to set the label adds no power. A list of
    account names in the policy would not work, because the stack labels a new exempt namespace before it updates the
    policies.
    """
    label = cel.quoted(names.EXEMPT)
    may = (
        "authorizer.group('admissionregistration.k8s.io').resource('validatingadmissionpolicies')"
        f".name({cel.quoted(policy_names.EXEMPTIONS)}).check('update').allowed()"
    )
    before = f"oldObject == null ? '' : oldObject.metadata.?labels[?{label}].orValue('')"
    after = f"object.metadata.?labels[?{label}].orValue('')"
    message = (
        f"the label {names.EXEMPT} takes a namespace out of admission: only who may change admission policies "
        "sets or removes it; list the namespace under admission.exempt_namespaces of the stack"
    )
    scope = Scope({}, {"changes-the-label": f"({before}) != {after}"}, _LABELS)
    return validating(policy_names.EXEMPTIONS, scope, {may: message})


def gpu_tenants(resources: Names, tenants: Iterable[str]) -> Manifest:
    """Allows only tenants to ask for GPUs. Other namespaces have no quota, so their pods could take the memory that is
    promised to tenants."""
    ours = " || ".join(f"k == {cel.quoted(resource)}" for resource in (resources.gpumem, resources.gpu_count))
    asks = cel.asks_for(f"{cel.nvidias_gpu('k')} || {ours}")
    why = (
        f" is no tenant's: {GPU_RESOURCES}*, {resources.gpumem} and {resources.gpu_count} are for tenants; add the "
        "namespace to tenants of the stack, or remove the limits"
    )
    message = f"'namespace ' + request.namespace + {cel.quoted(why)}"
    scope = Scope(outside_namespaces(tenants), {"asks-for-gpus": asks})
    return validating(policy_names.GPU_TENANTS, scope, {"false": message}, message_key="messageExpression")


def counted_gpus(tenants: Collection[str]) -> list[Manifest]:
    """Allows tenants without budgets to ask only for the GPU resources that their ResourceQuota counts."""
    others = cel.asks_for(f"{cel.of_device_plugin('k')} && !(k in {cel.quoted_list(COUNTED_RESOURCES)})")
    message = (
        f"the quota of this tenant counts {' and '.join(COUNTED_RESOURCES)}: ask for one of these, or make the tenant "
        "one that queues for its GPUs"
    )
    scope = Scope(in_namespaces(tenants), {"asks-for-others": others})
    return [validating(policy_names.COUNTED_GPUS, scope, {"false": message})] if tenants else []


def pod_security(tenants: Iterable[Tenant]) -> list[Manifest]:
    """Returns a policy for each Pod Security level that a tenant has. No policy exists for privileged tenants and for
    tenants in the mode observe.

    The stack labels the namespaces of its tenants. In a tenant's namespace without the Pod Security label, the policy
    denies every pod. A privileged pod could change every budget on its node.
    """
    by_level: dict[PodSecurity, list[str]] = {}
    for tenant in tenants:
        if tenant.observed:
            continue
        by_level.setdefault(tenant.pod_security, []).append(tenant.name)
    return [_held_to(level, by_level[level]) for level in PodSecurity.BASELINE.at_least if level in by_level]


def _held_to(level: PodSecurity, tenants: Iterable[str]) -> Manifest:
    """Denies all pods of a namespace without the label of its Pod Security level. In a namespace with the Pod Security
    label, Kubernetes' own Pod Security admission judges the pods."""
    lax = narrowed_by_label(
        in_namespaces(tenants), names.POD_SECURITY_ENFORCE, "NotIn", [str(each) for each in level.at_least]
    )
    message = (
        f"this tenant's namespace does not hold its pods to Pod Security {level}: label it "
        f"{names.POD_SECURITY_ENFORCE}={level}, or give the tenant another pod_security in the stack"
    )
    return validating(f"{policy_names.POD_SECURITY}-{level}", Scope(lax, {}, _STARTS), {"false": message})
