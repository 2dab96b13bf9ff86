"""The error of a failed request, or of a request without a response."""

import http.client
import json
import ssl
from collections.abc import Mapping
from typing import Any

from agents.kube.transport import ApiResponse
from agents.runtime.errors import AgentError

Object = Mapping[str, Any]

# The reason of an ApiError for an answer that is too large to be read.
TOO_LARGE = "TooLarge"
_RETRIED = frozenset({429, 500, 502, 503, 504})
# Status 429 with the cause DisruptionBudget means that a PodDisruptionBudget refused the eviction. Status 429 without
# the cause DisruptionBudget means that the API server throttles (policy/v1, DisruptionBudgetCause).
_DISRUPTION_BUDGET = "DisruptionBudget"
# If several PodDisruptionBudgets select the pod, the API server returns status 500 with this text
# (pkg/registry/core/pod/storage/eviction.go).
_SEVERAL_BUDGETS = "more than one PodDisruptionBudget"


class ApiError(AgentError):
    """A request failed. `status` is the HTTP status, or None without a response."""

    def __init__(self, request: str, status: int | None, reason: str, message: str) -> None:
        super().__init__(f"{request}: {f'{status} ' if status else ''}{reason}: {message}")
        self.request = request
        self.status = status
        self.reason = reason
        self.message = message
        self.causes: frozenset[str] = frozenset()
        self.retry_after_seconds: float | None = None

    @property
    def held_by_budget(self) -> bool:
        """Returns True if a PodDisruptionBudget refused this eviction."""
        return _DISRUPTION_BUDGET in self.causes or _SEVERAL_BUDGETS in self.message

    @property
    def ends_pass(self) -> bool:
        """Returns True if the API server did not answer, so that the next request would fail too.

        After an answer that is too large, requests for other objects may succeed.
        """
        return self.status is None and self.reason != TOO_LARGE

    @property
    def retried(self) -> bool:
        """Returns True if the client should retry the request."""
        if self.status is None:
            return self.reason == "NoAnswer"
        return self.status in _RETRIED and not self.held_by_budget

    @property
    def undecided(self) -> bool:
        """Returns True if the request may have succeeded, because no response or only a proxy's response came."""
        return self.reason == "NoAnswer" or self.status == http.client.GATEWAY_TIMEOUT

    @property
    def transient(self) -> bool:
        """Returns True if the next pass may succeed, for example after an expired list (410)."""
        return self.retried or self.expired

    @property
    def expired(self) -> bool:
        """Returns True for 410 Gone, because the resourceVersion is too old for a list or a watch."""
        return self.status == http.client.GONE

    @property
    def outdated(self) -> bool:
        """Returns True if somebody has changed or deleted the object after it was read.

        The caller must then read the object again and decide again.
        """
        return self.status in (http.client.CONFLICT, http.client.NOT_FOUND)


def unanswered(request: str, error: Exception) -> ApiError:
    """Returns the ApiError of a request without a complete response. `error` is an OSError or an HTTPException."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return ApiError(request, None, "Untrusted", f"the server's certificate: {error.verify_message}")
    return ApiError(request, None, "NoAnswer", str(error) or type(error).__name__)


def refusal(request: str, status: Object) -> ApiError:
    reason, message = str(status.get("reason") or "Unknown"), str(status.get("message") or "no message")
    error = ApiError(request, status.get("code"), reason, message)
    causes = (status.get("details") or {}).get("causes") or ()
    error.causes = frozenset(str(cause.get("reason")) for cause in causes)
    return error


def refusal_in(request: str, response: ApiResponse) -> ApiError:
    """Returns the ApiError of a response with status 400 or above. The body is not a Status if a proxy sent the
    response.
    """
    try:
        status = json.loads(response.body)
    except (ValueError, RecursionError):
        status = None
    if not isinstance(status, dict):
        status = {"message": response.body[:200].decode(errors="replace")}
    error = refusal(request, {"reason": response.reason, **status, "code": response.status})
    retry_after = response.headers.get("retry-after", "")
    error.retry_after_seconds = float(retry_after) if retry_after.isascii() and retry_after.isdigit() else None
    return error
