"""Pods with their whole objects, for the reports of kubectl's plugin.

The plugin needs whole objects of pods, and the agents need only some fields (agents/kube).
"""

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
