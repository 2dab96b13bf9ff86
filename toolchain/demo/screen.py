"""Formats the text that the demo prints. The functions of this module have no side effects."""

import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from toolchain.demo.story import Step

CLEAR = "\x1b[H\x1b[2J\x1b[3J"
_BOLD, _PLAIN = "\x1b[1m", "\x1b[0m"


@dataclass(frozen=True)
class ReportedEvent:
    """An Event of Kubernetes. `about` is the object of the Event."""

    reporter: str
    reason: str
    about: str
    note: str


@dataclass(frozen=True)
class Page:
    """The format of a text: the width in columns, and whether the text has colours."""

    width: int = 100
    colour: bool = False

    def line(self, seconds: float, what: str) -> str:
        """Returns the text about an action that begins now.

        `seconds` is the time in seconds since the start of the demo.
        """
        text = f"[{seconds:3.0f} s] {what}"
        return "\n".join(textwrap.wrap(text, self.width, subsequent_indent=" " * 8, break_on_hyphens=False))

    def beginning(self, number: int, of: int, step: Step) -> str:
        """Returns the title of a step, and the explanation of the step."""
        title = f"{number} of {of}: {step.cause}"
        return _text([f"{_BOLD}{title}{_PLAIN}" if self.colour else title, *self._wrapped(step.why)])

    def outcome(self, step: Step, seconds: float, said: Sequence[ReportedEvent]) -> str:
        """Returns the outcome of a step, the Events about the step, and a command that shows the outcome."""
        return _text(self._outcome(step, seconds, said))

    def _outcome(self, step: Step, seconds: float, said: Sequence[ReportedEvent]) -> Iterator[str]:
        yield from self._wrapped(f"after {seconds:.0f} s: {step.effect}")
        for each in said:
            words = " ".join(each.note.split())
            yield from self._wrapped(f"{each.reporter} says {each.reason} of {each.about}: {words}")
        yield f"  see it: {step.type}"

    def summary(self, rows: Sequence[tuple[Step, float]]) -> str:
        """Returns a list of all steps with their duration in seconds."""
        lines = [f"{step.cause}: {step.effect}" for step, _ in rows]
        return _text(
            wrapped
            for line, (_, seconds) in zip(lines, rows, strict=True)
            for wrapped in textwrap.wrap(
                line, self.width, initial_indent=f"{seconds:5.0f} s  ", subsequent_indent=" " * 9
            )
        )

    def _wrapped(self, text: str) -> Iterator[str]:
        yield from textwrap.wrap(
            text, self.width, initial_indent="  ", subsequent_indent="    ", break_on_hyphens=False
        )


def _text(lines: Iterator[str] | Sequence[str]) -> str:
    return "\n".join(lines) + "\n"
