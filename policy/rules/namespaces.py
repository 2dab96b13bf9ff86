"""The rule on namespaces: a tenant's namespace enforces its Pod Security level, and only listed namespaces are
exempt."""

from collections.abc import Iterator

from policy.finding import Finding, judge_each
from policy.graph import Graph
from policy.objects import Object, text_at
from policy.rule import Example, an_object, rule
from tenancy.ledger import Ledger, Tenant
from tenancy.names import EXEMPT, EXEMPT_VALUE, POD_SECURITY_ENFORCE


@rule(
    "namespaces",
    Example("metadata.labels", {}, {POD_SECURITY_ENFORCE: "baseline"}, of=an_object("v1", "Namespace", "immich")),
)
def namespaces(graph: Graph) -> Iterator[Finding]:
    """Each tenant's namespace enforces the tenant's Pod Security level. Only namespaces in admission.exempt_namespaces
    are exempt from admission."""
    ledger = graph.ledger
    if ledger is None:
        return  # The rule `ledger` reports a missing ledger.
    levels = {tenant.name: tenant for tenant in ledger.tenants}
    for kind in ("Namespace", "NamespacePatch"):
        yield from judge_each(graph.of(kind), lambda found: _judge(ledger, levels.get(found.name), found))


def _judge(ledger: Ledger, tenant: Tenant | None, found: Object) -> Iterator[Finding]:
    if text_at(found.labels, EXEMPT) == EXEMPT_VALUE and found.name not in ledger.exempt_namespaces:
        yield Finding(
            f"{found}: the label {EXEMPT} takes it out of admission, and the stack does not list it; remove the label "
            "or add it to admission.exempt_namespaces",
            found.urn,
        )
    # A patch of a namespace shows only some of its labels. The patched namespace keeps all other labels.
    if tenant is None or (found.kind != "Namespace" and POD_SECURITY_ENFORCE not in found.labels):
        return
    level = text_at(found.labels, POD_SECURITY_ENFORCE)
    if tenant.is_held and not tenant.observed and level not in tenant.pod_security.at_least:
        yield Finding(
            f"{found}: {POD_SECURITY_ENFORCE} is {level or 'missing'}, tenants.{tenant.name} is held to "
            f"{tenant.pod_security}; label it {tenant.pod_security} or change tenants.{tenant.name}.pod_security",
            found.urn,
        )
