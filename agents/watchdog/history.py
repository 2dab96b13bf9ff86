"""Keeps the recycles in a journal between runs, for the cool-down and the recycle limits.

The watchdog's journal also has the API server's recent refusals.
"""

from collections.abc import Collection, Iterable
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any, TypeVar

from agents.kube.client import ApiError
from agents.kube.journal import Journal, JournalError, Record
from agents.runtime.log import Log
from agents.watchdog.spare import SPARED_SECONDS
from agents.watchdog.types import Recycled, RefusedRecycle
from tenancy.decode import decode

_RECYCLED, _REFUSED = "recycled", "refused"
# The largest numbers of recycles and of refusals in the journal. A ConfigMap has at most 1 MiB.
_MOST_RECYCLED, _MOST_REFUSED = 500, 100
_LONGEST_WHY = 200  # The maximum length of a refusal's text in the journal, in characters.
_TRIES = 3  # The maximum number of attempts to write the journal while other runs write it too.

Entry = TypeVar("Entry", Recycled, RefusedRecycle)


@dataclass
class RecycleJournal:
    """Reads and writes the watchdog's journal. A pass writes its recycles before it evicts the pods. If two runs
    overlap, only one of them can write the journal, and only this run evicts.

    Of too many entries, the journal keeps the newest.
    """

    journal: Journal
    kept_seconds: int
    log: Log
    record: Record = field(default_factory=lambda: Record(version=""))
    recycled: tuple[Recycled, ...] = ()
    refused: tuple[RefusedRecycle, ...] = ()

    def read(self) -> None:
        """Reads the recycles and refusals, with the oldest first.

        Raises ApiError. Raises JournalError if the journal is invalid.
        """
        self.record = self.journal.read()
        self.recycled = self._entries(Recycled, _RECYCLED)
        self.refused = self._entries(RefusedRecycle, _REFUSED)

    def reserve(self, new: Collection[Recycled], now: datetime) -> bool:
        """Adds the new recycles to the journal, before the evictions. Returns False if another run has written the
        journal since `read`.

        Raises ApiError.
        """
        kept = (each for each in self.recycled if now - each.at < timedelta(seconds=self.kept_seconds))
        spared = (each for each in self.refused if now - each.at < timedelta(seconds=SPARED_SECONDS))
        return self._write((*kept, *new), tuple(spared))

    def settle(
        self, *, undone: Collection[Recycled], overruled: Collection[Recycled], refused: Iterable[RefusedRecycle]
    ) -> None:
        """Removes the recycles that were not carried out from the journal, marks those that overruled a
        PodDisruptionBudget, and adds the refusals. Does not raise.

        If a recycle cannot be removed from the journal, its pods are recycled at the earliest after 30 s. The watchdog
        recycles a queued Job again at the earliest after the Job's cool-down.
        """
        refusals = tuple(replace(each, why=each.why[:_LONGEST_WHY]) for each in refused)
        try:
            for _ in range(_TRIES):
                kept = tuple(
                    replace(each, overruled=each.overruled or each in overruled)
                    for each in self.recycled
                    if each not in undone
                )
                if (kept == self.recycled and not refusals) or self._write(kept, (*self.refused, *refusals)):
                    return
                self.read()
        except (ApiError, JournalError) as error:
            self.log.warning(f"the journal lists acts that were not done: {error}")

    def _entries(self, kind: type[Entry], key: str) -> tuple[Entry, ...]:
        """Returns the entries of this kind in the journal. Raises JournalError."""
        try:
            found = (decode(kind, each, key, ignored=[]) for each in self.record.content.get(key, []))
            return tuple(sorted(found, key=lambda each: each.at))
        except (ValueError, TypeError) as error:
            raise JournalError(
                f"the journal of recycles cannot be read: {error}; delete its key to start over"
            ) from None

    def _write(self, recycled: tuple[Recycled, ...], refused: tuple[RefusedRecycle, ...]) -> bool:
        recycled, refused = recycled[-_MOST_RECYCLED:], refused[-_MOST_REFUSED:]
        content = {_RECYCLED: _data(recycled)} | ({_REFUSED: _data(refused)} if refused else {})
        written = self.journal.write(content, after=self.record)
        if written is not None:
            self.record, self.recycled, self.refused = written, recycled, refused
        return written is not None


def _data(entries: Iterable[Recycled | RefusedRecycle]) -> list[dict[str, Any]]:
    return [{**asdict(each), "at": each.at.isoformat()} for each in entries]
