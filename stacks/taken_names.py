"""Checks for names that Kubernetes, the stack itself or another key already uses."""

from collections.abc import Iterator, Mapping
from typing import Any

from components.base.system import ClusterSpec
from components.kueue import KueueSpec
from stacks.paths import at, values_at
from stacks.problems import dotted, key, shown_value
from tenancy import reach
from tenancy.names import EXEMPT_BY_NAME, KUBERNETES_NAMESPACES, SYSTEM_PRIORITIES, node_agent_namespace

# The owners of these domains and of their subdomains. Kubernetes treats a resource as its own if the domain of the
# resource ends with "kubernetes.io" (pkg/apis/core/v1/helper IsNativeResource).
_OWNED = {"kubernetes.io": "Kubernetes'", "k8s.io": "Kubernetes'", "nvidia.com": "NVIDIA's"}
_ANYTHING_BEFORE = ("kubernetes.io",)
# Kubernetes reads a resource with one of these prefixes as a quota's key or as pages of host memory
# (pkg/apis/core/v1/helper).
_OTHER_RESOURCES = ("requests.", "hugepages-")
_SYSTEM_CLASS = f"names that begin with {SYSTEM_PRIORITIES} are Kubernetes' own, and it creates no other; rename it"
# The keys by which a stack gives pods a PriorityClass.
_PRIORITIES = (
    "admission.gpu_priority",
    "admission.tenant_priorities.*",
    "memory_pools.*.workloads.*.priority",
    "memory_pools.*.disposable.*.priority",
)


def problems(raw: Mapping[str, Any]) -> list[str]:
    """Returns one error message for each name that is already in use."""
    return [
        *_domain(raw),
        *_namespaces(raw),
        *_exempt(raw),
        *_device_classes(raw),
        *_exempt_priorities(raw),
        *(f"{key('priorities', name)}: {_SYSTEM_CLASS}" for name in at(raw, "priorities") if _is_systems(name)),
        *_workloads(raw),
    ]


def _is_systems(name: object) -> bool:
    return isinstance(name, str) and name.startswith(SYSTEM_PRIORITIES)


def _domain(raw: Mapping[str, Any]) -> Iterator[str]:
    domain, where = at(raw, "cluster").get("resource_domain"), key("cluster", "resource_domain")
    if not isinstance(domain, str):
        return
    for owned, owner in _OWNED.items():
        if domain == owned or domain.endswith(owned if owned in _ANYTHING_BEFORE else f".{owned}"):
            yield f"{where}: {owned} is {owner} own; name a domain of yours{shown_value(domain)}"
    if prefix := next((each for each in _OTHER_RESOURCES if domain.startswith(each)), None):
        yield f"{where}: begins with {prefix}, which Kubernetes reads as no resource of yours; name another domain"


def _admission_names(raw: Mapping[str, Any], field: str) -> Iterator[tuple[str, str]]:
    listed = at(raw, "admission").get(field)
    for index, name in enumerate(listed if isinstance(listed, list) else ()):
        if isinstance(name, str):
            yield key("admission", field, index), name


def _system(raw: Mapping[str, Any]) -> str:
    return str(at(raw, "cluster").get("system_namespace", ClusterSpec.model_fields["system_namespace"].default))


def _namespaces(raw: Mapping[str, Any]) -> Iterator[str]:
    where = "kueue" if at(raw, "kueue") else "queues.installed_kueue"
    kueue = str(at(raw, where).get("namespace", KueueSpec.model_fields["namespace"].default))
    system, taken = _system(raw), dict.fromkeys(KUBERNETES_NAMESPACES, "Kubernetes' own")
    if kueue in taken:
        yield f"{key(*where.split('.'), 'namespace')}: is Kubernetes' own; name another{shown_value(kueue)}"
    taken[kueue] = "Kueue's"
    if system in taken or node_agent_namespace(system) in taken:
        yield f"{key('cluster', 'system_namespace')}: is taken already; name another{shown_value(system)}"
    taken |= dict.fromkeys((system, node_agent_namespace(system)), "the agents'")
    taken = {name: "exempt from admission" for _, name in _admission_names(raw, "exempt_namespaces")} | taken
    for tenant in at(raw, "tenants"):
        if tenant in taken and tenant != "default":
            yield f"{key('tenants', tenant)}: this namespace is {taken[tenant]}; give the tenant one of its own"


def _exempt(raw: Mapping[str, Any]) -> Iterator[str]:
    """Reports namespaces that cannot be exempt. kube-system is allowed in the list, because it is always exempt."""
    taken = dict.fromkeys(KUBERNETES_NAMESPACES, "is Kubernetes' own") | {
        "default": "is where whatever names no namespace ends, and would be exempt with it",
        _system(raw): "is the agents'",
        node_agent_namespace(_system(raw)): "is the agents'",
    }
    if kueue := at(raw, "kueue"):
        taken[str(kueue.get("namespace", KueueSpec.model_fields["namespace"].default))] = "is Kueue's"
    for where, namespace in _admission_names(raw, "exempt_namespaces"):
        if namespace in taken and namespace != EXEMPT_BY_NAME:
            yield (
                f"{where}: {taken[namespace]}; remove it, and give what needs the exemption a namespace of its own"
                f"{shown_value(namespace)}"
            )


def _device_classes(raw: Mapping[str, Any]) -> Iterator[str]:
    for where, name in _admission_names(raw, "device_classes"):
        if reach.hands_out_gpus(name):
            yield (
                f"{where}: hands out GPUs, which claims would take beside the ledger; remove it: listed are classes "
                f"that give no GPU, such as a network card's{shown_value(name)}"
            )


def _exempt_priorities(raw: Mapping[str, Any]) -> Iterator[str]:
    users = [match for pattern in _PRIORITIES for match in values_at(raw, pattern)]
    used = {priority: dotted(*path) for path, priority in users if isinstance(priority, str)}
    for where, name in _admission_names(raw, "exempt_priorities"):
        if name in used:
            yield f"{where}: is that of {used[name]}; remove it{shown_value(name)}"


def _workloads(raw: Mapping[str, Any]) -> Iterator[str]:
    """Reports a workload with more than one entry.

    A workload may have one entry for GPU memory and one entry for host memory.
    """
    device_users = ("residents.*", "on_demand.*", "unbudgeted.*")
    host_memory_users = ("memory_pools.*.workloads.*", "memory_pools.*.disposable.*")
    for patterns in (device_users, host_memory_users):
        first: dict[tuple[object, object], str] = {}
        for path, spec in (match for pattern in patterns for match in values_at(raw, pattern)):
            if not isinstance(spec, Mapping):
                continue
            workload = (str(spec.get("tenant")), str(spec.get("deployment") or path[-1]))
            if workload in first:
                yield f"{key(*path)}: is the same workload as {first[workload]}; remove one"
            first.setdefault(workload, dotted(*path))
