"""Keys that name other keys. Judged on the raw configuration, so that a wrong number elsewhere hides none of them."""

from collections.abc import Iterator, Mapping
from itertools import count
from typing import Any

from components.agents.exporter import ExporterSpec
from components.agents.gate import GateSpec, most_samples
from components.kueue import KueueSpec
from stacks.problems import dotted, got, key, nearest
from tenancy.names import GPU, GPU_COUNT_SUFFIX, GPUMEM_SUFFIX, NVIDIA_DEVICE_DRIVER, Names

_MOST_COMPARED = 100  # names that lead nowhere, with all that there are: of thousands each that is minutes
# Where a name stands (`*` is any key; `*@` says that the key itself is the name) and the map it must be a key of.
_REFERENCES = (
    ("residents.*.tenant", "tenants"),
    ("residents.*.pool", "pools"),
    ("on_demand.*.tenant", "tenants"),
    ("on_demand.*.pool", "pools"),
    ("unbudgeted.*.tenant", "tenants"),
    ("unbudgeted.*.pool", "pools"),
    ("admission.gpu_priority", "priorities"),
    ("admission.tenant_priorities.*@", "tenants"),
    ("admission.tenant_priorities.*", "priorities"),
    ("queues.flavors.*.pool", "pools"),
    ("queues.cluster_queues.*.quotas.*@", "queues.flavors"),
    ("queues.local_queues.*.tenant", "tenants"),
    ("queues.local_queues.*.cluster_queue", "queues.cluster_queues"),
    ("memory_pools.*.workloads.*.tenant", "tenants"),
    ("memory_pools.*.workloads.*.priority", "priorities"),
    ("memory_pools.*.disposable.*.tenant", "tenants"),
    ("memory_pools.*.disposable.*.priority", "priorities"),
)

_LISTS_OF_NAMES = (
    "admission.exempt_namespaces",
    "admission.exempt_priorities",
    "admission.device_classes",
    "kueue.exclude_resource_prefixes",
)

_PUBLISHES = "the scheduler places on the devices that the exporter publishes"  # where they are not NVIDIA's driver's
# Parts that are of no use without another one.
_NEEDS = (
    ("watchdog", "exporter", "the watchdog acts on what the exporter measures"),
    ("on_demand", "gate", "nobody would let the on-demand tenants in"),
    ("gate", "exporter", "the gate acts on what the exporter measures"),
    ("scheduler", "exporter", _PUBLISHES),
    ("alerts", "exporter", "the alerts watch what the exporter measures"),
    ("memory_pools", "admission", "nobody would keep others from the classes of the memory pools"),
)

# The same, where gpumem is an extended resource: everywhere but with scheduler.placement dra.
_NEEDS_OF_GPUMEM = (
    ("residents", "reconcile", "nobody would advertise what the residents ask for"),
    ("scheduler", "reconcile", "no node would advertise what the scheduler places"),
    ("scheduler", "admission", "nobody would send the pods to the scheduler"),
)

# Parts that serve the pools that share memory.
_FOR_SHARED_MEMORY = (
    ("reconcile", "advertises the memory of shared devices"),
    ("exporter", "measures the memory of shared devices"),
    ("scheduler", "places on shared devices"),
)


# What a pool needs whose driver holds containers to their budgets.
_FOR_CAPS = (
    ("admission", "nobody would say in the containers what they are held to"),
    ("scheduler", "nobody would choose the devices that a container is held to its budget on"),
    ("exporter", "nobody would read back whether they are held"),
)


def problems(raw: Mapping[str, Any]) -> list[str]:
    """One line per name that leads nowhere, per part that lacks another, per pair of pools that share nodes, per
    tenant's workload in a second pool, per name that a list has twice."""
    return [
        *_dangling(raw),
        *_lacking(raw),
        *_counted_twice(raw),
        *_placed_otherwise(raw),
        *_without_shared_memory(raw),
        *_overlapping(raw, "pools"),
        *_overlapping(raw, "memory_pools"),
        *_shared_wrongly(raw),
        *_in_two_pools(raw),
        *_beside_a_queue(raw),
        *_never_agreeing(raw),
        *_uncounted(raw),
        *_borrowed_from_nobody(raw),
        *_without_caps(raw),
        *_read_by_nobody(raw),
        *_beside_claims(raw),
        *_listed_twice(raw),
    ]


def at(raw: Mapping[str, Any], path: str) -> Mapping[str, Any]:
    """The map under a path such as `queues.flavors`; empty where there is none."""
    value: Any = raw
    for part in path.split("."):
        value = value.get(part) if isinstance(value, Mapping) else None
    return value if isinstance(value, Mapping) else {}


def matches(raw: Mapping[str, Any], pattern: str) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Every (path, value) under a pattern such as `residents.*.pool`; for `*@` the value is the key itself."""
    yield from _walk(raw, pattern.split("."), ())


def _walk(value: Any, pattern: list[str], path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any]]:
    if not pattern:
        yield path, value
        return
    if not isinstance(value, Mapping):
        return
    head, rest = pattern[0], pattern[1:]
    for name in list(value) if head.startswith("*") else [head] if head in value else []:
        yield from _walk(name if head == "*@" else value[name], rest, (*path, name))


def _dangling(raw: Mapping[str, Any]) -> Iterator[str]:
    # Of the other targets the settings themselves say that they are missing.
    missing = {"tenants", "priorities"} - raw.keys()
    lines = count()
    for pattern, target in _REFERENCES:
        names = at(raw, target)
        for path, name in matches(raw, pattern):
            if not isinstance(name, str) or name in names:
                continue
            if names:
                instead = nearest(name, names, "there") if next(lines) < _MOST_COMPARED else "name one that is"
                yield f"{key(*path)}: {name!r} is no key of {target}; {instead}"
            elif target in missing:
                missing.remove(target)
                yield f"{key(target)}: is missing though {dotted(*path)} names {name!r}; add it"


def _lacking(raw: Mapping[str, Any]) -> Iterator[str]:
    lacked: dict[str, dict[str, str]] = {}
    for part, needed, reason in (*(() if _claims_seats(raw) else _NEEDS_OF_GPUMEM), *_NEEDS):
        if reason is _PUBLISHES and _claims_nvidias(raw):
            continue
        if raw.get(part) and raw.get(needed, {}) == {}:  # else what is there is said to be wrong
            lacked.setdefault(needed, {})[part] = reason
    for needed, reasons in lacked.items():
        *parts, last = reasons
        there = f"{', '.join(parts)} and {last} are" if parts else f"{last} is"
        yield f"{key(needed)}: is missing though {there} there: {'; '.join(reasons.values())}"
    if raw.get("alerts") and at(raw, "cluster") and "prometheus" not in at(raw, "cluster"):
        yield (
            f"{key('cluster', 'prometheus')}: is missing though alerts is there: NetworkPolicies would keep Prometheus "
            "from what the alerts watch; name its namespace, for instance {namespace: monitoring}"
        )


def _claims_seats(raw: Mapping[str, Any]) -> bool:
    return at(raw, "scheduler").get("placement") == "dra"


def _counted_twice(raw: Mapping[str, Any]) -> Iterator[str]:
    """The same memory is not to be had by claim and as an extended resource."""
    if _claims_seats(raw) and raw.get("reconcile") and not any(True for _ in matches(raw, "pools.*.placement")):
        yield f"{key('reconcile')}: advertises what seats are claimed of (scheduler.placement dra); remove it"
    for path, resource in matches(raw, "queues.cluster_queues.*.quotas.*.*@"):
        pool = at(raw, f"queues.flavors.{path[-2]}").get("pool")
        if isinstance(resource, str) and resource.endswith(GPUMEM_SUFFIX) and _is_claimed(raw, pool):
            yield f"{key(*path)}: no node advertises it where seats are claimed ({_why(raw, pool)}); remove it"


def _is_claimed(raw: Mapping[str, Any], pool: object) -> bool:
    """Whether the pool's seats are claims."""
    return (at(raw, f"pools.{pool}").get("placement") or at(raw, "scheduler").get("placement")) == "dra"


def _why(raw: Mapping[str, Any], pool: object) -> str:
    return f"pools.{pool}.placement dra" if at(raw, f"pools.{pool}").get("placement") else "scheduler.placement dra"


def _placed_otherwise(raw: Mapping[str, Any]) -> Iterator[str]:
    """A pool that says who places on it, for a stack that moves."""
    whole = _whole_pools(raw)
    for path, placement in matches(raw, "pools.*.placement"):
        if placement not in ("extender", "dra"):
            continue  # said by the model
        if not raw.get("scheduler"):
            yield f"{key(*path)}: nobody places by device; add scheduler: {{placement: extender}}, or remove it"
        elif path[1] in whole:
            yield f"{key(*path)}: has no use where sharing is whole; remove it"
        elif placement == "extender" and _claims_seats(raw):
            yield (
                f"{key(*path)}: no extender runs (scheduler.placement is dra); write scheduler.placement: extender, "
                "and placement: dra for the pools that are placed by claims"
            )
        elif _claims_nvidias(raw):
            yield (
                f"{key(*path)}: nodes move one by one to the exporter's devices alone, whose slices it writes; remove "
                f"it, or scheduler.driver {NVIDIA_DEVICE_DRIVER}"
            )


def _without_shared_memory(raw: Mapping[str, Any]) -> Iterator[str]:
    """A pool whose `sharing` is left out, or cannot be read, counts as one that shares memory."""
    pools = at(raw, "pools")
    if pools and set(pools) == _whole_pools(raw):
        for part, purpose in _FOR_SHARED_MEMORY:
            if raw.get(part):
                yield f"{key(part)}: {purpose}, but every pool has sharing: whole; remove it or share a pool's memory"


def _without_caps(raw: Mapping[str, Any]) -> Iterator[str]:
    """What stamps the budgets, what chooses the devices that they are for, what reads them back."""
    for path, enforce in matches(raw, "pools.*.enforce"):
        if enforce != "driver":
            continue
        if _is_claimed(raw, path[1]):
            yield f"{key(*path)}: where seats are claimed ({_why(raw, path[1])}) no container has gpumem; remove it"
            continue
        for part, reason in _FOR_CAPS:
            if not raw.get(part):
                yield f"{key(part)}: is missing though {dotted(*path)} is driver: {reason}"


def _claims_nvidias(raw: Mapping[str, Any]) -> bool:
    return _claims_seats(raw) and at(raw, "scheduler").get("driver") == NVIDIA_DEVICE_DRIVER


def _beside_claims(raw: Mapping[str, Any]) -> Iterator[str]:
    """NVIDIA's driver gives a whole device to who asks for one and not for how much of it."""
    if not _claims_nvidias(raw):
        return
    for part in ("on_demand", "unbudgeted"):
        for path, pool in matches(raw, f"{part}.*.pool"):
            yield (
                f"{key(*path)}: without a seat it would take a whole device of {NVIDIA_DEVICE_DRIVER}, which the seats "
                f"of {pool} are claims on (scheduler.driver); give {path[1]} a seat, or a node outside the pools"
            )


def _read_by_nobody(raw: Mapping[str, Any]) -> Iterator[str]:
    """Who advertises goes by a pool's source."""
    for path, source in matches(raw, "pools.*.source"):
        if source in ("slices", "declared") and not raw.get("reconcile"):
            yield f"{key(*path)}: has no use without reconcile, which advertises by it; remove it"


def _listed_twice(raw: Mapping[str, Any]) -> Iterator[str]:
    for pattern in _LISTS_OF_NAMES:
        for path, listed in matches(raw, pattern):
            seen: set[str] = set()
            for index, item in enumerate(listed if isinstance(listed, list) else ()):
                if _is_name(item) and item in seen:
                    yield f"{key(*path, index)}: {item!r} is there twice; remove one"
                seen |= {item} if _is_name(item) else set()


def _overlapping(raw: Mapping[str, Any], part: str) -> Iterator[str]:
    """Two pools are apart only if one label must have two values."""
    selectors = [
        (path[1], value)
        for path, value in matches(raw, f"{part}.*.node_selector")
        if isinstance(value, Mapping) and value
    ]
    for index, (name, selector) in enumerate(selectors):
        for other, theirs in selectors[index + 1 :]:
            if not any(label in theirs and theirs[label] != value for label, value in selector.items()):
                yield (
                    f"{key(part, other, 'node_selector')}: a node may match {dotted(part, name)} as well; "
                    "give the two a common label with different values"
                )


def _shared_wrongly(raw: Mapping[str, Any]) -> Iterator[str]:
    """Seats and gates need memory by budget; a pool of whole devices has none."""
    whole = _whole_pools(raw)
    for part in ("residents", "on_demand", "unbudgeted"):
        for path, pool in matches(raw, f"{part}.*.pool"):
            if isinstance(pool, str) and pool in whole:
                yield f"{key(*path)}: {pool!r} hands out whole devices; name a pool that shares memory"


def _in_two_pools(raw: Mapping[str, Any]) -> Iterator[str]:
    """A ResourceQuota knows no pools: what a tenant was promised in one it could take in another, where it is others'.
    Claims are counted by seat."""
    if _claims_seats(raw):
        return
    first: dict[str, tuple[str, str]] = {}
    known = at(raw, "pools")
    for part in ("residents", "on_demand", "unbudgeted"):
        for (_, name, _), pool in matches(raw, f"{part}.*.pool"):
            tenant = at(raw, part)[name].get("tenant")
            if not (isinstance(tenant, str) and isinstance(pool, str) and pool in known) or _is_claimed(raw, pool):
                continue
            if part == "residents":
                first.setdefault(tenant, (name, pool))
            seat, promised = first.get(tenant, ("", pool))
            if pool != promised:
                yield (
                    f"{key(part, name, 'pool')}: must be {promised} as that of {dotted('residents', seat)}, or {name} "
                    f"have a tenant of its own: the ResourceQuota of {tenant} is one sum for all pools{got(pool)}"
                )


def _beside_a_queue(raw: Mapping[str, Any]) -> Iterator[str]:
    """Pods without a budget look alike, whether they wait for a gate or go past the queue: admission refuses both."""
    queued = {tenant: path[2] for path, tenant in matches(raw, "queues.local_queues.*.tenant") if _is_name(tenant)}
    for part in ("on_demand", "unbudgeted"):
        for (_, name, _), tenant in matches(raw, f"{part}.*.tenant"):
            if _is_name(tenant) and tenant in queued:
                yield (
                    f"{key(part, name, 'tenant')}: {tenant} queues for its GPUs "
                    f"({dotted('queues', 'local_queues', queued[tenant])}); give {name} a tenant of its own"
                )


def _is_name(value: Any) -> bool:
    return isinstance(value, str)


def _never_agreeing(raw: Mapping[str, Any]) -> Iterator[str]:
    """Samples in a row are those of one run of the gate."""
    intervals = (
        at(raw, "gate").get("interval_seconds", GateSpec().interval_seconds),
        at(raw, "exporter").get("interval_seconds", ExporterSpec().interval_seconds),
    )
    if not all(isinstance(seconds, int) and seconds > 0 for seconds in intervals):
        return  # which is said of the interval
    gate_seconds, reading_seconds = intervals
    most = most_samples(interval_seconds=gate_seconds, reading_seconds=reading_seconds)
    slower = "gate" if gate_seconds >= reading_seconds else "exporter"
    for path, samples in matches(raw, "on_demand.*.samples"):
        if isinstance(samples, int) and samples > most:
            yield (
                f"{key(*path)}: must be at most {most}, which a run of the gate takes in a row, or it never acts "
                f"(got {samples}); lower it, or {slower}.interval_seconds"
            )


def _uncounted(raw: Mapping[str, Any]) -> Iterator[str]:
    """Kueue admits as many Jobs as there are for what begins with an excluded prefix (pkg/workload resources.go)."""
    domain = at(raw, "cluster").get("resource_domain")
    counted = {GPU, *([Names(domain).gpumem] if isinstance(domain, str) else [])}
    counted |= {name for _, name in matches(raw, "queues.cluster_queues.*.quotas.*.*@") if _is_name(name)}
    if not at(raw, "kueue"):
        return
    prefixes = at(raw, "kueue").get("exclude_resource_prefixes")
    if prefixes is None:
        prefixes = KueueSpec.model_fields["exclude_resource_prefixes"].default
        if hit := [name for name in sorted(counted) if _is_name(name) and name.startswith(tuple(prefixes))]:
            rest = [prefix for prefix in prefixes if not any(name.startswith(prefix) for name in hit)]
            yield (
                f"{key('kueue', 'exclude_resource_prefixes')}: has {', '.join(prefixes)} where it is left out, so that "
                f"queues would not count {', '.join(hit)}; write [{', '.join(rest)}], or take it out of the quotas"
            )
        return
    for index, prefix in enumerate(prefixes if isinstance(prefixes, list) else ()):
        hit = [name for name in sorted(counted) if _is_name(prefix) and name.startswith(prefix)]
        if hit:
            yield (
                f"{key('kueue', 'exclude_resource_prefixes', index)}: queues would no longer count {', '.join(hit)}; "
                f"remove it{got(prefix)}"
            )


def _borrowed_from_nobody(raw: Mapping[str, Any]) -> Iterator[str]:
    """What the others of a cohort lend is the most that there is to borrow of gpumem, which queues of no other stack
    have."""
    for where, cohort, borrowing, lent in _overdrawn(raw):
        if where.endswith((f"{GPUMEM_SUFFIX}.borrowing_limit", f"{GPU_COUNT_SUFFIX}.borrowing_limit")):
            yield f"{where}: must be at most {lent}, which the others of cohort {cohort} lend{got(borrowing)}"


def borrowed_from_elsewhere(raw: Mapping[str, Any]) -> Iterator[str]:
    """One line per quota that borrows more than this stack's queues lend. Kueue's cohorts are the whole cluster's: the
    rest may be another stack's, so it is no mistake by itself."""
    refused = {line.partition(": ")[0] for line in _borrowed_from_nobody(raw)}
    for where, cohort, borrowing, lent in _overdrawn(raw):
        if where not in refused:
            yield (
                f"{where}: is {borrowing}, the others of cohort {cohort} in this stack lend {lent}; what is beyond "
                "that must be lent by queues that other stacks have in this cohort"
            )


def _overdrawn(raw: Mapping[str, Any]) -> Iterator[tuple[str, str, int, int]]:
    """Per quota that borrows more than the others lend: its key, the cohort, what it borrows, what they lend."""
    queues = at(raw, "queues.cluster_queues")
    for (*_, queue, _, flavor, resource), quota in matches(raw, "queues.cluster_queues.*.quotas.*.*"):
        cohort = queues[queue].get("cohort")
        borrowing = quota.get("borrowing_limit") if isinstance(quota, Mapping) else None
        if not (_is_name(cohort) and isinstance(borrowing, int)):
            continue
        lent = sum(
            _lent(at(at(other, "quotas"), flavor).get(resource))
            for name, other in queues.items()
            if name != queue and isinstance(other, Mapping) and other.get("cohort") == cohort
        )
        if borrowing > lent:
            where = key("queues", "cluster_queues", queue, "quotas", flavor, resource, "borrowing_limit")
            yield where, cohort, borrowing, lent


def _lent(quota: Any) -> int:
    if not isinstance(quota, Mapping):
        return 0
    limit = quota.get("lending_limit")
    lent = quota.get("nominal") if limit is None else limit
    return lent if isinstance(lent, int) else 0


def _whole_pools(raw: Mapping[str, Any]) -> set[str]:
    return {path[1] for path, sharing in matches(raw, "pools.*.sharing") if sharing == "whole"}
