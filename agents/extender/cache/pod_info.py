"""What a pod asks of devices, and what it was given: read from the Pod, where the Binding's annotations keep it."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from agents.api import Object
from agents.errors import AgentError
from tenancy.devices import Ask
from tenancy.names import ALIYUN_INDEX, Names
from tenancy.quantity import QuantityError
from tenancy.workload import Manifest, ShapeError, at, pod_request

_ENDED = ("Succeeded", "Failed")


class AskError(AgentError):
    """The pod asks for what no scheduler can give; the message is for the pod's owner."""


@dataclass(frozen=True, kw_only=True)
class Allocated:
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
        return Ask.of(total, count or 1, _cpu_milli(spec)) if total else None
    except (QuantityError, ShapeError, ValueError) as error:
        raise AskError(f"{names.gpumem}: {error}") from None


def holder(pod: Object, names: Names) -> Allocated | Bystander | None:
    """What a Pod holds on its node; None where it is not bound or has ended. Raises AskError as `allocated` does."""
    found = allocated(pod, names)
    node = pod["spec"].get("nodeName")
    if found is not None or not node or at(pod, "status").get("phase") in _ENDED:
        return found
    with _read(pod):
        return Bystander(uid=pod["metadata"]["uid"], node=node, cpu_milli=_cpu_milli(pod["spec"]))


def allocated(pod: Object, names: Names) -> Allocated | None:
    """What a Pod holds on its node; None where it is not bound, has ended, or asks for no GPU memory.

    A request that no device could be asked for (somebody bound the pod by hand) counts rounded up. Raises AskError for
    one that cannot be read.
    """
    metadata, spec = pod["metadata"], pod["spec"]
    node = spec.get("nodeName")
    if not node or at(pod, "status").get("phase") in _ENDED:
        return None
    with _read(pod):
        ask = _bound_ask(spec, names)
    if ask is None:
        return None
    annotations = at(metadata, "annotations")
    return Allocated(
        uid=metadata["uid"],
        namespace=metadata["namespace"],
        name=metadata["name"],
        node=node,
        ask=ask,
        indices=_indices(annotations, ask, names),
        uuids=_uuids(annotations, ask, names),
        priority=spec.get("priority") or 0,
        terminating="deletionTimestamp" in metadata,
    )


@contextmanager
def _read(pod: Object) -> Iterator[None]:
    """Names the pod whose requests cannot be read."""
    try:
        yield
    except (QuantityError, ShapeError) as error:
        raise AskError(f"pod {pod['metadata']['namespace']}/{pod['metadata']['name']}: {error}") from None


def _bound_ask(spec: Manifest, names: Names) -> Ask | None:
    total, count = pod_request(spec, names.gpumem), max(pod_request(spec, names.gpu_count), 1)
    return Ask(-(-total // count), count, _cpu_milli(spec)) if total > 0 else None


def _cpu_milli(spec: Manifest) -> int:
    return pod_request(spec, "cpu", per_unit=1000)


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
