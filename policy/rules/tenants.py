"""The rule on ResourceQuotas: Kubernetes enforces each key, and each value is the sum of the tenant's promises."""

from collections import defaultdict
from collections.abc import Iterator, Mapping

from policy.finding import Finding, judge_each
from policy.graph import KUEUE, Graph, is_gpumem
from policy.objects import Object, text_at
from policy.rule import Example, rule
from policy.rules.platform import is_taken
from policy.unknown import is_unknown
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
    queues = _queues(graph)
    yield from judge_each(graph.of("ResourceQuota"), lambda quota: _quota(graph, queues, quota))


def _queues(graph: Graph) -> Mapping[str, set[str]]:
    queues: dict[str, set[str]] = defaultdict(set)
    for door in graph.of(f"LocalQueue.{KUEUE}"):
        if not is_unknown(map_at(door.manifest, "spec").get("clusterQueue")):
            queues[door.namespace].add(text_at(map_at(door.manifest, "spec"), "clusterQueue"))
    return queues


def _quota(graph: Graph, queues: Mapping[str, set[str]], quota: Object) -> Iterator[Finding]:
    """Judges one ResourceQuota. Kubernetes enforces only the keys in pkg/quota/v1/evaluator/core/pods.go. The API
    server accepts a quota with other keys, but such keys have no effect."""
    if is_taken(graph, quota):
        return  # The rule `platform` reports a quota of the platform in another program.
    ledger = graph.ledger
    hard = map_at(quota.manifest, "spec", "hard")
    for key in hard:
        resource = key.removeprefix(_ENFORCED).removeprefix("limits.")
        if ledger is not None and key == ledger.names.requests_gpu_count:
            yield from _devices(ledger, queues.get(quota.namespace, set()), quota, whole(hard[key]))
        if not is_gpumem(key):
            continue
        if not key.startswith(_ENFORCED):
            yield Finding(
                f"{quota}: Kubernetes does not enforce spec.hard[{key}]; write {_ENFORCED}{resource}", quota.urn
            )
        elif ledger is not None and resource != ledger.names.gpumem:
            yield Finding(f"{quota}: {key} is not the ledger's {ledger.names.requests_gpumem}", quota.urn)
        elif ledger is not None:
            yield from _value(ledger, queues.get(quota.namespace, set()), quota, whole(hard[key]))


def _value(ledger: Ledger, queues: set[str], quota: Object, amount: int) -> Iterator[Finding]:
    tenant = quota.namespace
    seats = ledger.budget_mib(tenant)
    queued = sum(q.most for q in ledger.quotas if q.holder in queues and q.resource == ledger.names.gpumem)
    if amount != seats + queued:
        beside = f" and its queues {queued}" if queued else ""
        yield Finding(
            f"{quota}: {amount} MiB, the seats of {tenant} have {seats}{beside}; make it {seats + queued} or change "
            "residents",
            quota.urn,
        )


def _devices(ledger: Ledger, queues: set[str], quota: Object, amount: int) -> Iterator[Finding]:
    tenant, resource = quota.namespace, ledger.names.gpu_count
    most = ledger.devices_of(tenant) + sum(
        q.most for q in ledger.quotas if q.holder in queues and q.resource == resource
    )
    if amount != most:
        yield Finding(
            f"{quota}: {amount} {resource}, {tenant} has {most} by its seats and queues; make it {most} or change "
            "residents",
            quota.urn,
        )
