"""Rules over Kueue's objects: quotas compared with the hardware, and Jobs that would never run."""

from collections import defaultdict
from collections.abc import Collection, Iterator

from policy.finding import UNREADABLE, Finding, judge_each, unproven
from policy.graph import KUEUE, Graph
from policy.objects import Object, text_at
from policy.queued import CLUSTER_QUEUE, LOCAL_QUEUE, PRIORITY, obstacles_to_start, quotas_of, undeclared_priority_class
from policy.rule import MAIN, Example, rule
from policy.rules.platform import is_taken
from tenancy import reach, sums
from tenancy.choices import Sharing
from tenancy.dispatch import overdrawn
from tenancy.ledger import Ledger
from tenancy.names import GPU
from tenancy.quantity import whole
from tenancy.workload import map_at, maps_at, value_or

_MIG = "nvidia.com/mig-1g.5gb"
COHORT = f"Cohort.{KUEUE}"


@rule("gpu-quota", Example("queues.cluster_queues.gpu-cq.quotas.gpu-any", {GPU: {"nominal": 2}}, {GPU: {"nominal": 1}}))
def gpu_quota(graph: Graph) -> Iterator[Finding]:
    """The sum of the nominal quotas of a pool's queues is at most the number of the pool's GPUs. No queue can hand out
    more GPUs than its pool has, borrowed GPUs included. If the pool declares the CPU and the host memory of its nodes,
    the quotas of CPU and host memory also fit."""
    ledger = graph.ledger
    if ledger is None:
        return
    flavors = {quota.flavor: quota.pool for quota in ledger.quotas}
    yield from _promised(graph, ledger)
    yield from (Finding(line) for line in sums.slices(ledger)) if graph.ledger_objects else ()
    nominal = _nominal_of_others(graph, ledger)
    for queue in graph.of(CLUSTER_QUEUE, COHORT):
        try:
            if is_taken(graph, queue):
                continue  # The rule `platform` reports a queue of the platform in another program.
            yield from _of_memory(ledger, queue)
            for flavor, quota in quotas_of(queue, GPU):
                if flavors.get(flavor) == "":
                    continue  # The rule `clusters` reports quotas of worker clusters.
                pool = ledger.pool(flavors.get(flavor, ""))
                if pool is None:
                    yield Finding(f"{queue}: the ledger knows no pool behind flavor {flavor}", queue.urn)
                    continue
                own = whole(value_or(quota, "nominalQuota", 0))
                nominal[pool.name] += own
                most = own + whole(value_or(quota, "borrowingLimit", 0))
                if most > pool.gpus:
                    yield Finding(sums.too_many(f"{queue}: may hand out {most} {sums.GPUS}", pool), queue.urn)
                elif nominal[pool.name] > pool.gpus:
                    together = f"{queue}: with it queues have {nominal[pool.name]} {GPU}"
                    yield Finding(sums.too_many(together, pool), queue.urn)
        except UNREADABLE as error:
            yield unproven(queue, error)


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
    """The quotas of all queues that dispatch work to worker clusters are at most the promises of these clusters. No
    other program raises a quota for dispatched work."""
    ledger = graph.ledger
    if ledger is None:
        return
    if graph.ledger_objects:
        yield from (Finding(line) for line in overdrawn(ledger))
    far = {quota.flavor for quota in ledger.quotas if quota.clusters}
    yield from judge_each(graph.of(CLUSTER_QUEUE, COHORT), lambda queue: _is_promised(graph, ledger, far, queue))


def _is_promised(graph: Graph, ledger: Ledger, far: Collection[str], queue: Object) -> Iterator[Finding]:
    if is_taken(graph, queue):
        return  # The rule `platform` reports a queue of the platform in another program.
    for resource in sorted({quota.resource for quota in ledger.quotas if quota.clusters}):
        for flavor, quota in quotas_of(queue, resource):
            held = (_holder(queue), flavor, resource)
            most = whole(value_or(quota, "nominalQuota", 0)) + whole(value_or(quota, "borrowingLimit", 0))
            promised = sum(q.most for q in ledger.quotas if (q.holder, q.flavor, q.resource) == held)
            if flavor in far and most > promised:
                yield Finding(
                    f"{queue}: may hand out {most} {resource} of flavor {flavor}, which is of worker clusters, and the "
                    f"ledger promises it {promised}; lower nominalQuota, or raise "
                    f"queues.cluster_queues.{queue.name}.quotas of the platform's stack",
                    queue.urn,
                )


def _nominal_of_others(graph: Graph, ledger: Ledger) -> dict[str, int]:
    nominal: dict[str, int] = defaultdict(int)
    declared = {_holder(queue) for queue in graph.of(CLUSTER_QUEUE, COHORT)}
    for entry in ledger.quotas if not graph.ledger_objects else ():
        if entry.resource == GPU and entry.holder not in declared:
            nominal[entry.pool] += entry.nominal
    return nominal


def _holder(queue: Object) -> str:
    return f"cohort {queue.name}" if queue.qualified_kind == COHORT else queue.name


def _of_memory(ledger: Ledger, queue: Object) -> Iterator[Finding]:
    """Reports a queue with more gpumem than the ledger promises to the queue. The ledger adds the gpumem of queues to
    the seats."""
    for resource in (ledger.names.gpumem, ledger.names.gpu_count):
        for flavor, quota in quotas_of(queue, resource):
            held = (_holder(queue), flavor, resource)
            entries = [q for q in ledger.quotas if (q.holder, q.flavor, q.resource) == held]
            promised = sum(entry.nominal for entry in entries)
            own = whole(value_or(quota, "nominalQuota", 0))
            if own > promised:
                yield Finding(
                    f"{queue}: hands out {own} {resource} of flavor {flavor}, the ledger promises it {promised}; lower "
                    f"nominalQuota or raise queues.cluster_queues.{queue.name}.quotas of the platform's stack",
                    queue.urn,
                )


def _promised(graph: Graph, ledger: Ledger) -> Iterator[Finding]:
    """Judges each quota in the ledger, except the quotas of queues in the graph. If the program declares the ledger,
    also judges the sum of the quotas."""
    declared = {_holder(queue) for queue in graph.of(CLUSTER_QUEUE, COHORT)}
    lines = sums.gpu_quotas(ledger, but=declared, together=bool(graph.ledger_objects))
    yield from (Finding(line) for line in lines)


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
        yield from _is_used(ledger, queue) if ledger and graph.ledger_objects else ()
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


def _is_used(ledger: Ledger, queue: str) -> Iterator[Finding]:
    """Reports a queue without a LocalQueue, because nobody can use it. An older ledger contains no LocalQueues."""
    if ledger.local_queues and queue not in {each.queue for each in ledger.local_queues}:
        yield Finding(
            f"ClusterQueue {queue}: no LocalQueue leads to it, so nobody can use its quota; add one to "
            f"queues.local_queues, or remove queues.cluster_queues.{queue}"
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
    yield from judge_each(graph.objects, lambda found: undeclared_priority_class(graph, found))


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
    if graph.ledger is not None:
        ledger = graph.ledger
        yield from judge_each(graph.of(CLUSTER_QUEUE), lambda queue: _flavors(ledger, queue))


def _flavors(ledger: Ledger, queue: Object) -> Iterator[Finding]:
    for group in maps_at(queue.manifest, "spec", "resourceGroups"):
        called = [text_at(flavor, "name") for flavor in maps_at(group, "flavors")]
        if len(called) > 1:
            yield from _fungible(ledger, queue, called)


def _fungible(ledger: Ledger, queue: Object, called: list[str]) -> Iterator[Finding]:
    behind = {quota.flavor: quota.pool for quota in ledger.quotas if quota.flavor in called}
    if "" in behind.values():
        return  # The nodes of the flavor are in worker clusters.
    pools = [pool for pool in ledger.pools if pool.name in behind.values()]
    gpus = sum(pool.gpus for pool in pools)
    if gpus <= 1:
        yield Finding(
            f"{queue}: falls back across {', '.join(called)}, but there is {gpus} GPU behind them: each flavor's quota "
            "would admit a Job for it; keep one flavor",
            queue.urn,
        )
