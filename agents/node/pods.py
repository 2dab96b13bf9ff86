"""The pods of one node, with their containers and budgets."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

from agents.kube.client import Object
from agents.kube.pods import Pod
from agents.node.cgroup import Container
from agents.runtime.items import ItemProblems, Unjudged, judged
from tenancy.caps import Cap
from tenancy.ledger import Ledger


@dataclass(frozen=True, kw_only=True)
class NodePod:
    """A pod of the agent's node. `group_uid` is the UID in the name of the pod's control group.

    `containers` maps the ids of the containers to their names, and `running` has the ids of the running containers.
    `declared_mib` is the pod's budget, or 0 without a budget. `caps` has the cap of each container. A cap applies on
    each of the pod's devices, `uuids`.
    """

    namespace: str
    name: str
    uid: str
    group_uid: str
    containers: Mapping[str, str] = field(default_factory=dict)
    declared_mib: int = 0
    caps: tuple[Cap, ...] = ()
    uuids: tuple[str, ...] = ()
    running: frozenset[str] = frozenset()


@dataclass(frozen=True, kw_only=True)
class Owner:
    """The pod of a container, and the container's name. The names are empty until the API shows the pod."""

    namespace: str = ""
    pod: str = ""
    pod_uid: str
    container: str = ""


@dataclass(frozen=True)
class NodePods:
    pods: tuple[NodePod, ...] = ()

    def owner(self, container: Container) -> Owner:
        """Returns the owner of the container. For an unknown pod, only `pod_uid` is set. This UID comes from the
        control group.
        """
        pod = self.pod(container.pod_uid)
        if pod is None:
            return Owner(pod_uid=container.pod_uid)
        name = pod.containers.get(container.id, "")
        return Owner(namespace=pod.namespace, pod=pod.name, pod_uid=pod.uid, container=name)

    def pod(self, group_uid: str) -> NodePod | None:
        """Returns the pod by the UID in its control group, or None if no pod has this UID."""
        return self._by_group.get(group_uid)

    def without(self, uid: str) -> "NodePods":
        return NodePods(tuple(pod for pod in self.pods if pod.uid != uid))

    @cached_property
    def _by_group(self) -> Mapping[str, NodePod]:
        """Maps the UIDs in the names of control groups to the pods. If a UID is one pod's own UID and is also in
        another pod's annotation, the result has the first pod.
        """
        return {pod.group_uid: pod for pod in self.pods} | {pod.uid: pod for pod in self.pods}


def node_pod(item: Object, ledger: Ledger | None, problems: ItemProblems) -> NodePod:
    """Returns the NodePod for a Pod. The pod's budget is 0 if the ledger is missing or the request is unreadable."""
    pod = Pod(item)
    return NodePod(
        namespace=pod.namespace,
        name=pod.name,
        uid=pod.uid,
        group_uid=pod.group_uid,
        containers=pod.containers,
        declared_mib=pod.budget_mib(ledger, problems) if ledger else 0,
        caps=_caps(pod, ledger) if ledger else (),
        uuids=pod.uuids(ledger.names) if ledger else (),
        running=pod.running_containers,
    )


def _caps(pod: Pod, ledger: Ledger) -> tuple[Cap, ...]:
    """Returns the caps of the pod, or () if the caps are invalid. If the caps are invalid, `budget_mib` reports the
    problem.
    """
    found = judged(lambda: pod.caps(ledger.names))
    return () if isinstance(found, Unjudged) else found
