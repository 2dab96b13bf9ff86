"""The numbers of a demo: the use of the device by app, the beginning of each step, and the plugin's answers."""

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path

from toolchain.cluster import card
from toolchain.cluster.card import Card


@dataclass(frozen=True)
class Sample:
    """The MiB of each app, `seconds` after the start; a sample holds until the next one."""

    seconds: float
    used_mib: dict[str, int]


@dataclass(frozen=True)
class Answer:
    """A command that a step showed, and its text."""

    step: str
    command: str
    text: str


@dataclass
class Recording:
    """`clock` returns the seconds since the start."""

    clock: Callable[[], float]
    samples: list[Sample] = field(default_factory=list)
    steps: dict[str, float] = field(default_factory=dict)
    answers: list[Answer] = field(default_factory=list)

    def step(self, key: str) -> None:
        self.steps[key] = round(self.clock(), 1)

    def sample(self, found: Card) -> None:
        """Keeps the use of each app if it differs from the last sample's."""
        used_mib: dict[str, int] = {}
        for pid, (app, _) in card.processes():
            used_mib[app] = used_mib.get(app, 0) + found.held.get(pid, 0)
        if not self.samples or self.samples[-1].used_mib != used_mib:
            self.samples.append(Sample(round(self.clock(), 1), used_mib))

    def answer(self, step: str, command: str, text: str) -> None:
        self.answers.append(Answer(step, command, text))

    def write(self, file: Path) -> None:
        """Writes everything as JSON, with the time at which the recording ended."""
        parts = {
            "steps": self.steps,
            "samples": [asdict(each) for each in self.samples],
            "answers": [asdict(each) for each in self.answers],
            "ended": round(self.clock(), 1),
        }
        file.write_text(json.dumps(parts, indent=1) + "\n")
