"""Checks the keys that refer to other keys.

The check of references uses the raw configuration. Therefore an error in another key does not hide a wrong reference.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from components.base.spec import Spec
from stacks import queue_references
from stacks.paths import at, values_at
from stacks.problems import dotted, key, nearest, shown_value
from tenancy.names import GPUMEM_SUFFIX

# Each entry has a path and a map. The key at the path contains a name, and the map must have this name as a key. `*`
# matches any key, and `[]` any item. For the path `*@`, the key itself is the name.
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
    ("queues.cluster_queues.*.admission_checks.[].name", "queues.admission_checks"),
    ("queues.cluster_queues.*.clusters.[]", "queues.clusters"),
    ("queues.local_queues.*.tenant", "tenants"),
    ("queues.local_queues.*.cluster_queue", "queues.cluster_queues"),
    ("queues.workload_priorities.*.tenants.[]", "tenants"),
    ("memory_pools.*.workloads.*.tenant", "tenants"),
    ("memory_pools.*.workloads.*.priority", "priorities"),
    ("memory_pools.*.disposable.*.tenant", "tenants"),
    ("memory_pools.*.disposable.*.priority", "priorities"),
)

# The parts of a stack file that need another part. The Spec of a part can list further parts in `needs`.
_NEEDS = (
    ("residents", "reconcile", "nobody would advertise what the residents ask for"),
    ("scheduler", "reconcile", "no node would advertise what the scheduler places"),
    ("scheduler", "admission", "nobody would send the pods to the scheduler"),
    ("scheduler", "exporter", "the scheduler places on the devices that the exporter publishes"),
    ("on_demand", "gate", "nobody would let the on-demand tenants in"),
    ("memory_pools", "admission", "nobody would keep others from the classes of the memory pools"),
)


def problems(raw: Mapping[str, Any], specs: Mapping[str, type[Spec]]) -> list[str]:
    """Returns an error message for each wrong reference. `specs` has the Spec of each part."""
    return [
        *_dangling(raw),
        *_lacking(raw, specs),
        *_overlapping(raw, "pools"),
        *_overlapping(raw, "memory_pools"),
        *_shared_wrongly(raw),
        *_unplaced(raw),
        *_in_several_pools(raw),
        *queue_references.problems(raw),
        *_without_caps(raw),
    ]


def _dangling(raw: Mapping[str, Any]) -> Iterator[str]:
    # The check of the settings finds all other missing parts, because they are required.
    optional = ("tenants", "priorities", "queues.topologies", "queues.admission_checks", "queues.clusters")
    missing = {part for part in optional if not at(raw, part)}
    for pattern, target in _REFERENCES:
        names = at(raw, target)
        for path, name in values_at(raw, pattern):
            if not isinstance(name, str) or name in names:
                continue
            if names:
                yield f"{key(*path)}: {name!r} is no key of {target}; {nearest(name, names, 'there')}"
            elif target in missing:
                missing.remove(target)
                yield f"{key(target)}: is missing though {dotted(*path)} names {name!r}; add it"


def _is_there(raw: Mapping[str, Any], part: str, specs: Mapping[str, type[Spec]]) -> bool:
    """Returns True if the stack declares the part. An empty part of settings has all defaults, and an empty map of
    named entries has nothing."""
    return bool(raw.get(part)) or (part in raw and part in specs)


def _lacking(raw: Mapping[str, Any], specs: Mapping[str, type[Spec]]) -> Iterator[str]:
    own = ((part, needed, reason) for part, spec in specs.items() for needed, reason in spec.needs.items())
    lacked: dict[str, dict[str, str]] = {}
    for part, needed, reason in (*_NEEDS, *own):
        if _is_there(raw, part, specs) and not _is_there(raw, needed, specs):
            lacked.setdefault(needed, {})[part] = reason
    for needed, reasons in lacked.items():
        *parts, last = reasons
        there = f"{', '.join(parts)} and {last} are" if parts else f"{last} is"
        yield f"{key(needed)}: is missing though {there} there: {'; '.join(reasons.values())}"
    if not raw.get("pools") and not at(raw, "queues.clusters"):
        yield f"{key('pools')}: is missing; add it"
    if "alerts" in raw and at(raw, "cluster") and "prometheus" not in at(raw, "cluster"):
        yield (
            f"{key('cluster', 'prometheus')}: is missing though alerts is there: NetworkPolicies would keep Prometheus "
            "from what the alerts watch; name its namespace, for instance {namespace: monitoring}"
        )


def _without_caps(raw: Mapping[str, Any]) -> Iterator[str]:
    """Reports a pool with caps in a stack without our scheduler."""
    for path, enforce in values_at(raw, "pools.*.enforce"):
        if enforce != "driver":
            continue
        if "scheduler" not in raw:  # the scheduler needs admission and the exporter
            yield (
                f"{key('scheduler')}: is missing though {dotted(*path)} is driver: nobody would choose the devices "
                "that a container is held to its budget on"
            )


def _overlapping(raw: Mapping[str, Any], part: str) -> Iterator[str]:
    """Reports two pools that can match the same node.

    If two pools select one label with different values, no node can match both pools.
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
    if "scheduler" in raw:
        return
    users = {pool for part in ("residents", "on_demand", "unbudgeted") for _, pool in values_at(raw, f"{part}.*.pool")}
    for (*_, flavor, resource), _ in values_at(raw, "queues.cluster_queues.*.quotas.*.*"):
        if str(resource).endswith(GPUMEM_SUFFIX):
            users.add(at(raw, f"queues.flavors.{flavor}").get("pool"))
    for path, devices in values_at(raw, "pools.*.device_count"):
        if isinstance(devices, int) and devices > 1 and path[1] in users - _whole_pools(raw):
            yield (
                f"{key('scheduler')}: is missing though each node of {dotted('pools', path[1])} has {devices} devices: "
                "nobody would choose a device with room for a budget; add scheduler: {}"
            )


def _in_several_pools(raw: Mapping[str, Any]) -> Iterator[str]:
    """Reports tenants with seats in several pools in a stack without our scheduler. Also reports that the workloads
    without a budget of such a tenant are in several pools, because only a seat label tells the pool of a pod.
    """
    seats: dict[str, dict[str, str]] = {}
    others: dict[str, tuple[str, str]] = {}
    for part in ("residents", "on_demand", "unbudgeted"):
        for (_, name, _), pool in values_at(raw, f"{part}.*.pool"):
            tenant = at(raw, part)[name].get("tenant")
            if not (isinstance(tenant, str) and isinstance(pool, str) and pool in at(raw, "pools")):
                continue
            if part != "residents" and tenant not in seats:
                continue
            seats.setdefault(tenant, {}).setdefault(pool, dotted(part, name))
            if part == "residents":
                continue
            first, promised = others.setdefault(tenant, (dotted(part, name), pool))
            if pool != promised:
                yield (
                    f"{key(part, name, 'pool')}: must be {promised} as that of {first}: a pod without a budget names "
                    f"no seat, so that all of {tenant} run in one pool{shown_value(pool)}"
                )
    yield from _of_several(raw, {tenant: found for tenant, found in seats.items() if len(found) > 1})


def _of_several(raw: Mapping[str, Any], several: Mapping[str, Mapping[str, str]]) -> Iterator[str]:
    """Reports the pools of which such a tenant could take more than its seats. `several` has, for each tenant, a
    workload of each of its pools.
    """
    for pool, queue in _queued_memory(raw).items():
        for tenant, found in several.items():
            if pool in found:
                yield (
                    f"{key('queues', 'cluster_queues', queue)}: promises gpumem of {pool}, in which {tenant} has seats "
                    f"besides those in other pools ({found[pool]}): a ResourceQuota is one sum for all pools, so that "
                    f"{tenant} could take this queue's memory; give the queue another pool, or {tenant} one pool"
                )
    if "scheduler" in raw:
        return
    for tenant, found in several.items():
        users = " and ".join(f"{user} in {pool}" for pool, user in [*found.items()][:2])
        yield (
            f"{key('scheduler')}: is missing though {tenant} is in several pools ({users}): a ResourceQuota is one "
            "sum for all pools, and nobody would hold the tenant to its part of each; add scheduler: {}"
        )


def _queued_memory(raw: Mapping[str, Any]) -> dict[str, str]:
    """Returns the pools of which a ClusterQueue promises gpumem, each with one such queue."""
    pools = {path[2]: pool for path, pool in values_at(raw, "queues.flavors.*.pool") if isinstance(pool, str)}
    found: dict[str, str] = {}
    for (_, _, queue, _, flavor, resource), _ in values_at(raw, "queues.cluster_queues.*.quotas.*.*"):
        if resource.endswith("/gpumem") and flavor in pools:
            found[pools[flavor]] = queue
    return found


def _whole_pools(raw: Mapping[str, Any]) -> set[str]:
    return {path[1] for path, sharing in values_at(raw, "pools.*.sharing") if sharing == "whole"}
