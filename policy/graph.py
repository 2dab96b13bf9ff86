"""The resource graph of a program, which all rules read: the ledger, the objects by kind, and the gpumem requests of
each workload."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeVar

from policy.finding import UNREADABLE, Finding, unproven
from policy.objects import Object, from_json, text_at
from policy.unknown import UnprovenError, is_unknown, unknown
from tenancy import names, reach
from tenancy.decode import DecodeError
from tenancy.frameworks import FrameworkName, framework_of
from tenancy.host_memory.pool import HostMemoryPools
from tenancy.ledger import Ledger, Pool, Seat
from tenancy.workload import (
    TEMPLATES,
    ShapeError,
    containers_of,
    map_at,
    may_run_on,
    pod_request,
    pod_template,
)

KUEUE = names.KUEUE_API.partition("/")[0]
_BUILT_IN = frozenset({"", "apps", "batch"})
# Kubernetes' own API groups with a dot in their name. No kind of Kubernetes' own API groups with a dot runs pods.
_BUILT_IN_WITH_A_DOT = {
    *("admissionregistration", "apiextensions", "authentication", "authorization", "certificates", "coordination"),
    *("discovery", "events", "flowcontrol.apiserver", "internal.apiserver", "networking", "node"),
    *("rbac.authorization", "resource", "scheduling", "storage", "storagemigration"),
}
_WHAT = {names.LEDGER_KEY: "ledger", names.HOST_MEMORY_POOLS_KEY: "set of memory pools"}

T = TypeVar("T")


@dataclass(frozen=True)
class PodRequest:
    """The MiB of `resource` that each pod of a workload requests. `seat` is the workload's seat, or None for a workload
    without a seat."""

    workload: Object
    pod_spec: Mapping[str, Any]
    resource: str
    mib: int
    seat: Seat | None

    @property
    def urn(self) -> str:
        return self.workload.urn

    def __str__(self) -> str:
        return str(self.workload)


@dataclass(frozen=True)
class Graph:
    """Holds the objects that a program declares. `configured` is the pack's configuration. A ledger or memory pools in
    `configured` replace those that the program declares. No rule judges the objects in `elsewhere`, because they belong
    to other clusters."""

    objects: tuple[Object, ...]
    configured: Mapping[str, object] = field(default_factory=dict)
    elsewhere: tuple[Object, ...] = ()

    def of(self, *kinds: str) -> list[Object]:
        """Returns the objects of these kinds. A kind includes its API group, such as `Deployment.apps`, unless the
        group is the core."""
        return [found for kind in kinds for found in self._by_kind.get(kind, ())]

    def named(self, kind: str, name: str, namespace: str | None = None) -> Object | None:
        """Returns the object with this name. Raises UnprovenError if any name of the kind is unknown."""
        if kind not in self._by_name:
            grouped: dict[str, list[Object]] = {}
            for found in self.of(kind):
                if is_unknown(found.name):
                    raise UnprovenError(f"{found.kind} {found.urn.rpartition('::')[2]}: {unknown('metadata.name')}")
                grouped.setdefault(found.name, []).append(found)
            self._by_name[kind] = grouped
        called = self._by_name[kind].get(name, ())
        return next((o for o in called if namespace is None or o.namespace == namespace), None)

    @cached_property
    def _by_name(self) -> dict[str, Mapping[str, list[Object]]]:
        return {}

    @cached_property
    def _by_kind(self) -> Mapping[str, list[Object]]:
        grouped: dict[str, list[Object]] = {}
        for found in self.objects:
            grouped.setdefault(found.qualified_kind, []).append(found)
        return grouped

    @cached_property
    def workloads(self) -> list[Object]:
        """Returns all objects of Kubernetes' own kinds that run pods."""
        return [o for o in self.objects if runs_pods(o)]

    @cached_property
    def promised(self) -> frozenset[tuple[str, str]]:
        """Returns the namespace and the name of each workload for which the ledger or a memory pool has an entry."""
        ledger, pools = self.ledger, self.host_memory.pools if self.host_memory else ()
        members = [(each.tenant, each.name) for pool in pools for each in pool.members]
        for entries in (ledger.seats, ledger.on_demand, ledger.unbudgeted) if ledger else ():
            members += [(each.tenant, each.name) for each in entries]
        return frozenset(members)

    def is_a_tenants(self, found: Object) -> bool:
        """Returns True if the object is in the namespace of a tenant, or of a workload of a memory pool. Raises
        UnprovenError for an unknown namespace."""
        tenants = self.ledger.tenants_by_name if self.ledger else {}
        return found.namespace in tenants or found.namespace in {tenant for tenant, _ in self.promised}

    def is_for_admission(self, found: object) -> bool:
        """Returns True for an object that makes pods outside of the tenants' namespaces. What is unknown of it, only
        admission can judge. An unknown namespace counts as a tenant's if the pods show a way to a GPU."""
        if not isinstance(found, Object) or found.group == KUEUE:
            return False
        if found.kind == "PersistentVolume":
            return True
        if found.kind.removesuffix("Patch") not in TEMPLATES and is_built_in(found):
            return False
        try:
            return not self.is_a_tenants(found)
        except ShapeError:
            return False
        except UnprovenError:
            return not self._reaches_a_gpu(found)

    def _reaches_a_gpu(self, found: Object) -> bool:
        try:
            pod_spec = map_at(pod_template(found.manifest) or {}, "spec")
            return any(reach.routes(pod_spec, self.ledger.names if self.ledger else names.Names("")))
        except UNREADABLE:
            return False

    @property
    def ledger_objects(self) -> list[Object]:
        """Returns the ConfigMaps that hold the ledger, except those that differ from the configured ledger."""
        return self._read[2]

    @property
    def host_memory_objects(self) -> list[Object]:
        """Returns the ConfigMaps that hold the memory pools, except those that differ from the configured memory
        pools."""
        return self._read_host_memory[2]

    @property
    def ledger_source(self) -> str:
        """Returns the source of the ledger for the pack's output."""
        if self.configured.get("ledger") is not None:
            stack = self.configured.get("stack")
            return f"the pack's configuration{f' (output of {stack})' if stack else ''}"
        return f"{self.ledger_objects[0]} of this program" if self.ledger_objects else "nowhere: there is none"

    @property
    def is_beside(self) -> bool:
        """Returns True if the program declares no ledger. Without a ledger in the program, the pack judges the program
        by the configured ledger of the platform."""
        return self.ledger is not None and not self._config_maps(names.LEDGER)

    def _config_maps(self, name: str) -> list[Object]:
        return [o for o in self.of("ConfigMap") if not is_unknown(o.name) and o.name == name]

    @cached_property
    def _read(self) -> "_Read[Ledger]":
        declared, configured = self._config_maps(names.LEDGER), self.configured.get("ledger")
        return _decoded(declared, names.LEDGER_KEY, configured, Ledger.from_data)

    @cached_property
    def _read_host_memory(self) -> "_Read[HostMemoryPools]":
        declared, configured = self._config_maps(names.HOST_MEMORY_POOLS), self.configured.get("memory_pools")
        return _decoded(declared, names.HOST_MEMORY_POOLS_KEY, configured, HostMemoryPools.from_data)

    @property
    def ledger(self) -> Ledger | None:
        """Returns the ledger, or None if no ledger can be read."""
        return self._read[0]

    @property
    def ledger_problems(self) -> list[Finding]:
        """Returns the findings about a missing ledger, or about ledgers to remove."""
        return self._read[1]

    @property
    def host_memory(self) -> HostMemoryPools | None:
        """Returns the memory pools, or None if no memory pools can be read."""
        return self._read_host_memory[0]

    @property
    def host_memory_problems(self) -> list[Finding]:
        """Returns the findings about missing memory pools, or about objects to remove."""
        return self._read_host_memory[1]

    @cached_property
    def _requests(self) -> tuple[list[PodRequest], list[Finding]]:
        requests: list[PodRequest] = []
        unread: list[Finding] = []
        for workload in self.workloads:
            try:
                requests.extend(self._requests_of(workload))
            except UNREADABLE as error:
                unread.append(unproven(workload, error))
        return requests, unread

    @property
    def requests(self) -> list[PodRequest]:
        """Returns the request of every workload that asks for gpumem and can be read."""
        return self._requests[0]

    @property
    def unread_requests(self) -> list[Finding]:
        """Returns a finding for each workload with unreadable requests."""
        return self._requests[1]

    def _requests_of(self, workload: Object) -> Iterator[PodRequest]:
        template = pod_template(workload.manifest) or {}
        pod_spec = map_at(template, "spec")
        for resource in sorted(requested_resources(pod_spec)):
            if is_gpumem(resource):
                seat = self._seat_of(workload, template)
                yield PodRequest(workload, pod_spec, resource, pod_request(pod_spec, resource), seat)

    def _seat_of(self, workload: Object, template: Mapping[str, Any]) -> Seat | None:
        if self.ledger is None:
            return None
        seats = {seat.name: seat for seat in self.ledger.seats_of(workload.namespace)}
        labels = map_at(template, "metadata", "labels")
        called = (
            labels.get(self.ledger.names.seat_label),
            workload.name,
            workload.labels.get(names.LABEL_NAME),
            labels.get(names.LABEL_NAME),
        )
        return next((seats[name] for name in called if isinstance(name, str) and name in seats), None)

    def reachable_pools(self, pod_spec: Mapping[str, Any]) -> list[Pool]:
        """Returns the pools with shared memory that the pod's nodeSelector and nodeAffinity allow."""
        shared = self.ledger.shared_pools if self.ledger else ()
        return [pool for pool in shared if may_run_on(pod_spec, pool.node_selector)]


# the decoded value, the findings, and the objects that contain the value
_Read = tuple[T | None, list[Finding], list[Object]]


def _decoded(
    declared: Sequence[Object], key: str, configured: object, from_data: Callable[[object], T]
) -> tuple[T | None, list[Finding], list[Object]]:
    """Decodes the pack's configuration, or a ConfigMap's value under `key`. Raises nothing."""
    if configured is None:
        return _of_graph(declared, key, from_data)
    try:
        rules = from_data(configured)
    except DecodeError as error:
        return None, [Finding(f"the {_WHAT[key]} in the pack's configuration cannot be read: {error}")], []
    same, findings = [], []
    for found in declared:
        other, problems, _ = _of_graph([found], key, from_data)
        if other == rules:
            same.append(found)
            continue
        findings += problems or [_another(found, key)]
    return rules, findings, same


def _of_graph(
    declared: Sequence[Object], key: str, from_data: Callable[[object], T]
) -> tuple[T | None, list[Finding], list[Object]]:
    if not declared:
        return None, [], []
    first, *others = declared
    findings = [Finding(f"{other}: a second {_WHAT[key]}; keep one", other.urn) for other in others]
    try:
        return from_data(_data_of(first, key)), findings, [*declared]
    except (DecodeError, *UNREADABLE) as error:
        return None, [*findings, unproven(first, error)], [*declared]


def _data_of(found: Object, key: str) -> Any:
    data = map_at(found.manifest, "data")
    if key not in data:
        raise ShapeError(f"it has no {key}")
    return from_json(text_at(data, key))


def _another(found: Object, key: str) -> Finding:
    return Finding(
        f"{found}: is another {_WHAT[key]} than the pack's configuration, which rules; remove it, or write the "
        "platform's output into the configuration again",
        found.urn,
    )


def runs_pods(found: Object) -> bool:
    """Returns True if the object is a built-in workload of Kubernetes. A kind with the same name in another API group
    is not built-in."""
    return found.kind in TEMPLATES and found.group in _BUILT_IN


def is_built_in(found: Object) -> bool:
    """Returns True for the kinds of Kubernetes' own API groups."""
    return "." not in found.group or found.group.removesuffix(".k8s.io") in _BUILT_IN_WITH_A_DOT


def is_gpumem(resource: str) -> bool:
    """Returns True if the resource is gpumem of any domain. Only a ledger names the resource domain."""
    return resource.endswith(names.GPUMEM_SUFFIX)


def requested_resources(pod_spec: Mapping[str, Any]) -> set[str]:
    """Returns the names of all resources that the pod's containers or the pod's overhead request."""
    found = set(map_at(pod_spec, "overhead"))
    for container in containers_of(pod_spec):
        resources = map_at(container, "resources")
        found.update(map_at(resources, "requests"), map_at(resources, "limits"))
    return found


def framework_in(ledger: Ledger | None, found: Object) -> FrameworkName | None:
    """Returns the framework by which Kueue queues objects of this kind. Without a ledger, Kueue queues Jobs."""
    framework = framework_of(found.kind, found.group)
    return framework if framework in (ledger.frameworks if ledger else (FrameworkName.JOB,)) else None


def is_queued(ledger: Ledger, found: Object) -> bool:
    """Returns True if Kueue queues the object: its kind is one of the stack's frameworks, and it has a queue."""
    return framework_in(ledger, found) is not None and queue_of(ledger, found) is not None


def queue_of(ledger: Ledger | None, work: Object) -> str | None:
    """Returns the name of the LocalQueue that the work uses, or None. In a CronJob, its Jobs name the LocalQueue.

    Work that names no queue uses the LocalQueue `default`.
    """
    named = text_at(map_at(job_of(work), "metadata", "labels"), names.KUEUE_QUEUE_LABEL)
    queues = ledger.local_queues if ledger else ()
    has_default = any((queue.tenant, queue.name) == (work.namespace, names.DEFAULT_QUEUE) for queue in queues)
    return named or (names.DEFAULT_QUEUE if has_default else None)


def job_of(found: Object) -> Mapping[str, Any]:
    """Returns the manifest of the Job. For a CronJob, returns the manifest of each Job that the CronJob creates."""
    if found.kind != "CronJob":
        return found.manifest
    return {**map_at(found.manifest, "spec", "jobTemplate"), "kind": "Job"}
