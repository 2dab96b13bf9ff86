"""Findings of a rule. An object that cannot be read is a finding, and hides no other object."""

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
    """The subject of a finding; the message starts with its text."""

    @property
    def urn(self) -> str | None: ...


S = TypeVar("S", bound=FindingSubject)

# Errors of a manifest that cannot be read. Any other error of a rule is a bug and ends the verdict.
UNREADABLE = (UnprovenError, QuantityError, ShapeError, UnboundedError)


def each(subjects: Iterable[S], judge: Callable[[S], Iterable[Finding]]) -> Iterator[Finding]:
    """Yields the findings of every subject; one that cannot be read is a finding itself."""
    for subject in subjects:
        try:
            yield from judge(subject)
        except UNREADABLE as error:
            yield unproven(subject, error)


def unproven(subject: FindingSubject, error: Exception | str) -> Finding:
    """Returns the finding that the subject cannot be proven."""
    return Finding(f"{subject}: cannot be proven: {error}", subject.urn)


def folded(items: Sequence[object], shown: int = 5) -> str:
    """Returns the first items and the number of the others."""
    more = f" and {len(items) - shown} more" if len(items) > shown else ""
    return ", ".join(map(str, items[:shown])) + more
