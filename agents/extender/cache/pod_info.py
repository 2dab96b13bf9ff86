"""PodInfo: what a pod requests of devices, and what it was assigned, as the Binding's annotations on the Pod say."""

from collections.abc import Mapping
from dataclasses import dataclass

from agents.kube.client import Object
from agents.kube.pods import Pod
from agents.runtime.errors import AgentError
from tenancy.devices.allocate import Ask
from tenancy.names import Names
from tenancy.workload import Manifest


class AskError(AgentError):
    """The pod asks for what no scheduler can give; the message is for the pod's owner."""


@dataclass(frozen=True, kw_only=True)
class PodInfo:
    """A bound pod that has not ended, also one that terminates. `indices` and `uuids` are None where its annotations do
    not tell. Where both are known the UUIDs count: they stay when a device comes under another index."""

    uid: str
    namespace: str
    name: str
    node: str
    ask: Ask
    indices: tuple[int, ...] | None = None
    uuids: tuple[str, ...] | None = None
    priority: int = 0
    terminating: bool = False

    @property
    def placed(self) -> bool:
        """Whether it is known which devices it has."""
        return self.indices is not None or self.uuids is not None

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


@dataclass(frozen=True, kw_only=True)
class Bystander:
    """A bound pod without GPU memory: the CPU that it requests, in thousandths, is not there for others."""

    uid: str
    node: str
    cpu_milli: int
    priority: int = 0


@dataclass(frozen=True, kw_only=True)
class Nomination:
    """A pod for which others were evicted from a node. What they leave is kept for it until then (monotonic seconds),
    unless it is bound, goes, or loses the nomination before."""

    uid: str
    node: str
    ask: Ask
    priority: int
    until: float = 0.0


@dataclass(frozen=True)
class Standing:
    """What a pod that is to be placed may claim: before whom it comes, and in which pools it keeps within a seat."""

    priority: int = 0
    pools: frozenset[str] = frozenset()


ANYBODY = Standing()


def ask_of(spec: Manifest, names: Names) -> Ask | None:
    """What a pod with that spec asks for, as the scheduler adds it up; None where it asks for no GPU memory. Raises
    AskError."""
    try:
        return Ask.of_pod(spec, names)
    except ValueError as error:  # also QuantityError and ShapeError
        raise AskError(f"{names.gpumem}: {error}") from None


def holder(item: Object, names: Names) -> PodInfo | Bystander | Nomination | None:
    """What a Pod holds on its node, or is nominated for; None where it has ended or neither. Raises PodError."""
    pod = Pod(item)
    if pod.ended:
        return None
    if not pod.node:
        return _nomination(pod, names)
    cpu_milli = pod.request("cpu", per_unit=1000)
    total, count = pod.request(names.gpumem), max(pod.request(names.gpu_count), 1)
    if total <= 0:
        return Bystander(uid=pod.uid, node=pod.node, cpu_milli=cpu_milli, priority=pod.priority)
    # A request that no device could be asked for (somebody bound the pod by hand) counts rounded up.
    ask = Ask(-(-total // count), count, cpu_milli)
    return PodInfo(
        uid=pod.uid,
        namespace=pod.namespace,
        name=pod.name,
        node=pod.node,
        ask=ask,
        indices=_indices(pod.annotations, ask, names),
        uuids=_uuids(pod.annotations, ask, names),
        priority=pod.priority,
        terminating=pod.terminating,
    )


def _nomination(pod: Pod, names: Names) -> Nomination | None:
    node = pod.status.get("nominatedNodeName")
    if not node or pod.terminating:
        return None
    with pod.reading(names.gpumem):
        ask = Ask.of_pod(pod.spec, names)
    return None if ask is None else Nomination(uid=pod.uid, node=node, ask=ask, priority=pod.priority)


def allocated(item: Object, names: Names) -> PodInfo | None:
    """As `holder`; None also where it asks for no GPU memory."""
    found = holder(item, names)
    return found if isinstance(found, PodInfo) else None


def _indices(annotations: Mapping[str, str], ask: Ask, names: Names) -> tuple[int, ...] | None:
    parts = annotations.get(names.device_index, "").split(",")
    if not all(part.isascii() and part.isdecimal() for part in parts):
        return None
    indices = tuple(map(int, parts))
    return indices if len(set(indices)) == len(indices) == ask.count else None


def _uuids(annotations: Mapping[str, str], ask: Ask, names: Names) -> tuple[str, ...] | None:
    parts = tuple(annotations.get(names.device_uuid, "").split(","))
    return parts if all(parts) and len(set(parts)) == len(parts) == ask.count else None
