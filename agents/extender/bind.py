"""Binds pods to nodes. A single request writes the node and the devices of a pod, so that every bound pod has devices.

The API server sets the pod's node and copies the Binding's annotations into the pod (assignPod in
pkg/registry/core/pod/storage). If the API server does not answer a bind, the pod keeps its devices until the watch
shows the bind, or until the request can no longer reach the API server.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from queue import Empty, LifoQueue

from agents.extender.cache.cache import Cache
from agents.extender.cache.pod_info import PodInfo
from agents.extender.protocol import BindRequest
from agents.extender.waiting import WaitingPods
from agents.kube.client import Api, ApiError
from agents.kube.paths import below
from agents.kube.pods import pods_of
from agents.runtime.clock import Clock
from agents.runtime.errors import AgentError
from tenancy.names import Names
from tenancy.seconds import EXTENDER_TIMEOUT_SECONDS

# The timeout of one request to the API server. A bind must end before kube-scheduler's timeout.
TIMEOUT_SECONDS = EXTENDER_TIMEOUT_SECONDS - 1.0
# The API server may close a connection that is idle for longer than this time.
_IDLE_SECONDS = 30.0


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


@dataclass(frozen=True, kw_only=True)
class Binder:
    """Binds pods. Any thread may call `bind`."""

    connections: ClientPool
    cache: Cache
    waiting: WaitingPods
    clock: Clock

    def bind(self, binding: BindRequest, names: Names) -> PodInfo:
        """Binds the pod within kube-scheduler's timeout, and returns it with its devices. Raises AgentError if the pod
        was not bound. kube-scheduler then tries the pod again.
        """
        pod = self.waiting.of(binding.uid)
        if pod is None:
            raise BindingError(f"pod {binding.namespace}/{binding.name} has passed no filter here")
        answer = self.cache.assume(binding.uid, pod.memory, binding.node, self.clock.monotonic(), pod.entitlement)
        chosen = answer.pod
        if chosen is None:
            reasons = {**answer.refused, **answer.hopeless}
            raise BindingError(f"{binding.node}: {reasons[binding.node]}")
        path = below(pods_of(binding.namespace), binding.name, "binding")
        try:
            with self.connections.one() as api:
                api.create(path, _body(binding, chosen, names))
        except ApiError as error:
            if not error.retried:  # otherwise the API server may have bound the pod without an answer
                self.cache.forget(binding.uid, self.clock.monotonic())
            raise
        self.cache.finish_binding(binding.uid, self.clock.monotonic())
        return chosen


def _body(binding: BindRequest, pod: PodInfo, names: Names) -> dict[str, object]:
    annotations = {
        names.device_index: ",".join(map(str, pod.indices or ())),
        names.device_uuid: ",".join(pod.uuids or ()),
        names.device_mib: str(pod.request.mib),
        names.device_assumed_at: str(time.time_ns()),
    }
    metadata = {"namespace": binding.namespace, "name": binding.name, "uid": binding.uid, "annotations": annotations}
    return {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": metadata,
        "target": {"apiVersion": "v1", "kind": "Node", "name": binding.node},
    }
