"""Records a demo: the use of each app over time, the start of each step, and the plugin's reports."""

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path

from toolchain.cluster import card
from toolchain.cluster.card import Card


@dataclass(frozen=True)
class Sample:
    """The use of each app at a time of the demo.

    `seconds` is the time of the sample in seconds since the start of the demo. The use of an app stays the same until
    the next sample.
    """

    seconds: float
    used_mib: dict[str, int]


@dataclass(frozen=True)
class Answer:
    """A command that a step of the demo ran, and the command's output."""

    step: str
    command: str
    text: str


@dataclass
class Recording:
    """The record of a demo. `clock` returns the seconds since the start of the demo."""

    clock: Callable[[], float]
    samples: list[Sample] = field(default_factory=list)
    steps: dict[str, float] = field(default_factory=dict)
    answers: list[Answer] = field(default_factory=list)

    def step(self, key: str) -> None:
        self.steps[key] = round(self.clock(), 1)

    def sample(self, found: Card) -> None:
        """Adds a sample with the use of each app. If the use is unchanged, adds no sample."""
        used_mib: dict[str, int] = {}
        for pid, (app, _) in card.processes():
            used_mib[app] = used_mib.get(app, 0) + found.held.get(pid, 0)
        if not self.samples or self.samples[-1].used_mib != used_mib:
            self.samples.append(Sample(round(self.clock(), 1), used_mib))

    def answer(self, step: str, command: str, text: str) -> None:
        self.answers.append(Answer(step, command, text))

    def write(self, file: Path) -> None:
        """Writes the record as JSON, together with the time at which the demo ended."""
        parts = {
            "steps": self.steps,
            "samples": [asdict(each) for each in self.samples],
            "answers": [asdict(each) for each in self.answers],
            "ended": round(self.clock(), 1),
        }
        file.write_text(json.dumps(parts, indent=1) + "\n")
