"""JSON lines on stdout, one an event: ts, level, agent, message and the event's own fields."""

import json
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TextIO


@dataclass(frozen=True)
class Log:
    """The log of one agent. Each line is flushed, so that a killed run loses none, and is one write, so that those of
    two threads do not mix (print writes the newline by itself).

    Not logging: its records have names that no field may have (name, process, module), a formatter that knows them
    all is longer than this, and it goes on where the stream is broken.
    """

    agent: str
    stream: TextIO

    def info(self, message: str, **fields: object) -> None:
        self._write("info", message, fields)

    def warning(self, message: str, **fields: object) -> None:
        self._write("warning", message, fields)

    def error(self, message: str, **fields: object) -> None:
        self._write("error", message, fields)

    def _write(self, level: str, message: str, fields: dict[str, object]) -> None:
        ts = datetime.now(UTC).isoformat(timespec="milliseconds")
        line = {"ts": ts, "level": level, "agent": self.agent, "message": message, **fields}
        self.stream.write(json.dumps(line, default=str) + "\n")
        self.stream.flush()
