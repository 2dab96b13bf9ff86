"""Pod Security: a tenant's namespace holds its pods to the level that the stack says, whoever made the namespace.

The stack labels the namespaces that it makes. One that was there already is its owner's; until it has the label, no pod
starts there. A privileged pod owns its node, and with it every budget.
"""

from collections.abc import Iterable

from components.admission.policy import ResourceRule, Scope, labelled, validating, within
from components.base.manifest import Manifest
from tenancy import names
from tenancy.ledger import PodSecurity, Tenant

_COMPONENT = "admission"
_RULES = (ResourceRule("CREATE", ("pods",)), ResourceRule("UPDATE", ("pods/ephemeralcontainers",)))


def pod_security(tenants: Iterable[Tenant]) -> list[Manifest]:
    """A policy for each level that some tenant has; none for those that are held to nothing."""
    by_level: dict[PodSecurity, list[str]] = {}
    for tenant in tenants:
        by_level.setdefault(tenant.pod_security, []).append(tenant.name)
    return [_held_to(level, by_level[level]) for level in PodSecurity.BASELINE.at_least if level in by_level]


def _held_to(level: PodSecurity, tenants: Iterable[str]) -> Manifest:
    """Of a namespace that enforces the level, or a stricter one, Kubernetes' own admission judges the pods."""
    lax = labelled(within(tenants), names.POD_SECURITY_ENFORCE, "NotIn", [str(each) for each in level.at_least])
    message = (
        f"this tenant's namespace does not hold its pods to Pod Security {level}: label it "
        f"{names.POD_SECURITY_ENFORCE}={level}, or say in the stack why it needs more (tenants, pod_security)"
    )
    return validating(_COMPONENT, f"{names.POD_SECURITY}-{level}", Scope(lax, {}, _RULES), {"false": message})
