"""Calls a function repeatedly in the background."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def call_repeatedly(call: Callable[[], object], every_seconds: float) -> Iterator[None]:
    """Calls `call` in a new thread until the `with` block ends. The thread waits `every_seconds` seconds before each
    call."""
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
