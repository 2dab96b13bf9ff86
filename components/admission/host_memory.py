"""Memory pools: policies against pods that could make the kernel kill a protected pod before a disposable pod.

tenancy/admission/parts.py decides which tenants may use the PriorityClasses of memory pools.
"""

import json
from collections.abc import Iterable, Sequence

from components.base.manifest import Manifest
from tenancy.admission import cel
from tenancy.admission.merge import merged
from tenancy.admission.policy import ResourceRule, Scope, in_namespaces, mutating, validating
from tenancy.host_memory.pool import Disposable, HostMemoryPools, Workload
from tenancy.names import SHM_RMID_FORCED
from tenancy.policy_names import HOST_MEMORY_CLASSES, HOST_MEMORY_STAMP
from tenancy.quantity import canonical_mib
from tenancy.units import MIB

_COMPONENT = "memory"
_RULES = (ResourceRule("CREATE", ("pods",)), ResourceRule("UPDATE", ("pods/resize",)))
_BEST_EFFORT = ("cpu", "memory")


def policies(pools: HostMemoryPools) -> list[Manifest]:
    """Returns a policy that changes disposable pods, and a policy that judges the pods of each namespace."""
    workloads = [w for pool in pools.pools for w in pool.workloads]
    disposable = [d for pool in pools.pools for d in pool.disposable]
    tenants = sorted({w.tenant for w in workloads} | {d.tenant for d in disposable})
    judging = (
        _policy(n, [w for w in workloads if w.tenant == n], [d for d in disposable if d.tenant == n]) for n in tenants
    )
    return [*([_freed_with_its_processes(disposable)] if disposable else []), *merged(judging)]


def _freed_with_its_processes(disposable: Sequence[Disposable]) -> Manifest:
    named, classes = "object.spec.priorityClassName", cel.quoted_list(_classes(disposable))
    is_disposable = f"has({named}) && {named} in {classes}"
    context, path = "object.spec.securityContext", "/spec/securityContext"
    has_list = f"has({context}) && has({context}.sysctls)"
    lacks = f"!({has_list} && {context}.sysctls.exists(s, s.name == {cel.quoted(SHM_RMID_FORCED)}))"
    operations = [
        f"(has({context}) ? [] : {cel.add(path, '{}')})",
        f"({has_list} ? [] : {cel.add(f'{path}/sysctls', '[]')})",
        f"({lacks} ? {cel.add(f'{path}/sysctls/-', json.dumps({'name': SHM_RMID_FORCED, 'value': '1'}))} : [])",
    ]
    scope = Scope(in_namespaces({d.tenant for d in disposable}), {"is-a-victim": is_disposable})
    return mutating(HOST_MEMORY_STAMP, scope, operations, component=_COMPONENT)


def _policy(tenant: str, workloads: Sequence[Workload], disposable: Sequence[Disposable]) -> Manifest:
    variables = {
        "priority": "has(object.spec.priorityClassName) ? object.spec.priorityClassName : ''",
        "resources": (
            f"{cel.CONTAINERS}.filter(c, has(c.resources)).map(c, c.resources) + "
            "(has(object.spec.resources) ? [object.spec.resources] : [])"
        ),
    }
    validations = {
        **_bursts(_classes((*workloads, *disposable))),
        **(_protected(_classes(workloads)) if workloads else {}),
        **(_killed_first(disposable) if disposable else {}),
        **({} if workloads else _only_disposable(tenant, _classes(disposable))),
    }
    name, scope = f"{HOST_MEMORY_CLASSES}-{tenant}", Scope(in_namespaces([tenant]), {}, _RULES)
    return validating(name, scope, validations, variables, component=_COMPONENT)


def _bursts(allowed: Sequence[str]) -> dict[str, str]:
    limit, request = "r.limits['memory']", "r.requests['memory']"
    bursts = (
        f"{_states('r', 'requests')} && "
        f"(!{_states('r', 'limits')} || quantity({limit}).isGreaterThan(quantity({request})))"
    )
    message = (
        "this pod may hold more memory than it requests: make request and limit equal, or declare it under "
        f"memory_pools and give it its class ({', '.join(allowed)})"
    )
    return {f"variables.priority in {cel.quoted_list(allowed)} || !variables.resources.exists(r, {bursts})": message}


def _protected(classes: Sequence[str]) -> dict[str, str]:
    """Requires a limit for host memory on each container of a protected pod. The policy pack's proof and the guard use
    the memory limit in their calculations."""
    limited = f"{cel.CONTAINERS}.all(c, has(c.resources) && {_states('c.resources', 'limits')})"
    message = f"a pod of class {', '.join(classes)} needs a memory limit on each container"
    return {f"!(variables.priority in {cel.quoted_list(classes)}) || {limited}": message}


def _killed_first(disposable: Sequence[Disposable]) -> dict[str, str]:
    """Denies a disposable pod that requests more host memory than the pods of its class may.

    Also denies a disposable pod if its memory could stay in use after its processes have ended.
    The pages of a tmpfs and of shared memory can remain without a process. If pages without a process filled the host
    memory, the kernel would kill protected pods next.
    """
    classes = _classes(disposable)
    volumes, sysctls = "object.spec.volumes", "object.spec.securityContext.sysctls"
    in_memory = "has(v.emptyDir) && has(v.emptyDir.medium) && v.emptyDir.medium == 'Memory'"
    kept = f"s.name == {cel.quoted(SHM_RMID_FORCED)} && s.value != '1'"
    first = f"a pod of class {', '.join(classes)} is there to be killed first"
    required = {
        f"!has({volumes}) || !{volumes}.exists(v, {in_memory})": (
            f"{first}, and what it wrote to an emptyDir of medium Memory would stay: use one without a medium"
        ),
        f"!has(object.spec.securityContext) || !has({sysctls}) || !{sysctls}.exists(s, {kept})": (
            f"{first}, and its shared memory would stay: remove the sysctl {SHM_RMID_FORCED}"
        ),
    }
    denied = {f"!({_is_of(classes)}) || {holds}": message for holds, message in required.items()}
    for each in classes:
        # The kubelet's eviction compares a pod with what the pod requests in all.
        most_mib = max(d.request_mib for d in disposable if d.priority == each)
        killed = f"a pod of class {each} is there to be killed first"
        if most_mib:
            small = f"[{cel.most_at_once(_requested)}, {_requested('object.spec')}].max() <= {most_mib * MIB}"
            most = canonical_mib(most_mib)
            denied[f"!({_is_of([each])}) || {small}"] = f"{killed}: request at most {most} of memory in all"
        else:
            none = " && ".join(
                f"!{_states('r', part, resource)}" for part in ("requests", "limits") for resource in _BEST_EFFORT
            )
            denied[f"!({_is_of([each])}) || variables.resources.all(r, {none})"] = (
                f"{killed}, and so BestEffort: state no cpu and no memory"
            )
    return denied


def _requested(of: str) -> str:
    """Returns the host memory that a container or a pod requests, in bytes, or 0."""
    asks = f"has({of}.resources) && {_states(f'{of}.resources', 'requests')}"
    return f"({asks} ? quantity({of}.resources.requests['memory']).asInteger() : 0)"


def _only_disposable(tenant: str, classes: Sequence[str]) -> dict[str, str]:
    message = f"namespace {tenant} is the memory pools' victims': give the pod priorityClassName {' or '.join(classes)}"
    return {_is_of(classes): message}


def _is_of(classes: Sequence[str]) -> str:
    return f"variables.priority in {cel.quoted_list(classes)}"


def _states(resources: str, part: str, resource: str = "memory") -> str:
    return f"(has({resources}.{part}) && {cel.quoted(resource)} in {resources}.{part})"


def _classes(members: Iterable[Workload | Disposable]) -> list[str]:
    return sorted({member.priority for member in members})
