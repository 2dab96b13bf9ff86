"""Binds pods to nodes. A single request writes the node and the devices of a pod, so that every bound pod has devices.

The API server sets the pod's node and copies the Binding's annotations into the pod (assignPod in
pkg/registry/core/pod/storage). If the API server does not answer a bind, the pod stays `assumed` until the API shows
whether the pod was bound.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from queue import Empty, LifoQueue

from agents.extender.cache.answers import NotAssumed
from agents.extender.cache.cache import Cache
from agents.extender.cache.pod_info import PodInfo
from agents.extender.filter import CachedRequest, RequestCache, request_of
from agents.extender.protocol import BindRequest
from agents.kube.client import Api, ApiError
from agents.kube.paths import ApiPath, below
from agents.kube.pods import Pod, pods_of
from agents.runtime.clock import Clock
from agents.runtime.errors import AgentError
from agents.runtime.items import Unjudged, attempted
from agents.runtime.log import Log
from tenancy.ledger import Ledger
from tenancy.names import Names
from tenancy.seconds import EXTENDER_TIMEOUT_SECONDS

# The timeout of one request to the API server.
TIMEOUT_SECONDS = 2.0
ATTEMPTS = 2
# A bind must end this many seconds before kube-scheduler's timeout.
_ANSWER_SECONDS = 0.5
# The wait before the second attempt of a bind, unless the API server sends Retry-After.
_BACKOFF_SECONDS = 0.25
# The API server may close a connection that is idle for longer than this time.
_IDLE_SECONDS = 30.0
SETTLE_SECONDS = 5.0
# A request that has not reached the API server after this many seconds is lost.
_LOST_SECONDS = 60.0


class BindingError(AgentError):
    """The extender has not tried to bind the pod, or the deadline of the bind has passed. If the API server itself
    refuses a bind, ApiError is raised instead of BindingError.
    """


class ClientPool:
    """The idle API clients, of which each bind uses one."""

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
            api.close()  # the next request of this client opens a new connection
        return api


@dataclass(frozen=True)
class UnsettledBind:
    """A bind with an unknown result. `at` is the time of the bind request in monotonic seconds."""

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
        """Binds the pod within kube-scheduler's timeout. Raises AgentError if the pod was not bound.

        Refuses to bind a pod after the kube-scheduler in the extender's pod has lost its Lease. The extender of the new
        leader may already have given the same devices to other pods.
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
        """Reads the result of each bind without an answer from the API."""
        for uid, unsettled in [*self.unsettled.items()]:
            done = attempted(partial(self._was_bound, unsettled, names))
            if isinstance(done, Unjudged):
                self.log.warning(f"cannot tell whether pod {uid} was bound: {done.why}")
            elif done is not None:
                # This line comes before `forget`, because another bind of the pod can begin after `forget`.
                del self.unsettled[uid]
                if done:
                    self.cache.finish_binding(uid, self.clock.monotonic())
                else:
                    self.cache.forget(uid)

    def _was_bound(self, unsettled: UnsettledBind, names: Names) -> bool | None:
        """Returns True if the bind set the pod's node, or None if the request may still reach the API server. Raises
        AgentError.
        """
        with self.connections.one() as api:
            pod = _pod(api, unsettled.binding)
        done = _is_done(pod, unsettled, names)
        may_come = pod is not None and not pod.node and self.clock.monotonic() - unsettled.at < _LOST_SECONDS
        return None if may_come and not done else done

    def _requested(self, api: Api, binding: BindRequest, names: Names) -> CachedRequest:
        pod = _pod(api, binding)
        request = request_of(pod, names, self.ledger()) if pod else None
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
                    api.create(below(_path(binding), "binding"), body)
                    break
                except ApiError as error:
                    unanswered = unanswered or error.retried
                    if not (error.retried and left and self._waited(error, deadline)):
                        raise
        except AgentError:
            # If an attempt without a response has bound the pod, the next attempt fails with a conflict.
            if unanswered:
                self.unsettled[binding.uid] = unsettled
            else:
                self.cache.forget(binding.uid)
            raise
        self.cache.finish_binding(binding.uid, self.clock.monotonic())

    def _check(self, deadline: float) -> None:
        """Raises BindingError if the Binder must not begin another attempt."""
        if not self.leads():
            raise BindingError("this pod's scheduler no longer leads")
        if self.clock.monotonic() + TIMEOUT_SECONDS > deadline:
            raise BindingError(f"the API was too slow: kube-scheduler waits for {EXTENDER_TIMEOUT_SECONDS} s")

    def _waited(self, error: ApiError, deadline: float) -> bool:
        """Sleeps until the next attempt, and returns True. Returns False without a wait if the next attempt might end
        after the deadline.
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


def _path(binding: BindRequest) -> ApiPath:
    return below(pods_of(binding.namespace), binding.name)


def _pod(api: Api, binding: BindRequest) -> Pod | None:
    """Returns the pod with this UID, or None if the pod no longer exists. Raises ApiError."""
    found = api.find(_path(binding))
    return Pod(found) if found and Pod(found).uid == binding.uid else None


def _is_done(pod: Pod | None, unsettled: UnsettledBind, names: Names) -> bool:
    return pod is not None and pod.annotation(names.device_assumed_at) == unsettled.assumed_at
