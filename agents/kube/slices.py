"""Selects the valid ResourceSlices of one driver on one node.

Only the newest generation counts, and only if this generation is complete. Source: the rules of ResourcePool in
k8s.io/api resource/v1.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

from agents.kube.client import Object
from agents.runtime.errors import AgentError
from tenancy.names import RESOURCE_API
from tenancy.workload import map_at

SLICES = f"/apis/{RESOURCE_API}/resourceslices"

Held = TypeVar("Held")


class SlicesError(AgentError):
    """The devices of a node are not known. The message has the reason."""


@dataclass(frozen=True, kw_only=True)
class SliceHead:
    """The pool of a ResourceSlice. This pool has `count` ResourceSlices of the generation `generation`."""

    pool: str
    generation: int
    count: int


def head_of(spec: Object) -> SliceHead:
    """Returns the head of a ResourceSlice with this spec. Raises SlicesError and ShapeError."""
    pool = map_at(spec, "pool")
    return SliceHead(
        pool=str(pool.get("name")),
        generation=integer(pool, "generation"),
        count=integer(pool, "resourceSliceCount"),
    )


def complete_pool(slices: Sequence[tuple[SliceHead, Held]]) -> list[Held]:
    """Returns the values of the ResourceSlices with the newest generation. Raises SlicesError.

    `slices` has one pair of head and value for each ResourceSlice of one driver on one node. There must be at least one
    pair.
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


def integer(mapping: Object, field: str) -> int:
    """Returns the whole number in this field. Raises SlicesError."""
    value = mapping.get(field)
    if isinstance(value, bool) or not isinstance(value, int):
        raise SlicesError(f"{field} must be a whole number (got {value!r})")
    return value
