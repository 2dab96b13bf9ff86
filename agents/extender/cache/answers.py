"""The answers of the scheduler cache to a filter and to a bind."""

from collections.abc import Mapping
from dataclasses import dataclass

from agents.extender.cache.node_info import Shortage


@dataclass(frozen=True)
class FilterAnswer:
    """The answer to a filter request: the best node, or the reasons why no node fits.

    `refused` has the nodes that lack memory now. `hopeless` has the nodes that would lack memory even without any pods.
    `short` lists the devices that a seat could have if other pods did not use the memory of these devices.
    """

    nodes: tuple[str, ...]
    refused: Mapping[str, str]
    hopeless: Mapping[str, str]
    short: tuple[Shortage, ...] = ()


@dataclass(frozen=True)
class NotAssumed:
    reason: str
