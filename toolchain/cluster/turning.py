"""Calls a function repeatedly in the background."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def turning(turn: Callable[[], object], every_seconds: float) -> Iterator[None]:
    """Calls `turn` in a new thread, with a pause of `every_seconds` before each call, until the block ends."""
    ended = threading.Event()

    def keep_turning() -> None:
        while not ended.wait(every_seconds):
            turn()

    thread = threading.Thread(target=keep_turning)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
