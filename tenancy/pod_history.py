"""Defines the recorded use of a pod, and finds a pod's workload by the pod's name."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol, TypeVar


@dataclass(frozen=True)
class PodHistory:
    """The use of one device by a pod over time.

    Each sample is a time in seconds since 1970 and a number of MiB. The samples are sorted by their times.
    """

    namespace: str
    pod: str
    gpu: str
    samples: tuple[tuple[float, int], ...]


class HasName(Protocol):
    @property
    def name(self) -> str: ...


_Named = TypeVar("_Named", bound=HasName)


def workload_of_pod(pod: str, workloads: Iterable[_Named]) -> _Named | None:
    """Finds the workload by the beginning of the pod's name. Returns None if no workload matches. If several workloads
    match, returns the workload with the longest name.
    """
    found = [each for each in workloads if pod == each.name or pod.startswith(f"{each.name}-")]
    return max(found, key=lambda each: len(each.name), default=None)
