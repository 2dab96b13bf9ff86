"""GET within the cluster: direct, with a deadline for each step and a limit on the answer."""

import http.client
import urllib.error
import urllib.request

from agents.runtime.errors import AgentError

TIMEOUT_SECONDS = 1.5  # below the 2 s within which SIGTERM must end a run
LIMIT_BYTES = 4 * 2**20


class FetchError(AgentError):
    """No complete answer of status 200 came."""


def fetch(url: str) -> bytes:
    """The body at an http or https URL. Raises FetchError."""
    # A proxy named by the environment is for the world outside; pods and Services are reached directly.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(url, timeout=TIMEOUT_SECONDS) as answer:
            body: bytes = answer.read(LIMIT_BYTES + 1)
    except urllib.error.HTTPError as error:
        with error:
            detail = error.read(200).decode(errors="replace").strip()
        raise FetchError(f"{url}: HTTP {error.code}: {detail or error.reason}") from None
    except (OSError, http.client.HTTPException) as error:
        raise FetchError(f"{url}: {getattr(error, 'reason', None) or error}") from None
    if len(body) > LIMIT_BYTES:
        raise FetchError(f"{url}: the answer is over {LIMIT_BYTES} bytes")
    return body
