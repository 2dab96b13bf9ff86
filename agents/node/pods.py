"""The pods of one node as the API knows them: whose container an id is, and how much gpumem each pod declares."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

from agents.api import Api, Object
from agents.cgroup import Container
from agents.errors import AgentError
from tenancy.budget import declared_mib
from tenancy.ledger import Ledger
from tenancy.quantity import QuantityError
from tenancy.workload import ShapeError, at, maps_at

# In the mirror of a static pod: the UID by which the kubelet, and so the control group, knows it (pkg/kubelet/types).
_STATIC_POD_UID = "kubernetes.io/config.hash"


@dataclass(frozen=True, kw_only=True)
class Pod:
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
    """Who a container belongs to; a name is empty where the API has not told it."""

    namespace: str = ""
    pod: str = ""
    pod_uid: str
    container: str = ""


@dataclass(frozen=True)
class Roster:
    """The pods of a node."""

    pods: tuple[Pod, ...] = ()

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
    def _by_group(self) -> Mapping[str, Pod]:
        return {pod.group_uid: pod for pod in self.pods}


def on_node(node: str) -> str:
    """The field selector of the pods that are bound to the node and have not ended."""
    return f"spec.nodeName={node},status.phase!=Succeeded,status.phase!=Failed"


def read(api: Api, node: str, ledger: Ledger | None) -> Roster:
    """The pods bound to the node that have not ended, with what each declares (without a ledger: nothing is known to
    be declared). Raises ApiError, and AgentError for a pod whose request cannot be read: to leave it out would make
    it a pod without a budget."""
    return Roster(tuple(_pod(item, ledger) for item in api.items("/api/v1/pods", fieldSelector=on_node(node))))


def group_uid(metadata: Object) -> str:
    """The UID that the name of the pod's control group bears."""
    found: str = at(metadata, "annotations").get(_STATIC_POD_UID, metadata["uid"])
    return found


def _pod(item: Object, ledger: Ledger | None) -> Pod:
    metadata = item["metadata"]
    return Pod(
        namespace=metadata["namespace"],
        name=metadata["name"],
        uid=metadata["uid"],
        group_uid=group_uid(metadata),
        containers=_containers(item.get("status") or {}),
        declared_mib=_declared_mib(item, ledger) if ledger else 0,
    )


def _declared_mib(item: Object, ledger: Ledger) -> int:
    metadata = item["metadata"]
    try:
        return declared_mib(ledger, metadata["namespace"], item["spec"])
    except (QuantityError, ShapeError) as error:
        name = f"{metadata['namespace']}/{metadata['name']}"
        raise AgentError(f"pod {name}: {ledger.names.gpumem}: {error}") from None


def _containers(status: Object) -> dict[str, str]:
    """Names by the runtime's id; a containerID reads `containerd://<id>`. Ended ones keep theirs until they restart."""
    lists = ("containerStatuses", "initContainerStatuses", "ephemeralContainerStatuses")
    found = [container for name in lists for container in maps_at(status, name)]
    return {c["containerID"].partition("://")[2]: c["name"] for c in found if c.get("containerID")}
