"""The Prometheus text format, as much as our metrics use: gauges. Strict both ways.

Source: https://prometheus.io/docs/instrumenting/exposition_formats/
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from agents.errors import AgentError


class ExpositionError(AgentError):
    """The text is not in the format; nothing in it is believed."""


@dataclass(frozen=True, kw_only=True)
class Sample:
    """One series' value."""

    name: str
    labels: Mapping[str, str] = field(default_factory=dict)
    value: float


_NAME = r"[a-zA-Z_:][a-zA-Z0-9_:]*"
_LABEL = r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\\n]|\\[\\"n])*)"'
_LINE = re.compile(rf"({_NAME})(?:\{{((?:{_LABEL}(?:,(?=[a-zA-Z_])|(?=\}})))*)\}})? ([^ ]+)")
_PAIR = re.compile(_LABEL)
_ESCAPED = {"\\": "\\\\", '"': '\\"', "\n": "\\n"}
_PLAIN = {escaped: plain for plain, escaped in _ESCAPED.items()}


def render(samples: Iterable[Sample], help_texts: Mapping[str, str]) -> str:
    """The text of these samples, gauges all, grouped by name; each name has its line in `help_texts`."""
    lines = []
    grouped: dict[str, list[Sample]] = {}
    for sample in samples:
        grouped.setdefault(sample.name, []).append(sample)
    for name, group in grouped.items():
        lines += [f"# HELP {name} {help_texts[name]}", f"# TYPE {name} gauge"]
        lines += [f"{name}{_braces(sample.labels)} {sample.value!r}" for sample in group]
    return "\n".join((*lines, ""))


def parse(text: str) -> tuple[Sample, ...]:
    """Every sample. Raises ExpositionError for a line of another form and for a text that breaks off."""
    if text and not text.endswith("\n"):
        raise ExpositionError("the text breaks off in its last line")
    lines = text.split("\n")
    return tuple(
        _sample(number, line) for number, line in enumerate(lines, start=1) if line and not line.startswith("#")
    )


def _sample(number: int, line: str) -> Sample:
    match = _LINE.fullmatch(line)
    try:
        value = float(match.group(5)) if match else None
    except ValueError:
        value = None
    if match is None or value is None:
        raise ExpositionError(f"line {number} is no sample: {line[:80]!r}")
    labels = {name: _unescape(text) for name, text in _PAIR.findall(match.group(2) or "")}
    return Sample(name=match.group(1), labels=labels, value=value)


def _braces(labels: Mapping[str, str]) -> str:
    if not labels:
        return ""
    return "{" + ",".join(f'{name}="{_escape(value)}"' for name, value in labels.items()) + "}"


def _escape(value: str) -> str:
    return "".join(_ESCAPED.get(letter, letter) for letter in value)


def _unescape(value: str) -> str:
    return re.sub(r"\\.", lambda pair: _PLAIN[pair.group()], value)
