"""Finds the running pods that admission would deny if their controllers created them again. Pure.

The stack's own admission policies judge the pods (policy/admitted.py).
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from agents.kube.errors import Object
from gpumem.pods import WholePod, Workload
from gpumem.preflight.declared import Declared
from gpumem.users import GpuWorkload, workload_of
from tenancy.frameworks import FRAMEWORKS
from tenancy.ledger import Ledger, Pool, Seat
from tenancy.names import (
    EXEMPT_BY_NAME,
    KUEUE_MANAGED_LABEL,
    KUEUE_POD_SET_LABEL,
    KUEUE_QUEUE_LABEL,
    SEATS,
    SYSTEM_NAMESPACES,
)
from tenancy.policy_names import QUEUED_OWNERS, Refusal
from tenancy.quantity import QuantityError
from tenancy.workload import Manifest, ShapeError, map_at, may_run_on, pod_request

_HELD_BACK = Refusal(
    QUEUED_OWNERS, f"it names no queue, so that Kueue suspends it; give it the label {KUEUE_QUEUE_LABEL}"
)


@dataclass(frozen=True, kw_only=True)
class Denial:
    """A workload with pods that the admission policy `policy` would deny.

    `message` has the reason, and the change after which admission would allow the pods.
    """

    namespace: str
    kind: str
    name: str
    pods: int
    policy: str
    message: str


@dataclass(frozen=True, kw_only=True)
class Unbudgeted:
    """A workload that reaches a GPU without a budget and is missing in `unbudgeted` of the stack file."""

    namespace: str
    kind: str
    name: str
    pods: int
    route: str
    remedy: str


def denials(
    pods: Iterable[WholePod], declared: Declared, handlers: Mapping[str, str], gaps: list[str]
) -> tuple[Denial, ...]:
    """Returns one denial for each workload and reason.

    For a pod with invalid data, the function adds a sentence to `gaps`.
    """
    ledger = declared.ledger
    if ledger.admission is None:
        return ()
    found: dict[tuple[Workload, Refusal], int] = {}
    for pod in pods:
        if pod.static or pod.terminating:
            continue
        try:
            template, queued = template_of(pod, ledger), _is_queued(pod, ledger)
            refusals = [*declared.refusals(pod.namespace, template, queued, handlers)]
        except (QuantityError, ShapeError) as error:
            gaps.append(f"pod {pod} is not judged: {error}")
            continue
        if _is_unqueued_work(pod, ledger) and not refusals:
            refusals = [_HELD_BACK]
        for refusal in refusals:
            key = workload_of(pod), refusal
            found[key] = found.get(key, 0) + 1
    return (*_rows(found), *_beyond_quotas(pods, ledger))


def template_of(pod: WholePod, ledger: Ledger) -> Manifest:
    """Returns the pod's template, without the fields that Kubernetes and our scheduler add to a running pod."""
    ours = ledger.names.device_annotation_prefix
    annotations = {key: value for key, value in pod.annotations.items() if not key.startswith(ours)}
    spec = {key: value for key, value in pod.spec.items() if key not in ("nodeName", "ephemeralContainers")}
    owners = pod.item["metadata"].get("ownerReferences") or []
    metadata = {"labels": pod.labels, "annotations": annotations, "ownerReferences": owners}
    return {"metadata": metadata, "spec": spec}


def unbudgeted(
    users: Iterable[GpuWorkload], ledger: Ledger, nodes: Iterable[Object], pods: Sequence[WholePod]
) -> tuple[Unbudgeted, ...]:
    """Returns the workloads that reach a GPU without gpumem. The function skips namespaces with declared unbudgeted
    workloads.

    `nodes` and `pods` are those of the cluster. A remedy proposes only a seat that no pod takes, in a pool with the
    workload's node.
    """
    labels = {node["metadata"]["name"]: map_at(node, "metadata", "labels") for node in nodes}
    exempt = {EXEMPT_BY_NAME, *ledger.exempt_namespaces}
    return tuple(
        Unbudgeted(
            namespace=user.workload.namespace,
            kind=user.workload.kind,
            name=user.workload.name,
            pods=len(user.pods),
            route=user.routes[0],
            remedy=_remedy(user, ledger, labels, pods),
        )
        for user in users
        if user.workload.namespace not in exempt | ledger.tenants_without_budget
        and not pod_request(user.pod.spec, ledger.names.gpumem)
    )


def _remedy(
    user: GpuWorkload, ledger: Ledger, labels: Mapping[str, Mapping[str, str]], pods: Sequence[WholePod]
) -> str:
    tenant, name = user.workload.namespace, user.workload.name
    if tenant in (*SYSTEM_NAMESPACES, *(ledger.admission.own if ledger.admission else ())):
        return "this namespace can be no tenant; move the workload to a namespace of its own"
    pools = [pool for pool in ledger.shared_pools if _runs_in(user, pool, labels)]
    if not pools:
        return "no pool that shares memory has its node; give the node the labels of such a pool, or move the workload"
    free = [
        s
        for s in ledger.seats_of(tenant)
        if s.pool in {p.name for p in pools} and _takers(s, ledger, pods) < s.replicas
    ]
    named = [seat for seat in free if seat.name == name]
    if seats := " or ".join(_limit(seat, ledger) for seat in named or free):
        return f"add {ledger.names.gpumem}: {seats} to the limits of its container"
    taken = {seat.name for seat in ledger.seats} | {each.name for each in ledger.on_demand}
    taken |= {each.name for each in ledger.unbudgeted}
    resident = f"residents.{name if name not in taken else f'{tenant}-{name}'} with pool: {pools[0].name}"
    return f"add {resident}" if tenant in ledger.tenants_by_name else f"add tenants.{tenant} and {resident}"


def _runs_in(user: GpuWorkload, pool: Pool, labels: Mapping[str, Mapping[str, str]]) -> bool:
    """Returns True if the workload's pods run on the pool's nodes. Pods without a node may run there."""
    on = [pool.matches(labels.get(pod.node, {})) for pod in user.pods if pod.node]
    return all(on) if on else may_run_on(user.pod.spec, pool.node_selector)


def _takers(seat: Seat, ledger: Ledger, pods: Sequence[WholePod]) -> int:
    """Returns the number of pods that take the seat by its label, or by its size."""
    asking = [(pod, pod_request(pod.spec, ledger.names.gpumem)) for pod in pods if pod.namespace == seat.tenant]
    labels = [(pod.seat_label(ledger.names), mib) for pod, mib in asking if mib]
    return sum(label == seat.name or (not label and mib == seat.pod_mib) for label, mib in labels)


def _limit(seat: Seat, ledger: Ledger) -> str:
    several = f" and {ledger.names.gpu_count}: {seat.devices_per_pod}" if seat.devices_per_pod > 1 else ""
    return f"{seat.pod_mib}{several} ({seat.name})"


def _is_queued(pod: WholePod, ledger: Ledger) -> bool:
    return (pod.controller is not None and KUEUE_POD_SET_LABEL in pod.labels) or KUEUE_MANAGED_LABEL in pod.labels


def _is_unqueued_work(pod: WholePod, ledger: Ledger) -> bool:
    """Returns True if the pod belongs to work that names no queue. Kueue would suspend work that names no queue."""
    owner, queued = pod.controller, pod.namespace in ledger.queue_tenants and not _is_queued(pod, ledger)
    return queued and owner is not None and any(FRAMEWORKS[n].kind == owner.kind for n in ledger.frameworks)


def _rows(found: Mapping[tuple[Workload, Refusal], int]) -> Iterator[Denial]:
    for (workload, refusal), count in sorted(found.items(), key=lambda row: (row[0][0], row[0][1].policy)):
        yield Denial(
            namespace=workload.namespace,
            kind=workload.kind,
            name=workload.name,
            pods=count,
            policy=refusal.policy,
            message=refusal.message,
        )


def _beyond_quotas(pods: Iterable[WholePod], ledger: Ledger) -> Iterator[Denial]:
    asked: dict[str, list[int]] = {}
    tenants = {tenant for tenant in ledger.tenants_by_name if tenant not in ledger.queue_tenants}
    for pod in pods:
        if pod.namespace in tenants and not pod.terminating:
            try:
                mib = pod_request(pod.spec, ledger.names.gpumem)
            except (QuantityError, ShapeError):
                continue  # `gaps` already names the pod
            if mib:
                asked.setdefault(pod.namespace, []).append(mib)
    for tenant, sizes in sorted(asked.items()):
        most = ledger.budget_mib(tenant)
        if sum(sizes) > most:
            message = (
                f"its pods ask for {sum(sizes)} {ledger.names.gpumem} together, its seats have {most}; raise the "
                "replicas of residents, or run fewer pods"
            )
            yield Denial(
                namespace=tenant,
                kind="Namespace",
                name=tenant,
                pods=len(sizes),
                policy=f"ResourceQuota {SEATS}",
                message=message,
            )
