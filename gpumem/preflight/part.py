"""A part of the cluster that is not as a stack needs it."""

import enum
from dataclasses import dataclass


class State(enum.StrEnum):
    """The state of a part."""

    MISSING = "missing"
    OTHER = "another version"
    UNKNOWN = "not known"


@dataclass(frozen=True, kw_only=True)
class Part:
    """A part that is not as the stack needs it. `blocks`: the rollout would fail, or would have no effect."""

    name: str
    state: State
    text: str
    blocks: bool
