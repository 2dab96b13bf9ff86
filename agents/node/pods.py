"""The pods of one node: which container an id belongs to, and how much gpumem each pod requests."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

from agents.kube.client import Object
from agents.kube.pods import Pod, PodError
from agents.node.cgroup import Container
from agents.runtime.log import Log
from tenancy.caps import Cap, caps_of
from tenancy.ledger import Ledger


@dataclass(frozen=True, kw_only=True)
class NodePod:
    """A pod that runs or is about to. `group_uid` is the UID in its control group's name, `containers` holds names by
    container id, `declared_mib` is 0 where it has no budget. `caps` are what its containers may have of each of its
    devices, `uuids`, and `running` the ids of those that run."""

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
        pod = self.pod(container.pod_uid)
        if pod is None:
            return Owner(pod_uid=container.pod_uid)
        name = pod.containers.get(container.id, "")
        return Owner(namespace=pod.namespace, pod=pod.name, pod_uid=pod.uid, container=name)

    def pod(self, group_uid: str) -> NodePod | None:
        """The pod whose control group bears that UID; None for one that is not listed."""
        return self._by_group.get(group_uid)

    def without(self, uid: str) -> "Roster":
        """The others."""
        return Roster(tuple(pod for pod in self.pods if pod.uid != uid))

    @cached_property
    def _by_group(self) -> Mapping[str, NodePod]:
        """What bears a pod's own UID is that pod's, whatever another calls itself."""
        return {pod.group_uid: pod for pod in self.pods} | {pod.uid: pod for pod in self.pods}


def node_pod(item: Object, ledger: Ledger | None, log: Log) -> NodePod:
    """A Pod with what it declares: nothing without a ledger, or where its request cannot be read."""
    pod = Pod(item)
    return NodePod(
        namespace=pod.namespace,
        name=pod.name,
        uid=pod.uid,
        group_uid=pod.group_uid,
        containers=pod.containers,
        declared_mib=_declared_mib(pod, ledger, log) if ledger else 0,
        caps=_caps(pod, ledger) if ledger else (),
        uuids=tuple(filter(None, pod.annotations.get(ledger.names.device_uuid, "").split(","))) if ledger else (),
        running=pod.running_containers,
    )


def _declared_mib(pod: Pod, ledger: Ledger, log: Log) -> int:
    try:
        return pod.declared_mib(ledger)
    except PodError as error:
        log.error(f"counts as a pod without a budget: {error}")
        return 0


def _caps(pod: Pod, ledger: Ledger) -> tuple[Cap, ...]:
    """None where they cannot be read, of which the pod's budget has told."""
    try:
        return tuple(caps_of(pod.spec, ledger.names))
    except ValueError:
        return ()
