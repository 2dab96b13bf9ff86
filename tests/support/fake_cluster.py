"""Simulates the functions of the API server that the agents use. Tests can add faults."""

import io
import json
import math
import threading
import time
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from agents.kube.client import ATTEMPTS, Api, Endpoint
from agents.kube.transport import Transport
from agents.runtime.clock import Clock
from agents.runtime.log import Log
from tenancy.ledger import Ledger, Pool
from tenancy.names import (
    GPU_POD,
    GPU_POD_VALUE,
    LABEL_GPU_COUNT,
    LABEL_GPU_MEMORY,
    LEDGER,
    LEDGER_KEY,
    SYSTEM_NAMESPACE,
    Names,
)
from tenancy.quantity import canonical, whole
from tests.support.in_memory import InMemory
from tests.support.waiting import PATIENCE_SECONDS

DOMAIN = "viktorbarzin.me"
NAMES = Names(DOMAIN)
SYSTEM = SYSTEM_NAMESPACE
TOKEN = "token-1"
T4 = Pool(
    name="t4", node_selector={"gpu": "t4"}, nodes=1, device_count=1, memory_mib=15360, reserve_mib=1360, floor_mib=1536
)
LABELS = {"gpu": "t4", LABEL_GPU_MEMORY: "15360", LABEL_GPU_COUNT: "1"}


@dataclass
class FakeTime:
    seconds: float = 0.0
    slept: list[float] = field(default_factory=list)

    meanwhile: Callable[[], None] = lambda: None  # The client calls `meanwhile` during each sleep.

    def clock(self) -> Clock:
        return Clock(monotonic=lambda: self.seconds, sleep=self.sleep)

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.seconds += seconds
        self.meanwhile()


@dataclass
class Fault:
    method: str
    path: str
    status: int
    reason: str = "InternalError"
    message: str = "broken on order"
    headers: Mapping[str, str] = field(default_factory=dict)
    times: int = 1
    causes: tuple[str, ...] = ()


@dataclass
class FakeCluster:
    nodes: dict[str, dict[str, Any]] = field(default_factory=dict)
    pods: list[dict[str, Any]] = field(default_factory=list)
    objects: dict[str, dict[str, Any]] = field(default_factory=dict)
    events: dict[str, dict[str, Any]] = field(default_factory=dict)
    faults: list[Fault] = field(default_factory=list)
    requests: list[tuple[str, str]] = field(default_factory=list)
    bodies: list[Any] = field(default_factory=list)
    tokens: list[str] = field(default_factory=list)
    agents: list[str | None] = field(default_factory=list)
    held_by_budget: set[str] = field(default_factory=set)  # The names of the pods that a PodDisruptionBudget protects.
    now: datetime | None = None  # The time of the fake API server's clock, if a test has stopped the clock.
    ignores_patches: bool = False
    counts: bool = True
    before_patch: Callable[[], None] = lambda: None
    version: int = 100
    # Unless `watches_last` is set, the fake API server ends each watch at once.
    history: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    happened: threading.Condition = field(default_factory=threading.Condition)
    watches_last: bool = False
    watches_ended: int = 0  # The number of calls of the method `end_open_watches`.
    read: dict[object, int] = field(default_factory=dict)  # For each open watch, the events that its client has read.

    def add_node(self, name: str = "k8s-node1", labels: Mapping[str, str] = LABELS, **amounts: str) -> None:
        keys = {"gpumem": NAMES.gpumem, "gpu_count": NAMES.gpu_count}
        held = {"cpu": "8", **{keys[key]: amount for key, amount in amounts.items()}}
        metadata = {"name": name, "uid": f"uid-{name}", "resourceVersion": self.next_version(), "labels": dict(labels)}
        again = name in self.nodes
        status = {"capacity": dict(held), "allocatable": dict(held)}
        self.nodes[name] = {"kind": "Node", "metadata": metadata, "status": status}
        self.tell("MODIFIED" if again else "ADDED", "/api/v1/nodes", self.nodes[name])

    def add_pod(self, name: str, node: str, gpumem: str, phase: str = "Running", cpu: str = "0") -> None:
        requests = {NAMES.gpumem: gpumem, "cpu": cpu}
        container = {"name": "c", "resources": {"limits": {NAMES.gpumem: gpumem}, "requests": requests}}
        metadata = {"name": name, "namespace": "immich", "uid": f"uid-{name}", "resourceVersion": self.next_version()}
        metadata |= {"labels": {GPU_POD: GPU_POD_VALUE}}
        spec = {"nodeName": node, "containers": [container]}
        self.pods.append({"kind": "Pod", "metadata": metadata, "spec": spec, "status": {"phase": phase}})
        self.tell("ADDED", "/api/v1/pods", self.pods[-1])

    def remove_pod(self, name: str) -> None:
        (gone,) = (pod for pod in self.pods if pod["metadata"]["name"] == name)
        self.pods.remove(gone)
        gone["metadata"]["resourceVersion"] = self.next_version()
        self.tell("DELETED", "/api/v1/pods", gone)

    def add_ledger(self, *pools: Pool, text: str | None = None, **promises: Any) -> None:
        data = json.dumps(Ledger(domain=DOMAIN, pools=pools, **promises).to_data()) if text is None else text
        again = self.ledger_path in self.objects
        metadata = {
            "name": LEDGER,
            "resourceVersion": self.next_version(),
            "finalizers": [NAMES.capacity_finalizer],
        }
        self.objects[self.ledger_path] = {"kind": "ConfigMap", "metadata": metadata, "data": {LEDGER_KEY: data}}
        self._tell_of_ledger("MODIFIED" if again else "ADDED")

    def delete_ledger(self) -> None:
        metadata = self.objects[self.ledger_path]["metadata"]
        metadata |= {"deletionTimestamp": "2026-11-20T22:00:00Z", "resourceVersion": self.next_version()}
        self._tell_of_ledger("MODIFIED")

    def _tell_of_ledger(self, kind: str) -> None:
        self.tell(kind, self.ledger_path.rpartition("/")[0], self.objects[self.ledger_path])

    def tell(self, kind: str, path: str, found: Mapping[str, Any]) -> None:
        with self.happened:
            self.history.append((path, {"type": kind, "object": json.loads(json.dumps(found))}))
            self.happened.notify_all()

    @property
    def watching(self) -> int:
        return len(self.read)

    def await_watches(self, number: int) -> None:
        with self.happened:
            assert self.happened.wait_for(lambda: self.watching == number, timeout=PATIENCE_SECONDS), self.watching

    def await_read(self) -> None:
        """Waits until the clients of all open watches have read all events. The clients must be in this process."""
        with self.happened:
            assert self.happened.wait_for(
                lambda: set(self.read.values()) <= {len(self.history)}, timeout=PATIENCE_SECONDS
            ), self.read

    def end_watches(self) -> None:
        with self.happened:
            self.watches_last = False
            self.happened.notify_all()

    def time_of_day(self) -> datetime:
        return self.now or datetime.now(UTC)

    def end_open_watches(self) -> None:
        self.await_read()
        with self.happened:
            self.watches_ended += 1
            self.happened.notify_all()

    def events_after(
        self, path: str, query: Mapping[str, str], reader_waits: Callable[[], float] = lambda: math.inf
    ) -> Generator[dict[str, Any]]:
        end, version, told = time.monotonic() + int(query["timeoutSeconds"]), int(query["resourceVersion"]), 0

        ended, watch = self.watches_ended, object()

        def left() -> float:
            return min(end - time.monotonic(), reader_waits()) if ended == self.watches_ended else 0.0

        with self.happened:
            self.read[watch] = told
            self.happened.notify_all()
        try:
            while self.watches_last and left() > 0:
                with self.happened:
                    self.read[watch] = told
                    self.happened.notify_all()
                    while len(self.history) == told and self.watches_last and left() > 0:
                        self.happened.wait(timeout=left())
                    news = self.history[told:]
                told += len(news)
                for where, event in news:
                    found = event["object"]
                    is_news = int(found["metadata"].get("resourceVersion", version + 1)) > version
                    if is_news and _is_below(found, where, path) and _selected(found, query):
                        yield event
        finally:
            with self.happened:
                del self.read[watch]
                self.happened.notify_all()

    @property
    def ledger_path(self) -> str:
        return f"/api/v1/namespaces/{SYSTEM}/configmaps/{LEDGER}"

    def shown(self, name: str = "k8s-node1") -> tuple[str | None, str | None, str | None, str | None]:
        capacity, allocatable = (self.nodes[name]["status"][part] for part in ("capacity", "allocatable"))
        keys = (NAMES.gpumem, NAMES.gpu_count)
        return (capacity.get(keys[0]), capacity.get(keys[1]), allocatable.get(keys[0]), allocatable.get(keys[1]))

    def next_version(self) -> str:
        self.version += 1
        return str(self.version)

    def answer(self, method: str, url: str, body: Any) -> tuple[int, dict[str, Any], Mapping[str, str]]:
        split = urlsplit(url)
        path, query = split.path, {key: values[0] for key, values in parse_qs(split.query).items()}
        self.requests.append((method, url))
        self.bodies.append(body)
        for fault in self.faults:
            if fault.times and fault.method == method and url.startswith(fault.path):
                fault.times -= 1
                if not fault.status:
                    raise ConnectionAbortedError
                answer = status(fault.status, fault.reason, fault.message)
                answer["details"] = {"causes": [{"reason": cause} for cause in fault.causes]}
                return fault.status, answer, fault.headers
        if "watch" in query:
            return 200, {}, {}
        code, answer = self.dispatch(method, path, query, body)
        return code, answer, {}

    def dispatch(self, method: str, path: str, query: Mapping[str, str], body: Any) -> tuple[int, dict[str, Any]]:
        change = {"POST": self.create, "PATCH": self.patch, "DELETE": self.delete}.get(method)
        if change:
            return change(path, body)
        if path == "/api/v1/nodes":
            return 200, self.page([node for node in self.nodes.values() if _selected(node, query)], query)
        if path.endswith("/pods"):
            found = [pod for pod in self.select(query) if _is_below(pod, "/api/v1/pods", path)]
            return 200, self.page(found, query)
        if path.endswith(("/resourceslices", "/resourceclaims", "/configmaps")):
            found = [found for where, found in self.objects.items() if where.startswith(f"{path}/")]
            return 200, self.page([each for each in found if _selected(each, query)], query)
        found = self.nodes.get(path.removeprefix("/api/v1/nodes/")) or self.objects.get(path)
        return (200, found) if found is not None else (404, status(404, "NotFound", f"{path} not found"))

    def select(self, query: Mapping[str, str]) -> list[dict[str, Any]]:
        selected = self.pods
        if "phase!=Succeeded" in query.get("fieldSelector", ""):
            selected = [pod for pod in selected if pod["status"]["phase"] not in ("Succeeded", "Failed")]
        for term in query.get("fieldSelector", "").split(","):
            key, _, value = term.partition("=")
            if key == "spec.nodeName":
                selected = [pod for pod in selected if pod["spec"].get("nodeName", value) == value]
        return [pod for pod in selected if _selected(pod, query)]

    def create(self, path: str, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        if path.endswith("/eviction") and (pod := self.pod(path.removesuffix("/eviction"))):
            return self.end_pod(pod, body["deleteOptions"])
        name = body["metadata"]["name"]
        if path.endswith("/resourceslices"):
            if f"{path}/{name}" in self.objects:
                return 409, status(409, "AlreadyExists", f"resourceslices {name} already exists")
            body["metadata"]["resourceVersion"] = self.next_version()
            self.objects[f"{path}/{name}"] = body
            self.tell("ADDED", path, body)
        if not path.endswith("/events"):
            return 201, body
        if name in self.events:
            return 409, status(409, "AlreadyExists", f"events {name} already exists")
        self.events[name] = body
        return 201, body

    def delete(self, path: str, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        if pod := self.pod(path):
            return self.end_pod(pod, body, deleted=True)
        found = self.objects.get(path)
        if found is None:
            return 404, status(404, "NotFound", f"{path} not found")
        if body["preconditions"]["uid"] != found["metadata"]["uid"]:
            return 409, status(409, "Conflict", "the UID in the precondition does not match")
        return 200, self.objects.pop(path)

    def pod(self, path: str) -> dict[str, Any] | None:
        *_, namespace, _, name = path.split("/")
        wanted = (namespace, name)
        names = (((each["metadata"]["namespace"], each["metadata"]["name"]), each) for each in self.pods)
        return next((pod for found, pod in names if found == wanted), None)

    def end_pod(
        self, pod: dict[str, Any], options: dict[str, Any], *, deleted: bool = False
    ) -> tuple[int, dict[str, Any]]:
        metadata = pod["metadata"]
        if metadata["uid"] != options["preconditions"]["uid"]:
            return 409, status(409, "Conflict", "the UID in the precondition does not match")
        if metadata["name"] in self.held_by_budget and not deleted:
            refused = status(429, "TooManyRequests", "Cannot evict pod as it would violate a budget.")
            return 429, {**refused, "details": {"causes": [{"reason": "DisruptionBudget"}]}}
        gone_by = self.time_of_day() + timedelta(seconds=30)
        metadata["deletionTimestamp"] = gone_by.strftime("%Y-%m-%dT%H:%M:%SZ")
        return 201, status(201, "", "")

    def patch(self, path: str, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        self.before_patch()
        is_node = path.endswith("/status")
        target = self.nodes.get(path.split("/")[-2]) if is_node else self.objects.get(path.removesuffix("/scale"))
        if target is None:
            return 404, status(404, "NotFound", f"{path} not found")
        metadata = target["metadata"]
        if body["metadata"]["resourceVersion"] != metadata["resourceVersion"]:
            return 409, status(409, "Conflict", "the object has been modified")
        if not self.ignores_patches:
            merge(target, body)
            metadata["resourceVersion"] = self.next_version()
            if path.endswith("/scale"):
                metadata["generation"] += 1
            if is_node:
                self.tell("MODIFIED", "/api/v1/nodes", target)
            elif "/resourceslices/" in path:
                self.tell("MODIFIED", path.rpartition("/")[0], target)
        if "deletionTimestamp" in metadata and not metadata["finalizers"]:
            del self.objects[path]
        return 200, target

    def page(self, items: list[dict[str, Any]], query: Mapping[str, str]) -> dict[str, Any]:
        start, limit = int(query.get("continue", "0")), int(query["limit"])
        rest = str(start + limit) if start + limit < len(items) else ""
        metadata: dict[str, Any] = {"continue": rest, "resourceVersion": str(self.version)}
        if self.counts and rest and "fieldSelector" not in query and "labelSelector" not in query:
            metadata["remainingItemCount"] = len(items) - start - limit
        return {"items": items[start : start + limit], "metadata": metadata}


def _is_below(found: Mapping[str, Any], collection: str, path: str) -> bool:
    namespaced = f"/namespaces/{found['metadata'].get('namespace')}/pods"
    return path == collection or (path.endswith(namespaced) and collection == "/api/v1/pods")


def _selected(found: Mapping[str, Any], query: Mapping[str, str]) -> bool:
    key, _, value = query.get("fieldSelector", "").partition("=")
    label, _, wanted = query.get("labelSelector", "").partition("=")
    labels = found["metadata"].get("labels") or {}
    return (key != "metadata.name" or found["metadata"].get("name", value) == value) and (
        not label or labels.get(label) == wanted
    )


def merge(target: dict[str, Any], patch: Mapping[str, Any]) -> None:
    """Source: RFC 7386."""
    for key, value in patch.items():
        if value is None:
            target.pop(key, None)
        elif isinstance(value, Mapping):
            merge(target.setdefault(key, {}), value)
        else:
            target[key] = canonical(whole(value)) if key.startswith(DOMAIN) else value


def status(code: int, reason: str, message: str) -> dict[str, Any]:
    return {"kind": "Status", "code": code, "reason": reason, "message": message}


@dataclass
class Served:
    cluster: FakeCluster
    mount: Path
    exporter_port: int = 0
    time: FakeTime = field(default_factory=FakeTime)
    output: io.StringIO = field(default_factory=io.StringIO)
    closing: list[Api] = field(default_factory=list)

    def endpoint(self) -> Endpoint:
        return Endpoint(host="in-memory", port=0, token_file=self.mount / "token", ca_file=self.mount / "ca.crt")

    def transport(self) -> Transport:
        return InMemory(self.cluster)

    def api(self, *, clock: Clock | None = None, jitter: float = 0.5, attempts: int = ATTEMPTS) -> Api:
        api = Api(
            self.endpoint(),
            clock=clock or self.time.clock(),
            jitter=lambda: jitter,
            attempts=attempts,
            transport=self.transport(),
        )
        self.closing.append(api)
        return api

    def log(self) -> Log:
        return Log("test", self.output)

    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.output.getvalue().splitlines()]

    def close(self) -> None:
        self.cluster.end_watches()
        for api in self.closing:
            api.close()
