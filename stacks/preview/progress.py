"""One line on a terminal that says how far a preview is; nothing elsewhere."""

import sys
import time
from typing import TextIO

from stacks.preview.events import Events

_REDRAW_SECONDS = 0.1
_CLEAR = "\r\x1b[K"


class Progress:
    """Counts the resources of a preview on `stream`, where that is a terminal."""

    def __init__(self, stack: str, stream: TextIO | None = None) -> None:
        self._stream = sys.stderr if stream is None else stream
        self._text = f"previewing {stack}"
        self._shown = self._stream.isatty()
        self._drawn_at = 0.0
        self._draw("")

    def __call__(self, events: Events) -> None:
        now = time.monotonic()
        if self._shown and now - self._drawn_at >= _REDRAW_SECONDS:
            self._drawn_at = now
            count = len(events.resources)
            self._draw(f": {count} resource{'s' * (count != 1)}" if count else "")

    def clear(self) -> None:
        if self._shown:
            self._stream.write(_CLEAR)
            self._stream.flush()

    def _draw(self, amount: str) -> None:
        if self._shown:
            self._stream.write(f"{_CLEAR}{self._text}{amount} …")
            self._stream.flush()
