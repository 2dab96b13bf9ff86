"""Sends GET within the cluster, without proxy or redirects. A deadline and a size limit hold for the whole answer."""

import http.client
import threading
import urllib.error
import urllib.request
from collections.abc import Callable

from agents.runtime.errors import AgentError

TIMEOUT_SECONDS = 1.5  # the limit for each step
# The limit for the whole request, even if the server sends a byte now and then or the name does not resolve. It is
# below the 2 s within which SIGTERM must end a run.
TOTAL_SECONDS = 1.9
LIMIT_BYTES = 4 * 2**20


class FetchError(AgentError):
    """There was no complete answer of status 200."""


def fetch(url: str, most_bytes: int | None = None) -> bytes:
    """Returns the body at an http or https URL, of at most `most_bytes` or LIMIT_BYTES. Raises FetchError."""
    limit_bytes = LIMIT_BYTES if most_bytes is None else most_bytes
    body = _within(TOTAL_SECONDS, lambda: _fetch(url, limit_bytes))
    if body is None:
        late = "the server is slow, or its name resolution is"
        raise FetchError(f"{url}: no complete answer within {TOTAL_SECONDS:g} s: {late}")
    return body


def _within(seconds: float, get: Callable[[], bytes]) -> bytes | None:
    """Returns what `get` returns, or raises its error. Returns None if `get` has not ended in time.

    In that case the thread of `get` is left alone, since nothing can stop a resolver. A daemon thread keeps no process
    alive.
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


# Proxies are not handled, because the environment may name a proxy for the outside. Redirects are not handled, because
# the server may be a tenant's.
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
    except (OSError, http.client.HTTPException, ValueError) as error:  # the address may cause a ValueError
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
