"""Host memory pools: deny pods that would change who is killed first.

Who may use the pools' classes at all is components/admission/pods.py's, cluster-wide.
"""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from components.admission import cel
from components.admission.policy import ResourceRule, Scope, mutating, validating, within
from components.base.manifest import Manifest
from tenancy.host_memory.pool import Disposable, HostMemoryPools, Workload
from tenancy.names import HOST_MEMORY_CLASSES, HOST_MEMORY_STAMP, SHM_RMID_FORCED
from tenancy.quantity import canonical_mib

_COMPONENT = "memory"
_RULES = (ResourceRule("CREATE", ("pods",)), ResourceRule("UPDATE", ("pods/resize",)))
_BEST_EFFORT = ("cpu", "memory")


@dataclass(frozen=True)
class _Tenant:
    """A namespace of the pools, and what runs there."""

    name: str
    workloads: Sequence[Workload]
    disposable: Sequence[Disposable]


def policies(pools: HostMemoryPools) -> list[Manifest]:
    """One policy for each namespace, after the one that changes victims."""
    workloads = [w for pool in pools.pools for w in pool.workloads]
    disposable = [d for pool in pools.pools for d in pool.disposable]
    tenants = sorted({w.tenant for w in workloads} | {d.tenant for d in disposable})
    stamp = [_freed_with_its_processes(disposable)] if disposable else []
    return [
        *stamp,
        *(
            _policy(_Tenant(n, [w for w in workloads if w.tenant == n], [d for d in disposable if d.tenant == n]))
            for n in tenants
        ),
    ]


def _freed_with_its_processes(disposable: Sequence[Disposable]) -> Manifest:
    """A System V segment outlives the process that made it, unless the pod's IPC namespace has this sysctl."""
    victim = f"has(object.spec.priorityClassName) && object.spec.priorityClassName in {_list(_classes(disposable))}"
    context, path = "object.spec.securityContext", "/spec/securityContext"
    has_list = f"has({context}) && has({context}.sysctls)"
    lacks = f"!({has_list} && {context}.sysctls.exists(s, s.name == {cel.text(SHM_RMID_FORCED)}))"
    operations = [
        f"(has({context}) ? [] : {cel.add(path, '{}')})",
        f"({has_list} ? [] : {cel.add(f'{path}/sysctls', '[]')})",
        f"({lacks} ? {cel.add(f'{path}/sysctls/-', json.dumps({'name': SHM_RMID_FORCED, 'value': '1'}))} : [])",
    ]
    scope = Scope(within({d.tenant for d in disposable}), {"is-a-victim": victim})
    return mutating(_COMPONENT, HOST_MEMORY_STAMP, scope, operations)


def _policy(tenant: _Tenant) -> Manifest:
    variables = {
        "priority": "has(object.spec.priorityClassName) ? object.spec.priorityClassName : ''",
        "resources": (
            f"{cel.CONTAINERS}.filter(c, has(c.resources)).map(c, c.resources) + "
            "(has(object.spec.resources) ? [object.spec.resources] : [])"
        ),
    }
    validations = {
        **_bursts(tenant),
        **(_protected(tenant) if tenant.workloads else {}),
        **(_victims(tenant) if tenant.disposable else {}),
    }
    scope = Scope(within([tenant.name]), {}, _RULES)
    return validating(_COMPONENT, f"{HOST_MEMORY_CLASSES}-{tenant.name}", scope, validations, variables)


def _bursts(tenant: _Tenant) -> dict[str, str]:
    """Memory beyond the request is for those whose peaks were proven, and for victims."""
    limit, request = "r.limits['memory']", "r.requests['memory']"
    bursts = (
        f"{_states('r', 'requests')} && "
        f"(!{_states('r', 'limits')} || quantity({limit}).isGreaterThan(quantity({request})))"
    )
    allowed = _classes((*tenant.workloads, *tenant.disposable))
    message = (
        "this pod may hold more memory than it requests: make request and limit equal, or declare it under "
        f"memory_pools and give it its class ({', '.join(allowed)})"
    )
    return {f"variables.priority in {_list(allowed)} || !variables.resources.exists(r, {bursts})": message}


def _protected(tenant: _Tenant) -> dict[str, str]:
    """A limit is what the proof, and the guard, go by."""
    classes = _classes(tenant.workloads)
    limited = f"{cel.CONTAINERS}.all(c, has(c.resources) && {_states('c.resources', 'limits')})"
    message = f"a pod of class {', '.join(classes)} needs a memory limit on each container"
    return {f"!(variables.priority in {_list(classes)}) || {limited}": message}


def _freed(classes: str) -> dict[str, str]:
    """What a victim holds goes with its processes: pages of a tmpfs, and shared memory that stays, belong to none, and
    the kernel would go on to the protected."""
    volumes, sysctls = "object.spec.volumes", "object.spec.securityContext.sysctls"
    in_memory = "has(v.emptyDir) && has(v.emptyDir.medium) && v.emptyDir.medium == 'Memory'"
    kept = f"s.name == {cel.text(SHM_RMID_FORCED)} && s.value != '1'"
    first = f"a pod of class {classes} is there to be killed first, and"
    return {
        f"!has({volumes}) || !{volumes}.exists(v, {in_memory})": (
            f"{first} what it wrote to an emptyDir of medium Memory would stay: use one without a medium"
        ),
        f"!has(object.spec.securityContext) || !has({sysctls}) || !{sysctls}.exists(s, {kept})": (
            f"{first} its shared memory would stay: remove the sysctl {SHM_RMID_FORCED}"
        ),
    }


def _victims(tenant: _Tenant) -> dict[str, str]:
    """The cheapest to kill: no more than the declared request, and no other class where only victims run."""
    classes = _classes(tenant.disposable)
    is_victim = f"variables.priority in {_list(classes)}"
    request_mib = max(d.request_mib for d in tenant.disposable)
    validations = {f"!({is_victim}) || {holds}": message for holds, message in _freed(", ".join(classes)).items()}
    if request_mib:
        most = canonical_mib(request_mib)
        asked = f"variables.resources.filter(r, {_states('r', 'requests')})"
        small = f"{asked}.all(r, quantity(r.requests['memory']).compareTo(quantity({cel.text(most)})) <= 0)"
        validations[f"!({is_victim}) || {small}"] = (
            f"a pod of class {', '.join(classes)} is there to be killed first: request at most {most} of memory"
        )
    else:
        none = " && ".join(
            f"!{_states('r', part, resource)}" for part in ("requests", "limits") for resource in _BEST_EFFORT
        )
        validations[f"!({is_victim}) || variables.resources.all(r, {none})"] = (
            f"a pod of class {', '.join(classes)} is there to be killed first, and so BestEffort: state no cpu and no "
            "memory"
        )
    if not tenant.workloads:
        validations[is_victim] = (
            f"namespace {tenant.name} is the memory pools' victims': give the pod priorityClassName "
            f"{' or '.join(classes)}"
        )
    return validations


def _states(resources: str, part: str, resource: str = "memory") -> str:
    return f"(has({resources}.{part}) && {cel.text(resource)} in {resources}.{part})"


def _classes(members: Iterable[Workload | Disposable]) -> list[str]:
    return sorted({member.priority for member in members})


def _list(values: Iterable[str]) -> str:
    return f"[{', '.join(map(cel.text, values))}]"
