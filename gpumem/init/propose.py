"""Proposes a stack from a cluster.

Nodes become pools, workloads that reach a GPU become residents, and their namespaces become tenants. Pure. The proposal
leaves out parts of the cluster that the settings cannot describe. `misfits` has a sentence about each part that is left
out, with the reason and a correction.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from gpumem.init.budgets import SeatProposal, bounded, gpus_of, seat_proposals
from gpumem.init.classes import Classes, classes
from gpumem.init.evidence import Division
from gpumem.init.nodes import GpuNode, Taint, domain_of, gpu_nodes
from gpumem.init.peaks import Peak
from gpumem.init.pools import PoolProposal, pool_proposals
from gpumem.init.sharing import scaler_of, sharing_of
from gpumem.pods import WholePod, Workload
from gpumem.survey import ADMISSION_SINCE, Survey, SurveyError
from gpumem.users import GpuWorkload, gpu_users, infrastructure_namespaces, workload_of
from tenancy import reach
from tenancy.choices import PodSecurity
from tenancy.names import (
    EXEMPT_BY_NAME,
    KUBERNETES_NAMESPACES,
    KUEUE_POD_SET_LABEL,
    POD_SECURITY_ENFORCE,
    SYSTEM_NAMESPACE,
    SYSTEM_NAMESPACES,
    Names,
    node_agent_namespace,
)
from tenancy.pod_security import node_access_fields
from tenancy.quantity import QuantityError
from tenancy.workload import ShapeError, map_at, pod_request, value_or

DOMAIN = "example.com"
_OURS = (SYSTEM_NAMESPACE, node_agent_namespace(SYSTEM_NAMESPACE))
_MOST_ACCESS = 200  # characters of what a pod does with its node


@dataclass(frozen=True, kw_only=True)
class TenantProposal:
    """An existing namespace that becomes a tenant. `source` names the fact that requires the level."""

    name: str
    pod_security: PodSecurity
    source: str


@dataclass(frozen=True, kw_only=True)
class PrometheusProposal:
    """The namespace of a Prometheus, and the labels by which Prometheus selects rules and PodMonitors."""

    namespace: str
    labels: Mapping[str, str]
    source: str


@dataclass(frozen=True, kw_only=True)
class StackProposal:
    """The content of a proposed stack file.

    `existing` names objects that stay unchanged. `misfits` has sentences about the parts of the cluster that the file
    leaves out.
    """

    domain: str
    domain_source: str
    version: str
    pools: tuple[PoolProposal, ...]
    tenants: tuple[TenantProposal, ...]
    seats: tuple[SeatProposal, ...]
    classes: Classes
    exempt: Mapping[str, str]
    taints: tuple[Taint, ...]
    prometheus: PrometheusProposal | None
    has_admission: bool
    # Why the stack needs our scheduler, or "".
    scheduler_for: str
    existing: tuple[str, ...]
    misfits: tuple[str, ...]
    unknown: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class FoundGpus:
    """The GPUs of a cluster, and the workloads that reach a GPU.

    `exempt` has the namespaces of NVIDIA's programs. `misplaced` has other namespaces in which NVIDIA's programs run.
    No stack may exempt the namespaces in `misplaced` from admission. `exempt` and `misplaced` map a namespace to a
    description of a pod of NVIDIA's programs.
    """

    names: Names
    shows_domain: bool
    nodes: tuple[GpuNode, ...]
    users: tuple[GpuWorkload, ...]
    exempt: Mapping[str, str]
    misplaced: Mapping[str, str]
    gaps: tuple[str, ...]
    left_out: tuple[str, ...] = ()
    # Sentences about other programs that hand out parts of these GPUs, and about the workloads that get a part.
    sharing: tuple[str, ...] = ()
    # Nodes on which a pod reaches GPUs that no request gives it, so that no request gives a device to one pod alone.
    reached: frozenset[str] = frozenset()

    def alone(self) -> tuple[Workload, ...]:
        """Returns the workloads with pods that have whole devices to themselves."""
        shared = {node.name for node in self.nodes if node.devices.division is not Division.WHOLE} | self.reached
        return tuple(user.workload for user in self.users if not shared & {pod.node for pod in user.pods})


def find_gpus(survey: Survey) -> FoundGpus:
    """Returns the GPUs of a cluster and their workloads. Raises SurveyError if no node has a GPU."""
    gaps = list(survey.gaps)
    domain = domain_of(survey)
    names = Names(domain or DOMAIN)
    left_out: list[str] = []
    nodes = gpu_nodes(survey, names, gaps, left_out)
    if not nodes:
        raise SurveyError(
            f"none of {len(survey.nodes)} nodes shows a GPU: no label of GPU feature discovery, no "
            "ResourceSlice of gpu.nvidia.com and no allocatable nvidia.com/gpu; install NVIDIA's device plugin first, "
            f"or give another --context{''.join(f'; {line}' for line in left_out)}"
        )
    installed = infrastructure_namespaces(survey.pods)
    exempt = {name: evidence for name, evidence in installed.items() if name not in (*KUBERNETES_NAMESPACES, *_OURS)}
    pods = [
        pod
        for pod in survey.pods
        if not _is_ours_or_exempt(pod.namespace, exempt) and not infrastructure_namespaces([pod])
    ]
    sharing = sharing_of(pods, nodes, names)
    users = gpu_users((pod for pod in pods if pod.uid not in sharing.pods), names, gaps)
    return FoundGpus(
        names=names,
        shows_domain=domain is not None,
        nodes=nodes,
        users=users,
        sharing=sharing.sentences,
        reached=sharing.nodes | _reached_without_request(users, nodes, names),
        exempt=exempt,
        misplaced={name: evidence for name, evidence in installed.items() if name in KUBERNETES_NAMESPACES},
        gaps=tuple(gaps),
        left_out=tuple(left_out),
    )


def propose(survey: Survey, found: FoundGpus, peaks: Mapping[Workload, Peak]) -> StackProposal:
    """Returns the proposed stack for a cluster."""
    named = {node.name for node in found.nodes}
    others = [node for node in survey.nodes if node["metadata"]["name"] not in named]
    pools = pool_proposals(found.nodes, others, found.names.domain)
    misfits: list[str] = []
    placed = _placed(found, pools, misfits)
    seats = seat_proposals(placed, peaks, found.names, found.reached)
    pools = tuple(bounded(pool, placed, seats) for pool in pools)
    misfits += _without_room(placed, seats)
    tenants = sorted({seat.workload.namespace for seat in seats})
    has_admission = survey.minor >= ADMISSION_SINCE
    homes = {(seat.workload.namespace, seat.pool) for seat in seats}
    several = [
        *(f"pool {pool.name} has several devices a node" for pool in pools if _has_several(pool)),
        *(f"{tenant} is in several pools" for tenant in tenants if sum(home[0] == tenant for home in homes) > 1),
    ]
    misfits += _beyond(survey, found, pools, several=several)
    users = [user for user, _ in placed]
    return StackProposal(
        domain=found.names.domain,
        domain_source="nodes advertise its gpumem" if found.shows_domain else "assumed: write a DNS name of yours",
        version=survey.version,
        pools=pools,
        tenants=tuple(_tenant(name, survey) for name in tenants),
        seats=seats,
        classes=classes(users, found.users, survey.pods, survey.priorities, {*found.exempt, EXEMPT_BY_NAME}),
        exempt=found.exempt,
        taints=tuple(sorted({taint for node in found.nodes for taint in node.taints})),
        prometheus=_prometheus(survey),
        has_admission=has_admission,
        scheduler_for=" and ".join(several) if has_admission else "",
        existing=tuple(_existing(survey, tenants)),
        misfits=tuple(misfits),
        unknown=found.gaps,
    )


def _is_ours_or_exempt(namespace: str, exempt: Mapping[str, str]) -> bool:
    return namespace in (*exempt, EXEMPT_BY_NAME, *_OURS)


def _reached_without_request(users: Sequence[GpuWorkload], nodes: Sequence[GpuNode], names: Names) -> frozenset[str]:
    """Returns the nodes with a pod that reaches every device, or with more requests than devices."""
    asked = Counter[str]()
    reached = set()
    for user in users:
        for pod in user.pods:
            asks = gpus_of(pod)
            asked[pod.node or ""] += asks
            if pod.node and not asks and not pod_request(pod.spec, names.gpumem):
                reached.add(pod.node)
    reached |= {node.name for node in nodes if asked[node.name] > node.devices.count.value}
    return frozenset(reached)


def _placed(
    found: FoundGpus, pools: Sequence[PoolProposal], misfits: list[str]
) -> list[tuple[GpuWorkload, PoolProposal]]:
    placed = []
    for user in found.users:
        pool = _pool_of(user, pools)
        if user.workload.namespace in SYSTEM_NAMESPACES:
            problem = "this namespace is Kubernetes' own and can be no tenant; move the workload to one of its own"
        elif KUEUE_POD_SET_LABEL in user.pod.labels:
            problem = (
                "Kueue admits its pods; declare its queue under queues, with the pool of whole devices (prod does)"
            )
        elif pool is None or not pool.shares_memory:
            problem = _outside(user, pool, found.left_out)
        else:
            here = _in(user, pool) or user.pods
            if elsewhere := sum(pod.node is not None for pod in user.pods) - len(_in(user, pool)):
                misfits.append(
                    f"{user.workload} has its seat in pool {pool.name}, and {elsewhere} of its pods run elsewhere, "
                    "where they have none; make them a workload of their own, because a workload has one seat"
                )
            placed.append((replace(user, pods=here), pool))
            continue
        misfits.append(f"{user.workload} ({user.routes[0]}) has no seat: {problem}")
    return placed


def _outside(user: GpuWorkload, pool: PoolProposal | None, left_out: Sequence[str]) -> str:
    if pool is None:
        nodes = {f"node {pod.node} is in no pool" for pod in user.pods}
        named = next((line for line in left_out if line.partition(":")[0] in nodes), "")
        return named or "no pool has the node of its pods; give that node the labels of a pool, or move the workload"
    if pool.whole_devices and gpus_of(user.pod):
        return f"its devices are whole, as {pool.whole_devices} of each node of pool {pool.name} are, and it keeps them"
    return f"MIG divides the devices of pool {pool.name}, where no budget of memory counts; leave admission out"


def _has_several(pool: PoolProposal) -> bool:
    return pool.shares_memory and pool.device_count.value > 1


def _pool_of(user: GpuWorkload, pools: Sequence[PoolProposal]) -> PoolProposal | None:
    """Returns the pool of the nodes on which most of the workload's pods run.

    If no pod is on a node, returns the largest pool that the pods' node selector allows.
    """
    if any(pod.node for pod in user.pods):
        running = [pool for pool in pools if _in(user, pool)]
        return max(running, key=lambda pool: len(_in(user, pool)), default=None)
    wanted = map_at(user.pod.spec, "nodeSelector")
    fitting = [pool for pool in pools if all(pool.selector.get(key, value) == value for key, value in wanted.items())]
    return max(fitting, key=lambda pool: pool.advertised_mib, default=None)


def _in(user: GpuWorkload, pool: PoolProposal) -> tuple[WholePod, ...]:
    return tuple(pod for pod in user.pods if pod.node in pool.nodes)


def _without_room(placed: Sequence[tuple[GpuWorkload, PoolProposal]], seats: Sequence[SeatProposal]) -> list[str]:
    seated = {seat.workload for seat in seats}
    return [
        f"{user.workload} has no seat: its pods wait, and pool {pool.name} has no room left; add a node, or lower a "
        "budget and add residents"
        for user, pool in placed
        if user.workload not in seated
    ]


def _tenant(name: str, survey: Survey) -> TenantProposal:
    level = map_at(survey.namespaces.get(name, {}), "labels").get(POD_SECURITY_ENFORCE, "")
    if level in (PodSecurity.BASELINE, PodSecurity.RESTRICTED):
        source = f"the namespace has this level in {POD_SECURITY_ENFORCE}"
        return TenantProposal(name=name, pod_security=PodSecurity(level), source=source)
    if level == PodSecurity.PRIVILEGED:
        source = "the namespace has this level; write a stricter one with it"
        return TenantProposal(name=name, pod_security=PodSecurity.PRIVILEGED, source=source)
    access = next((each for pod in survey.pods if pod.namespace == name for each in _owned(pod)), "")
    if access:
        source = (
            f"{access[:_MOST_ACCESS].strip()}; its pods own their node and every GPU on it today; change them, then "
            "write baseline"
        )
        return TenantProposal(name=name, pod_security=PodSecurity.PRIVILEGED, source=source)
    source = "no pod of the namespace needs more; the namespace has no such label yet"
    return TenantProposal(name=name, pod_security=PodSecurity.BASELINE, source=source)


def _owned(pod: WholePod) -> list[str]:
    try:
        return [f"{workload_of(pod).name}: {field}" for field in node_access_fields(pod.spec)]
    except ShapeError:
        return []


def _prometheus(survey: Survey) -> PrometheusProposal | None:
    found = sorted(survey.prometheuses, key=lambda each: (each["metadata"]["namespace"], each["metadata"]["name"]))
    if not found:
        return None
    metadata, spec = found[0]["metadata"], map_at(found[0], "spec")
    labels = {**map_at(spec, "ruleSelector", "matchLabels"), **map_at(spec, "podMonitorSelector", "matchLabels")}
    source = f"Prometheus {metadata['namespace']}/{metadata['name']}"
    return PrometheusProposal(namespace=metadata["namespace"], labels=labels, source=source)


def _existing(survey: Survey, tenants: Sequence[str]) -> list[str]:
    quotas = [each["metadata"] for each in survey.quotas if each["metadata"]["namespace"] in tenants]
    return [
        *(f"ResourceQuota {each['namespace']}/{each['name']}" for each in quotas),
        *(f"Kueue's ClusterQueue {each['metadata']['name']}" for each in survey.cluster_queues),
        *(
            f"Kueue's LocalQueue {each['metadata']['namespace']}/{each['metadata']['name']}"
            f" to {value_or(map_at(each, 'spec'), 'clusterQueue', 'none')}"
            for each in survey.local_queues
        ),
    ]


def _beyond(survey: Survey, found: FoundGpus, pools: Sequence[PoolProposal], *, several: Sequence[str]) -> list[str]:
    """Returns sentences about the features that the proposal leaves out because the cluster does not support them."""
    lines = [*found.sharing, *found.left_out]
    if survey.minor < ADMISSION_SINCE:
        needed = ".".join(map(str, ADMISSION_SINCE))
        lines.append(f"admission is left out: it needs Kubernetes {needed}, and the API server has {survey.version}")
        if several:
            lines.append(f"scheduler is left out with admission, but {' and '.join(several)}, which needs it")
    lines += [
        f"namespace {name} cannot be exempt, because pods of anybody end there ({evidence}); move the DaemonSet to a "
        "namespace of its own"
        for name, evidence in found.misplaced.items()
    ]
    divided = [pool.name for pool in pools if pool.division is Division.MIG]
    lines += [f"pool {name} hands out whole MIG devices: budgets of memory do not count there" for name in divided]
    mps = [pool.name for pool in pools if pool.division is Division.MPS]
    lines += [
        f"pool {name} is shared by MPS: give its device plugin time-slicing for budgets of any size" for name in mps
    ]
    known = {user.workload for user in found.users}
    for item in survey.deployments:
        lines += _idle(item, found.names, known, survey.autoscalers)
    lines += [
        f"{user.workload} is scaled by {scaler}, and its seat counts the pods of now; raise the seat's replicas to the "
        "most, and declare no gate for it under on_demand, because its replicas would have two owners"
        for user in found.users
        if (scaler := scaler_of(user.workload, user.pod.metadata, survey.autoscalers))
    ]
    return lines


def _idle(
    item: Mapping[str, object], names: Names, known: set[Workload], autoscalers: Sequence[Mapping[str, object]]
) -> list[str]:
    metadata, spec = map_at(item, "metadata"), map_at(item, "spec")
    workload = Workload(str(metadata["namespace"]), "Deployment", str(metadata["name"]))
    try:
        ways = list(reach.routes(map_at(spec, "template", "spec"), names))
    except (QuantityError, ShapeError):
        return []
    if not ways or workload in known or value_or(spec, "replicas", 1) != 0:
        return []
    scaler = scaler_of(workload, metadata, autoscalers) or scaler_of(
        workload, map_at(spec, "template", "metadata"), autoscalers
    )
    to_do = "give it one under residents, or a gate under on_demand"
    if scaler:
        to_do = f"{scaler} scales it, so give it one under residents, and no gate, which would be a second owner"
    return [f"{workload} ({ways[0]}) is scaled to 0 and has no seat; {to_do}"]
