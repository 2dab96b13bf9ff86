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

from agents.extender.cache.cache import Cache
from agents.extender.cache.pod_info import PodInfo
from agents.extender.protocol import BindRequest
from agents.extender.waiting import WaitingPods
from agents.kube.client import Api, ApiError
from agents.kube.paths import ApiPath, below
from agents.kube.pods import Pod, pods_of
from agents.runtime.clock import Clock
from agents.runtime.errors import AgentError
from agents.runtime.items import Unjudged, attempted
from agents.runtime.log import Log
from tenancy.names import Names
from tenancy.seconds import EXTENDER_TIMEOUT_SECONDS

# The timeout of one request to the API server. A bind must end before kube-scheduler's timeout.
TIMEOUT_SECONDS = EXTENDER_TIMEOUT_SECONDS - 1.0
# The API server may close a connection that is idle for longer than this time.
_IDLE_SECONDS = 30.0
SETTLE_SECONDS = 5.0
# A request that has not reached the API server after this many seconds is lost.
_LOST_SECONDS = 60.0


class BindingError(AgentError):
    """The extender has not tried to bind the pod. If the API server refuses a bind, ApiError is raised instead."""


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
    waiting: WaitingPods
    leads: Callable[[], bool]
    clock: Clock
    log: Log
    unsettled: dict[str, UnsettledBind] = field(default_factory=dict)

    def bind(self, binding: BindRequest, names: Names) -> PodInfo:
        """Binds the pod within kube-scheduler's timeout, and returns it with its devices. Raises AgentError if the pod
        was not bound. kube-scheduler then tries the pod again.

        Refuses to bind a pod after the kube-scheduler in the extender's pod has lost its Lease. The extender of the new
        leader may already have given the same devices to other pods.
        """
        if not self.leads():
            raise BindingError("this pod's scheduler no longer leads")
        pod = self.waiting.of(binding.uid)
        if pod is None:
            raise BindingError(f"pod {binding.namespace}/{binding.name} has passed no filter here")
        answer = self.cache.assume(binding.uid, pod.memory, binding.node, self.clock.monotonic(), pod.entitlement)
        chosen = answer.pod
        if chosen is None:
            reasons = {**answer.refused, **answer.hopeless}
            raise BindingError(f"{binding.node}: {reasons[binding.node]}")
        unsettled = UnsettledBind(binding, str(time.time_ns()), self.clock.monotonic())
        with self.connections.one() as api:
            self._post(api, _annotations(chosen, unsettled.assumed_at, names), unsettled)
        return chosen

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
                    self.cache.forget(uid, self.clock.monotonic())

    def _was_bound(self, unsettled: UnsettledBind, names: Names) -> bool | None:
        """Returns True if the bind set the pod's node, or None if the request may still reach the API server. Raises
        AgentError.
        """
        with self.connections.one() as api:
            pod = _pod(api, unsettled.binding)
        done = _is_done(pod, unsettled, names)
        may_come = pod is not None and not pod.node and self.clock.monotonic() - unsettled.at < _LOST_SECONDS
        return None if may_come and not done else done

    def _post(self, api: Api, annotations: dict[str, str], unsettled: UnsettledBind) -> None:
        binding = unsettled.binding
        metadata = {"namespace": binding.namespace, "name": binding.name, "uid": binding.uid}
        body = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {**metadata, "annotations": annotations},
            "target": {"apiVersion": "v1", "kind": "Node", "name": binding.node},
        }
        try:
            api.create(below(_path(binding), "binding"), body)
        except ApiError as error:
            if error.retried:  # the API server may have bound the pod without an answer
                self.unsettled[binding.uid] = unsettled
            else:
                self.cache.forget(binding.uid, self.clock.monotonic())
            raise
        self.cache.finish_binding(binding.uid, self.clock.monotonic())


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
