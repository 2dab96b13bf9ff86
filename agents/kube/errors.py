"""API errors: a Status that is not success, and no answer at all."""

import http.client
import json
import ssl
from collections.abc import Mapping
from typing import Any

from agents.kube.transport import ApiResponse
from agents.runtime.errors import AgentError

Object = Mapping[str, Any]

_RETRIED = frozenset({429, 500, 502, 503, 504})
# The cause of the 429 that no throttling explains (policy/v1, DisruptionBudgetCause).
_DISRUPTION_BUDGET = "DisruptionBudget"
# In the 500, without a cause, of an eviction that several budgets concern (pkg/registry/core/pod/storage/eviction.go).
_SEVERAL_BUDGETS = "more than one PodDisruptionBudget"


class ApiError(AgentError):
    """The API did not do as asked. `status` is the HTTP status, None where no answer came."""

    def __init__(self, request: str, status: int | None, reason: str, message: str) -> None:
        super().__init__(f"{request}: {f'{status} ' if status else ''}{reason}: {message}")
        self.status = status
        self.reason = reason
        self.message = message
        self.causes: frozenset[str] = frozenset()
        self.retry_after_seconds: float | None = None

    @property
    def held_by_budget(self) -> bool:
        """A PodDisruptionBudget refuses this eviction: it may allow it in minutes, or never."""
        return _DISRUPTION_BUDGET in self.causes or _SEVERAL_BUDGETS in self.message

    @property
    def retried(self) -> bool:
        """Whether the same request may succeed in a moment."""
        if self.status is None:
            return self.reason == "NoAnswer"
        return self.status in _RETRIED and not self.held_by_budget

    @property
    def undecided(self) -> bool:
        """Whether what was asked may have been done all the same: no answer came, or a proxy's."""
        return self.reason == "NoAnswer" or self.status == http.client.GATEWAY_TIMEOUT

    @property
    def transient(self) -> bool:
        """Whether a new pass may go better: also an expired list (410)."""
        return self.retried or self.expired

    @property
    def expired(self) -> bool:
        """410 Gone: the version is too old to list or watch from; list again."""
        return self.status == http.client.GONE

    @property
    def outdated(self) -> bool:
        """The object changed or went since it was read: read it again and decide again."""
        return self.status in (http.client.CONFLICT, http.client.NOT_FOUND)


def unanswered(request: str, error: Exception) -> ApiError:
    """No complete answer came over the connection; `error` is an OSError or an HTTPException."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return ApiError(request, None, "Untrusted", f"the server's certificate: {error.verify_message}")
    return ApiError(request, None, "NoAnswer", str(error) or type(error).__name__)


def refusal(request: str, status: Object) -> ApiError:
    """The error that a Status object describes."""
    error = ApiError(
        request, status.get("code"), str(status.get("reason") or "Unknown"), str(status.get("message") or "no message")
    )
    causes = (status.get("details") or {}).get("causes") or ()
    error.causes = frozenset(str(cause.get("reason")) for cause in causes)
    return error


def refusal_in(request: str, response: ApiResponse) -> ApiError:
    """The error of an answer of status 400 or above; a proxy's may be no Status."""
    try:
        status = json.loads(response.body)
    except ValueError:
        status = None
    if not isinstance(status, dict):
        status = {"message": response.body[:200].decode(errors="replace")}
    error = refusal(request, {"reason": response.reason, **status, "code": response.status})
    retry_after = response.headers.get("retry-after", "")
    error.retry_after_seconds = float(retry_after) if retry_after.isascii() and retry_after.isdigit() else None
    return error
