"""Writes the agents' log lines to the timeline."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from io import StringIO
from typing import TextIO

from agents.runtime.log import Log
from tests.simulation.model.world import World


@dataclass(frozen=True)
class SimLog(Log):
    """Writes an agent's warnings, errors and acts to the timeline."""

    stream: TextIO = field(default_factory=StringIO)  # not used
    world: World = field(kw_only=True)
    last: list[str] = field(default_factory=list)

    def write(self, level: str, message: str, fields: Mapping[str, object]) -> None:
        """Writes a line, unless it equals the last line."""
        if level == "info" and not message.startswith(("did ", "wrote")):
            return
        shown = " ".join(f"{key}={value}" for key, value in fields.items() if key in ("gate", "pods", "why", "problem"))
        line = f"{message} {shown}"[:200]
        if [line] != self.last:
            self.last[:] = [line]
            self.world.say(self.agent, line)
