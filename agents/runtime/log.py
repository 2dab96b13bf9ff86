"""Writes log lines as JSON to stdout. A line has ts, level, agent, message and further fields."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TextIO


@dataclass(frozen=True)
class Log:
    """Writes the log of one agent. Each log line is a single write, so that lines of two threads do not mix.

    Each log line is flushed immediately. The agents do not use Python's logging, because logging reserves the field
    names `name` and `process` and ignores errors of the stream.
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
