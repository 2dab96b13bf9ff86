"""Reads the events of a preview, which Pulumi's engine writes as lines of text.

Each line of the output has one JSON object (sdk/go/common/apitype/events.go).
"""

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

_STACK_TYPE = "pulumi:pulumi:Stack"


class Op(StrEnum):
    """The kinds of change of a resource, with the most serious kind first."""

    REPLACE = "replace"
    DELETE = "delete"
    UPDATE = "update"
    CREATE = "create"
    IMPORT = "import"
    SAME = "same"


# Pulumi replaces a resource in several steps. An unknown step of a later version of Pulumi counts as an update.
_OPS = {
    **dict.fromkeys(("replace", "create-replacement", "import-replacement", "read-replacement"), Op.REPLACE),
    **dict.fromkeys(("delete", "delete-replaced"), Op.DELETE),
    "create": Op.CREATE,
    "import": Op.IMPORT,
    **dict.fromkeys(("same", "read", "refresh", "discard", "discard-replaced"), Op.SAME),
}
_ADVISORY = ("advisory", "warning")
# Pulumi's colour marks, which Pulumi's display converts into the colours of a terminal.
_COLOURS = re.compile(r"<\{%[^%]*%\}>")
_GRAVITY = {op: rank for rank, op in enumerate(Op)}


@dataclass(frozen=True, kw_only=True)
class Resource:
    """A resource of the preview.

    `parent` is a URN, or "" for the stack itself. `properties` are the changed properties. `inputs` are the inputs that
    the program declares, and `before` are the inputs in Pulumi's state.
    """

    urn: str
    parent: str
    op: Op
    properties: tuple[str, ...] = ()
    inputs: Mapping[str, Any] = field(default_factory=dict)
    before: Mapping[str, Any] = field(default_factory=dict)

    @property
    def type(self) -> str:
        """Returns the type token of the resource, such as `kubernetes:core/v1:ConfigMap`."""
        *_, types, _ = self.urn.split("::", 3)
        return types.rpartition("$")[2]

    @property
    def label(self) -> str:
        """Returns the kind and the name of the resource, such as `ConfigMap ledger`."""
        return _label(self.urn)

    @property
    def is_stack(self) -> bool:
        return _is_stack(self.urn)


@dataclass(frozen=True)
class Diagnostic:
    """A message of Pulumi with one or more lines of text.

    `severity` is the severity that the engine gives: info, info#err (stderr of a process), warning or error.
    """

    severity: str
    text: str


@dataclass(frozen=True)
class PolicyEvent:
    """A finding of the policy pack."""

    pack: str
    mandatory: bool
    message: str


@dataclass
class Events:
    """The events that the reader has read so far.

    `judged` has the mandatory stack policies that have judged the whole graph, each with its pack. `strays` has the
    lines that are no event. `ended` has the URNs on which the engine no longer works, and `failed` those on which it
    gave up.
    """

    resources: dict[str, Resource] = field(default_factory=dict)
    diagnostics: list[Diagnostic] = field(default_factory=list)
    violations: list[PolicyEvent] = field(default_factory=list)
    judged: set[tuple[str, str]] = field(default_factory=set)
    strays: list[str] = field(default_factory=list)
    ended: set[str] = field(default_factory=set)
    failed: set[str] = field(default_factory=set)
    succeeded: bool = False
    cancelled: bool = False

    def add(self, line: str) -> None:
        """Reads one line of the event stream."""
        if not line.strip():
            return
        try:
            self._add(json.loads(line))
        except (ValueError, KeyError, TypeError, AttributeError):
            self.strays.append(line.rstrip("\n"))

    def _add(self, event: Mapping[str, Any]) -> None:
        event["sequence"]  # Every event of the engine has this key. A line without the key `sequence` raises KeyError.
        match event:
            case {"resourcePreEvent": {"metadata": step}}:
                self._step(step)
            case {"resOutputsEvent": {"metadata": {"urn": urn}}}:
                self.ended.add(urn)
            case {"resOpFailedEvent": {"metadata": {"urn": urn}}}:
                self.ended.add(urn)
                self.failed.add(urn)
            case {"diagnosticEvent": diagnostic}:
                self._diagnose(diagnostic)
            case {"stdoutEvent": {"message": text}}:
                self.cancelled |= "^C received" in text
                self._add_diagnostic("info", text)
            case {"errorEvent": {"error": text}}:
                self._add_diagnostic("error", text)
            case {"policyEvent": found}:
                mandatory = found["enforcementLevel"] not in _ADVISORY
                message = _COLOURS.sub("", found["message"]).strip()
                self.violations.append(PolicyEvent(found["policyPackName"], mandatory, message))
            case {"policyAnalyzeStackSummaryEvent": judged}:
                policies = [*(judged.get("passed") or ()), *(judged.get("failed") or ())]
                self.judged |= {(judged["policyPackName"], policy) for policy in policies}
            case {"summaryEvent": {"result": result}}:
                self.succeeded = result == "succeeded"

    def _step(self, step: Mapping[str, Any]) -> None:
        op = _OPS.get(step["op"], Op.UPDATE)
        new, old = step.get("new") or {}, step.get("old") or {}
        urn, state = step["urn"], new or old
        self.ended.discard(urn)  # A replacement has several steps.
        known = self.resources.get(urn)
        if known is None or _GRAVITY[op] < _GRAVITY[known.op]:
            parent = state.get("parent") or ""
            self.resources[urn] = Resource(
                urn=urn,
                parent=parent,
                op=op,
                properties=_properties(step),
                inputs=new.get("inputs") or {},
                before=old.get("inputs") or {},
            )

    def _diagnose(self, event: Mapping[str, Any]) -> None:
        if event["severity"] == "debug" or event.get("ephemeral"):
            return
        urn = event.get("urn", "")
        of = f"{_label(urn)}: " if urn and not _is_stack(urn) else ""
        self._add_diagnostic(event["severity"], of + event.get("prefix", "") + event["message"])

    def _add_diagnostic(self, severity: str, text: str) -> None:
        if text := _COLOURS.sub("", text).rstrip("\n"):
            self.diagnostics.append(Diagnostic(severity, text))


def _label(urn: str) -> str:
    *_, types, name = urn.split("::", 3)
    return f"{types.rpartition('$')[2].rpartition(':')[2]} {name}"


def _is_stack(urn: str) -> bool:
    return f"::{_STACK_TYPE}::" in urn


def _properties(step: Mapping[str, Any]) -> tuple[str, ...]:
    """Returns the paths that force a replacement, if the engine names such paths.

    If the engine names no path that forces a replacement, returns the paths of all changed properties.
    """
    detailed: Mapping[str, Mapping[str, Any]] = step.get("detailedDiff") or {}
    forcing = [path for path, diff in detailed.items() if str(diff.get("diffKind")).endswith("-replace")]
    return tuple(forcing or step.get("keys") or detailed or step.get("diffs") or ())


def read(lines: Iterable[str]) -> Events:
    """Reads a stream, and returns the events in its lines."""
    events = Events()
    for line in lines:
        events.add(line)
    return events
