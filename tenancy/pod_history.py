"""Defines the recorded use of a pod, and finds the workload of a pod by the pod's name."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol, TypeVar


@dataclass(frozen=True)
class PodHistory:
    """A pod's use of one device over time.

    Each sample is a time in seconds since 1970 and a number of MiB. The samples are sorted by time.
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
    """Returns the workload with the longest name that the pod's name begins with, or None."""
    found = [each for each in workloads if pod == each.name or pod.startswith(f"{each.name}-")]
    return max(found, key=lambda each: len(each.name), default=None)
