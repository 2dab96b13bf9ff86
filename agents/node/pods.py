"""The pods of one node: which container an id belongs to, and how much gpumem each pod requests."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

from agents.kube.client import Api
from agents.kube.pods import PODS, Pod, on_node
from agents.node.cgroup import Container
from tenancy.ledger import Ledger


@dataclass(frozen=True, kw_only=True)
class NodePod:
    """A pod that runs or is about to. `group_uid` is the UID in its control group's name, `containers` holds names by
    container id, `declared_mib` is 0 where it has no budget."""

    namespace: str
    name: str
    uid: str
    group_uid: str
    containers: Mapping[str, str] = field(default_factory=dict)
    declared_mib: int = 0


@dataclass(frozen=True, kw_only=True)
class Owner:
    """Who a container belongs to; a name is empty where the API does not show it yet."""

    namespace: str = ""
    pod: str = ""
    pod_uid: str
    container: str = ""


@dataclass(frozen=True)
class Roster:
    """The pods of a node."""

    pods: tuple[NodePod, ...] = ()

    def owner(self, container: Container) -> Owner:
        """Whose the container is. A pod that is not listed keeps its UID, which its control group shows."""
        pod = self._by_group.get(container.pod_uid)
        if pod is None:
            return Owner(pod_uid=container.pod_uid)
        name = pod.containers.get(container.id, "")
        return Owner(namespace=pod.namespace, pod=pod.name, pod_uid=pod.uid, container=name)

    def knows(self, container: Container) -> bool:
        """Whether pod and container both have a name; else a newer roster may tell more."""
        pod = self._by_group.get(container.pod_uid)
        return pod is not None and container.id in pod.containers

    @cached_property
    def _by_group(self) -> Mapping[str, NodePod]:
        return {pod.group_uid: pod for pod in self.pods}


def read(api: Api, node: str, ledger: Ledger | None) -> Roster:
    """The pods bound to the node that have not ended, with what each declares (without a ledger: nothing is known to
    be declared). Raises ApiError, and PodError for a pod whose request cannot be read: to leave it out would make
    it a pod without a budget."""
    return Roster(tuple(_pod(Pod(item), ledger) for item in api.items(PODS, fieldSelector=on_node(node))))


def _pod(pod: Pod, ledger: Ledger | None) -> NodePod:
    return NodePod(
        namespace=pod.namespace,
        name=pod.name,
        uid=pod.uid,
        group_uid=pod.group_uid,
        containers=pod.containers,
        declared_mib=pod.declared_mib(ledger) if ledger else 0,
    )
