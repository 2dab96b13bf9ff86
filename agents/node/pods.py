"""The pods of one node, with their containers and budgets."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

from agents.kube.client import Object
from agents.kube.pods import Pod
from agents.node.cgroup import Container
from agents.runtime.log import Log
from tenancy.caps import Cap, caps_of
from tenancy.ledger import Ledger


@dataclass(frozen=True, kw_only=True)
class NodePod:
    """A pod of the node. `group_uid` is the UID in the name of the pod's control group.

    `containers` has the names of the containers by id, and `running` the ids of the running containers. `declared_mib`
    is the budget, or 0. `caps` are the caps of the containers on each of the pod's devices `uuids`.
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
    """The pod and the name of a container. The names are empty until the API shows the pod."""

    namespace: str = ""
    pod: str = ""
    pod_uid: str
    container: str = ""


@dataclass(frozen=True)
class NodePods:
    pods: tuple[NodePod, ...] = ()

    def owner(self, container: Container) -> Owner:
        """Returns the owner of the container. For an unknown pod, only `pod_uid` is set, from the control group."""
        pod = self.pod(container.pod_uid)
        if pod is None:
            return Owner(pod_uid=container.pod_uid)
        name = pod.containers.get(container.id, "")
        return Owner(namespace=pod.namespace, pod=pod.name, pod_uid=pod.uid, container=name)

    def pod(self, group_uid: str) -> NodePod | None:
        """Returns the pod by the UID in its control group, or None if the pod is unknown."""
        return self._by_group.get(group_uid)

    def without(self, uid: str) -> "NodePods":
        return NodePods(tuple(pod for pod in self.pods if pod.uid != uid))

    @cached_property
    def _by_group(self) -> Mapping[str, NodePod]:
        """Returns the pods by the UIDs of their control groups. A pod's UID takes precedence over the same UID in
        another pod's annotation.
        """
        return {pod.group_uid: pod for pod in self.pods} | {pod.uid: pod for pod in self.pods}


def node_pod(item: Object, ledger: Ledger | None, log: Log) -> NodePod:
    """Returns the NodePod of a Pod. The pod's budget is 0 if there is no ledger or the request is invalid."""
    pod = Pod(item)
    return NodePod(
        namespace=pod.namespace,
        name=pod.name,
        uid=pod.uid,
        group_uid=pod.group_uid,
        containers=pod.containers,
        declared_mib=pod.budget_mib(ledger, log) if ledger else 0,
        caps=_caps(pod, ledger) if ledger else (),
        uuids=pod.uuids(ledger) if ledger else (),
        running=pod.running_containers,
    )


def _caps(pod: Pod, ledger: Ledger) -> tuple[Cap, ...]:
    """Returns the pod's caps, or () if the caps are invalid. `budget_mib` logs the error."""
    try:
        return tuple(caps_of(pod.spec, ledger.names))
    except ValueError:
        return ()
