"""Rules over Kueue's objects: quotas compared with the hardware, and Jobs that would never run."""

from collections import Counter
from collections.abc import Iterator

from policy.finding import Finding, judge_each
from policy.graph import KUEUE, Graph
from policy.objects import Object, text_at
from policy.queued import CLUSTER_QUEUE, LOCAL_QUEUE, PRIORITY, obstacles_to_start, quotas_of, wrong_priority_class
from policy.rule import MAIN, Example, rule
from tenancy import reach, sums
from tenancy.choices import Sharing
from tenancy.dispatch import overdrawn
from tenancy.ledger import Ledger
from tenancy.names import GPU
from tenancy.quantity import whole
from tenancy.workload import map_at, value_or

_MIG = "nvidia.com/mig-1g.5gb"
COHORT = f"Cohort.{KUEUE}"


@rule("gpu-quota", Example("queues.cluster_queues.gpu-cq.quotas.gpu-any", {GPU: {"nominal": 2}}, {GPU: {"nominal": 1}}))
def gpu_quota(graph: Graph) -> Iterator[Finding]:
    """The sum of the nominal quotas of a pool's queues is at most the number of the pool's GPUs. No queue can hand out
    more GPUs than its pool has, borrowed GPUs included. Only the platform's queues hand out gpumem and the devices of
    worker clusters."""
    ledger = graph.ledger
    if ledger is None:
        return
    if graph.ledger_objects:
        yield from (Finding(line) for line in (*sums.gpu_quotas(ledger), *sums.slices(ledger)))
    nominal = Counter[str]()
    for entry in ledger.quotas:
        nominal[entry.pool] += entry.nominal if entry.resource == GPU else 0
    yield from judge_each(graph.of(CLUSTER_QUEUE, COHORT), lambda queue: _beside_the_ledger(ledger, nominal, queue))


def _beside_the_ledger(ledger: Ledger, nominal: Counter[str], queue: Object) -> Iterator[Finding]:
    """Judges a queue that the ledger does not know. It may hand out free GPUs, and neither gpumem nor devices of worker
    clusters. The program of the ledger renders the others from it, and the rule `platform` reports them elsewhere."""
    if (f"cohort {queue.name}" if queue.qualified_kind == COHORT else queue.name) in {q.holder for q in ledger.quotas}:
        return
    behind = {quota.flavor: quota for quota in ledger.quotas}
    ours = {ledger.names.gpumem, ledger.names.gpu_count}
    for resource in sorted({GPU, *ours, *(quota.resource for quota in ledger.quotas if quota.clusters)}):
        for flavor, quota in quotas_of(queue, resource):
            known, own = behind.get(flavor), whole(value_or(quota, "nominalQuota", 0))
            most = own + whole(value_or(quota, "borrowingLimit", 0))
            pool = ledger.pool(known.pool) if known else None
            if most and (resource in ours or (known and known.clusters)):
                yield Finding(
                    f"{queue}: may hand out {most} {resource} of flavor {flavor}, the ledger promises it 0; remove it, "
                    f"or add it to queues.cluster_queues.{queue.name}.quotas of the platform's stack",
                    queue.urn,
                )
            elif resource == GPU and pool is None and not (known and known.clusters):
                yield Finding(f"{queue}: the ledger knows no pool behind flavor {flavor}", queue.urn)
            elif resource == GPU and pool is not None:
                nominal[pool.name] += own
                if most > pool.gpus:
                    yield Finding(sums.too_many(f"{queue}: may hand out {most} {sums.GPUS}", pool), queue.urn)
                elif nominal[pool.name] > pool.gpus:
                    together = f"{queue}: with it queues have {nominal[pool.name]} {GPU}"
                    yield Finding(sums.too_many(together, pool), queue.urn)


@rule(
    "clusters",
    Example(
        "queues.cluster_queues.gpu-cq.quotas.far",
        {GPU: {"nominal": 9}},
        {GPU: {"nominal": 8}},
        given={
            "queues.flavors.far": {},
            "queues.clusters": {"east": {"secret": "east-kubeconfig", "promises": {GPU: 8}}},
            "queues.cluster_queues.gpu-cq.clusters": ["east"],
            "queues.cluster_queues.gpu-cq.quotas": {},
        },
    ),
)
def clusters(graph: Graph) -> Iterator[Finding]:
    """The quotas of all queues that dispatch work to worker clusters are at most the promises of these clusters."""
    yield from (Finding(line) for line in overdrawn(graph.ledger)) if graph.ledger and graph.ledger_objects else ()


@rule(
    "queue-coverage",
    Example(f"{MAIN}.resources", {"limits": {_MIG: "1"}}, {"limits": {GPU: "1"}}, of="Job team-a/train"),
)
def coverage(graph: Graph) -> Iterator[Finding]:
    """A ClusterQueue has quota for every GPU resource that its tenants' Jobs ask for. Without a quota for the resource,
    Kueue would never admit the Job."""
    ledger = graph.ledger
    for queue in sorted({quota.queue for quota in ledger.quotas if not quota.cohort}) if ledger else ():
        yield from _covers_its_pools(ledger, queue) if ledger else ()
    yield from judge_each(graph.objects, lambda found: obstacles_to_start(graph, found))
    yield from judge_each(graph.of(LOCAL_QUEUE), lambda queue: _leads_somewhere(graph, queue))


def _covers_its_pools(ledger: Ledger, queue: str) -> Iterator[Finding]:
    entries = [quota for quota in ledger.quotas if quota.holder == queue]
    covered = {quota.resource for quota in entries}
    for name in dict.fromkeys(quota.pool for quota in entries if not quota.clusters):
        pool = ledger.pool(name)
        is_shared = pool is not None and pool.sharing is Sharing.MEMORY
        needed = ledger.names.gpumem if is_shared else GPU
        if not is_shared and any(map(reach.of_device_plugin, covered)):
            continue  # A node whose devices MIG divides may advertise slices alone.
        whole_devices = f", or hand out whole devices: pools.{name}.sharing: whole" if is_shared else ""
        if needed not in covered:
            yield Finding(
                f"ClusterQueue {queue}: covers {', '.join(sorted(covered))}, but pool {name} is handed out by "
                f"{needed}; add it to queues.cluster_queues.{queue}.quotas{whole_devices}"
            )


def _leads_somewhere(graph: Graph, queue: Object) -> Iterator[Finding]:
    target = text_at(map_at(queue.manifest, "spec"), "clusterQueue")
    if graph.of(CLUSTER_QUEUE) and graph.named(CLUSTER_QUEUE, target) is None:
        yield Finding(f"{queue}: there is no ClusterQueue {target}; add queues.cluster_queues.{target}", queue.urn)


@rule("preemption", Example("queues.cluster_queues.gpu-cq.preemption.within_cluster_queue", "Never", "LowerPriority"))
def preemption(graph: Graph) -> Iterator[Finding]:
    """If there are several WorkloadPriorityClasses, a Job may preempt Jobs of its own ClusterQueue. Each Job names a
    declared WorkloadPriorityClass, or none."""
    classes = graph.of(PRIORITY)
    if len(classes) > 1:
        yield from judge_each(graph.of(CLUSTER_QUEUE), lambda queue: _preempts(queue, len(classes)))
    yield from judge_each(graph.objects, lambda found: wrong_priority_class(graph, found))


def _preempts(queue: Object, classes: int) -> Iterator[Finding]:
    within = value_or(map_at(queue.manifest, "spec", "preemption"), "withinClusterQueue", "Never")
    if within == "Never":
        yield Finding(
            f"{queue}: withinClusterQueue is Never, so {classes} WorkloadPriorityClasses change nothing for a Job that "
            "runs; write LowerPriority",
            queue.urn,
        )


@rule(
    "flavors",
    Example(
        "queues.cluster_queues.gpu-cq.quotas",
        {"l4": {GPU: {"nominal": 1}}, "t4-spot": {GPU: {"nominal": 0}}},
        {"l4": {GPU: {"nominal": 1}}},
        given={"queues.flavors": {name: {"pool": "batch", "node_labels": {"gpu": name}} for name in ("l4", "t4-spot")}},
    ),
)
def flavors(graph: Graph) -> Iterator[Finding]:
    """A ClusterQueue has several flavors only if their pools have at least two GPUs in total."""
    ledger = graph.ledger
    here = [quota for quota in ledger.quotas if quota.pool and not quota.cohort] if ledger else []
    for queue, resource in dict.fromkeys((quota.queue, quota.resource) for quota in here):
        own = [quota for quota in here if (quota.queue, quota.resource) == (queue, resource)]
        gpus = sum(pool.gpus for pool in ledger.pools if pool.name in {quota.pool for quota in own}) if ledger else 0
        if len(own) > 1 and gpus <= 1 and graph.ledger_objects:
            yield Finding(
                f"ClusterQueue {queue}: falls back across {', '.join(quota.flavor for quota in own)}, but there is "
                f"{gpus} GPU behind them: each flavor's quota would admit a Job for it; keep one flavor"
            )
