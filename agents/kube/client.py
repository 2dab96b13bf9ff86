"""A small client of the Kubernetes API, with retries and paged lists."""

import http.client
import json
import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from datetime import datetime
from email.utils import parsedate_to_datetime
from pathlib import Path

from agents.kube.errors import TOO_LARGE, ApiError, Object, refusal_in, unanswered
from agents.kube.paths import ApiPath, api_path, with_query
from agents.kube.transport import OBJECT_BYTES, ApiRequest, ApiResponse, Endpoint, Https, Stream, Transport
from agents.runtime.clock import Clock
from agents.runtime.errors import AgentError
from tenancy.names import PROJECT

__all__ = ["PAGE", "Api", "ApiError", "Endpoint", "Object", "Stream", "in_cluster"]

SERVICE_ACCOUNT = "/var/run/secrets/kubernetes.io/serviceaccount"
ATTEMPTS = 4
BACKOFF_SECONDS = 0.25  # the wait doubles with each attempt, and has jitter
LONGEST_WAIT_SECONDS = 30.0
# The maximum number of objects in one page of a list, and the maximum size of such a page in bytes. A parsed page takes
# up to 25 times as much host memory.
PAGE = 100
PAGE_BYTES = 2**20


def in_cluster(environ: Mapping[str, str]) -> Endpoint:
    """Returns the address of the API server from the environment of a pod, with the paths of the token and of the CA
    certificate.

    SERVICE_ACCOUNT_DIRECTORY replaces the default directory of the token and the CA certificate.
    """
    host, port = environ.get("KUBERNETES_SERVICE_HOST"), environ.get("KUBERNETES_SERVICE_PORT", "")
    if not host or not port.isdigit():
        raise AgentError(
            "KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT are not set: run this agent in a pod of the cluster"
        )
    mount = Path(environ.get("SERVICE_ACCOUNT_DIRECTORY", SERVICE_ACCOUNT))
    return Endpoint(host=host, port=int(port), token_file=mount / "token", ca_file=mount / "ca.crt")


class Api:
    """An API client for one thread. Any thread may call `open`. Every method may raise ApiError."""

    def __init__(
        self,
        endpoint: Endpoint,
        *,
        clock: Clock,
        jitter: Callable[[], float] = random.random,
        attempts: int = ATTEMPTS,
        transport: Transport | None = None,
    ) -> None:
        self._token_file = endpoint.token_file
        self._attempts = attempts
        self._clock = clock
        self._jitter = jitter
        # The API server's time of day in its last response, or None before the first response.
        self.time: datetime | None = None
        self._transport = transport or Https(endpoint)
        self._page = PAGE
        self._read_bytes = 0

    def close(self) -> None:
        """Closes the connection. The client's next request opens a new connection."""
        self._transport.close()

    def get(self, path: ApiPath) -> Object:
        return self._request("GET", path)

    def find(self, path: ApiPath) -> Object | None:
        """Returns one object, or None if it does not exist."""
        try:
            return self.get(path)
        except ApiError as error:
            if error.status == http.client.NOT_FOUND:
                return None
            raise

    def items(self, path: ApiPath, **parameters: str) -> Iterator[Object]:
        """Yields the objects of a list, page by page. Raises ApiError with status 410 if the list expires between two
        pages.
        """
        for page in self.pages(path, **parameters):
            yield from page.get("items") or ()
            del page  # this statement frees the memory of one page before the client reads the next page

    def pages(self, path: ApiPath, **parameters: str) -> Iterator[Object]:
        """Yields the pages of a list. Each page has the list's resourceVersion, at which a watch can start."""
        query = {**parameters}
        while True:
            page = self._read_page(path, query)
            yield page
            token = page.get("metadata", {}).get("continue")
            if not token:
                return
            del page  # this statement frees the memory of one page before the client reads the next page
            query["continue"] = token

    def _read_page(self, path: ApiPath, query: Mapping[str, str]) -> Object:
        """Reads the next page of a list.

        If a page is too large, requests half as many objects, because a tenant can create very large pods. After a
        small page, the number of objects in the next page grows again.
        """
        while True:
            url = with_query(path, **{"limit": str(self._page), **query})
            try:
                page = self._request("GET", url, most_bytes=PAGE_BYTES if self._page > 1 else OBJECT_BYTES)
            except ApiError as error:
                if error.reason != TOO_LARGE or self._page == 1:
                    raise
                self._page //= 2
            else:
                if self._read_bytes < PAGE_BYTES // 4:
                    self._page = min(self._page * 2, PAGE)
                return page

    def create(self, path: ApiPath, body: Object) -> Object:
        return self._request("POST", path, body, "application/json")

    def merge_patch(self, path: ApiPath, body: Object) -> Object:
        """Sends a merge patch (RFC 7386). A null in the patch removes a key.

        If the patch contains a resourceVersion, it fails with a conflict after the object has changed.
        """
        return self._request("PATCH", path, body, "application/merge-patch+json")

    def evict(self, *, namespace: str, pod: str, uid: str, grace_seconds: int | None = None) -> None:
        """Evicts the pod with this UID. If a PodDisruptionBudget refuses the eviction, ApiError.held_by_budget is True.

        An eviction of a terminating pod can only shorten the pod's grace period (BeforeDelete in apiserver's
        registry/rest/delete.go). A PodDisruptionBudget cannot refuse the eviction of a terminating pod (canIgnorePDB in
        pkg/registry/core/pod/storage/eviction.go).
        """
        grace = {} if grace_seconds is None else {"gracePeriodSeconds": grace_seconds}
        body = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"namespace": namespace, "name": pod},
            "deleteOptions": {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": {"uid": uid}, **grace},
        }
        self.create(api_path("v1", "namespaces", namespace, "pods", pod, "eviction"), body)

    def delete_pod(self, *, namespace: str, pod: str, uid: str, grace_seconds: int) -> None:
        """Deletes the pod with this UID. A PodDisruptionBudget cannot refuse a deletion."""
        body = {
            "apiVersion": "v1",
            "kind": "DeleteOptions",
            "preconditions": {"uid": uid},
            "gracePeriodSeconds": grace_seconds,
        }
        self._request("DELETE", api_path("v1", "namespaces", namespace, "pods", pod), body, "application/json")

    def open(self, path: ApiPath) -> Stream:
        """Sends a GET request once, and returns the response as a stream. The caller must close the stream."""
        request = self._prepare("GET", path)
        try:
            opened = self._transport.open(request)
        except (OSError, http.client.HTTPException) as error:
            raise unanswered(str(request), error) from None
        if isinstance(opened, ApiResponse):
            raise refusal_in(str(request), opened)
        return opened

    def _request(
        self,
        method: str,
        path: ApiPath,
        body: Object | None = None,
        content_type: str = "",
        *,
        most_bytes: int = OBJECT_BYTES,
    ) -> Object:
        for attempt in range(self._attempts):
            try:
                return self.exchange(method, path, body, content_type, most_bytes)
            except ApiError as error:
                if not error.retried or attempt == self._attempts - 1:
                    raise
                backoff = BACKOFF_SECONDS * 2**attempt * (0.5 + self._jitter())
                wait = backoff if error.retry_after_seconds is None else error.retry_after_seconds
                self._clock.sleep(min(wait, LONGEST_WAIT_SECONDS))
        raise AssertionError("the last attempt returns or raises")

    def exchange(self, method: str, path: ApiPath, body: Object | None, content_type: str, most_bytes: int) -> Object:
        """Sends a request once. All methods except `open` use this method."""
        request = replace(self._prepare(method, path, body, content_type), most_bytes=most_bytes)
        try:
            response = self._transport.send(request)
        except (OSError, http.client.HTTPException) as error:
            raise unanswered(str(request), error) from None
        self.time = parsedate_to_datetime(date) if (date := response.headers.get("date")) else None
        self._read_bytes = len(response.body)
        if self._read_bytes > request.most_bytes:
            raise ApiError(str(request), None, TOO_LARGE, f"the answer is over {request.most_bytes} bytes")
        if response.status >= http.client.BAD_REQUEST:
            raise refusal_in(str(request), response)
        found: Object = json.loads(response.body)
        return found

    def _prepare(self, method: str, path: ApiPath, body: Object | None = None, content_type: str = "") -> ApiRequest:
        headers = {
            "Accept": "application/json",
            "Authorization": f"Bearer {self._token()}",
            "User-Agent": PROJECT,  # the user agent in the audit log, and the field manager
        }
        if body is None:
            return ApiRequest(method=method, path=path, headers=headers)
        headers["Content-Type"] = content_type
        return ApiRequest(method=method, path=path, headers=headers, body=json.dumps(body))

    def _token(self) -> str:
        """Reads the token from its file for each request, because the kubelet rotates the token."""
        try:
            return self._token_file.read_text(encoding="ascii").strip()
        except (OSError, ValueError) as error:
            raise AgentError(f"{self._token_file}: the ServiceAccount's token cannot be read: {error}") from None
