"""Defines a part of the cluster that does not meet the needs of a stack."""

import enum
from dataclasses import dataclass


class State(enum.StrEnum):
    """The problem of a part of the cluster, such as Kueue."""

    MISSING = "missing"
    OTHER = "another version"
    UNKNOWN = "not known"


@dataclass(frozen=True, kw_only=True)
class Part:
    """A part of the cluster that does not meet the needs of the stack.

    If `blocks` is True, the rollout would fail or would have no effect.
    """

    name: str
    state: State
    text: str
    blocks: bool
