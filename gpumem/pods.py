"""Pods with their whole objects, and workloads, for the reports of kubectl's plugin.

The plugin needs whole objects of pods, and the agents need only some fields (agents/kube).
"""

from dataclasses import dataclass

from agents.kube.client import Object
from agents.kube.pods import Pod


class WholePod(Pod):
    """A Pod, and the fields of its object."""

    @property
    def item(self) -> Object:
        return self._item

    @property
    def metadata(self) -> Object:
        return self._metadata

    @property
    def spec(self) -> Object:
        return self._spec

    @property
    def status(self) -> Object:
        return self._status


@dataclass(frozen=True, order=True)
class Workload:
    """A workload, which is the object that owns pods."""

    namespace: str
    kind: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind} {self.namespace}/{self.name}"
