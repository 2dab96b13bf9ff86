"""Watches the protected pods on the guard's node.

Computes the highest oom_score_adj that the processes of each pod may have.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction

from agents.kube.client import Api, Object
from agents.kube.events import Reference
from agents.kube.informer import Informer, WatchSource, read_list
from agents.kube.pods import PODS, Pod, PodError, bound_pods_selector
from agents.runtime.clock import Clock
from agents.runtime.log import Log
from agents.runtime.loop import ProblemLog
from tenancy.host_memory.oom import guarded_oom_score_adj
from tenancy.quantity import parse
from tenancy.units import MIB
from tenancy.workload import Manifest, containers_of, largest_at_once, map_at

_MEMORY = "memory"


@dataclass(frozen=True, kw_only=True)
class ProtectedPod:
    """A protected pod. `adj` is the highest oom_score_adj that the pod's processes may have.

    `group_uid` is the UID in the name of the pod's control group. If the pod's memory limit is invalid, `problem` is
    the reason. The guard then protects the pod like a pod without a limit.
    """

    namespace: str
    name: str
    uid: str
    group_uid: str
    adj: int
    problem: str | None = None

    @property
    def reference(self) -> Reference:
        return Reference(api_version="v1", kind="Pod", namespace=self.namespace, name=self.name, uid=self.uid)


@dataclass(frozen=True, kw_only=True)
class AdjustmentRule:
    """Decides which pods are protected, and computes their oom_score_adj.

    `members` are the protected namespaces and PriorityClasses, as <namespace>/<class>. `total_mib` is the smallest host
    memory of the pool's nodes. `victim_adj` is the lowest oom_score_adj of disposable workloads. `swap_mib` is added to
    each limit, because the kernel also counts swapped memory.
    """

    members: frozenset[str]
    total_mib: int
    victim_adj: int
    swap_mib: int = 0

    def protect(self, pod: Pod) -> ProtectedPod | None:
        if f"{pod.namespace}/{pod.priority_class}" not in self.members:
            return None
        limit_mib, problem = None, None
        try:
            with pod.reading("its memory limit"):
                limit_mib = memory_limit_mib(pod.spec)
        except PodError as error:
            problem = str(error)
        most_mib = self.total_mib if limit_mib is None else min(limit_mib, self.total_mib)
        return ProtectedPod(
            namespace=pod.namespace,
            name=pod.name,
            uid=pod.uid,
            group_uid=pod.group_uid,
            adj=guarded_oom_score_adj(most_mib + self.swap_mib, self.total_mib, self.victim_adj),
            problem=problem,
        )


def memory_limit_mib(pod_spec: Manifest) -> int | None:
    """Returns the host memory in MiB that a pod's containers may use together, or None if a container has no limit.

    Source: PodLimits in k8s.io/component-helpers/resource/helpers.go. Raises QuantityError, ShapeError.
    """
    level = _stated(pod_spec)
    if level is not None:
        return _mib(parse(level))
    if any(_stated(container) is None for container in containers_of(pod_spec)):
        return None
    return _mib(largest_at_once(pod_spec, lambda container: parse(_stated(container))))


def _stated(container: Manifest) -> object:
    return map_at(container, "resources", "limits").get(_MEMORY)


def _mib(size: Fraction) -> int:
    return math.ceil(size / MIB)


@dataclass(kw_only=True)
class PodWatcher:
    """Watches the node's pods. One thread runs `informer`; any thread may read `last`.

    `last` has the protected pods by the UID in the name of their control group, or is None before the first list. A pod
    with the group's UID in the API takes precedence over a pod with this UID in an annotation.
    """

    api: Api
    node: str
    rule: AdjustmentRule
    clock: Clock
    log: Log
    last: Mapping[str, ProtectedPod] | None = None
    informer: Informer = field(init=False)
    _pods: Mapping[str, ProtectedPod] = field(default_factory=dict)

    def __post_init__(self) -> None:
        problem = ProblemLog(
            log=self.log,
            failing="relists the pods, and protects the same until then",
            recovered="watches the pods again",
        )
        self.informer = Informer(api=self.api, lists=self._list, apply=self._apply, problem=problem, clock=self.clock)

    def _list(self) -> Sequence[WatchSource]:
        bound = {"fieldSelector": bound_pods_selector(self.node)}
        listed = read_list(self.api, PODS, lambda item: self._protect(Pod(item)), bound)
        self._keep({pod.uid: pod for pod in listed.items})
        return (listed.source,)

    def _apply(self, event: Object) -> None:
        pod = Pod(event["object"])
        protected = None if event["type"] == "DELETED" else self._protect(pod)
        others = {uid: other for uid, other in self._pods.items() if uid != pod.uid}
        self._keep(others if protected is None else {**others, pod.uid: protected})

    def _keep(self, pods: Mapping[str, ProtectedPod]) -> None:
        self._pods = pods
        own = {uid: pod for uid, pod in pods.items() if pod.group_uid == uid}
        self.last = {pod.group_uid: pod for pod in pods.values()} | own

    def _protect(self, pod: Pod) -> ProtectedPod | None:
        found = self.rule.protect(pod)
        if found is not None and found.problem and found != self._pods.get(found.uid):
            self.log.error(f"{found.problem}; it is protected as a pod without a limit")
        return found
