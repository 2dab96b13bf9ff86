"""Calls a function repeatedly in the background."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def call_repeatedly(call: Callable[[], object], every_seconds: float) -> Iterator[None]:
    """Calls `call` in a new thread, with a pause of `every_seconds` before each call, until the block ends."""
    ended = threading.Event()

    def keep_calling() -> None:
        while not ended.wait(every_seconds):
            call()

    thread = threading.Thread(target=keep_calling)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
