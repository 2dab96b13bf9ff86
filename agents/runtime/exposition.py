"""Writes and reads the part of the Prometheus text format that the agents' metrics use.

Source: https://prometheus.io/docs/instrumenting/exposition_formats/
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from agents.runtime.errors import AgentError


class ExpositionError(AgentError):
    """The text does not have Prometheus' text format. The reader must not use any part of the text."""


@dataclass(frozen=True, kw_only=True)
class Sample:
    name: str
    labels: Mapping[str, str] = field(default_factory=dict)
    value: float


class MetricType(StrEnum):
    GAUGE = "gauge"
    COUNTER = "counter"
    HISTOGRAM = "histogram"


@dataclass(frozen=True, kw_only=True)
class Metric:
    """The meaning of a metric, and the names of its labels. The page docs/reference/metrics.md is generated from all
    metrics.
    """

    text: str
    labels: tuple[str, ...] = ()
    kind: MetricType = MetricType.GAUGE


@dataclass(frozen=True, kw_only=True)
class Family:
    """A metric and its samples. The names of a histogram's samples end with _bucket, _sum and _count."""

    name: str
    kind: MetricType
    text: str
    samples: tuple[Sample, ...]


_NAME = r"[a-zA-Z_:][a-zA-Z0-9_:]*"
_LABEL = r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\\n]|\\[\\"n])*)"'
_LINE = re.compile(rf"({_NAME})(?:\{{((?:{_LABEL}(?:,(?=[a-zA-Z_])|(?=\}})))*)\}})? ([^ ]+)")
_PAIR = re.compile(_LABEL)
_ESCAPED = {"\\": "\\\\", '"': '\\"', "\n": "\\n"}
_PLAIN = {escaped: plain for plain, escaped in _ESCAPED.items()}
_ESCAPES = str.maketrans(_ESCAPED)


def render(samples: Iterable[Sample], metrics: Mapping[str, Metric]) -> str:
    """Returns the text of these gauges, grouped by the gauges' names. `metrics` must contain the name of each gauge."""
    return render_families(gauges(samples, metrics))


def gauges(samples: Iterable[Sample], metrics: Mapping[str, Metric]) -> tuple[Family, ...]:
    """Groups the samples by name. `metrics` maps each name to its help text."""
    grouped: dict[str, list[Sample]] = {}
    for sample in samples:
        grouped.setdefault(sample.name, []).append(sample)
    return tuple(
        Family(name=name, kind=MetricType.GAUGE, text=metrics[name].text, samples=tuple(group))
        for name, group in grouped.items()
    )


def render_families(families: Iterable[Family]) -> str:
    lines = []
    for family in families:
        lines += [f"# HELP {family.name} {family.text}", f"# TYPE {family.name} {family.kind}"]
        lines += [f"{sample.name}{_braces(sample.labels)} {sample.value!r}" for sample in family.samples]
    return "\n".join((*lines, ""))


def parse(text: str, passed_over: tuple[str, ...] = ()) -> tuple[Sample, ...]:
    """Returns all samples of the text, except those of the metrics in `passed_over`.

    Raises ExpositionError for an invalid line, and for an incomplete text.
    """
    if text and not text.endswith("\n"):
        raise ExpositionError("the text is truncated in its last line")
    lines, skipped = text.split("\n"), ("#", *(f"{name}{{" for name in passed_over))
    return tuple(
        _sample(number, line) for number, line in enumerate(lines, start=1) if line and not line.startswith(skipped)
    )


def _sample(number: int, line: str) -> Sample:
    match = _LINE.fullmatch(line)
    try:
        value = float(match.group(5)) if match else None
    except ValueError:
        value = None
    if match is None or value is None:
        raise ExpositionError(f"line {number} is not a sample: {line[:80]!r}")
    labels = {name: _unescape(text) for name, text in _PAIR.findall(match.group(2) or "")}
    return Sample(name=match.group(1), labels=labels, value=value)


def _braces(labels: Mapping[str, str]) -> str:
    if not labels:
        return ""
    return "{" + ",".join([f'{name}="{value.translate(_ESCAPES)}"' for name, value in labels.items()]) + "}"


def _unescape(value: str) -> str:
    return re.sub(r"\\.", lambda pair: _PLAIN[pair.group()], value) if "\\" in value else value
