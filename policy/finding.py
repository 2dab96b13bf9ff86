"""The findings of a rule. An object that cannot be read becomes a finding, and hides no other object."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

from policy.unknown import UnprovenError
from tenancy.quantity import QuantityError
from tenancy.workload import ShapeError, UnboundedError


@dataclass(frozen=True)
class Finding:
    """Reports a mistake, its size and the key to change. `urn` is the resource to edit."""

    message: str
    urn: str | None = None


class FindingSubject(Protocol):
    """The object that a finding is about. The finding's message starts with the object's text."""

    @property
    def urn(self) -> str | None: ...


S = TypeVar("S", bound=FindingSubject)

# A manifest that cannot be read raises one of these errors. Any other error is a bug in a rule and ends the run.
UNREADABLE = (UnprovenError, QuantityError, ShapeError, UnboundedError)


def each(subjects: Iterable[S], judge: Callable[[S], Iterable[Finding]]) -> Iterator[Finding]:
    """Yields the findings of every subject. A subject that cannot be read becomes a finding."""
    for subject in subjects:
        try:
            yield from judge(subject)
        except UNREADABLE as error:
            yield unproven(subject, error)


def unproven(subject: FindingSubject, error: Exception | str) -> Finding:
    """Returns the finding that the subject cannot be proven."""
    return Finding(f"{subject}: cannot be proven: {error}", subject.urn)


def folded(items: Sequence[object], shown: int = 5) -> str:
    """Returns the first items, and the number of the items left out."""
    more = f" and {len(items) - shown} more" if len(items) > shown else ""
    return ", ".join(map(str, items[:shown])) + more
