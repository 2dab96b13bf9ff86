"""A pool to draw, as plain data. An amount is a number of MiB, or of GPUs in a pool of whole devices."""

from dataclasses import dataclass
from enum import StrEnum


class Kind(StrEnum):
    HELD = "held"
    QUEUES = "queues"
    PLANNED = "planned"
    FREE = "free"
    RESERVE = "reserve"


@dataclass(frozen=True, kw_only=True)
class Part:
    """A part of a bar: `count` times `amount`. `owner` decides the colour of a part that somebody holds."""

    name: str
    amount: int
    count: int = 1
    kind: Kind = Kind.HELD
    owner: str = ""

    @property
    def total(self) -> int:
        return self.amount * self.count

    @property
    def label(self) -> str:
        return f"{self.name} {self.amount}{f' x {self.count}' if self.count > 1 else ''}"


@dataclass(frozen=True)
class Fact:
    text: str
    alarm: bool = False


@dataclass(frozen=True, kw_only=True)
class Bar:
    """A device, or equal devices. The bar is as long as its parts together."""

    parts: tuple[Part, ...]
    title: str = ""


@dataclass(frozen=True, kw_only=True)
class DrawnPool:
    """A pool with its bars. `facts` are above the bars, and `more` is below them."""

    name: str
    facts: tuple[Fact, ...]
    bars: tuple[Bar, ...]
    more: tuple[Fact, ...] = ()
