"""The history of recycles across runs, by which cool-down and hourly cap are counted."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import asdict, dataclass, field
from datetime import datetime, timedelta

from agents.kube.journal import Journal, JournalError, Record
from agents.watchdog.types import Recycled
from tenancy.decode import decode

_KEY = "recycled"


@dataclass(frozen=True, kw_only=True)
class _Entry:
    """A recycle as JSON has it; `at` is ISO 8601."""

    at: str
    workload: str
    pods: tuple[str, ...]

    def recycled(self) -> Recycled:
        return Recycled(at=datetime.fromisoformat(self.at), workload=self.workload, pods=self.pods)


@dataclass
class Recycles:
    """The journal of recycles. A recycle is written before it is done, so that of two watchdogs one does it."""

    journal: Journal
    kept_seconds: int
    record: Record = field(default_factory=lambda: Record(version=""))
    entries: tuple[Recycled, ...] = ()

    def read(self) -> tuple[Recycled, ...]:
        """Oldest first. Raises ApiError, and AgentError for what is no such journal."""
        self.record = self.journal.read()
        self.entries = _entries(self.record.content)
        return self.entries

    def reserve(self, new: Iterable[Recycled], now: datetime) -> bool:
        """Whether these were written; False where somebody else wrote since `read`. Raises ApiError."""
        kept = tuple(each for each in self.entries if now - each.at < timedelta(seconds=self.kept_seconds))
        return self._write((*kept, *new))

    def withdraw(self, undone: Collection[Recycled]) -> bool:
        """Takes back what was reserved and not done. False leaves it there, which only keeps more pods alone."""
        return self._write(tuple(each for each in self.entries if each not in undone))

    def _write(self, entries: tuple[Recycled, ...]) -> bool:
        content = {_KEY: [{**asdict(each), "at": each.at.isoformat()} for each in entries]}
        written = self.journal.write(content, after=self.record)
        if written is None:
            return False
        self.record, self.entries = written, entries
        return True


def _entries(content: Mapping[str, object]) -> tuple[Recycled, ...]:
    """Raises JournalError."""
    try:
        entries = decode(tuple[_Entry, ...], content.get(_KEY, []), _KEY)
        return tuple(sorted((entry.recycled() for entry in entries), key=lambda each: each.at))
    except (ValueError, TypeError) as error:
        raise JournalError(f"the journal of recycles cannot be read: {error}; delete its key to start over") from None
