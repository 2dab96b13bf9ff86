"""The events of a preview, as Pulumi's engine writes them: one JSON object a line
(sdk/go/common/apitype/events.go)."""

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

_STACK_TYPE = "pulumi:pulumi:Stack"


class Op(StrEnum):
    """The changes of a resource, the gravest first."""

    REPLACE = "replace"
    DELETE = "delete"
    UPDATE = "update"
    CREATE = "create"
    IMPORT = "import"
    SAME = "same"


# A replacement is several steps of one resource. A step that a later Pulumi adds counts as an update.
_OPS = {
    **dict.fromkeys(("replace", "create-replacement", "import-replacement", "read-replacement"), Op.REPLACE),
    **dict.fromkeys(("delete", "delete-replaced"), Op.DELETE),
    "create": Op.CREATE,
    "import": Op.IMPORT,
    **dict.fromkeys(("same", "read", "refresh", "discard", "discard-replaced"), Op.SAME),
}
_ADVISORY = ("advisory", "warning")
_COLOURS = re.compile(r"<\{%[^%]*%\}>")  # Pulumi's own marks, which its display turns into a terminal's
_GRAVITY = {op: rank for rank, op in enumerate(Op)}


@dataclass(frozen=True, kw_only=True)
class Resource:
    """A resource of the preview; `parent` is a URN, empty for the stack itself; `properties` are those that differ.

    `inputs` are those that the program declares, `before` those of the last run. A `retained` resource stays in the
    cluster when it is deleted.
    """

    urn: str
    parent: str
    op: Op
    properties: tuple[str, ...] = ()
    inputs: Mapping[str, Any] = field(default_factory=dict)
    before: Mapping[str, Any] = field(default_factory=dict)
    retained: bool = False

    @property
    def type(self) -> str:
        """The type token, as in `kubernetes:core/v1:ConfigMap`."""
        *_, types, _ = self.urn.split("::", 3)
        return types.rpartition("$")[2]

    @property
    def label(self) -> str:
        """Its kind and its name, as in `ConfigMap ledger`."""
        return _label(self.urn)

    @property
    def is_stack(self) -> bool:
        return _is_stack(self.urn)


@dataclass(frozen=True)
class Diagnostic:
    """A line or more of text; `severity` is the engine's: info, info#err (a process's stderr), warning, error."""

    severity: str
    text: str


@dataclass(frozen=True)
class PolicyEvent:
    """A finding of a policy."""

    pack: str
    mandatory: bool
    message: str


@dataclass
class Events:
    """The events so far. `judged` has each stack policy that saw the whole graph, with its pack, if it is
    enforced. `strays` are lines that are no event."""

    resources: dict[str, Resource] = field(default_factory=dict)
    diagnostics: list[Diagnostic] = field(default_factory=list)
    violations: list[PolicyEvent] = field(default_factory=list)
    judged: set[tuple[str, str]] = field(default_factory=set)
    strays: list[str] = field(default_factory=list)
    succeeded: bool = False
    cancelled: bool = False

    def add(self, line: str) -> None:
        """Takes in one line of the stream."""
        if not line.strip():
            return
        try:
            self._add(json.loads(line))
        except (ValueError, KeyError, TypeError, AttributeError):
            self.strays.append(line.rstrip("\n"))

    def _add(self, event: Mapping[str, Any]) -> None:
        event["sequence"]  # every event has one
        match event:
            case {"resourcePreEvent": {"metadata": step}}:
                self._step(step)
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
                retained=bool(old.get("retainOnDelete")),
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
    """urn:pulumi:stack::project::parent type$type::name"""
    *_, types, name = urn.split("::", 3)
    return f"{types.rpartition('$')[2].rpartition(':')[2]} {name}"


def _is_stack(urn: str) -> bool:
    return f"::{_STACK_TYPE}::" in urn


def _properties(step: Mapping[str, Any]) -> tuple[str, ...]:
    """The paths that force a replacement, if the engine names them. Otherwise the paths that differ."""
    detailed: Mapping[str, Mapping[str, Any]] = step.get("detailedDiff") or {}
    forcing = [path for path, diff in detailed.items() if str(diff.get("diffKind")).endswith("-replace")]
    return tuple(forcing or step.get("keys") or detailed or step.get("diffs") or ())


def read(lines: Iterable[str]) -> Events:
    """The events in the lines of a stream."""
    events = Events()
    for line in lines:
        events.add(line)
    return events
