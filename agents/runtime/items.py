"""Judges each item separately. An error of one item changes nothing for the other items.

An item is a tenant, pod, node, device, process, probe or target. Only this module catches every Exception, and only
around one item.
"""

import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from agents.runtime.errors import AgentError
from agents.runtime.exposition import Metric, Sample
from agents.runtime.log import Log
from tenancy.names import METRIC_UNJUDGED

T = TypeVar("T")

METRICS: Mapping[str, Metric] = {
    METRIC_UNJUDGED: Metric(
        text="Objects that the agent cannot judge, by kind; the agent's log names the objects.",
        labels=("agent", "kind"),
    ),
}
# The longest reason and the longest name of an item, in characters. A tenant may have written a part of the reason or
# the name.
LONGEST_REASON = 300
# The largest number of problems that an agent remembers. The number of problems is limited, because a tenant may create
# any number of pods.
_MOST = 10_000


@dataclass(frozen=True)
class Unjudged:
    """An item that could not be judged because of an error, and the reason `why`."""

    error: Exception

    @property
    def why(self) -> str:
        return reason_of(self.error)


def judged(judge: Callable[[], T]) -> T | Unjudged:
    """Returns the result of `judge` for one item, or the reason if `judge` raises an error.

    Raises an AgentError only if it ends the whole pass.
    """
    found = attempted(judge)
    if isinstance(found, Unjudged) and isinstance(found.error, AgentError) and found.error.ends_pass:
        raise found.error
    return found


def attempted(judge: Callable[[], T]) -> T | Unjudged:
    """Returns the result of `judge` for one item, or the reason if `judge` raises any error."""
    try:
        return judge()
    except Exception as error:
        # A traceback holds its frames, and the frames hold the item and the error. The item's memory would stay in use
        # until the next garbage collection.
        error.__context__ = None
        return Unjudged(error.with_traceback(None))


def reason_of(error: Exception) -> str:
    """Returns the error's message as one short line in ASCII. Names the class of an unexpected error."""
    text = str(error) if isinstance(error, AgentError | ValueError) else f"{type(error).__name__}: {error}"
    return shortened(text or type(error).__name__)


def shortened(text: str) -> str:
    """Returns the text as one line of printable ASCII with at most LONGEST_REASON characters."""
    line = ascii(text[: 2 * LONGEST_REASON])[1:-1] if not (text.isascii() and text.isprintable()) else text
    return line if len(line) <= LONGEST_REASON else f"{line[: LONGEST_REASON - 3]}..."


@dataclass(kw_only=True)
class ItemProblems:
    """The items that an agent cannot judge now, with the reasons. Logs each problem of an item once. Any thread may
    call the methods.
    """

    log: Log
    _now: dict[tuple[str, str], str] = field(default_factory=dict)
    _before: dict[tuple[str, str], str] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def judge(self, kind: str, item: str, judge: Callable[[], T], otherwise: Callable[[str], T | None]) -> T | None:
        """Returns the result of `judge` for one item. After an error, notes the problem of the item, calls `otherwise`
        with the reason, and returns the result.
        """
        found = judged(judge)
        if not isinstance(found, Unjudged):
            self.note(kind, item, None)
            return found
        self.note(kind, item, found.why)
        lesser = judged(lambda: otherwise(found.why))
        return None if isinstance(lesser, Unjudged) else lesser

    def note(self, kind: str, item: str, why: str | None) -> None:
        """Stores and logs the problem of an item. If `why` is None, removes the problem."""
        key = kind, shortened(item)
        with self._lock:
            if why is None:
                self._now.pop(key, None)
                return
            if key not in self._now and len(self._now) >= _MOST:
                return
            if why not in (self._now.get(key), self._before.get(key)):
                self.log.error(f"the {kind} {key[1]} cannot be judged: {why}")
            self._now[key] = why

    def relist(self) -> None:
        """Forgets all items before a new list, because some items may no longer exist. A problem that is already known
        is not logged again.
        """
        with self._lock:
            self._before, self._now = self._now, {}

    def counts(self) -> Mapping[str, int]:
        """Returns, for each kind, the number of items with a problem."""
        with self._lock:
            return Counter(kind for kind, _ in self._now)


def samples(*problems: ItemProblems) -> Iterator[Sample]:
    """Yields the number of items with a problem, for a scrape of one agent. The kind `pod` always has a series, even
    with the value 0.
    """
    numbers = {"pod": 0}
    for kind, number in (pair for each in problems for pair in each.counts().items()):
        numbers[kind] = numbers.get(kind, 0) + number
    for kind, number in numbers.items():
        yield Sample(name=METRIC_UNJUDGED, labels={"agent": problems[0].log.agent, "kind": kind}, value=number)
