"""One small client of the Kubernetes API: TLS verified, token re-read, timeouts, bounded retries, paged lists."""

import http.client
import json
import random
import ssl
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from agents.clock import Clock
from agents.errors import AgentError

Object = Mapping[str, Any]

SERVICE_ACCOUNT = "/var/run/secrets/kubernetes.io/serviceaccount"
TIMEOUT_SECONDS = 10.0
ATTEMPTS = 4
BACKOFF_SECONDS = 0.25  # doubles with each attempt, with full jitter
LONGEST_WAIT_SECONDS = 30.0
PAGE = 100  # objects; bounds what a list holds in memory at once

_RETRIED = frozenset({429, 500, 502, 503, 504})


class ApiError(AgentError):
    """The API did not do as asked. `status` is the HTTP status, None where no answer came."""

    def __init__(self, request: str, status: int | None, reason: str, message: str) -> None:
        super().__init__(f"{request}: {f'{status} ' if status else ''}{reason}: {message}")
        self.status = status
        self.reason = reason
        self.message = message
        self.retry_after_seconds: float | None = None

    @property
    def retried(self) -> bool:
        """Whether the same request may succeed in a moment."""
        return self.status in _RETRIED or (self.status is None and self.reason == "NoAnswer")

    @property
    def transient(self) -> bool:
        """Whether a new pass may go better: also an expired list (410)."""
        return self.retried or self.status == http.client.GONE

    @property
    def outdated(self) -> bool:
        """The object changed or went since it was read: read it again and decide again."""
        return self.status in (http.client.CONFLICT, http.client.NOT_FOUND)


@dataclass(frozen=True, kw_only=True)
class Endpoint:
    """Where the API server is and what proves who we are and who it is."""

    host: str
    port: int
    token_file: Path
    ca_file: Path


def in_cluster(environ: Mapping[str, str]) -> Endpoint:
    """The endpoint that Kubernetes gives every pod. SERVICE_ACCOUNT_DIRECTORY replaces the mount's path."""
    host, port = environ.get("KUBERNETES_SERVICE_HOST"), environ.get("KUBERNETES_SERVICE_PORT", "")
    if not host or not port.isdigit():
        raise AgentError(
            "KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT are not set: run this agent in a pod of the cluster"
        )
    mount = Path(environ.get("SERVICE_ACCOUNT_DIRECTORY", SERVICE_ACCOUNT))
    return Endpoint(host=host, port=int(port), token_file=mount / "token", ca_file=mount / "ca.crt")


class Api:
    """A client with one kept-alive connection, for one thread. Every method raises ApiError."""

    def __init__(self, endpoint: Endpoint, *, clock: Clock, jitter: Callable[[], float] = random.random) -> None:
        self._endpoint = endpoint
        self._clock = clock
        self._jitter = jitter
        self._connection = http.client.HTTPSConnection(
            endpoint.host, endpoint.port, timeout=TIMEOUT_SECONDS, context=_tls(endpoint.ca_file)
        )

    def close(self) -> None:
        """Ends the connection; the next request would open a new one."""
        self._connection.close()

    def get(self, path: str) -> Object:
        """One object."""
        return self._request("GET", path)

    def items(self, path: str, **parameters: str) -> Iterator[Object]:
        """The objects of a list, page by page. Raises ApiError 410 when the list expires between two pages."""
        query = {"limit": str(PAGE), **parameters}
        while True:
            page = self._request("GET", f"{path}?{urlencode(query)}")
            yield from page.get("items") or ()
            token = page.get("metadata", {}).get("continue")
            if not token:
                return
            query["continue"] = token

    def create(self, path: str, body: Object) -> Object:
        """A new object under the collection at `path`."""
        return self._request("POST", path, body, "application/json")

    def merge_patch(self, path: str, body: Object) -> Object:
        """RFC 7386: null removes a key. With metadata.resourceVersion in it, a concurrent change is a conflict."""
        return self._request("PATCH", path, body, "application/merge-patch+json")

    def _request(self, method: str, path: str, body: Object | None = None, content_type: str = "") -> Object:
        for attempt in range(ATTEMPTS):
            try:
                return self._exchange(method, path, body, content_type)
            except ApiError as error:
                if not error.retried or attempt == ATTEMPTS - 1:
                    raise
                backoff = BACKOFF_SECONDS * 2**attempt * (0.5 + self._jitter())
                wait = backoff if error.retry_after_seconds is None else error.retry_after_seconds
                self._clock.sleep(min(wait, LONGEST_WAIT_SECONDS))
        raise AssertionError("the last attempt returns or raises")

    def _exchange(self, method: str, path: str, body: Object | None, content_type: str) -> Object:
        request = f"{method} {path.partition('?')[0]}"
        headers = {"Accept": "application/json", "Authorization": f"Bearer {self._token()}"}
        if body is not None:
            headers["Content-Type"] = content_type
        try:
            self._connection.request(method, path, json.dumps(body) if body is not None else None, headers)
            response = self._connection.getresponse()
            content = response.read()
        except ssl.SSLCertVerificationError as error:
            self._connection.close()
            raise ApiError(request, None, "Untrusted", f"the server's certificate: {error.verify_message}") from None
        except (OSError, http.client.HTTPException) as error:
            self._connection.close()
            raise ApiError(request, None, "NoAnswer", str(error) or type(error).__name__) from None
        if response.status >= http.client.BAD_REQUEST:
            raise _refusal(request, response, content)
        return _object(request, content)

    def _token(self) -> str:
        """Read for each request: the kubelet rotates it under a running pod."""
        try:
            return self._endpoint.token_file.read_text(encoding="ascii").strip()
        except (OSError, ValueError) as error:
            raise AgentError(
                f"{self._endpoint.token_file}: the ServiceAccount's token cannot be read: {error}"
            ) from None


def _tls(ca_file: Path) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cafile=str(ca_file))
    except (OSError, ssl.SSLError) as error:
        raise AgentError(f"{ca_file}: the cluster's CA certificate cannot be read: {error}") from None
    # Chain, name and dates stay verified. Python 3.13's strict mode also wants key identifiers, which the CAs of many
    # clusters lack (kubernetes-client/python#2394).
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    return context


def _object(request: str, content: bytes) -> Object:
    try:
        answer = json.loads(content)
    except ValueError:
        answer = None
    if not isinstance(answer, dict):
        raise ApiError(request, None, "NoAnswer", "the answer is no JSON object")
    return answer


def _refusal(request: str, response: http.client.HTTPResponse, content: bytes) -> ApiError:
    """The error that a Status object describes; a proxy's answer may be none."""
    try:
        status = json.loads(content)
    except ValueError:
        status = None
    if not isinstance(status, dict):
        status = {"message": content[:200].decode(errors="replace")}
    error = ApiError(
        request,
        response.status,
        str(status.get("reason") or response.reason),
        str(status.get("message") or "no message"),
    )
    retry_after = response.getheader("Retry-After", "")
    error.retry_after_seconds = float(retry_after) if retry_after.isascii() and retry_after.isdigit() else None
    return error
