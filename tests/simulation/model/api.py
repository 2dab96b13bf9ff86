"""Simulates an API server with resourceVersions, conflicts, lists, watches and evictions.

A write replaces the whole object instead of changing it, so that readers need no copies.
"""

import http.client
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import lru_cache
from typing import Any, TypeVar
from urllib.parse import parse_qsl, urlsplit

from agents.kube.errors import refusal
from agents.kube.informer import WatchSource
from tenancy.names import PROJECT
from tenancy.quantity import canonical, whole
from tests.simulation.model.world import World

Object = Mapping[str, Any]
Key = TypeVar("Key")
_HISTORY = 4000
PODS, NODES = "/api/v1/pods", "/api/v1/nodes"


class KilledError(BaseException):
    """Ends the process of an agent in the middle of its work."""


class StatusError(Exception):
    """The simulated API server refuses a request. `status` is the Status object in the response."""

    def __init__(self, code: int, message: str, cause: str = "") -> None:
        super().__init__(message)
        self.status = {"code": code, "reason": http.client.responses[code].replace(" ", ""), "message": message}
        if cause:
            self.status["details"] = {"causes": [{"reason": cause}]}


@dataclass
class ServerWatch:
    """A watch. `chosen` returns True for the objects that a watch selects.

    A watch gets a DELETED event for an object that leaves its selection.
    """

    path: str
    chosen: Callable[[Object], bool]
    tell: Callable[[Object], None]
    within: set[str] = field(default_factory=set)
    ended: bool = False

    def see(self, collection: str, kind: str, found: Object) -> None:
        namespaced = f"/api/v1/namespaces/{found['metadata'].get('namespace')}/pods"
        if self.path not in (collection, namespaced if collection == PODS else collection):
            return
        key = found["metadata"]["name"] + "/" + found["metadata"].get("namespace", "")
        chosen = kind != "DELETED" and self.chosen(found)
        if not chosen and key not in self.within:
            return
        shown = "DELETED" if not chosen else "MODIFIED" if key in self.within else "ADDED"
        (self.within.add if chosen else self.within.discard)(key)
        self.tell({"type": shown, "object": found})


@dataclass
class Server:
    """The API server.

    The server calls each function in `hears` with every change. The functions in `hears` belong to kubelets,
    controllers and the scheduler.
    """

    world: World
    ahead: float = 0.0  # The seconds by which the server's clock is ahead.
    down: bool = False  # True while the server does not answer.
    objects: dict[str, Object] = field(default_factory=dict)
    pods: dict[tuple[str, str], Object] = field(default_factory=dict)
    nodes: dict[str, Object] = field(default_factory=dict)
    budgets: dict[tuple[str, str], bool] = field(default_factory=dict)  # True if a PDB refuses the workload's evictions
    hears: list[Callable[[str, Object], None]] = field(default_factory=list)
    checks: list[Callable[[str, Object], None]] = field(default_factory=list)  # called with each write of an agent
    follows: list[ServerWatch] = field(default_factory=list)
    history: deque[tuple[int, str, str, Object]] = field(default_factory=lambda: deque(maxlen=_HISTORY))
    version: int = 100
    # A cache of lists, with the path and the selectors as the key. A cached list is valid while its version equals the
    # server's version.
    _lists: dict[tuple[str, tuple[tuple[str, str], ...]], Object] = field(default_factory=dict)

    # Objects

    def put(self, path: str, found: Object, *, silent: bool = False) -> Object:
        """Writes a whole object."""
        return self._put(self.objects, path, path.rpartition("/")[0], found, silent=silent)

    def remove(self, path: str) -> None:
        self._remove(self.objects, path, path.rpartition("/")[0])

    def put_node(self, found: Object) -> Object:
        return self._put(self.nodes, found["metadata"]["name"], NODES, found)

    def put_pod(self, found: Object) -> Object:
        return self._put(self.pods, (found["metadata"]["namespace"], found["metadata"]["name"]), PODS, found)

    def remove_pod(self, key: tuple[str, str]) -> None:
        self._remove(self.pods, key, PODS)

    def remove_node(self, name: str) -> None:
        self._remove(self.nodes, name, NODES)

    def _put(
        self, stored: dict[Key, Object], key: Key, collection: str, found: Object, *, silent: bool = False
    ) -> Object:
        kind = "MODIFIED" if key in stored else "ADDED"
        new = stored[key] = self._versioned(found)
        self._changed(collection, kind, new, silent=silent)
        return new

    def _remove(self, stored: dict[Key, Object], key: Key, collection: str) -> None:
        gone = stored.pop(key, None)
        if gone is not None:
            self._changed(collection, "DELETED", self._versioned(gone))

    def _versioned(self, found: Object) -> Object:
        self.version += 1
        return {**found, "metadata": {**found["metadata"], "resourceVersion": str(self.version)}}

    def _changed(self, collection: str, kind: str, found: Object, *, silent: bool = False) -> None:
        self.history.append((self.version, collection, kind, found))
        if not silent:
            self.world.stir()
        for follow in [each for each in self.follows if not each.ended]:
            follow.see(collection, kind, found)
        for hear in self.hears:
            hear(kind, found)

    # Watches

    def follow(self, source: WatchSource, tell: Callable[[Object], None]) -> ServerWatch:
        """Adds a watch from the source's resourceVersion on. Raises ApiError with status 410 if the resourceVersion is
        too old.
        """
        version = int(source.resource_version)
        if self.history and self.history[0][0] > version + 1 and len(self.history) == _HISTORY:
            raise refusal(f"WATCH {source.path}", {"code": 410, "reason": "Expired", "message": "too old"})
        chosen = _selection(tuple(sorted(source.parameters.items())))
        follow = ServerWatch(path=source.path, chosen=chosen, tell=tell)
        follow.within = {
            f"{item['metadata']['name']}/{item['metadata'].get('namespace', '')}"
            for item in self._items(source.path)
            if chosen(item)
        }
        self.follows = [each for each in self.follows if not each.ended]
        self.follows.append(follow)
        for at, path, kind, found in self.history:
            if at > version:
                follow.see(path, kind, found)
        return follow

    def end_watches(self) -> None:
        for follow in self.follows:
            follow.ended = True

    # Requests

    def time(self) -> datetime:
        return self.world.time_of_day(self.ahead).replace(microsecond=0)

    def date(self) -> datetime | None:
        """Returns the header Date of a response."""
        return self.time()

    def exchange(self, who: str, method: str, path: str, body: Object | None, timeout_seconds: float) -> Object:
        """Answers a client's request. Raises ApiError."""
        try:
            return self.handle(method, path, body)
        except StatusError as error:
            raise refusal(f"{method} {path.partition('?')[0]}", error.status) from None

    def handle(self, method: str, path: str, body: Object | None) -> Object:
        """Carries out a request. Raises StatusError."""
        where, query = _split(path)
        if method == "GET":
            return self._get(where, query)
        if method == "PATCH":
            return self._patch(where, body or {}, dict(query))
        if method == "POST":
            return self._create(where, body or {})
        return self._delete(where, body or {})

    def _get(self, where: str, query: tuple[tuple[str, str], ...]) -> Object:
        found = self._object(where)
        if found is not None:
            return found
        if not any(key == "limit" for key, _ in query):
            raise StatusError(404, f"{where} not found")
        listed = self._lists.get((where, query))
        if listed is None or listed["metadata"]["resourceVersion"] != str(self.version):
            chosen = _selection(tuple(sorted((k, v) for k, v in query if k in ("fieldSelector", "labelSelector"))))
            items = [item for item in self._items(where) if chosen(item)]
            listed = {"items": items, "metadata": {"resourceVersion": str(self.version)}}
            self._lists[where, query] = listed
        return listed

    def _object(self, where: str) -> Object | None:
        found = self.objects.get(where)
        if found is not None:
            return found
        if where.startswith(f"{NODES}/"):
            return self.nodes.get(where.removeprefix(f"{NODES}/"))
        return self.pods.get(_pod_key(where)) if "/pods/" in where else None

    def _items(self, where: str) -> Iterable[Object]:
        if where == PODS:
            return self.pods.values()
        if where == NODES:
            return self.nodes.values()
        if where.endswith("/pods"):
            namespace = where.split("/")[-2]
            return [pod for (found, _), pod in self.pods.items() if found == namespace]
        if "autoscaling" in where or "keda.sh" in where:
            return ()
        return [found for path, found in self.objects.items() if path.rpartition("/")[0] == where]

    def _patch(self, where: str, body: Object, query: Mapping[str, str]) -> Object:
        target = where.removesuffix("/status").removesuffix("/scale")
        found = self._object(target)
        if found is None:
            raise StatusError(404, f"{where} not found")
        version = body.get("metadata", {}).get("resourceVersion")
        if version is not None and version != found["metadata"]["resourceVersion"]:
            raise StatusError(409, "the object has been modified; please apply your changes to the latest version")
        new = _merged(found, body)
        if new == found:
            return found
        if target.startswith(NODES):
            for check in self.checks:
                check("node", new)
            return self.put_node(new)
        if where.endswith("/scale"):
            manager = query.get("fieldManager", PROJECT)
            owners = [{"manager": manager, "fieldsV1": {"f:spec": {"f:replicas": {}}}}]
            generation = found["metadata"].get("generation", 1) + 1
            new = {**new, "metadata": {**new["metadata"], "generation": generation, "managedFields": owners}}
            for check in self.checks:
                check("scale", new)
        if self._is_gone(target, found, new):
            return new
        return self.put(target, new, silent="/configmaps/" in target or "/resourceclaims/" in target)

    def _is_gone(self, path: str, found: Object, new: Object) -> bool:
        """Removes a deleted object that has no more finalizers. Returns True if the server has removed the object."""
        before, left = (each["metadata"].get("finalizers") or () for each in (found, new))
        if len(left) < len(before):
            for check in self.checks:
                check("finalizers", new)
        gone = "deletionTimestamp" in new["metadata"] and len(left) < len(before) and not left
        if gone:
            self.remove(path)
        return gone

    def _create(self, where: str, body: Object) -> Object:
        if where.endswith("/eviction"):
            return self._evict(where.removesuffix("/eviction"), body)
        if where.endswith("/binding"):
            return self._bind(where.removesuffix("/binding"), body)
        if where.endswith("/events"):
            self._event(body)
            return body
        path = f"{where}/{body['metadata']['name']}"
        if path in self.objects:
            raise StatusError(409, f"{path} already exists")
        return self.put(path, body)

    def _event(self, body: Object) -> None:
        self.world.see(f"event: {body['reason']}")
        about = body["regarding"]
        named = "/".join(filter(None, (about.get("namespace"), about["name"])))
        self.world.say("event", f"{body['reason']} {named}: {body['note'][:110]}")

    def _evict(self, where: str, body: Object) -> Object:
        pod = self._pod(where, body["deleteOptions"])
        metadata = pod["metadata"]
        if "deletionTimestamp" not in metadata and self.has_budget(pod):
            raise StatusError(
                429, "Cannot evict pod as it would violate the pod's disruption budget.", "DisruptionBudget"
            )
        for check in self.checks:
            check("evict", pod)
        self.delete_pod(pod, body["deleteOptions"].get("gracePeriodSeconds"))
        return {"kind": "Status", "status": "Success"}

    def has_budget(self, pod: Object) -> bool:
        """Returns True if a PodDisruptionBudget refuses evictions of the pod."""
        return self.budgets.get((pod["metadata"]["namespace"], _app(pod)), False)

    def _delete(self, where: str, body: Object) -> Object:
        pod = self._pod(where, body)
        for check in self.checks:
            check("evict", pod)
        self.delete_pod(pod, body.get("gracePeriodSeconds"))
        return pod

    def _pod(self, where: str, options: Object) -> Object:
        pod = self.pods.get(_pod_key(where))
        if pod is None:
            raise StatusError(404, f"{where} not found")
        if options.get("preconditions", {}).get("uid", pod["metadata"]["uid"]) != pod["metadata"]["uid"]:
            raise StatusError(409, "the UID in the precondition does not match the UID in record")
        return pod

    def delete_pod(self, pod: Object, grace_seconds: int | None = None) -> None:
        """Marks a pod as terminating; the kubelet ends the pod later. The server deletes a pod without a node at
        once."""
        metadata = pod["metadata"]
        if not pod["spec"].get("nodeName"):
            self.remove_pod((metadata["namespace"], metadata["name"]))
            return
        grace = pod["spec"].get("terminationGracePeriodSeconds", 30) if grace_seconds is None else grace_seconds
        gone_by = (self.time() + timedelta(seconds=grace)).strftime("%Y-%m-%dT%H:%M:%SZ")
        if metadata.get("deletionTimestamp", "9") > gone_by:
            new = {**metadata, "deletionTimestamp": gone_by, "deletionGracePeriodSeconds": grace}
            self.put_pod({**pod, "metadata": new})

    def _bind(self, where: str, body: Object) -> Object:
        pod = self.pods.get(_pod_key(where))
        if pod is None:
            raise StatusError(404, f"{where} not found")
        metadata = pod["metadata"]
        if body["metadata"].get("uid", metadata["uid"]) != metadata["uid"]:
            raise StatusError(409, "the UID in the precondition does not match the UID in record")
        if pod["spec"].get("nodeName") or "deletionTimestamp" in metadata:
            raise StatusError(409, f"pod {metadata['name']} is already assigned to a node, or is being deleted")
        annotations = {**(metadata.get("annotations") or {}), **(body["metadata"].get("annotations") or {})}
        new = {**pod, "metadata": {**metadata, "annotations": annotations}}
        new["spec"] = {**pod["spec"], "nodeName": body["target"]["name"]}
        for check in self.checks:
            check("bind", new)
        self.put_pod(new)
        return {"kind": "Status", "status": "Success"}


@lru_cache(maxsize=4096)
def _split(path: str) -> tuple[str, tuple[tuple[str, str], ...]]:
    split = urlsplit(path)
    return split.path, tuple(parse_qsl(split.query, keep_blank_values=True))


@lru_cache(maxsize=4096)
def _pod_key(where: str) -> tuple[str, str]:
    parts = where.split("/")
    return parts[-3], parts[-1]


@lru_cache(maxsize=512)
def _selection(parameters: tuple[tuple[str, str], ...]) -> Callable[[Object], bool]:
    """Returns a function that selects objects by their labels and fields. The selectors support only the operators of
    the agents: = and !=.
    """
    terms = [_term(kind, text) for kind, value in parameters for text in value.split(",") if text]
    return lambda item: all(term(item) for term in terms)


def _term(kind: str, text: str) -> Callable[[Object], bool]:
    equal = "!=" not in text
    left, _, wanted = text.partition("=" if equal else "!=")
    if kind == "labelSelector":
        return lambda item: ((item["metadata"].get("labels") or {}).get(left, "") == wanted) is equal
    part, _, key = left.partition(".")
    return lambda item: ((item.get(part) or {}).get(key, "") == wanted) is equal


def _merged(target: Object, patch: Object) -> Object:
    """Merges a patch into an object (RFC 7386). Writes quantities in their canonical form, as the API server does."""
    new = dict(target)
    for key, value in patch.items():
        if value is None:
            new.pop(key, None)
        elif isinstance(value, Mapping):
            new[key] = _merged(target.get(key) or {}, value)
        else:
            new[key] = canonical(whole(value)) if "/gpu" in key and isinstance(value, str) else value
    return new


def _app(pod: Object) -> str:
    return str((pod["metadata"].get("labels") or {}).get("app", ""))
