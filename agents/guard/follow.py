"""Watches the protected pods on the guard's node.

Computes the maximum oom_score_adj of each protected pod's processes.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from agents.kube.client import Api, Object
from agents.kube.events import Reference
from agents.kube.fields import uid_of
from agents.kube.informer import Informer, WatchSource, read_list
from agents.kube.pods import PODS, Pod, bound_pods_selector
from agents.runtime.clock import Clock
from agents.runtime.items import ItemProblems, Unjudged, judged
from agents.runtime.log import Log
from agents.runtime.loop import ProblemLog
from tenancy.host_memory.oom import guarded_oom_score_adj


@dataclass(frozen=True, kw_only=True)
class ProtectedPod:
    """A protected pod. `adj` is the highest oom_score_adj that the pod's processes may have.

    `group_uid` is the UID in the name of the pod's control group. If the pod's memory limit is invalid, `problem` is
    the reason. The guard treats an invalid memory limit as no limit.
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
    """Decides which pods are protected, and computes the maximum oom_score_adj of their processes.

    `members` are the protected namespaces and PriorityClasses, written as <namespace>/<class>. `total_mib` is the host
    memory of the pool's smallest node. `victim_adj` is the lowest oom_score_adj of disposable workloads. `swap_mib` is
    added to each memory limit, because swapped memory also raises a process's OOM score.
    """

    members: frozenset[str]
    total_mib: int
    victim_adj: int
    swap_mib: int = 0

    def protect(self, pod: Pod) -> ProtectedPod | None:
        if f"{pod.namespace}/{pod.priority_class}" not in self.members:
            return None
        limit = judged(pod.memory_limit_mib)
        limit_mib, problem = (None, limit.why) if isinstance(limit, Unjudged) else (limit, None)
        most_mib = self.total_mib if limit_mib is None else min(limit_mib, self.total_mib)
        return ProtectedPod(
            namespace=pod.namespace,
            name=pod.name,
            uid=pod.uid,
            group_uid=pod.group_uid,
            adj=guarded_oom_score_adj(most_mib + self.swap_mib, self.total_mib, self.victim_adj),
            problem=problem,
        )


@dataclass(kw_only=True)
class PodWatcher:
    """Watches the pods of the node. One thread runs `informer`. Any thread may read `last`.

    `last` maps the UID in the name of a control group to the protected pod. Before the first list, `last` is None. If a
    UID belongs to a pod in the API and is also in another pod's annotation, `last` has the first pod.
    """

    api: Api
    node: str
    rule: AdjustmentRule
    clock: Clock
    log: Log
    last: Mapping[str, ProtectedPod] | None = None
    problems: ItemProblems = field(init=False)
    informer: Informer = field(init=False)
    _pods: Mapping[str, ProtectedPod] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.problems = ItemProblems(log=self.log)
        problem = ProblemLog(
            log=self.log,
            failing="relists the pods, and protects the same until then",
            recovered="watches the pods again",
        )
        self.informer = Informer(api=self.api, lists=self._list, apply=self._apply, problem=problem, clock=self.clock)

    def _list(self) -> Sequence[WatchSource]:
        bound = {"fieldSelector": bound_pods_selector(self.node)}
        self.problems.relist()
        listed = read_list(self.api, PODS, self._protect, bound)
        self._keep({pod.uid: pod for pod in listed.items})
        return (listed.source,)

    def _apply(self, event: Object) -> None:
        found, gone = event["object"], event["type"] == "DELETED"
        protected = None if gone else self._protect(found)
        others = {uid: other for uid, other in self._pods.items() if uid != uid_of(found)}
        self._keep(others if protected is None else {**others, protected.uid: protected})

    def _keep(self, pods: Mapping[str, ProtectedPod]) -> None:
        self._pods = pods
        own = {uid: pod for uid, pod in pods.items() if pod.group_uid == uid}
        self.last = {pod.group_uid: pod for pod in pods.values()} | own

    def _protect(self, item: Object) -> ProtectedPod | None:
        pod = Pod(item)
        found = judged(partial(self.rule.protect, pod))
        if isinstance(found, Unjudged):
            self.problems.note("pod", str(pod), found.why)
            return None
        problem = found.problem if found else None
        self.problems.note("pod", str(pod), problem and f"{problem}; it is protected as a pod without a limit")
        return found
