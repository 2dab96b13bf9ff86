"""Names that belong to somebody else already: to Kubernetes, to the stack itself, or to another key."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from components.base.system import ClusterSpec
from components.kueue import KueueSpec
from stacks.problems import dotted, got, key
from stacks.references import at, matches
from tenancy import reach
from tenancy.names import EXEMPT_BY_NAME, SYSTEM_PRIORITIES, Names, node_agent_namespace

# https://kubernetes.io/docs/concepts/overview/working-with-objects/namespaces/#initial-namespaces
_KUBERNETES_NAMESPACES = ("default", "kube-node-lease", "kube-public", "kube-system")
# Whose labels and resources these are, with their subdomains. Of the first Kubernetes takes any resource whose domain
# ends so for its own (pkg/apis/core/v1/helper IsNativeResource).
_OWNED = {"kubernetes.io": "Kubernetes'", "k8s.io": "Kubernetes'", "nvidia.com": "NVIDIA's"}
_ANYTHING_BEFORE = ("kubernetes.io",)
# Such a name is no extended resource (IsExtendedResourceName, IsHugePageResourceName).
_NO_DOMAIN = ("requests.", "hugepages-")
# In a ResourceQuota, and in text that names a resource by its path, it is read as a limit on another one.
_LIKE_A_LIMIT = "limits."
# What names.py puts around a namespace's name, and around the domain of a driver of devices
# (DriverNameMaxLength in k8s.io/api resource/v1), must still fit.
_LONGEST_NAMESPACE = 63
_LONGEST_DOMAIN = 200  # of which the settings themselves speak
_LONGEST_DRIVER = 63
# Where a stack gives somebody a class.
_PRIORITIES = (
    "admission.gpu_priority",
    "admission.tenant_priorities.*",
    "memory_pools.*.workloads.*.priority",
    "memory_pools.*.disposable.*.priority",
)
_ONE_NAMESPACES_ACCOUNTS = "system:serviceaccounts:."


def problems(raw: Mapping[str, Any]) -> list[str]:
    """One line per name that is taken."""
    return [
        *_domain(raw),
        *_namespaces(raw),
        *_exempt(raw),
        *_device_classes(raw),
        *_exempt_priorities(raw),
        *_trusted_groups(raw),
        *_groups(raw),
        *_priorities(raw),
        *_local_queues(raw),
        *_workloads(raw),
    ]


def _domain(raw: Mapping[str, Any]) -> Iterator[str]:
    domain, where = at(raw, "cluster").get("resource_domain"), key("cluster", "resource_domain")
    if not isinstance(domain, str):
        return
    for owned, owner in _OWNED.items():
        if domain == owned or domain.endswith(owned if owned in _ANYTHING_BEFORE else f".{owned}"):
            yield f"{where}: {owned} is {owner} own; name a domain of yours{got(domain)}"
    for prefix in _NO_DOMAIN:
        if domain.startswith(prefix):
            yield f"{where}: a resource that begins with {prefix} is Kubernetes' own; name it otherwise{got(domain)}"
    if domain.startswith(_LIKE_A_LIMIT):
        yield f"{where}: {_LIKE_A_LIMIT} reads as a limit on the resource after it; name it otherwise{got(domain)}"
    if "scheduler" in raw and len(domain) <= _LONGEST_DOMAIN and len(Names(domain).device_driver) > _LONGEST_DRIVER:
        longest = _LONGEST_DRIVER - len(Names("").device_driver)
        yield f"{where}: must be at most {longest} characters where scheduler is there{got(domain)}"


def _system(raw: Mapping[str, Any]) -> Any:
    return at(raw, "cluster").get("system_namespace", ClusterSpec.model_fields["system_namespace"].default)


def _namespaces(raw: Mapping[str, Any]) -> Iterator[str]:
    system = _system(raw)
    kueue = at(raw, "kueue").get("namespace", KueueSpec.model_fields["namespace"].default)
    taken = dict.fromkeys(_KUBERNETES_NAMESPACES, "Kubernetes' own")
    if isinstance(kueue, str):
        if kueue in taken:
            yield f"{key('kueue', 'namespace')}: is Kubernetes' own; name another{got(kueue)}"
        taken[kueue] = "Kueue's"
    if isinstance(system, str):
        if system in taken or node_agent_namespace(system) in taken:
            yield f"{key('cluster', 'system_namespace')}: is taken already; name another{got(system)}"
        if len(node_agent_namespace(system)) > _LONGEST_NAMESPACE:
            longest = _LONGEST_NAMESPACE - len(node_agent_namespace(""))
            yield f"{key('cluster', 'system_namespace')}: must be at most {longest} characters{got(system)}"
        taken |= dict.fromkeys((system, node_agent_namespace(system)), "the agents'")
    for field, why in (("exempt_namespaces", "exempt from admission"), ("trusted_namespaces", "trusted by admission")):
        listed = at(raw, "admission").get(field)
        if isinstance(listed, list):
            taken |= {each: why for each in listed if isinstance(each, str) and each not in taken}
    for tenant in at(raw, "tenants"):
        if tenant in taken:
            yield f"{key('tenants', tenant)}: this namespace is {taken[tenant]}; give the tenant one of its own"


def _trusted_groups(raw: Mapping[str, Any]) -> Iterator[str]:
    """Everybody is of some group of Kubernetes' own (system:authenticated)."""
    trusted = at(raw, "admission").get("trusted_groups")
    tenants = {group: tenant for tenant in at(raw, "tenants") for group in at(raw, f"tenants.{tenant}.groups")}
    for index, group in enumerate(trusted if isinstance(trusted, list) else ()):
        where = key("admission", "trusted_groups", str(index))
        if isinstance(group, str) and group.startswith("system:"):
            yield f"{where}: groups that begin with system: are Kubernetes' own; name people{got(group)}"
        elif isinstance(group, str) and group in tenants:
            yield f"{where}: has a role in tenants.{tenants[group]}, and no tenant is trusted; name another{got(group)}"


def _exempt(raw: Mapping[str, Any]) -> Iterator[str]:
    """What is exempt in any case may be listed."""
    taken = dict.fromkeys(_KUBERNETES_NAMESPACES, "is Kubernetes' own") | {
        "default": "is where whatever names no namespace ends, and would be exempt with it",
        _system(raw): "is the agents'",
    }
    del taken[EXEMPT_BY_NAME]
    namespaces = at(raw, "admission").get("exempt_namespaces")
    for index, namespace in enumerate(namespaces if isinstance(namespaces, list) else ()):
        if isinstance(namespace, str) and namespace in taken:
            yield (
                f"{key('admission', 'exempt_namespaces', index)}: {taken[namespace]}; remove it, and give what needs "
                f"the exemption a namespace of its own{got(namespace)}"
            )


def _device_classes(raw: Mapping[str, Any]) -> Iterator[str]:
    domain, listed = at(raw, "cluster").get("resource_domain"), at(raw, "admission").get("device_classes")
    names = Names(domain if isinstance(domain, str) else "")
    for index, name in enumerate(listed if isinstance(listed, list) else ()):
        if isinstance(name, str) and reach.hands_out_gpus(name, names):
            yield (
                f"{key('admission', 'device_classes', index)}: hands out GPUs, which claims would take beside the "
                f"ledger; remove it: listed are classes that give no GPU, such as a network card's{got(name)}"
            )


def _exempt_priorities(raw: Mapping[str, Any]) -> Iterator[str]:
    """A class that the stack gives to somebody is not for the exempt alone."""
    users = [match for pattern in _PRIORITIES for match in matches(raw, pattern)]
    used = {priority: dotted(*path) for path, priority in users if isinstance(priority, str)}
    listed = at(raw, "admission").get("exempt_priorities")
    for index, name in enumerate(listed if isinstance(listed, list) else ()):
        where = key("admission", "exempt_priorities", index)
        if isinstance(name, str) and name in used:
            yield f"{where}: is that of {used[name]}; remove it{got(name)}"
        elif isinstance(name, str) and name.startswith(SYSTEM_PRIORITIES):
            yield f"{where}: is the agents' as well, and kept from all others already; remove it{got(name)}"


def _groups(raw: Mapping[str, Any]) -> Iterator[str]:
    """https://kubernetes.io/docs/reference/access-authn-authz/rbac/#referring-to-subjects"""
    for path, group in matches(raw, "tenants.*.groups.*@"):
        if group.startswith("system:") and not re.match(_ONE_NAMESPACES_ACCOUNTS, group):
            yield (
                f"{key(*path)}: groups that begin with system: are Kubernetes' own, most with everybody in them; name "
                "a group of your identity provider"
            )


def _priorities(raw: Mapping[str, Any]) -> Iterator[str]:
    """https://kubernetes.io/docs/concepts/scheduling-eviction/pod-priority-preemption/#priorityclass"""
    for name in at(raw, "priorities"):
        if name.startswith("system-"):
            yield f"{key('priorities', name)}: names that begin with system- are Kubernetes' own; name it otherwise"


def _local_queues(raw: Mapping[str, Any]) -> Iterator[str]:
    """Kueue gives every Job without a queue's name to the LocalQueue `default` of its namespace."""
    if "default" in at(raw, "queues.local_queues"):
        yield f"{key('queues', 'local_queues', 'default')}: would capture every Job without a queue; name it otherwise"


def _workloads(raw: Mapping[str, Any]) -> Iterator[str]:
    """A workload has a seat, a gate or neither; a memory budget it has once."""
    device_users = ("residents.*", "on_demand.*", "unbudgeted.*")
    host_memory_users = ("memory_pools.*.workloads.*", "memory_pools.*.disposable.*")
    for patterns in (device_users, host_memory_users):
        first: dict[tuple[object, object], str] = {}
        for path, spec in (match for pattern in patterns for match in matches(raw, pattern)):
            if not isinstance(spec, Mapping):
                continue
            workload = (str(spec.get("tenant")), str(spec.get("deployment") or path[-1]))
            if workload in first:
                yield f"{key(*path)}: is the same workload as {first[workload]}; remove one"
            first.setdefault(workload, dotted(*path))
