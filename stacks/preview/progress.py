"""Tells how far a rollout or a removal has come, with one line for each kind of component, and how it has ended.

Pulumi's own display has two or three lines for each object, in which an error gets lost. That goes into a file.
"""

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from stacks.preview.events import Events, Op, Resource
from stacks.preview.report import REASONS, component

_DONE = {
    Op.CREATE: "created",
    Op.IMPORT: "imported",
    Op.UPDATE: "updated",
    Op.REPLACE: "replaced",
    Op.DELETE: "deleted",
    Op.SAME: "unchanged",
}


@dataclass
class Progress:
    """Compares the events of a run with its preview. The methods return lines of text."""

    planned: Mapping[str, Resource]
    clock: Callable[[], float] = time.monotonic
    events: Events = field(default_factory=Events)
    _began: dict[str, float] = field(default_factory=dict)
    _open: dict[str, set[str]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for urn, resource in self.planned.items():
            if resource.op is not Op.SAME and not resource.is_stack:
                kind = self.planned[component(resource, self.planned)].label.partition(" ")[0]
                self._open.setdefault(kind, set()).add(urn)
        self._all = dict(self._open)
        self._width = max(map(len, self._all), default=0)
        self._start = self.clock()

    @property
    def seconds(self) -> float:
        return self.clock() - self._start

    def add(self, lines: Iterable[str]) -> Iterator[str]:
        """Reads lines of the event stream. Yields a line of text for each kind of component that is complete."""
        for line in lines:
            self.events.add(line)
        for urn in self.events.resources:
            self._began.setdefault(urn, self.clock())
        for kind, urns in [*self._open.items()]:
            if urns <= self.events.ended - self.events.failed:
                del self._open[kind]
                yield f"  {kind:{self._width}}  {self._counted(self._all[kind])} ({self.seconds:.0f} s)"

    def unfinished(self) -> Iterator[tuple[Resource, float]]:
        """Yields each resource on which the engine works, and for how many seconds it has done so."""
        for urn, resource in self.events.resources.items():
            if urn not in self.events.ended and resource.op is not Op.SAME and not resource.is_stack:
                yield resource, self.clock() - self._began.get(urn, self.clock())

    def state(self) -> str:
        everything = {urn for urns in self._all.values() for urn in urns}
        ended = everything & (self.events.ended - self.events.failed)
        latest = next((f"  {resource.label} …" for resource, _ in self.unfinished()), "")
        return f"  {len(ended)} of {len(everything)}{latest}"

    def summary(self) -> str:
        """Returns for example `218 created, 4 unchanged (47 s)`."""
        return f"{self._counted(self.events.ended - self.events.failed) or 'nothing done'} ({self.seconds:.0f} s)"

    def reasons(self) -> list[str]:
        """Returns the errors in full."""
        return [each.text for each in self.events.diagnostics if each.severity in REASONS]

    def _counted(self, urns: Iterable[str]) -> str:
        resources = self.events.resources
        counts = Counter(resources[urn].op for urn in urns if urn in resources and not resources[urn].is_stack)
        return ", ".join(f"{counts[op]} {done}" for op, done in _DONE.items() if counts[op])
