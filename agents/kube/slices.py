"""ResourceSlices: how those of one driver on one node belong together.

Source: the rules on ResourcePool in k8s.io/api resource/v1. An older generation is never used: the newer one says that
it is out of date; and a pool counts when all of its slices are there.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

from agents.kube.client import Object
from agents.runtime.errors import AgentError
from tenancy.names import RESOURCE_API
from tenancy.workload import at

SLICES = f"/apis/{RESOURCE_API}/resourceslices"
CLAIMS = f"/apis/{RESOURCE_API}/resourceclaims"

Held = TypeVar("Held")


class SlicesError(AgentError):
    """The devices of a node are not known; the message says why."""


@dataclass(frozen=True, kw_only=True)
class SliceHead:
    """What a ResourceSlice says of itself: `pool` has `count` slices of its newest `generation`."""

    pool: str
    generation: int
    count: int


def head_of(spec: Object) -> SliceHead:
    """Of a ResourceSlice's spec. Raises SlicesError, and ShapeError."""
    pool = at(spec, "pool")
    return SliceHead(
        pool=str(pool.get("name")),
        generation=_integer(pool, "generation"),
        count=_integer(pool, "resourceSliceCount"),
    )


def whole_pool(slices: Sequence[tuple[SliceHead, Held]]) -> list[Held]:
    """What is held of the newest generation; `slices`, at least one, are all of one driver on one node. Raises
    SlicesError."""
    pools = {head.pool for head, _ in slices}
    if len(pools) > 1:
        raise SlicesError(f"its ResourceSlices are of several pools: {', '.join(sorted(pools))}")
    newest = max(head.generation for head, _ in slices)
    current = [(head, held) for head, held in slices if head.generation == newest]
    wanted = {head.count for head, _ in current}
    if wanted != {len(current)}:
        raise SlicesError(f"its devices are half published: {len(current)} of {max(wanted)} ResourceSlices")
    return [held for _, held in current]


def _integer(mapping: Object, field: str) -> int:
    value = mapping.get(field)
    if isinstance(value, bool) or not isinstance(value, int):
        raise SlicesError(f"{field} must be a whole number (got {value!r})")
    return value
