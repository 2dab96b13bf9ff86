"""Rules over Kueue's objects: quotas compared with the hardware, and Jobs that would never run."""

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Any

import yaml

from policy.finding import UNREADABLE, Finding, each, unproven
from policy.graph import KUEUE, Graph, job_of, queue_of, requested
from policy.objects import Object, text, texts
from policy.rule import MAIN, Example, rule
from policy.rules.platform import is_taken
from policy.unknown import is_unknown
from tenancy import names, sums
from tenancy.choices import Sharing
from tenancy.ledger import Ledger
from tenancy.names import GPU
from tenancy.quantity import whole
from tenancy.workload import ShapeError, at, given, maps_at, pod_request, pod_template, pods_of

CLUSTER_QUEUE, COHORT = f"ClusterQueue.{KUEUE}", f"Cohort.{KUEUE}"
LOCAL_QUEUE, FLAVOR = f"LocalQueue.{KUEUE}", f"ResourceFlavor.{KUEUE}"
_PRIORITY = f"WorkloadPriorityClass.{KUEUE}"
_CONFIGURATION = "kueue-manager-config"  # the ConfigMap of Kueue's own manifests
_LONGEST = 2**16  # characters of Kueue's configuration; its chart's own has 3000
# The default of our own Kueue, if its configuration is not in the graph.
_UNCOUNTED = ("cpu", "memory", "ephemeral-storage")


@rule("gpu-quota", Example("queues.cluster_queues.gpu-cq.quotas.gpu-any", {GPU: {"nominal": 2}}, {GPU: {"nominal": 1}}))
def gpu_quota(graph: Graph) -> Iterator[Finding]:
    """Queues hand out at most the physical GPUs of a pool, counting nominal quotas and borrowing together."""
    ledger = graph.ledger
    if ledger is None:
        return
    flavors = {quota.flavor: quota.pool for quota in ledger.quotas}
    yield from _promised(graph, ledger)
    nominal = _nominal_of_others(graph, ledger)
    for queue in graph.of(CLUSTER_QUEUE, COHORT):
        try:
            if is_taken(graph, queue):
                continue  # The rule on the platform's own objects reports this queue.
            yield from _of_memory(ledger, queue)
            for flavor, quota in _quotas(queue, GPU):
                pool = ledger.pool(flavors.get(flavor, ""))
                if pool is None:
                    yield Finding(f"{queue}: the ledger knows no pool behind flavor {flavor}", queue.urn)
                    continue
                own = whole(given(quota, "nominalQuota", 0))
                nominal[pool.name] += own
                most = own + whole(given(quota, "borrowingLimit", 0))
                if most > pool.gpus:
                    yield Finding(sums.too_many(f"{queue}: may hand out {most} {sums.GPUS}", pool), queue.urn)
                elif nominal[pool.name] > pool.gpus:
                    together = f"{queue}: with it queues have {nominal[pool.name]} {GPU}"
                    yield Finding(sums.too_many(together, pool), queue.urn)
        except UNREADABLE as error:
            yield unproven(queue, error)


def _nominal_of_others(graph: Graph, ledger: Ledger) -> dict[str, int]:
    """Maps each pool to the quota of the queues that are in the ledger and not in the graph."""
    nominal: dict[str, int] = defaultdict(int)
    declared = {_holder(queue) for queue in graph.of(CLUSTER_QUEUE, COHORT)}
    for entry in ledger.quotas if not graph.ledger_objects else ():
        if entry.resource == GPU and entry.holder not in declared:
            nominal[entry.pool] += entry.nominal
    return nominal


def _holder(queue: Object) -> str:
    """Returns the holder's name in the ledger's quotas."""
    return f"cohort {queue.name}" if queue.qualified_kind == COHORT else queue.name


def _of_memory(ledger: Ledger, queue: Object) -> Iterator[Finding]:
    """Reports gpumem in a quota outside the ledger. Only the ledger's queues hand out gpumem, and the ledger adds their
    gpumem to the seats."""
    for resource in (ledger.names.gpumem, ledger.names.gpu_count):
        for flavor, quota in _quotas(queue, resource):
            held = (_holder(queue), flavor, resource)
            entries = [q for q in ledger.quotas if (q.holder, q.flavor, q.resource) == held]
            promised = sum(entry.nominal for entry in entries)
            own = whole(given(quota, "nominalQuota", 0))
            if own > promised:
                yield Finding(
                    f"{queue}: hands out {own} {resource} of flavor {flavor}, the ledger promises it {promised}; lower "
                    f"nominalQuota or raise queues.cluster_queues.{queue.name}.quotas of the platform's stack",
                    queue.urn,
                )


def _promised(graph: Graph, ledger: Ledger) -> Iterator[Finding]:
    """Judges the ledger's entries one by one, and then the sum of the queues that the graph does not hold."""
    declared = {_holder(queue) for queue in graph.of(CLUSTER_QUEUE, COHORT)}
    lines = sums.gpu_quotas(ledger, but=declared, together=bool(graph.ledger_objects))
    yield from (Finding(line) for line in lines)


def _quotas(queue: Object, resource: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yields the quotas of a resource, each with its flavor."""
    for group in maps_at(queue.manifest, "spec", "resourceGroups"):
        for flavor in maps_at(group, "flavors"):
            for quota in maps_at(flavor, "resources"):
                if quota.get("name") == resource:
                    yield text(flavor, "name"), quota


@rule(
    "queue-coverage",
    Example(f"{MAIN}.resources.limits", {GPU: "1", "example.com/fpga": "1"}, {GPU: "1"}, of="Job team-a/train"),
)
def coverage(graph: Graph) -> Iterator[Finding]:
    """A ClusterQueue covers every resource that its tenants' Jobs may ask for; otherwise Kueue would never admit
    them."""
    ledger = graph.ledger
    for queue in sorted({quota.queue for quota in ledger.quotas if not quota.cohort}) if ledger else ():
        yield from _covers_its_pools(ledger, queue) if ledger else ()
    yield from each(graph.of("Job.batch", "CronJob.batch"), lambda job: _is_covered(graph, job))
    yield from each(graph.of(LOCAL_QUEUE), lambda door: _leads_somewhere(graph, door))


def _covers_its_pools(ledger: Ledger, queue: str) -> Iterator[Finding]:
    entries = [quota for quota in ledger.quotas if quota.holder == queue]
    covered = {quota.resource for quota in entries}
    for name in dict.fromkeys(quota.pool for quota in entries):
        pool = ledger.pool(name)
        needed = ledger.names.gpumem if pool is not None and pool.sharing is Sharing.MEMORY else GPU
        if needed not in covered:
            yield Finding(
                f"ClusterQueue {queue}: covers {', '.join(sorted(covered))}, but pool {name} is handed out by "
                f"{needed}; add it to queues.cluster_queues.{queue}.quotas"
            )


def _is_covered(graph: Graph, job: Object) -> Iterator[Finding]:
    name = queue_of(job)
    door = graph.named(LOCAL_QUEUE, name, job.namespace) if name is not None else None
    target = graph.named(CLUSTER_QUEUE, text(at(door.manifest, "spec"), "clusterQueue")) if door else None
    if target is None:
        yield from _elsewhere(graph, job, name, door)  # The queue belongs to another stack.
        return
    covered = {
        resource
        for group in maps_at(target.manifest, "spec", "resourceGroups")
        for resource in texts(group, "coveredResources")
    }
    uncounted = tuple(_uncounted(graph))
    pod_spec = at(pod_template(job.manifest) or {}, "spec")
    for resource in sorted(requested(pod_spec)):
        if resource.startswith(uncounted):
            continue
        if resource not in covered:
            yield Finding(
                f"{job}: asks for {resource}, which {target} does not cover; cover it or add it to "
                "kueue.exclude_resource_prefixes",
                job.urn,
            )
        elif "/" in resource:  # An extended resource is counted in whole units.
            yield from _is_within_reach(job, pod_spec, target, resource)


def _elsewhere(graph: Graph, job: Object, name: str | None, door: Object | None) -> Iterator[Finding]:
    """Judges a Job for a queue that is in the ledger and not in the graph."""
    ledger = graph.ledger
    if ledger is None or name is None or door is not None or job.namespace not in ledger.queue_tenants:
        return
    doors = {queue.name: queue for queue in ledger.local_queues if queue.tenant == job.namespace}
    if not doors:
        return  # An older ledger holds no queues.
    if name not in doors:
        yield Finding(
            f"{job}: there is no LocalQueue {name} in {job.namespace}: it would wait for ever; name one of "
            f"{', '.join(sorted(doors))}",
            job.urn,
        )
        return
    queue, pods = doors[name].queue, _pods_at_once(job)
    pod_spec = at(pod_template(job.manifest) or {}, "spec")
    for resource in sorted(requested(pod_spec)):
        most = [quota.most for quota in ledger.quotas if (quota.holder, quota.resource) == (queue, resource)]
        asked = pods * pod_request(pod_spec, resource)
        if most and asked > max(most):
            yield _never_starts(job, f"{asked} {resource} at once ({pods} x {asked // pods})", queue, max(most))


def _never_starts(job: Object, asked: str, queue: str, most: float) -> Finding:
    return Finding(
        f"{job}: asks for {asked}, ClusterQueue {queue} may hand out {most} at most: it would never start; lower its "
        f"parallelism or requests, or raise queues.cluster_queues.{queue}.quotas",
        job.urn,
    )


def _is_within_reach(job: Object, pod_spec: Mapping[str, Any], queue: Object, resource: str) -> Iterator[Finding]:
    """Kueue admits a Job whole, within one flavor."""
    pods, each_asks = _pods_at_once(job), pod_request(pod_spec, resource)
    most = max((_most(queue, quota) for _, quota in _quotas(queue, resource)), default=0)
    if pods * each_asks > most:
        asked = f"{pods * each_asks} {resource} at once ({pods} x {each_asks})"
        yield _never_starts(job, asked, queue.name, most)


def _pods_at_once(job: Object) -> int:
    """Returns the number of pods with which Kueue starts the Job. An annotation allows Kueue to start fewer pods than
    the Job's parallelism."""
    manifest = job_of(job)
    fewest = text(at(manifest, "metadata", "annotations"), names.KUEUE_FEWEST_PODS)
    return whole(fewest) if fewest else pods_of(manifest, nodes=0)


def _most(queue: Object, quota: Mapping[str, Any]) -> float:
    """Returns the most that the queue may hand out of a quota. A queue in a cohort without a borrowing limit is
    unbounded."""
    spec = at(queue.manifest, "spec")
    in_cohort = bool(text(spec, "cohortName") or text(spec, "cohort"))  # v1beta2, v1beta1
    borrowing = given(quota, "borrowingLimit", None)
    if borrowing is None and in_cohort:
        return math.inf
    return whole(given(quota, "nominalQuota", 0)) + whole(borrowing or 0)


def _uncounted(graph: Graph) -> list[str]:
    """Returns the excludeResourcePrefixes of the Kueue in the graph, from a Helm release or a ConfigMap."""
    for configuration in _configurations(graph):
        return texts(
            at({"configuration": _from_yaml(configuration)}, "configuration", "resources"), "excludeResourcePrefixes"
        )
    return list(_UNCOUNTED)


def _from_yaml(written: str) -> object:
    if len(written) > _LONGEST:
        raise ShapeError(f"Kueue's configuration has {len(written)} characters, {_LONGEST} at most are read")
    try:
        return yaml.safe_load(written)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise ShapeError(f"Kueue's configuration is no YAML: {error}") from None


def _configurations(graph: Graph) -> Iterator[str]:
    for release in graph.of("Release.helm.sh"):
        configuration = text(at(release.manifest, "values", "managerConfig"), "controllerManagerConfigYaml")
        if configuration:
            yield configuration
    for found in graph.of("ConfigMap"):
        if not is_unknown(found.name) and found.name.endswith(_CONFIGURATION):
            yield text(at(found.manifest, "data"), "controller_manager_config.yaml")


def _leads_somewhere(graph: Graph, door: Object) -> Iterator[Finding]:
    target = text(at(door.manifest, "spec"), "clusterQueue")
    if graph.of(CLUSTER_QUEUE) and graph.named(CLUSTER_QUEUE, target) is None:
        yield Finding(f"{door}: there is no ClusterQueue {target}; add queues.cluster_queues.{target}", door.urn)


@rule(
    "namespace-selector",
    Example(
        "spec.namespaceSelector", None, {"matchLabels": {names.LABEL_NAMESPACE: "team-a"}}, of="ClusterQueue gpu-cq"
    ),
)
def namespace_selector(graph: Graph) -> Iterator[Finding]:
    """A ClusterQueue selects namespaces: null selects none."""
    yield from each(graph.of(CLUSTER_QUEUE), _namespace_selector)


def _namespace_selector(queue: Object) -> Iterator[Finding]:
    if at(queue.manifest, "spec").get("namespaceSelector") is None:
        yield Finding(f"{queue}: namespaceSelector is null, so nobody may use it; select the tenants", queue.urn)
    else:
        at(queue.manifest, "spec", "namespaceSelector")


@rule("preemption", Example("queues.cluster_queues.gpu-cq.preemption.within_cluster_queue", "Never", "LowerPriority"))
def preemption(graph: Graph) -> Iterator[Finding]:
    """With several WorkloadPriorityClasses a queue preempts within itself, and Jobs name declared ones."""
    classes = graph.of(_PRIORITY)
    if len(classes) > 1:
        yield from each(graph.of(CLUSTER_QUEUE), lambda queue: _preempts(queue, len(classes)))
    if classes:
        yield from each(graph.of("Job.batch", "CronJob.batch"), lambda job: _has_a_class(graph, job))


def _has_a_class(graph: Graph, job: Object) -> Iterator[Finding]:
    """Reports a Job with an undeclared class. Kueue ignores such a Job, so the Job would never start."""
    called = text(at(job_of(job), "metadata", "labels"), names.KUEUE_PRIORITY_LABEL)
    if called and graph.named(_PRIORITY, called) is None:
        message = f"{job}: there is no WorkloadPriorityClass {called}; add queues.workload_priorities.{called}"
        yield Finding(message, job.urn)


def _preempts(queue: Object, classes: int) -> Iterator[Finding]:
    within = given(at(queue.manifest, "spec", "preemption"), "withinClusterQueue", "Never")
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
    """A queue tries several flavors only if they share more than one GPU, and each flavor exists."""
    yield from each(graph.of(CLUSTER_QUEUE), lambda queue: _flavors(graph, queue))


def _flavors(graph: Graph, queue: Object) -> Iterator[Finding]:
    declared = graph.of(FLAVOR)
    for group in maps_at(queue.manifest, "spec", "resourceGroups"):
        called = [text(flavor, "name") for flavor in maps_at(group, "flavors")]
        for name in called:
            if declared and graph.named(FLAVOR, name) is None:
                yield Finding(f"{queue}: there is no ResourceFlavor {name}; add queues.flavors.{name}", queue.urn)
        if len(called) > 1 and graph.ledger is not None:
            yield from _fungible(graph.ledger, queue, called)


def _fungible(ledger: Ledger, queue: Object, called: list[str]) -> Iterator[Finding]:
    behind = {quota.flavor: quota.pool for quota in ledger.quotas if quota.flavor in called}
    pools = [pool for pool in ledger.pools if pool.name in behind.values()]
    gpus = sum(pool.gpus for pool in pools)
    if gpus <= 1:
        yield Finding(
            f"{queue}: falls back across {', '.join(called)}, but there is {gpus} GPU behind them: each flavor's quota "
            "would admit a Job for it; keep one flavor",
            queue.urn,
        )
