"""Keeps the recycles in a journal between runs, for the cool-down and the recycle limits."""

from collections.abc import Collection
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime, timedelta

from agents.kube.client import ApiError
from agents.kube.journal import Journal, JournalError, Record
from agents.runtime.log import Log
from agents.watchdog.types import Recycled
from tenancy.decode import decode

_RECYCLED = "recycled"
_MOST = 500  # The largest number of recycles in the journal, because a ConfigMap has at most 1 MiB.
_TRIES = 3  # The maximum number of attempts to write the journal while other runs write it too.


@dataclass
class RecycleJournal:
    """Reads and writes the watchdog's journal. A pass writes its recycles before it evicts the pods. If two runs
    overlap, only one of them can write the journal, and only this run evicts.

    Of too many recycles, the journal keeps the newest.
    """

    journal: Journal
    kept_seconds: int
    log: Log
    record: Record = field(default_factory=lambda: Record(version=""))
    recycled: tuple[Recycled, ...] = ()

    def read(self) -> None:
        """Reads the recycles, with the oldest first. Raises ApiError. Raises JournalError if the journal is invalid."""
        self.record = self.journal.read()
        try:
            found = (decode(Recycled, each, _RECYCLED, ignored=[]) for each in self.record.content.get(_RECYCLED, []))
            self.recycled = tuple(sorted(found, key=lambda each: each.at))
        except (ValueError, TypeError) as error:
            raise JournalError(
                f"the journal of recycles cannot be read: {error}; delete its key to start over"
            ) from None

    def reserve(self, new: Collection[Recycled], now: datetime) -> bool:
        """Adds the new recycles to the journal, before the evictions. Returns False if another run has written the
        journal since `read`.

        Raises ApiError.
        """
        kept = (each for each in self.recycled if now - each.at < timedelta(seconds=self.kept_seconds))
        return self._write((*kept, *new))

    def settle(self, *, undone: Collection[Recycled], overruled: Collection[Recycled]) -> None:
        """Removes the recycles that were not carried out from the journal, and marks those that overruled a
        PodDisruptionBudget. Does not raise.

        If a recycle cannot be removed from the journal, its pods are recycled at the earliest after 30 s. The watchdog
        recycles a queued Job again at the earliest after the Job's cool-down.
        """
        try:
            for _ in range(_TRIES):
                kept = tuple(
                    replace(each, overruled=each.overruled or each in overruled)
                    for each in self.recycled
                    if each not in undone
                )
                if kept == self.recycled or self._write(kept):
                    return
                self.read()
        except (ApiError, JournalError) as error:
            self.log.warning(f"the journal lists acts that were not done: {error}")

    def _write(self, recycled: tuple[Recycled, ...]) -> bool:
        newest = recycled[-_MOST:]
        content = {_RECYCLED: [{**asdict(each), "at": each.at.isoformat()} for each in newest]}
        written = self.journal.write(content, after=self.record)
        if written is not None:
            self.record, self.recycled = written, newest
        return written is not None
