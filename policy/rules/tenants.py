"""The rule on ResourceQuotas: Kubernetes enforces each key, and each value is the sum of the tenant's promises."""

from collections.abc import Iterator

from policy.finding import Finding, judge_each
from policy.graph import Graph, is_gpumem
from policy.objects import Object
from policy.rule import Example, rule
from policy.rules.platform import is_taken
from tenancy.ledger import Ledger
from tenancy.quantity import whole
from tenancy.workload import map_at

_ENFORCED = "requests."


@rule(
    "resource-quota",
    Example(
        "spec.hard",
        {"requests.viktorbarzin.me/gpumem": "5k"},
        {"requests.viktorbarzin.me/gpumem": "4800"},
        of="ResourceQuota immich/seats",
    ),
)
def resource_quota(graph: Graph) -> Iterator[Finding]:
    """A ResourceQuota limits gpumem by requests.<domain>/gpumem, the only key that Kubernetes enforces. The value of
    requests.<domain>/gpumem is the sum of the tenant's seats and of the quota of the tenant's queues."""
    ledger = graph.ledger
    if ledger is not None:
        yield from judge_each(graph.of("ResourceQuota"), lambda quota: _quota(graph, ledger, quota))


def _quota(graph: Graph, ledger: Ledger, quota: Object) -> Iterator[Finding]:
    """Judges one ResourceQuota. Kubernetes enforces only the keys in pkg/quota/v1/evaluator/core/pods.go. The API
    server accepts a quota with other keys, but such keys have no effect."""
    if is_taken(graph, quota):
        return  # The rule `platform` reports a quota of the platform in another program.
    tenant, names = quota.namespace, ledger.names
    queues = {queue.queue for queue in ledger.local_queues if queue.tenant == tenant}
    seats = {names.gpumem: ledger.budget_mib(tenant), names.gpu_count: ledger.devices_of(tenant)}
    for key, amount in map_at(quota.manifest, "spec", "hard").items():
        resource = key.removeprefix(_ENFORCED).removeprefix("limits.")
        if key.startswith(_ENFORCED) and resource in seats:
            most = seats[resource]
            most += sum(each.most for each in ledger.quotas if each.holder in queues and each.resource == resource)
            if whole(amount) != most:
                yield Finding(
                    f"{quota}: {whole(amount)} {resource}, {tenant} has {most} by its seats and queues; make it {most} "
                    "or change residents",
                    quota.urn,
                )
        elif is_gpumem(key) and key.startswith(_ENFORCED):
            yield Finding(f"{quota}: {key} is not the ledger's {names.requests_gpumem}", quota.urn)
        elif is_gpumem(key):
            yield Finding(
                f"{quota}: Kubernetes does not enforce spec.hard[{key}]; write {_ENFORCED}{resource}", quota.urn
            )
