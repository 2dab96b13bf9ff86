"""Finds problems with queues that concern several parts of a stack file."""

from collections.abc import Iterator, Mapping
from typing import Any

from components.kueue import KueueSpec
from stacks.paths import at, values_at
from stacks.problems import dotted, key
from tenancy.frameworks import FrameworkName
from tenancy.names import GPU, GPU_COUNT_SUFFIX, GPUMEM_SUFFIX, Names

_HELD_BACK = f", and with {FrameworkName.POD} in queues.frameworks Kueue holds back all its pods"


def problems(raw: Mapping[str, Any]) -> Iterator[str]:
    """Yields an error message for each problem."""
    yield from _beside_a_queue(raw)
    yield from _uncounted(raw)
    yield from _unshared(raw)
    yield from _own_ancestors(raw)


def _beside_a_queue(raw: Mapping[str, Any]) -> Iterator[str]:
    """Reports a queue tenant that also has an unbudgeted workload, an on-demand workload, or a seat with pods that
    Kueue holds back.

    Admission denies a queue tenant's pods without a budget, because these pods could bypass the queue. With the
    framework `pod`, Kueue holds back the pods of seats too, by its scheduling gate.
    """
    found = values_at(raw, "queues.local_queues.*.tenant")
    queued = {tenant: path[2] for path, tenant in found if isinstance(tenant, str)}
    frameworks = at(raw, "queues").get("frameworks")
    gates_seats = isinstance(frameworks, list) and FrameworkName.POD in frameworks
    for part in ("on_demand", "unbudgeted", "residents") if gates_seats else ("on_demand", "unbudgeted"):
        for (_, name, _), tenant in values_at(raw, f"{part}.*.tenant"):
            if isinstance(tenant, str) and tenant in queued:
                yield (
                    f"{key(part, name, 'tenant')}: {tenant} queues for its GPUs "
                    f"({dotted('queues', 'local_queues', queued[tenant])}){_HELD_BACK if part == 'residents' else ''}; "
                    f"give {name} a tenant of its own"
                )


def _uncounted(raw: Mapping[str, Any]) -> Iterator[str]:
    """Reports prefixes by which Kueue would ignore our resources.

    With an ignored prefix, Kueue's queues would not limit the resources of our stack (pkg/workload resources.go).
    """
    domain = at(raw, "cluster").get("resource_domain")
    counted = {GPU, *([Names(domain).gpumem] if isinstance(domain, str) else [])}
    counted |= {str(name) for _, name in values_at(raw, "queues.cluster_queues.*.quotas.*.*@")}
    if not at(raw, "kueue"):
        return
    default = KueueSpec.model_fields["exclude_resource_prefixes"].default
    prefixes = at(raw, "kueue").get("exclude_resource_prefixes", default)
    listed = [each for each in prefixes if isinstance(each, str)] if isinstance(prefixes, list | tuple) else []
    where = key("kueue", "exclude_resource_prefixes")
    if hit := [name for name in sorted(counted) if name.startswith(tuple(listed))]:
        rest = [each for each in listed if not any(name.startswith(each) for name in counted)]
        yield f"{where}: queues would not count {', '.join(hit)}; write [{', '.join(rest)}] (got {listed!r})"


def _far_memory(raw: Mapping[str, Any]) -> Iterator[str]:
    for (*_, queue, _), clusters in values_at(raw, "queues.cluster_queues.*.clusters"):
        for where, resource in values_at(raw, f"queues.cluster_queues.{queue}.quotas.*.*@") if clusters else ():
            if isinstance(resource, str) and resource.endswith((GPUMEM_SUFFIX, GPU_COUNT_SUFFIX)):
                yield f"{key(*where)}: a queue with clusters hands out whole devices; remove it, or its clusters"


def _unshared(raw: Mapping[str, Any]) -> Iterator[str]:
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


def _own_ancestors(raw: Mapping[str, Any]) -> Iterator[str]:
    """Reports cohorts whose parents lead back to them: Kueue admits nothing in such cohorts."""
    parents = {path[2]: str(parent) for path, parent in values_at(raw, "queues.cohorts.*.parent_name")}
    for cohort in parents:
        way = [cohort]
        while (parent := parents.get(way[-1])) is not None and parent not in way:
            way.append(parent)
        if parent == cohort == min(way):
            where = key("queues", "cohorts", cohort, "parent_name")
            yield f"{where}: leads back to the cohort itself ({' > '.join([*way, cohort])}); remove it"
