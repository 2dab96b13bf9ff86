"""The findings of a rule. A rule that cannot judge an object reports the object in a finding, and still judges the
other objects."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

from policy.unknown import UnprovenError
from tenancy.quantity import QuantityError
from tenancy.workload import ShapeError, UnboundedError


@dataclass(frozen=True)
class Finding:
    """A finding reports a mistake, its size and the key to change. `urn` names the Pulumi resource to edit."""

    message: str
    urn: str | None = None
    unknown_of: "FindingSubject | None" = None  # The object of which a value is unknown until the update.


class FindingSubject(Protocol):
    """The object that a finding is about. The message of a finding starts with `str(subject)`."""

    @property
    def urn(self) -> str | None: ...


S = TypeVar("S", bound=FindingSubject)

# A rule raises one of these errors if it cannot judge an object. Any other error is a bug in a rule, and ends the pack.
UNREADABLE = (UnprovenError, QuantityError, ShapeError, UnboundedError)


def judge_each(subjects: Iterable[S], judge: Callable[[S], Iterable[Finding]]) -> Iterator[Finding]:
    """Yields the findings of a rule on each subject. A subject that the rule cannot judge also gives a finding."""
    for subject in subjects:
        try:
            yield from judge(subject)
        except UNREADABLE as error:
            yield unproven(subject, error)


def unproven(subject: FindingSubject, error: Exception | str) -> Finding:
    """Returns the finding that the rule could not judge the subject."""
    unknown_of = subject if isinstance(error, UnprovenError) else None
    return Finding(f"{subject}: cannot be proven: {error}", subject.urn, unknown_of)


def first_items(items: Sequence[object], shown: int = 5) -> str:
    """Returns a text with the first items and the number of further items."""
    more = f" and {len(items) - shown} more" if len(items) > shown else ""
    return ", ".join(map(str, items[:shown])) + more
