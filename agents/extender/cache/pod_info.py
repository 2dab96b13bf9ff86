"""PodInfo: what a pod requests of devices, and what it was assigned, as the Binding's annotations on the Pod say."""

from collections.abc import Mapping
from dataclasses import dataclass

from agents.kube.client import Object
from agents.kube.pods import Pod
from agents.runtime.errors import AgentError
from tenancy.devices.allocate import Ask
from tenancy.names import ALIYUN_INDEX, Names
from tenancy.quantity import QuantityError
from tenancy.workload import Manifest, ShapeError, pod_request


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


def ask_of(spec: Manifest, names: Names) -> Ask | None:
    """What a pod with that spec asks for, as the scheduler adds it up; None where it asks for no GPU memory. Raises
    AskError."""
    try:
        total, count = pod_request(spec, names.gpumem), pod_request(spec, names.gpu_count)
        return Ask.of(total, count or 1, pod_request(spec, "cpu", per_unit=1000)) if total else None
    except (QuantityError, ShapeError, ValueError) as error:
        raise AskError(f"{names.gpumem}: {error}") from None


def holder(item: Object, names: Names) -> PodInfo | Bystander | None:
    """What a Pod holds on its node; None where it is not bound or has ended. Raises PodError."""
    pod = Pod(item)
    if not pod.node or pod.ended:
        return None
    cpu_milli = pod.request("cpu", per_unit=1000)
    total, count = pod.request(names.gpumem), max(pod.request(names.gpu_count), 1)
    if total <= 0:
        return Bystander(uid=pod.uid, node=pod.node, cpu_milli=cpu_milli)
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


def allocated(item: Object, names: Names) -> PodInfo | None:
    """As `holder`; None also where it asks for no GPU memory."""
    found = holder(item, names)
    return found if isinstance(found, PodInfo) else None


def _indices(annotations: Mapping[str, str], ask: Ask, names: Names) -> tuple[int, ...] | None:
    """Ours, else those of the Aliyun extender, whose pods have one device."""
    text = annotations.get(names.device_index, annotations.get(ALIYUN_INDEX, ""))
    parts = text.split(",")
    if not all(part.isascii() and part.isdecimal() for part in parts):
        return None
    indices = tuple(map(int, parts))
    return indices if len(set(indices)) == len(indices) == ask.count else None


def _uuids(annotations: Mapping[str, str], ask: Ask, names: Names) -> tuple[str, ...] | None:
    parts = tuple(annotations.get(names.device_uuid, "").split(","))
    return parts if all(parts) and len(set(parts)) == len(parts) == ask.count else None
