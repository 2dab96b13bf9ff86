"""GET within the cluster, without a proxy or redirects, with a deadline and a size limit for the whole answer."""

import http.client
import threading
import urllib.error
import urllib.request
from collections.abc import Callable

from agents.runtime.errors import AgentError

TIMEOUT_SECONDS = 1.5  # for each step
# For all of it, even if the server sends a byte now and then or the name does not resolve. Below the 2 s within which
# SIGTERM must end a run.
TOTAL_SECONDS = 1.9
LIMIT_BYTES = 4 * 2**20


class FetchError(AgentError):
    """There was no complete answer of status 200."""


def fetch(url: str, most_bytes: int | None = None) -> bytes:
    """Returns the body at an http or https URL: at most `most_bytes`, or LIMIT_BYTES. Raises FetchError."""
    limit_bytes = LIMIT_BYTES if most_bytes is None else most_bytes
    body = _within(TOTAL_SECONDS, lambda: _fetch(url, limit_bytes))
    if body is None:
        late = "the server is slow, or its name resolution is"
        raise FetchError(f"{url}: no complete answer within {TOTAL_SECONDS:g} s: {late}")
    return body


def _within(seconds: float, get: Callable[[], bytes]) -> bytes | None:
    """Returns or raises what `get` does; None if it has not ended by then.

    Its thread is left alone then, since nothing can stop a resolver. A daemon thread keeps no process alive.
    """
    answers: list[bytes] = []
    errors: list[Exception] = []

    def attempt() -> None:
        try:
            answers.append(get())
        except Exception as error:  # noqa: BLE001 (raised below, in the caller's thread)
            errors.append(error)

    thread = threading.Thread(target=attempt, daemon=True)
    thread.start()
    thread.join(seconds)
    if errors:
        raise errors[0]
    return answers[0] if answers else None


# No handler of proxies: the environment may name one for the outside. None of redirects: a server may be a tenant's.
_HANDLERS = (
    urllib.request.HTTPHandler,
    urllib.request.HTTPSHandler,
    urllib.request.UnknownHandler,
    urllib.request.HTTPDefaultErrorHandler,
    urllib.request.HTTPErrorProcessor,
)


def _fetch(url: str, limit_bytes: int) -> bytes:
    opener = urllib.request.OpenerDirector()
    for handler in _HANDLERS:
        opener.add_handler(handler())
    try:
        body = _read(opener, url, limit_bytes + 1)
    except (OSError, http.client.HTTPException, ValueError) as error:  # a ValueError by the address
        raise FetchError(f"{url}: {getattr(error, 'reason', None) or error}") from None
    if len(body) > limit_bytes:
        raise FetchError(f"{url}: the answer is over {limit_bytes} bytes")
    return body


def _read(opener: urllib.request.OpenerDirector, url: str, most_bytes: int) -> bytes:
    try:
        with opener.open(url, timeout=TIMEOUT_SECONDS) as answer:
            body: bytes = answer.read(most_bytes)
            return body
    except urllib.error.HTTPError as error:
        with error:
            detail = error.read(200).decode(errors="replace").strip()
        raise FetchError(f"{url}: HTTP {error.code}: {detail or error.reason}") from None
