"""Sends GET requests within the cluster, without proxies or redirects, and limits the time and size of each
response.
"""

import http.client
import threading
import urllib.error
import urllib.request
from collections.abc import Callable
from functools import cache

from agents.runtime.errors import AgentError

TIMEOUT_SECONDS = 1.5  # The timeout of each connect and each read, in seconds.
# The timeout of a whole request, even if the server sends its response very slowly or DNS does not answer. The timeout
# of a whole request is less than 2 s, because a run must end within 2 s after SIGTERM.
TOTAL_SECONDS = 1.9
LIMIT_BYTES = 4 * 2**20


class FetchError(AgentError):
    """The request got no complete response with status 200."""


def fetch(url: str, most_bytes: int = LIMIT_BYTES) -> bytes:
    """Returns the body at an http or https URL of any server. The body may have at most `most_bytes` bytes. Raises
    FetchError, at the latest after TOTAL_SECONDS.
    """
    body = _within(TOTAL_SECONDS, lambda: get(url, most_bytes))
    if body is None:
        late = "the server is slow, or its name resolution is"
        raise FetchError(f"{url}: no complete answer within {TOTAL_SECONDS:g} s: {late}")
    return body


def _within(seconds: float, get: Callable[[], bytes]) -> bytes | None:
    """Returns the result of `get`, or raises its error. Returns None if `get` has not ended in time.

    If `get` is late, its thread continues, because Python cannot stop a DNS lookup. The late thread is a daemon thread,
    so the process can end before it.
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


# The client uses no proxy, because a proxy in the environment is for addresses outside the cluster. The client follows
# no redirects, because the server may belong to a tenant.
_HANDLERS = (
    urllib.request.HTTPHandler,
    urllib.request.HTTPSHandler,
    urllib.request.UnknownHandler,
    urllib.request.HTTPDefaultErrorHandler,
    urllib.request.HTTPErrorProcessor,
)


@cache
def _opener() -> urllib.request.OpenerDirector:
    """Returns the opener for all requests. Since Python 3.12, each new HTTPSHandler reads all CA certificates, so one
    opener serves all requests.
    """
    opener = urllib.request.OpenerDirector()
    for handler in _HANDLERS:
        opener.add_handler(handler())
    return opener


def get(url: str, limit_bytes: int = LIMIT_BYTES) -> bytes:
    """Returns the body at the URL of one of our own servers, which needs no name resolution and no thread for the limit
    of the whole request. Raises FetchError.
    """
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
