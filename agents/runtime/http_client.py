"""Sends GET requests within the cluster, without proxies or redirects. Limits the time and the size of a response."""

import http.client
import threading
import urllib.error
import urllib.request
from collections.abc import Callable

from agents.runtime.errors import AgentError

TIMEOUT_SECONDS = 1.5  # The timeout of each connect and each read.
# The timeout of the whole request, even if the server sends its response very slowly or DNS does not answer. This
# timeout is below 2 s, the time in which a run must end after SIGTERM.
TOTAL_SECONDS = 1.9
LIMIT_BYTES = 4 * 2**20


class FetchError(AgentError):
    """There was no complete response with status 200."""


def fetch(url: str, most_bytes: int | None = None) -> bytes:
    """Returns the body at an http or https URL. The body may have at most `most_bytes` bytes, by default LIMIT_BYTES.
    Raises FetchError.
    """
    limit_bytes = LIMIT_BYTES if most_bytes is None else most_bytes
    body = _within(TOTAL_SECONDS, lambda: _fetch(url, limit_bytes))
    if body is None:
        late = "the server is slow, or its name resolution is"
        raise FetchError(f"{url}: no complete answer within {TOTAL_SECONDS:g} s: {late}")
    return body


def _within(seconds: float, get: Callable[[], bytes]) -> bytes | None:
    """Returns the result of `get`, or raises its error. Returns None if `get` has not ended in time.

    The thread of a late `get` continues, because Python cannot stop a DNS lookup. The process may end before this
    daemon thread.
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


# Proxies are not used, because a proxy in the environment is for addresses outside the cluster. Redirects are not
# followed, because the server may belong to a tenant.
_HANDLERS = (
    urllib.request.HTTPHandler,
    urllib.request.HTTPSHandler,
    urllib.request.UnknownHandler,
    urllib.request.HTTPDefaultErrorHandler,
    urllib.request.HTTPErrorProcessor,
)


# Many threads may send their first request at the same time, and only one of them may make the opener.
_MAKING = threading.Lock()
_made: list[urllib.request.OpenerDirector] = []


def _opener() -> urllib.request.OpenerDirector:
    """Returns the opener of all requests. Since Python 3.12, a new HTTPSHandler reads all CA certificates."""
    with _MAKING:
        if not _made:
            opener = urllib.request.OpenerDirector()
            for handler in _HANDLERS:
                opener.add_handler(handler())
            _made.append(opener)
        return _made[0]


def _fetch(url: str, limit_bytes: int) -> bytes:
    try:
        body = _read(_opener(), url, limit_bytes + 1)
    except (OSError, http.client.HTTPException, ValueError) as error:  # an invalid address causes a ValueError
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
