"""Gets pages over HTTP from servers that may still be starting."""

import urllib.error
import urllib.request

from tests.support.waiting import PATIENCE_SECONDS


def get(url: str, method: str = "GET") -> tuple[int, str]:
    """Returns the status and the body, or 0 and no body if no server answers."""
    request = urllib.request.Request(url, method=method)  # noqa: S310 (http)
    try:
        with urllib.request.urlopen(request, timeout=PATIENCE_SECONDS) as answer:  # noqa: S310 (http)
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()
    except OSError:
        return 0, ""
