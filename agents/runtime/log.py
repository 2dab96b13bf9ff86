"""Logs JSON lines to stdout, one for each event: ts, level, agent, message and the event's own fields."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TextIO


@dataclass(frozen=True)
class Log:
    """Writes the log of one agent. Each line is one write, so that the lines of two threads do not mix.

    Each line is flushed at once. The standard library's logging reserves field names (name, process) and ignores a
    broken stream.
    """

    agent: str
    stream: TextIO

    def info(self, message: str, **fields: object) -> None:
        self.write("info", message, fields)

    def warning(self, message: str, **fields: object) -> None:
        self.write("warning", message, fields)

    def error(self, message: str, **fields: object) -> None:
        self.write("error", message, fields)

    def write(self, level: str, message: str, fields: Mapping[str, object]) -> None:
        ts = datetime.now(UTC).isoformat(timespec="milliseconds")
        line = {"ts": ts, "level": level, "agent": self.agent, "message": message, **fields}
        self.stream.write(json.dumps(line, default=str) + "\n")
        self.stream.flush()
