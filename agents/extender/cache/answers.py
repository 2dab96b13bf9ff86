"""The answers of the scheduler cache to a filter request and to a bind."""

from collections.abc import Mapping
from dataclasses import dataclass

from agents.extender.cache.node_info import Shortage


@dataclass(frozen=True)
class FilterAnswer:
    """The result of a filter request: the best node, or the reasons why no node fits.

    `refused` has the nodes that now have too little free memory. `hopeless` has the nodes that would have too little
    memory even without any pods. `short` has the devices on which the seat fits by the ledger, but other pods use the
    seat's memory.
    """

    nodes: tuple[str, ...]
    refused: Mapping[str, str]
    hopeless: Mapping[str, str]
    short: tuple[Shortage, ...] = ()


@dataclass(frozen=True)
class NotAssumed:
    reason: str
