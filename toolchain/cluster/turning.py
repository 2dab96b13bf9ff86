"""A function called again and again in the background."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def turning(turn: Callable[[], object], every_seconds: float) -> Iterator[None]:
    """Calls `turn` every `every_seconds`, in a thread of its own, until the block ends."""
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
