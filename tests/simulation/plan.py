"""A plan lists faults and acts in a simulated cluster, each with its time."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from tests.simulation.system import Shape, System

DAY = 86_400.0


@dataclass(frozen=True)
class Entry:
    at: float
    what: str
    given: Mapping[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        return f"{self.what} {' '.join(f'{key}={value}' for key, value in self.given.items())}"


@dataclass(frozen=True)
class Plan:
    shape: Shape
    entries: tuple[Entry, ...]
    days: float = 1.0
    seed: int = 0


Act = Callable[..., None]
ACTS: dict[str, Act] = {}


def act(run: Act) -> Act:
    ACTS[run.__name__] = run
    return run


def later(system: System, seconds: float, undo: Callable[[], object], what: str) -> None:
    def end() -> None:
        undo()
        system.world.say("plan", f"end of {what}")
        system.world.stir()

    system.world.after(seconds, end)
