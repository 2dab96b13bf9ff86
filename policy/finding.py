"""What a rule finds, and how a rule goes over many objects without one of them hiding the others."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

from policy.unknown import UnprovenError
from tenancy.quantity import QuantityError
from tenancy.workload import ShapeError, UnboundedError


@dataclass(frozen=True)
class Finding:
    """A violation: what, how much, and which key to change. `urn` is the resource to edit."""

    message: str
    urn: str | None = None


class FindingSubject(Protocol):
    """What a finding is about; its text is what the message starts with."""

    @property
    def urn(self) -> str | None: ...


S = TypeVar("S", bound=FindingSubject)

# What stands in a manifest where it cannot be read; everything else that a rule raises is a bug and ends the gate.
UNREADABLE = (UnprovenError, QuantityError, ShapeError, UnboundedError)


def each(subjects: Iterable[S], judge: Callable[[S], Iterable[Finding]]) -> Iterator[Finding]:
    """The findings of every subject; one that cannot be read is a finding itself."""
    for subject in subjects:
        try:
            yield from judge(subject)
        except UNREADABLE as error:
            yield unproven(subject, error)


def unproven(subject: FindingSubject, error: Exception | str) -> Finding:
    """Fail closed: what cannot be proven is a violation."""
    return Finding(f"{subject}: cannot be proven: {error}", subject.urn)


def folded(items: Sequence[object], shown: int = 5) -> str:
    """A list that a message has room for."""
    more = f" and {len(items) - shown} more" if len(items) > shown else ""
    return ", ".join(map(str, items[:shown])) + more
