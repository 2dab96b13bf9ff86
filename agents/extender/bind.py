"""Bind: a pod's node and its devices in one write, so that no pod is bound without its devices.

The Binding's annotations are merged into the pod as its node is set (assignPod in pkg/registry/core/pod/storage). What
became of a request that got no answer is asked for until it is known; until then the devices stay taken.
"""

import http.client
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from queue import Empty, LifoQueue

from agents.extender.cache.cache import AssumedPod, Cache, NotAssumed
from agents.extender.cache.inventory import NodeDevices
from agents.extender.cache.pod_info import ask_of
from agents.extender.filter import RequestCache
from agents.extender.protocol import PodBinding
from agents.kube.client import Api, ApiError
from agents.kube.pods import Pod
from agents.runtime.clock import Clock
from agents.runtime.errors import AgentError
from agents.runtime.log import Log
from tenancy import names as known
from tenancy.devices.allocate import Ask
from tenancy.names import Names

# Within the 5 s that the scheduler waits.
ATTEMPTS = 2
TIMEOUT_SECONDS = 2.0
# The API server may close a connection that was not used for longer.
_IDLE_SECONDS = 30.0
SETTLE_SECONDS = 5.0
# No request of ours is under way for longer.
_LOST_SECONDS = 60.0


class BindingError(AgentError):
    """The pod was not bound, or it is not known that it was; the scheduler tries it again."""


class Connections:
    """Clients of the API, one for each bind at a time, kept for the next one."""

    def __init__(self, new: Callable[[], Api], clock: Clock) -> None:
        self._new = new
        self._clock = clock
        self._idle: LifoQueue[tuple[float, Api]] = LifoQueue()

    @contextmanager
    def one(self) -> Iterator[Api]:
        """For this thread, as long as the block."""
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
            api.close()  # it connects again
        return api


@dataclass(frozen=True)
class Unsettled:
    """A bind of which nobody knows how it ended; `at` is monotonic seconds."""

    binding: PodBinding
    assumed_at: str
    at: float


@dataclass(kw_only=True)
class Binder:
    """Binds pods, from any thread."""

    connections: Connections
    cache: Cache
    devices: Callable[[str], NodeDevices | None]
    asks: RequestCache
    aliyun: bool
    clock: Clock
    log: Log
    unsettled: dict[str, Unsettled] = field(default_factory=dict)

    def bind(self, binding: PodBinding, names: Names) -> None:
        """Raises AgentError where the pod is not bound as asked."""
        with self.connections.one() as api:
            ask = self.asks.of(binding.uid) or self._asked(api, binding, names)
            chosen = self.cache.assume(binding.uid, ask, binding.node, self.clock.monotonic())
            if isinstance(chosen, NotAssumed):
                raise BindingError(f"{binding.node}: {chosen.reason}")
            assumed_at = str(time.time_ns())
            annotations = self._annotations(binding.node, ask, chosen, assumed_at, names)
            self._post(api, annotations, Unsettled(binding, assumed_at, self.clock.monotonic()))

    def settle(self, names: Names) -> None:
        """Asks the API what became of the binds that got no answer."""
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
                continue  # the request may still be on its way
            del self.unsettled[uid]  # first: as soon as its devices are given back, the pod may be bound again
            if done:
                self.cache.finish_binding(uid, now)
            else:
                self.cache.forget(uid)

    def _asked(self, api: Api, binding: PodBinding, names: Names) -> Ask:
        """Of a pod that another extender filtered, or this one before it was restarted."""
        pod = _pod(api, binding)
        ask = ask_of(pod.spec, names) if pod else None
        if ask is None:
            raise BindingError(f"pod {binding.namespace}/{binding.name} is gone, or asks for no {names.gpumem}")
        return ask

    def _post(self, api: Api, annotations: dict[str, str], unsettled: Unsettled) -> None:
        binding = unsettled.binding
        metadata = {"namespace": binding.namespace, "name": binding.name, "uid": binding.uid}
        body = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {**metadata, "annotations": annotations},
            "target": {"apiVersion": "v1", "kind": "Node", "name": binding.node},
        }
        try:
            api.create(f"{_path(binding)}/binding", body)
        except AgentError as error:
            # A conflict may be with a first attempt of ours that got no answer.
            if isinstance(error, ApiError) and (error.retried or error.status == http.client.CONFLICT):
                self.unsettled[binding.uid] = unsettled
            else:
                self.cache.forget(binding.uid)
            raise
        self.cache.finish_binding(binding.uid, self.clock.monotonic())

    def _annotations(self, node: str, ask: Ask, chosen: AssumedPod, assumed_at: str, names: Names) -> dict[str, str]:
        annotations = {
            names.device_index: ",".join(map(str, chosen.indices)),
            names.device_uuid: ",".join(chosen.uuids),
            names.device_mib: str(chosen.mib),
            names.device_assumed_at: assumed_at,
        }
        if not self.aliyun or ask.count > 1:  # its device plugin knows of one device a pod
            return annotations
        (index,) = chosen.indices
        devices = self.devices(node)
        size = next((device.mib for device in devices.devices if device.index == index), 0) if devices else 0
        return annotations | {
            known.ALIYUN_INDEX: str(index),
            known.ALIYUN_DEVICE_MIB: str(size),
            known.ALIYUN_POD_MIB: str(chosen.mib),
            known.ALIYUN_ASSUME_TIME: assumed_at,
            known.ALIYUN_ASSIGNED: "false",
        }


def _path(binding: PodBinding) -> str:
    return f"/api/v1/namespaces/{binding.namespace}/pods/{binding.name}"


def _pod(api: Api, binding: PodBinding) -> Pod | None:
    """The pod with that uid; None where it is gone. Raises ApiError."""
    found = api.find(_path(binding))
    return Pod(found) if found and Pod(found).uid == binding.uid else None


def _is_done(pod: Pod | None, unsettled: Unsettled, names: Names) -> bool:
    """Whether it was this very bind that bound the pod."""
    return pod is not None and pod.annotations.get(names.device_assumed_at) == unsettled.assumed_at
