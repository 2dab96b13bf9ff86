"""Formats the report of a preview as text: the changes by component, remarks, the seating chart, and the verdict at the
end.
"""

import signal
import textwrap
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from stacks.preview.events import Events, Op, PolicyEvent, Resource
from stacks.preview.modes import changed_modes
from tenancy.names import POLICY, POLICY_PACK

_INTERRUPTED = 128 + signal.SIGINT  # The exit code that a shell reports after Ctrl-C.
_SIGNS = {Op.CREATE: "+", Op.UPDATE: "~", Op.REPLACE: "+-", Op.DELETE: "-", Op.IMPORT: "="}
_ORDER = (Op.CREATE, Op.IMPORT, Op.UPDATE, Op.REPLACE, Op.DELETE)
_ALWAYS_LISTED = (Op.REPLACE, Op.DELETE)
# For these kinds of change, the report only counts the resources.
_COUNTED = (Op.SAME, Op.CREATE, Op.IMPORT)
_MOST_UPDATES = 8  # The maximum number of updates that the report lists for one component.
_MOST_PROPERTIES = 3
_LABEL_COLUMNS = 44
_INDENT = "   "
REASONS = ("info#err", "error")  # The severities of messages that explain a failure.
_HOLLOW = "error: preview failed"  # The engine's last message after every failure.
_GREEN, _RED, _YELLOW, _MAGENTA, _BOLD_GREEN, _BOLD_RED, _DIM = "32", "31", "33", "35", "1;32", "1;31", "2"
_COLOURS = {Op.CREATE: _GREEN, Op.IMPORT: _GREEN, Op.UPDATE: _YELLOW, Op.REPLACE: _MAGENTA, Op.DELETE: _RED}


@dataclass(frozen=True, kw_only=True)
class PreviewOutcome:
    """The outcome of a preview of `stack`.

    `code` is Pulumi's exit code in the form that a shell reports. With `displayed`, Pulumi itself has shown the
    changes, every remark and its stderr on the terminal.
    """

    stack: str
    events: Events
    code: int
    stderr: str = ""
    seconds: float = 0.0
    signalled: bool = False
    displayed: bool = False

    @property
    def interrupted(self) -> bool:
        """Returns True after a signal, or after Pulumi's display has read Ctrl-C from the keyboard."""
        return self.signalled or self.events.cancelled

    @property
    def refusals(self) -> list[PolicyEvent]:
        return [found for found in self.events.violations if found.mandatory]

    @property
    def advice(self) -> list[PolicyEvent]:
        return [found for found in self.events.violations if not found.mandatory]

    @property
    def judged(self) -> bool:
        """Returns True if the project's policy saw the whole graph."""
        return (POLICY_PACK, POLICY) in self.events.judged

    @property
    def exit_code(self) -> int:
        """Returns Pulumi's exit code.

        If Pulumi ended with 0 after an interruption, returns 130. If Pulumi ended with 0 and the preview is not
        accepted, returns 1.
        """
        if self.code:
            return self.code
        if self.interrupted:
            return _INTERRUPTED
        failed = any(message.severity == "error" for message in self.events.diagnostics)
        return 0 if self.judged and self.events.succeeded and not self.refusals and not failed else 1


def report(run: PreviewOutcome, chart: str, *, colour: bool, remedies: Iterable[str] = (), observed: str = "") -> str:
    """Returns the report.

    The last block of the report has the verdict and its reasons. After Ctrl-C, the report has only the verdict. After a
    refusal, the report lists changes with which the pack would accept the stack. `observed` is the message about the
    parts that only observe, which the report prints next to the verdict.
    """
    paint = _Paint(colour)
    below = remedies if run.refusals and not run.interrupted else ()
    note = [paint(f"⚠️ {observed}", _YELLOW)] if observed and not run.interrupted else []
    blocks: list[Iterable[str]] = [[*_modes(run, note), *_verdict(run, paint), *(f"{_INDENT}{each}" for each in below)]]
    if not run.interrupted:
        blocks.insert(0, chart.splitlines())
        if not run.displayed:
            blocks[:0] = [_changes(run, paint), _remarks(run, paint)]
    texts = ("\n".join(block) for block in blocks)
    return "\n\n".join(text for text in texts if text) + "\n"


def removal_report(run: PreviewOutcome, *, colour: bool) -> str:
    """Returns the number of objects that a removal deletes, by component, or the reason why its preview failed."""
    paint = _Paint(colour)
    resources = run.events.resources
    rows = [*_rows(resources, _ORDER)]
    width = max((len(row.label) for row in rows), default=0)
    lines = [f"{run.stack}: {_amounts(Counter(each.op for each in resources.values()), paint)}"] if resources else []
    lines += [f"  {row.label:{width}}  {_amounts(row.counts, paint)}" for row in rows]
    return "".join(f"{line}\n" for line in (*lines, *(_reasons(run) if run.code else ())))


class _Paint:
    def __init__(self, colour: bool) -> None:
        self._colour = colour

    def __call__(self, text: str, code: str) -> str:
        return f"\x1b[{code}m{text}\x1b[0m" if self._colour else text


@dataclass(frozen=True)
class _Row:
    """Components of one type with the same changes. `listed` has the resources that the report names below the row of
    the component."""

    type: str
    names: tuple[str, ...]
    counts: Mapping[Op, int]
    listed: tuple[Resource, ...] = ()

    @property
    def label(self) -> str:
        if len(self.names) == 1:
            alike = self.names[0].replace("-", "") == self.type.lower()
            return self.type if alike else f"{self.type} {self.names[0]}"
        room = _LABEL_COLUMNS - len(f"{self.type} x{len(self.names)}: ")
        return f"{self.type} x{len(self.names)}: {textwrap.shorten(', '.join(self.names), room, placeholder=' …')}"


def _changes(run: PreviewOutcome, paint: _Paint) -> Iterator[str]:
    resources = run.events.resources
    if not resources:
        return
    total = Counter(resource.op for resource in resources.values())
    partial = "" if run.judged else ", as far as the preview came"
    yield f"{run.stack}{partial}: {_amounts(total, paint)}"
    rows = list(_rows(resources))
    width = max((len(row.label) for row in rows), default=0)
    for row in rows:
        yield f"  {row.label:{width}}  {_amounts(row.counts, paint)}"
        shown = [r for r in row.listed if r.op in _ALWAYS_LISTED]
        updates = [r for r in row.listed if r.op not in _ALWAYS_LISTED]
        for resource in shown + updates[:_MOST_UPDATES]:
            sign = paint(f"{_SIGNS[resource.op]:2} {resource.label}", _COLOURS[resource.op])
            yield f"      {sign}{_differing(resource.properties)}"
        if len(updates) > _MOST_UPDATES:
            yield f"      and {len(updates) - _MOST_UPDATES} more to update"
    if rows:
        yield paint("  FULL=1 lists every resource, ARGS=--diff every property", _DIM)


def _rows(resources: Mapping[str, Resource], counted: Collection[Op] = _COUNTED) -> Iterator[_Row]:
    components: dict[str, list[Resource]] = {}
    for resource in resources.values():
        components.setdefault(component(resource, resources), []).append(resource)
    rows: list[_Row] = []
    new: dict[tuple[str, Op], Counter[str]] = {}
    for urn, members in components.items():
        kind, _, name = resources[urn].label.partition(" ")
        counts = Counter(member.op for member in members)
        listed = sorted((member for member in members if member.op not in counted), key=lambda found: found.label)
        if listed or len(counts) > 1:
            rows.append(_Row(kind, (name,), counts, tuple(listed)))
        elif Op.SAME not in counts:
            new.setdefault((kind, next(iter(counts))), Counter())[name] += counts.total()
    rows += [_Row(kind, tuple(sorted(names)), {op: names.total()}) for (kind, op), names in new.items()]
    yield from sorted(rows, key=lambda row: row.label)


def component(resource: Resource, resources: Mapping[str, Resource]) -> str:
    """Returns the URN of the resource's ancestor directly below the stack. If the resource is the stack itself,
    returns the stack's URN."""
    while (parent := resources.get(resource.parent)) is not None and not parent.is_stack:
        resource = parent
    return resource.urn


def _amounts(counts: Mapping[Op, int], paint: _Paint) -> str:
    changed = [paint(f"{_SIGNS[op]} {counts[op]} to {op}", _COLOURS[op]) for op in _ORDER if counts.get(op)]
    same = counts.get(Op.SAME, 0)
    if not changed:
        return f"no changes, {same} unchanged"
    return ", ".join([*changed, paint(f"{same} unchanged", _DIM)] if same else changed)


def _differing(properties: Sequence[str]) -> str:
    if not properties:
        return ""
    more = f" and {len(properties) - _MOST_PROPERTIES} more" if len(properties) > _MOST_PROPERTIES else ""
    return f": {', '.join(properties[:_MOST_PROPERTIES])}{more}"


def _remarks(run: PreviewOutcome, paint: _Paint) -> Iterator[str]:
    """Yields the messages of the program and its plugins, without the messages that the verdict repeats."""
    reasons = REASONS if run.exit_code else ()
    for message in run.events.diagnostics:
        if message.severity not in reasons:
            yield paint(message.text, _YELLOW) if message.severity == "warning" else message.text
    if not run.exit_code:
        yield from run.events.strays
        yield from run.stderr.rstrip("\n").splitlines()


def _modes(run: PreviewOutcome, note: Sequence[str]) -> Iterator[str]:
    if not run.interrupted:
        yield from changed_modes(run.events.resources.values())
    yield from note


def _verdict(run: PreviewOutcome, paint: _Paint) -> Iterator[str]:
    time = f"({run.seconds:.1f} s)"
    yield from _findings(run.advice, lambda pack: paint(f"⚠️ {pack} warns", _YELLOW))
    if not run.exit_code:
        yield paint(f"✅ {POLICY_PACK} accepts {run.stack} {time}", _BOLD_GREEN)
        return
    if run.interrupted:  # after an interruption, errors only report that the engine ended the program and its plugins
        yield paint(f"❌ the preview of {run.stack} was interrupted {time}", _BOLD_RED)
        return
    reasons = list(_reasons(run))
    if reasons or not run.refusals:
        yield paint(f"❌ the preview of {run.stack} failed {time}", _BOLD_RED)
        reasons = reasons or [_unexplained(run)]
    yield from textwrap.indent("\n".join(reasons), _INDENT).splitlines()
    yield from _findings(run.refusals, lambda pack: paint(f"❌ {pack} refuses {run.stack} {time}", _BOLD_RED))


def _reasons(run: PreviewOutcome) -> Iterator[str]:
    for message in run.events.diagnostics:
        if message.severity in REASONS and message.text != _HOLLOW:
            yield message.text
    yield from run.events.strays
    if run.stderr.strip():
        yield run.stderr.rstrip("\n")


def _unexplained(run: PreviewOutcome) -> str:
    why = "above it says why" if run.displayed else "it gave no reason; FULL=1 shows its own display"
    if run.code or not run.events.succeeded:
        return f"Pulumi ended with {run.code} before the preview was complete; {why}"
    return f"the policy {POLICY} of the pack {POLICY_PACK} did not judge it"


def _findings(violations: Iterable[PolicyEvent], headline: Callable[[str], str]) -> Iterator[str]:
    """Yields the findings, grouped by policy pack.

    The first line of a finding's message is the policy's description, which is the same in all messages of the policy.
    """
    packs: dict[str, dict[str, list[str]]] = {}
    for violation in violations:
        description, _, text = violation.message.partition("\n")
        packs.setdefault(violation.pack, {}).setdefault(description, []).append(text)
    for pack, findings in packs.items():
        yield headline(pack)
        for description, texts in findings.items():
            lines = [description, *(text for text in texts if text)]
            yield from textwrap.indent("\n".join(lines), _INDENT).splitlines()
