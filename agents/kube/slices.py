"""Selects the valid ResourceSlices of one driver on one node.

Only the newest generation of ResourceSlices counts, and only if it is complete. The source of these rules is the type
ResourcePool in k8s.io/api resource/v1.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

from agents.kube.client import Object
from agents.kube.paths import api_path
from agents.runtime.errors import AgentError
from tenancy.names import RESOURCE_API

SLICES = api_path(RESOURCE_API, "resourceslices")

Held = TypeVar("Held")


class SlicesError(AgentError):
    """The devices of a node are not known. The message has the reason."""


@dataclass(frozen=True, kw_only=True)
class SliceHead:
    """The pool of a ResourceSlice. In the generation `generation`, this pool has `count` ResourceSlices."""

    pool: str
    generation: int
    count: int


def head_of(spec: Object) -> SliceHead:
    """Returns the pool, the generation and the number of slices in this spec of a ResourceSlice."""
    pool = spec["pool"]
    return SliceHead(pool=pool["name"], generation=pool["generation"], count=pool["resourceSliceCount"])


def complete_pool(slices: Sequence[tuple[SliceHead, Held]]) -> list[Held]:
    """Returns the value of each ResourceSlice of the newest generation. Raises SlicesError.

    `slices` has a pair of head and value for each ResourceSlice of one driver on one node. `slices` must have at least
    one pair.
    """
    pools = {head.pool for head, _ in slices}
    if len(pools) > 1:
        raise SlicesError(f"its ResourceSlices are of several pools: {', '.join(sorted(pools))}")
    newest = max(head.generation for head, _ in slices)
    current = [(head, held) for head, held in slices if head.generation == newest]
    wanted = {head.count for head, _ in current}
    if wanted != {len(current)}:
        raise SlicesError(f"its devices are partly published: {len(current)} of {max(wanted)} ResourceSlices")
    return [held for _, held in current]
