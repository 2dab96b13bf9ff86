"""Checks the keys that refer to other keys.

The check uses the raw configuration. So an error in another key does not hide these errors.
"""

from collections.abc import Iterator, Mapping
from itertools import count
from typing import Any

from components.base.spec import Spec
from components.kueue import KueueSpec
from stacks.problems import dotted, key, nearest, shown_value
from tenancy.names import GPU, GPU_COUNT_SUFFIX, GPUMEM_SUFFIX, NVIDIA_DEVICE_DRIVER, Names
from tenancy.quantity import QuantityError, whole

_MOST_FLAVOR_LABELS = 8
# The maximum number of unknown names that get a proposal. Comparing thousands of names would take minutes.
_MOST_COMPARED = 100
# The path of a key with a name, and the map that must have this name as a key. `*` matches any key. For `*@`, the key
# itself is the name.
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
    ("queues.flavors.*.topology_name", "queues.topologies"),
    ("queues.cluster_queues.*.quotas.*@", "queues.flavors"),
    ("queues.cohorts.*.quotas.*@", "queues.flavors"),
    ("queues.local_queues.*.tenant", "tenants"),
    ("queues.local_queues.*.cluster_queue", "queues.cluster_queues"),
    ("memory_pools.*.workloads.*.tenant", "tenants"),
    ("memory_pools.*.workloads.*.priority", "priorities"),
    ("memory_pools.*.disposable.*.tenant", "tenants"),
    ("memory_pools.*.disposable.*.priority", "priorities"),
)

# The parts that need another part. In addition, the Spec of a part may have such needs in `needs`.
_NEEDS = (
    ("on_demand", "gate", "nobody would let the on-demand tenants in"),
    ("memory_pools", "admission", "nobody would keep others from the classes of the memory pools"),
)

# The parts that need another part if gpumem is an extended resource. gpumem is an extended resource in every stack
# without scheduler.placement dra.
_NEEDS_OF_GPUMEM = (
    ("residents", "reconcile", "nobody would advertise what the residents ask for"),
    ("scheduler", "reconcile", "no node would advertise what the scheduler places"),
    ("scheduler", "admission", "nobody would send the pods to the scheduler"),
    ("scheduler", "exporter", "the scheduler places on the devices that the exporter publishes"),
)


def problems(raw: Mapping[str, Any], specs: Mapping[str, type[Spec]]) -> list[str]:
    """Returns an error message for each problem. `specs` has the Spec of each part."""
    return [
        *_dangling(raw),
        *_lacking(raw, specs),
        *_counted_twice(raw),
        *_overlapping(raw, "pools"),
        *_overlapping(raw, "memory_pools"),
        *_shared_wrongly(raw),
        *_unplaced(raw),
        *_over_labelled(raw),
        *_in_two_pools(raw),
        *_beside_a_queue(raw),
        *_uncounted(raw),
        *_borrowed_from_nobody(raw),
        *_unshared(raw),
        *_two_kueues(raw),
        *_unknown_checks(raw),
        *_without_caps(raw),
        *_beside_claims(raw),
    ]


def at(raw: Mapping[str, Any], path: str) -> Mapping[str, Any]:
    """Returns the map at a path such as `queues.flavors`, or an empty map if there is none."""
    value: Any = raw
    for part in path.split("."):
        value = value.get(part) if isinstance(value, Mapping) else None
    return value if isinstance(value, Mapping) else {}


def values_at(raw: Mapping[str, Any], pattern: str) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Yields the path and the value of each match of a pattern such as `residents.*.pool`.

    For `*@`, the value is the key itself.
    """
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
    # Other missing parts are found by the check of the settings.
    missing = {"tenants", "priorities"} - raw.keys()
    lines = count()
    for pattern, target in _REFERENCES:
        names = at(raw, target)
        for path, name in values_at(raw, pattern):
            if not isinstance(name, str) or name in names:
                continue
            if names:
                instead = nearest(name, names, "there") if next(lines) < _MOST_COMPARED else "name one that is"
                yield f"{key(*path)}: {name!r} is no key of {target}; {instead}"
            elif target in missing:
                missing.remove(target)
                yield f"{key(target)}: is missing though {dotted(*path)} names {name!r}; add it"


def _lacking(raw: Mapping[str, Any], specs: Mapping[str, type[Spec]]) -> Iterator[str]:
    own = ((part, needed, reason) for part, spec in specs.items() for needed, reason in spec.needs.items())
    lacked: dict[str, dict[str, str]] = {}
    for part, needed, reason in (*(() if _claims_seats(raw) else _NEEDS_OF_GPUMEM), *own, *_NEEDS):
        if raw.get(part) and raw.get(needed, {}) == {}:
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
    """Reports memory that is counted twice: seats claim it, and it is also advertised as an extended resource."""
    if not _claims_seats(raw):
        return
    if raw.get("mode") == "observe":
        yield f"{key('mode')}: observe is for seats by gpumem; remove it where seats are claimed (placement dra)"
    if raw.get("reconcile"):
        yield f"{key('reconcile')}: advertises what seats are claimed of (scheduler.placement dra); remove it"
    for path, resource in values_at(raw, "queues.cluster_queues.*.quotas.*.*@"):
        if isinstance(resource, str) and resource.endswith(GPUMEM_SUFFIX):
            yield f"{key(*path)}: no node advertises it where seats are claimed (scheduler.placement dra); remove it"


def _without_caps(raw: Mapping[str, Any]) -> Iterator[str]:
    """Reports a pool with caps in a stack without our scheduler."""
    for path, enforce in values_at(raw, "pools.*.enforce"):
        if enforce != "driver":
            continue
        if _claims_seats(raw):
            yield f"{key(*path)}: where seats are claimed (scheduler.placement dra) no container has gpumem; remove it"
            continue
        if not raw.get("scheduler"):  # the scheduler in turn needs admission and the exporter
            yield (
                f"{key('scheduler')}: is missing though {dotted(*path)} is driver: nobody would choose the devices "
                "that a container is held to its budget on"
            )


def _beside_claims(raw: Mapping[str, Any]) -> Iterator[str]:
    """Reports workloads that are not possible with claims.

    NVIDIA's DRA driver gives a whole device to a pod that claims no amount of memory. A pod's claim on a seat is for
    one device.
    """
    if not _claims_seats(raw):
        return
    for path, devices in values_at(raw, "residents.*.devices_per_pod"):
        if devices != 1:
            yield (
                f"{key(*path)}: must be 1 with scheduler.placement dra, where a pod claims one device"
                f"{shown_value(devices)}; "
                "remove it, or write scheduler.placement: extender"
            )
    for part in ("on_demand", "unbudgeted"):
        for path, pool in values_at(raw, f"{part}.*.pool"):
            yield (
                f"{key(*path)}: without a seat it would take a whole device of {NVIDIA_DEVICE_DRIVER}, which the seats "
                f"of {pool} are claims on (scheduler.placement dra); give {path[1]} a seat, or a node outside the pools"
            )


def _overlapping(raw: Mapping[str, Any], part: str) -> Iterator[str]:
    """Reports two pools that may match the same node.

    No node can match two pools if the pools select one label with different values.
    """
    whole = _whole_pools(raw) if part == "pools" else set()
    selectors = [
        (path[1], value)
        for path, value in values_at(raw, f"{part}.*.node_selector")
        if isinstance(value, Mapping) and value
    ]
    for index, (name, selector) in enumerate(selectors):
        for other, theirs in selectors[index + 1 :]:
            if not any(label in theirs and theirs[label] != value for label, value in selector.items()):
                why = ", and all devices of a node belong to one pool" if part == "pools" else ""
                way = "give the two a common label with different values"
                if (name in whole) != (other in whole):
                    why += ": a node with shared devices and whole devices is not supported"
                    way += " on different nodes, or share all devices and declare residents as large as a device"
                yield f"{key(part, other, 'node_selector')}: a node may match {dotted(part, name)} as well{why}; {way}"


def _shared_wrongly(raw: Mapping[str, Any]) -> Iterator[str]:
    """Reports a workload in a pool of whole devices. Seats and on-demand workloads need a pool that shares memory."""
    whole = _whole_pools(raw)
    for part in ("residents", "on_demand", "unbudgeted"):
        for path, pool in values_at(raw, f"{part}.*.pool"):
            if isinstance(pool, str) and pool in whole:
                yield f"{key(*path)}: {pool!r} hands out whole devices; name a pool that shares memory"


def _unplaced(raw: Mapping[str, Any]) -> Iterator[str]:
    """Reports nodes with several devices in a stack without our scheduler.

    A budget must fit a single device, and only our scheduler checks this.
    """
    if raw.get("scheduler"):
        return
    users = {pool for part in ("residents", "on_demand", "unbudgeted") for _, pool in values_at(raw, f"{part}.*.pool")}
    for path, devices in values_at(raw, "pools.*.device_count"):
        if isinstance(devices, int) and devices > 1 and path[1] in users - _whole_pools(raw):
            yield (
                f"{key('scheduler')}: is missing though each node of {dotted('pools', path[1])} has {devices} devices: "
                "nobody would choose a device with room for a budget; add scheduler: {placement: extender}"
            )


def _over_labelled(raw: Mapping[str, Any]) -> Iterator[str]:
    """Reports a flavor with more than the 8 labels that Kueue allows for a ResourceFlavor."""
    for path, flavor in values_at(raw, "queues.flavors.*"):
        if isinstance(flavor, Mapping) and isinstance(flavor.get("pool"), str):
            labels = {*at(flavor, "node_labels"), *at(raw, f"pools.{flavor['pool']}.node_selector")}
            if len(labels) > _MOST_FLAVOR_LABELS:
                yield (
                    f"{key(*path, 'node_labels')}: makes {len(labels)} labels with the node_selector of "
                    f"{dotted('pools', flavor['pool'])}, and Kueue takes {_MOST_FLAVOR_LABELS}; remove some"
                )


def _in_two_pools(raw: Mapping[str, Any]) -> Iterator[str]:
    """Reports a tenant with workloads in several pools.

    A ResourceQuota does not distinguish pools, so the tenant could use one pool's promise in another pool. Tenants with
    claims may use several pools, because claims are counted for each seat.
    """
    if _claims_seats(raw):
        return
    first: dict[str, tuple[str, str]] = {}
    known = at(raw, "pools")
    for part in ("residents", "on_demand", "unbudgeted"):
        for (_, name, _), pool in values_at(raw, f"{part}.*.pool"):
            tenant = at(raw, part)[name].get("tenant")
            if not (isinstance(tenant, str) and isinstance(pool, str) and pool in known):
                continue
            if part == "residents":
                first.setdefault(tenant, (name, pool))
            seat, promised = first.get(tenant, ("", pool))
            if pool != promised:
                yield (
                    f"{key(part, name, 'pool')}: must be {promised} as that of {dotted('residents', seat)}: a tenant "
                    f"in several pools is not supported, because the ResourceQuota of {tenant} is one sum for all pools"
                    f"{shown_value(pool)}; name {promised}, or give {name} a tenant of its own"
                )


def _beside_a_queue(raw: Mapping[str, Any]) -> Iterator[str]:
    """Reports a queue tenant that also has a workload without a budget.

    Admission denies pods without a budget of a queue tenant, because they could bypass the queue.
    """
    found = values_at(raw, "queues.local_queues.*.tenant")
    queued = {tenant: path[2] for path, tenant in found if isinstance(tenant, str)}
    for part in ("on_demand", "unbudgeted"):
        for (_, name, _), tenant in values_at(raw, f"{part}.*.tenant"):
            if isinstance(tenant, str) and tenant in queued:
                yield (
                    f"{key(part, name, 'tenant')}: {tenant} queues for its GPUs "
                    f"({dotted('queues', 'local_queues', queued[tenant])}); give {name} a tenant of its own"
                )


def _uncounted(raw: Mapping[str, Any]) -> Iterator[str]:
    """Reports prefixes by which Kueue would ignore our resources.

    Kueue's queues would then not limit these resources (pkg/workload resources.go).
    """
    domain = at(raw, "cluster").get("resource_domain")
    counted = {GPU, *([Names(domain).gpumem] if isinstance(domain, str) else [])}
    counted |= {str(name) for _, name in values_at(raw, "queues.cluster_queues.*.quotas.*.*@")}
    if not at(raw, "kueue"):
        return
    default = KueueSpec.model_fields["exclude_resource_prefixes"].default
    prefixes = at(raw, "kueue").get("exclude_resource_prefixes", default)
    for prefix in prefixes if isinstance(prefixes, list | tuple) else ():
        if hit := [name for name in sorted(counted) if isinstance(prefix, str) and name.startswith(prefix)]:
            rest = [each for each in prefixes if each != prefix]
            yield (
                f"{key('kueue', 'exclude_resource_prefixes')}: queues would not count {', '.join(hit)}; "
                f"write [{', '.join(map(str, rest))}]{shown_value(prefix)}"
            )


def _borrowed_from_nobody(raw: Mapping[str, Any]) -> Iterator[str]:
    """Reports a queue with too high a borrowing limit for gpumem.

    A queue can borrow at most the quota that the other queues of its cohort lend, and the quota of the cohorts above.
    For other resources, the limit may be higher, because queues of other stacks may be in the cohort.
    """
    queues, cohorts = at(raw, "queues.cluster_queues"), at(raw, "queues.cohorts")
    roots = {name: _root(cohorts, queue.get("cohort")) for name, queue in queues.items() if isinstance(queue, Mapping)}
    for (*_, queue, _, flavor, resource), quota in values_at(raw, "queues.cluster_queues.*.quotas.*.*"):
        cohort = queues[queue].get("cohort")
        borrowing = _whole(quota.get("borrowing_limit")) if isinstance(quota, Mapping) else None
        if not isinstance(cohort, str) or borrowing is None:
            continue
        if not str(resource).endswith((GPUMEM_SUFFIX, GPU_COUNT_SUFFIX)):
            continue
        others = [queues[name] for name, root in roots.items() if name != queue and root == roots[queue]]
        others += [each for name, each in cohorts.items() if _root(cohorts, name) == roots[queue]]
        lent = sum(_lent(at(at(other, "quotas"), flavor).get(resource)) for other in others)
        if borrowing > lent:
            where = key("queues", "cluster_queues", queue, "quotas", flavor, resource, "borrowing_limit")
            yield f"{where}: must be at most {lent}, which the others of cohort {cohort} lend{shown_value(borrowing)}"


def _root(cohorts: Mapping[str, Any], cohort: object) -> object:
    """Returns the cohort at the top of the tree.

    If the cohorts form a circle, there is no top, and Kueue reports an error.
    """
    seen: list[object] = []
    while isinstance(cohort, str) and cohort not in seen:
        seen.append(cohort)
        cohort = at(cohorts, cohort).get("parent_name") if isinstance(cohorts.get(cohort), Mapping) else None
    return seen[-1] if seen else None


def _lent(quota: Any) -> int:
    if not isinstance(quota, Mapping):
        return 0
    limit = quota.get("lending_limit")
    return _whole(quota.get("nominal") if limit is None else limit) or 0


def _whole(amount: object) -> int | None:
    try:
        return None if amount is None else whole(amount)
    except QuantityError:
        return None  # the check of the settings refuses this value


def _unknown_checks(raw: Mapping[str, Any]) -> Iterator[str]:
    known = at(raw, "queues.admission_checks")
    for path, checks in values_at(raw, "queues.cluster_queues.*.admission_checks"):
        for index, check in enumerate(checks if isinstance(checks, list) else ()):
            name = check.get("name") if isinstance(check, Mapping) else None
            if isinstance(name, str) and name not in known:
                instead = nearest(name, known, "there") if known else f"add queues.admission_checks.{dotted(name)}"
                yield f"{key(*path, index, 'name')}: {name!r} is no key of queues.admission_checks; {instead}"


def _unshared(raw: Mapping[str, Any]) -> Iterator[str]:
    """Reports weights and scopes that Kueue would ignore, because its configuration does not switch them on."""
    if not at(raw, "kueue"):
        return
    shares = ("cluster_queues", "cohorts", "local_queues")
    for needed, patterns in {
        "fair_sharing": [f"queues.{part}.*.fair_sharing" for part in shares[:2]],
        "admission_fair_sharing": ["queues.cluster_queues.*.admission_scope", "queues.local_queues.*.fair_sharing"],
    }.items():
        first = next((path for pattern in patterns for path, value in values_at(raw, pattern) if value), None)
        if first is not None and needed not in at(raw, "kueue"):
            yield f"{key('kueue', needed)}: is missing though {dotted(*first)} is there: Kueue would ignore it; add it"


def _two_kueues(raw: Mapping[str, Any]) -> Iterator[str]:
    if at(raw, "kueue") and at(raw, "queues.installed_kueue"):
        yield f"{key('queues', 'installed_kueue')}: is for a Kueue of others, and kueue installs one; remove either"


def _whole_pools(raw: Mapping[str, Any]) -> set[str]:
    return {path[1] for path, sharing in values_at(raw, "pools.*.sharing") if sharing == "whole"}
