"""Binds pods to nodes. One request writes a pod's node and devices, so that every bound pod has devices.

The API server sets the pod's node and copies the Binding's annotations into the pod (assignPod in
pkg/registry/core/pod/storage). If the API server does not answer a request, the pod stays assumed until the API shows
whether the pod was bound.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from queue import Empty, LifoQueue

from agents.extender.cache.answers import NotAssumed
from agents.extender.cache.cache import Cache
from agents.extender.cache.pod_info import PodInfo
from agents.extender.filter import CachedRequest, RequestCache, request_of
from agents.extender.protocol import BindRequest
from agents.kube.client import Api, ApiError, join_path
from agents.kube.pods import Pod
from agents.runtime.clock import Clock
from agents.runtime.errors import AgentError
from agents.runtime.log import Log
from tenancy.ledger import Ledger
from tenancy.names import Names
from tenancy.seconds import EXTENDER_TIMEOUT_SECONDS

# The timeout of one request to the API server.
TIMEOUT_SECONDS = 2.0
ATTEMPTS = 2
# A bind must end this many seconds before kube-scheduler's timeout.
_ANSWER_SECONDS = 0.5
# The wait before the second attempt, unless the API server sends Retry-After.
_BACKOFF_SECONDS = 0.25
# The API server may close a connection that is idle for longer than this time.
_IDLE_SECONDS = 30.0
SETTLE_SECONDS = 5.0
# A request takes effect within this time after the client sent the request, or never.
_LOST_SECONDS = 60.0


class BindingError(AgentError):
    """The extender made no attempt to bind the pod, or the time for the bind ended. If the API server refuses the
    Binding, the error is an ApiError instead.
    """


class ClientPool:
    """A pool of idle API clients. Each bind takes one client."""

    def __init__(self, new: Callable[[], Api], clock: Clock) -> None:
        self._new = new
        self._clock = clock
        self._idle: LifoQueue[tuple[float, Api]] = LifoQueue()

    @contextmanager
    def one(self) -> Iterator[Api]:
        api = self._take()
        try:
            yield api
        finally:
            self._idle.put((self._clock.monotonic(), api))

    def _take(self) -> Api:
        try:
            used_at, api = self._idle.get_nowait()
        except Empty:
            return self._new()
        if self._clock.monotonic() - used_at > _IDLE_SECONDS:
            api.close()  # the next request opens a new connection
        return api


@dataclass(frozen=True)
class UnsettledBind:
    """A bind with an unknown result. `at` is the time of the request in monotonic seconds."""

    binding: BindRequest
    assumed_at: str
    at: float


@dataclass(kw_only=True)
class Binder:
    """Binds pods. Any thread may call the methods."""

    connections: ClientPool
    cache: Cache
    requests: RequestCache
    ledger: Callable[[], Ledger | None]
    leads: Callable[[], bool]
    clock: Clock
    log: Log
    unsettled: dict[str, UnsettledBind] = field(default_factory=dict)

    def bind(self, binding: BindRequest, names: Names) -> None:
        """Binds the pod within kube-scheduler's timeout. Raises AgentError if the pod is not bound.

        Makes no attempt after the scheduler next to this extender has lost its Lease. The new leader's extender may
        already give the same devices to other pods.
        """
        deadline = self.clock.monotonic() + EXTENDER_TIMEOUT_SECONDS - _ANSWER_SECONDS
        with self.connections.one() as api:
            request = self.requests.of(binding.uid) or self._requested(api, binding, names)
            chosen = self.cache.assume(
                binding.uid, request.memory, binding.node, self.clock.monotonic(), request.entitlement
            )
            if isinstance(chosen, NotAssumed):
                raise BindingError(f"{binding.node}: {chosen.reason}")
            assumed_at = str(time.time_ns())
            annotations = _annotations(chosen, assumed_at, names)
            self._post(api, annotations, UnsettledBind(binding, assumed_at, self.clock.monotonic()), deadline)

    def settle(self, names: Names) -> None:
        """Reads from the API the result of each bind that the API server did not answer."""
        for uid, unsettled in [*self.unsettled.items()]:
            try:
                with self.connections.one() as api:
                    pod = _pod(api, unsettled.binding)
            except AgentError as error:
                self.log.warning(f"cannot tell whether pod {uid} was bound: {error}")
                continue
            now = self.clock.monotonic()
            done = _is_done(pod, unsettled, names)
            if not done and pod and not pod.node and now - unsettled.at < _LOST_SECONDS:
                continue  # The request may still reach the API server.
            del self.unsettled[uid]  # This deletion comes first, because another bind may begin after `forget`.
            if done:
                self.cache.finish_binding(uid, now)
            else:
                self.cache.forget(uid)

    def _requested(self, api: Api, binding: BindRequest, names: Names) -> CachedRequest:
        """Reads the pod's request from the API, for a pod that this process did not filter."""
        pod = _pod(api, binding)
        request = request_of(pod.item, names, self.ledger()) if pod else None
        if request is None:
            raise BindingError(f"pod {binding.namespace}/{binding.name} is gone, or does not ask for {names.gpumem}")
        return request

    def _post(self, api: Api, annotations: dict[str, str], unsettled: UnsettledBind, deadline: float) -> None:
        binding = unsettled.binding
        metadata = {"namespace": binding.namespace, "name": binding.name, "uid": binding.uid}
        body = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {**metadata, "annotations": annotations},
            "target": {"apiVersion": "v1", "kind": "Node", "name": binding.node},
        }
        unanswered = False
        try:
            for left in reversed(range(ATTEMPTS)):
                self._check(deadline)
                try:
                    api.create(f"{_path(binding)}/binding", body)
                    break
                except ApiError as error:
                    unanswered = unanswered or error.retried
                    if not (error.retried and left and self._waited(error, deadline)):
                        raise
        except AgentError:
            # The first attempt of this bind may have bound the pod although no response came. The second attempt then
            # gets a conflict.
            if unanswered:
                self.unsettled[binding.uid] = unsettled
            else:
                self.cache.forget(binding.uid)
            raise
        self.cache.finish_binding(binding.uid, self.clock.monotonic())

    def _check(self, deadline: float) -> None:
        """Raises BindingError if no further attempt may begin."""
        if not self.leads():
            raise BindingError("this pod's scheduler no longer leads")
        if self.clock.monotonic() + TIMEOUT_SECONDS > deadline:
            raise BindingError(f"the API was too slow: kube-scheduler waits for {EXTENDER_TIMEOUT_SECONDS} s")

    def _waited(self, error: ApiError, deadline: float) -> bool:
        """Sleeps until the next attempt, and returns True. If that attempt could not end before the deadline, returns
        False at once.
        """
        wait = _BACKOFF_SECONDS if error.retry_after_seconds is None else error.retry_after_seconds
        if self.clock.monotonic() + wait + TIMEOUT_SECONDS > deadline:
            return False
        self.clock.sleep(wait)
        return True


def _annotations(pod: PodInfo, assumed_at: str, names: Names) -> dict[str, str]:
    return {
        names.device_index: ",".join(map(str, pod.indices or ())),
        names.device_uuid: ",".join(pod.uuids or ()),
        names.device_mib: str(pod.request.mib),
        names.device_assumed_at: assumed_at,
    }


def _path(binding: BindRequest) -> str:
    return join_path("/api/v1/namespaces", binding.namespace, "pods", binding.name)


def _pod(api: Api, binding: BindRequest) -> Pod | None:
    """Returns the pod with that UID, or None if the pod is gone. Raises ApiError."""
    found = api.find(_path(binding))
    return Pod(found) if found and Pod(found).uid == binding.uid else None


def _is_done(pod: Pod | None, unsettled: UnsettledBind, names: Names) -> bool:
    """Returns True if this bind set the pod's node."""
    return pod is not None and pod.annotations.get(names.device_assumed_at) == unsettled.assumed_at
