"""Watches the protected pods on the guard's node.

Computes the maximum oom_score_adj of each protected pod's processes.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from agents.kube.client import Api, Object
from agents.kube.events import Reference
from agents.kube.informer import Informer, WatchSource
from agents.kube.nodes import node_of
from agents.kube.paths import api_path
from agents.kube.pods import PODS, Pod, bound_pods_selector
from agents.kube.store import Store
from agents.runtime.clock import Clock
from agents.runtime.items import ItemProblems, Unjudged, judged
from agents.runtime.log import Log
from agents.runtime.loop import ProblemLog
from tenancy.host_memory.oom import guarded_oom_score_adj, victim_oom_score_adj
from tenancy.quantity import parse
from tenancy.units import MIB


@dataclass(frozen=True, kw_only=True)
class ProtectedPod:
    """A protected pod. `adj` is the highest oom_score_adj that the pod's processes may have.

    If the pod's memory limit is invalid, `problem` is the reason. The guard treats an invalid memory limit as no limit.
    """

    namespace: str
    name: str
    uid: str
    adj: int
    problem: str | None = None

    @property
    def reference(self) -> Reference:
        return Reference(api_version="v1", kind="Pod", namespace=self.namespace, name=self.name, uid=self.uid)


@dataclass(frozen=True, kw_only=True)
class AdjustmentRule:
    """Decides which pods are protected, and computes the maximum oom_score_adj of their processes.

    `members` are the protected namespaces and PriorityClasses, written as <namespace>/<class>. `allocatable_mib` is
    the host memory for pods, and `memory_mib` is the host memory of the machine. A disposable pod requests at most
    `victim_request_mib`. `swap_mib` is added to each memory limit, because swapped memory also raises a process's OOM
    score.
    """

    members: frozenset[str]
    allocatable_mib: int
    memory_mib: int
    victim_request_mib: int = 0
    swap_mib: int = 0

    def on_node(self, allocatable_mib: int) -> "AdjustmentRule":
        """Returns the rule for a Node with this allocatable memory.

        On a Node that is smaller than its pool declares, the kernel compares processes with the smaller amount.
        """
        return replace(self, allocatable_mib=min(self.allocatable_mib, allocatable_mib))

    def protect(self, pod: Pod) -> ProtectedPod | None:
        if f"{pod.namespace}/{pod.priority_class}" not in self.members:
            return None
        limit = judged(pod.memory_limit_mib)
        limit_mib, problem = (None, limit.why) if isinstance(limit, Unjudged) else (limit, None)
        most_mib = self.memory_mib if limit_mib is None else min(limit_mib, self.memory_mib)
        victim_adj = victim_oom_score_adj(self.victim_request_mib, self.memory_mib)
        return ProtectedPod(
            namespace=pod.namespace,
            name=pod.name,
            uid=pod.uid,
            adj=guarded_oom_score_adj(most_mib + self.swap_mib, self.allocatable_mib, victim_adj),
            problem=problem,
        )


@dataclass(kw_only=True)
class PodWatcher:
    """Watches the pods of the node. One thread runs `informer`. Any thread may read `last`. Each list of the pods also
    reads the Node, because a Node can be smaller than its pool declares.

    `last` maps the UIDs of the protected pods to the pods, or is None before the first list.
    """

    api: Api
    node: str
    rule: AdjustmentRule
    clock: Clock
    log: Log
    last: Mapping[str, ProtectedPod] | None = None
    problems: ItemProblems = field(init=False)
    informer: Informer = field(init=False)
    _rule_here: AdjustmentRule = field(init=False)

    def __post_init__(self) -> None:
        self._rule_here = self.rule
        self.problems = ItemProblems(log=self.log)
        bound = {"fieldSelector": bound_pods_selector(self.node)}
        self._pods = Store[ProtectedPod](path=PODS, keep=self._protect, parameters=bound)
        problem = ProblemLog(
            log=self.log,
            failing="relists the pods, and protects the same until then",
            recovered="watches the pods again",
        )
        self.informer = Informer(api=self.api, lists=self._list, apply=self._apply, problem=problem, clock=self.clock)

    def _list(self) -> Sequence[WatchSource]:
        offered = node_of(self.api.get(api_path("v1", "nodes", self.node))).allocatable
        self._rule_here = self.rule.on_node(int(parse(offered.get("memory", "0")) / MIB))
        self.problems.relist()
        source = self._pods.list(self.api)
        self._publish()
        return (source,)

    def _apply(self, event: Object) -> None:
        self._pods.apply(event)
        self._publish()

    def _publish(self) -> None:
        self.last = {pod.uid: pod for pod in self._pods.kept.values()}

    def _protect(self, item: Object) -> ProtectedPod | None:
        pod = Pod(item)
        found = judged(partial(self._rule_here.protect, pod))
        if isinstance(found, Unjudged):
            self.problems.note("pod", str(pod), found.why)
            return None
        problem = found.problem if found else None
        self.problems.note("pod", str(pod), problem and f"{problem}; it is protected as a pod without a limit")
        return found
