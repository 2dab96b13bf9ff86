"""Draws the report of `kubectl gpumem why` as text. Pure."""

from collections.abc import Iterator, Sequence

from gpumem.paper import Paper, text_of_lines
from gpumem.reasons import FINE
from gpumem.why import Ahead, Answer, HeldBy, Why

_MOST_LINES = 12  # The maximum number of lines below a reason in the text. The report of -o json has all lines.
_MOST_HOLDERS = 5


@text_of_lines
def why_text(report: Why, paper: Paper) -> Iterator[str]:
    for answer in report.answers:
        yield from _reason(answer, paper)
    yield from paper.unknown(report.unknown)


def _ahead(ahead: Ahead, paper: Paper) -> Iterator[str]:
    for row in ahead.first:
        yield from paper.wrapped(
            f"- before it: {row.namespace}/{row.name}, priority {row.priority}, {row.age} old", "  "
        )
    if ahead.total > len(ahead.first):
        yield f"  - and {ahead.total - len(ahead.first)} more"


def _holders(rows: Sequence[HeldBy], paper: Paper) -> Iterator[str]:
    for row in rows[:_MOST_HOLDERS]:
        held = f"{row.mib} MiB" if row.mib else "it"
        yield from paper.wrapped(f"- {row.namespace}/{row.name} has {held} for {row.age}", "  ")
    if len(rows) > _MOST_HOLDERS:
        yield f"  - and {len(rows) - _MOST_HOLDERS} more have some"


def _reason(answer: Answer, paper: Paper) -> Iterator[str]:
    fine = answer.reason in FINE
    yield from paper.wrapped(f"{answer.about}: {answer.title} [{answer.reason}]", alarm=not fine)
    yield from paper.wrapped(answer.text, "  ")
    if answer.ahead:
        yield from _ahead(answer.ahead, paper)
    yield from _holders(answer.held_by, paper)
    for line in answer.more[:_MOST_LINES]:
        yield from paper.wrapped(f"- {line}", "  ")
    if len(answer.more) > _MOST_LINES:
        yield f"  - and {len(answer.more) - _MOST_LINES} more"
    if not fine:
        yield from paper.wrapped(f"next: {answer.then}", "  ")
        yield from paper.wrapped(f"do:   {answer.do}", "  ")
    yield ""
