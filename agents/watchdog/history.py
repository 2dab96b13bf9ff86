"""The history of recycles across runs: by it cool-down and hourly caps are counted, and who refused is spared."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime, timedelta
from typing import Any

from agents.kube.client import ApiError
from agents.kube.journal import Journal, JournalError, Record
from agents.runtime.log import Log
from agents.watchdog.decide import SPARED_SECONDS
from agents.watchdog.types import Recycled, Refused
from tenancy.decode import decode

_RECYCLED, _REFUSED = "recycled", "refused"
_TRIES = 3  # of a write that meets another run's


@dataclass(frozen=True, kw_only=True)
class _Entry:
    """A recycle as JSON has it; `at` is ISO 8601."""

    at: str
    workload: str
    pods: tuple[str, ...]
    node: str = ""

    def read(self) -> Recycled:
        return Recycled(at=datetime.fromisoformat(self.at), workload=self.workload, pods=self.pods, node=self.node)


@dataclass(frozen=True, kw_only=True)
class _Refusal:
    """A refusal as JSON has it."""

    at: str
    workload: str
    why: str

    def read(self) -> Refused:
        return Refused(at=datetime.fromisoformat(self.at), workload=self.workload, why=self.why)


@dataclass
class Recycles:
    """The journal of recycles. A recycle is written before it is done, so that of two watchdogs one does it; what was
    not done is taken back. Of what could not be taken back this run knows, and takes it back with its next write."""

    journal: Journal
    kept_seconds: int
    log: Log
    record: Record = field(default_factory=lambda: Record(version=""))
    recycled: tuple[Recycled, ...] = ()
    refused: tuple[Refused, ...] = ()
    _undone: frozenset[Recycled] = frozenset()
    _says_more: bool = False  # than was done

    def read(self) -> None:
        """Both oldest first. Raises ApiError, and JournalError for what is no such journal."""
        self._take_over(self.journal.read())
        if self._says_more:
            self.settle((), ())

    def reserve(self, new: Collection[Recycled], now: datetime) -> bool:
        """Whether these were written; False where somebody else wrote since `read`. Raises ApiError."""
        self._undone |= frozenset(new)
        kept = (each for each in self.recycled if now - each.at < timedelta(seconds=self.kept_seconds))
        spared = (each for each in self.refused if now - each.at < timedelta(seconds=SPARED_SECONDS))
        if self._write((*kept, *new), tuple(spared)):
            return True
        self._undone -= frozenset(new)
        return False

    def settle(self, done: Collection[Recycled], refused: Sequence[Refused]) -> None:
        """Of what was reserved, only these were done or may have been. It raises nothing: an entry that stays only
        keeps a workload alone for longer."""
        self._undone -= frozenset(done)
        self.refused = (*self.refused, *refused)
        try:
            for _ in range(_TRIES):
                kept = self._without_undone(self.recycled)
                if not refused and not self._says_more and kept == self.recycled:
                    return
                if self._write(kept, self.refused):
                    return
                self._take_over(self.journal.read())
                self.refused = (*self.refused, *refused)
        except (ApiError, JournalError) as error:
            self.log.warning(f"the journal says more than was done: {error}")

    def _take_over(self, record: Record) -> None:
        self.record = record
        stored, refused = _entries(record.content)
        self.recycled = self._without_undone(stored)
        self._says_more = self.recycled != stored
        self.refused = refused

    def _without_undone(self, entries: Iterable[Recycled]) -> tuple[Recycled, ...]:
        return tuple(each for each in entries if each not in self._undone)

    def _write(self, recycled: tuple[Recycled, ...], refused: tuple[Refused, ...]) -> bool:
        content = {_RECYCLED: _data(recycled)} | ({_REFUSED: _data(refused)} if refused else {})
        written = self.journal.write(content, after=self.record)
        if written is None:
            return False
        self.record, self.recycled, self.refused = written, recycled, refused
        self._says_more = False
        return True


def _data(entries: Iterable[Recycled | Refused]) -> list[dict[str, Any]]:
    return [{**asdict(each), "at": each.at.isoformat()} for each in entries]


def _entries(content: Mapping[str, object]) -> tuple[tuple[Recycled, ...], tuple[Refused, ...]]:
    """Raises JournalError."""
    try:
        entries = decode(tuple[_Entry, ...], content.get(_RECYCLED, []), _RECYCLED, ignored=[])
        refusals = decode(tuple[_Refusal, ...], content.get(_REFUSED, []), _REFUSED, ignored=[])
        recycled = sorted((entry.read() for entry in entries), key=lambda each: each.at)
        refused = sorted((refusal.read() for refusal in refusals), key=lambda each: each.at)
    except (ValueError, TypeError) as error:
        raise JournalError(f"the journal of recycles cannot be read: {error}; delete its key to start over") from None
    return tuple(recycled), tuple(refused)
