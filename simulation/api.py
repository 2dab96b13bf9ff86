"""An API server: objects by path, versions, conflicts, lists, watches, evictions; and what goes wrong on the way.

Objects are never changed in place: a write puts a new one in the place of the old, so that nobody need copy.
"""

import http.client
import math
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import lru_cache
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from agents.kube.client import ATTEMPTS, Api
from agents.kube.errors import ApiError, refusal, unanswered
from agents.kube.informer import WatchSource
from agents.kube.transport import TIMEOUT_SECONDS, Endpoint
from agents.runtime.clock import Clock
from simulation.world import World
from tenancy.names import PROJECT
from tenancy.quantity import canonical, whole

Object = Mapping[str, Any]
_HISTORY = 4000
PODS, NODES = "/api/v1/pods", "/api/v1/nodes"


class KilledError(BaseException):
    """The process of an agent ends here, in the middle of whatever it does."""


class Refused(Exception):  # noqa: N818 (an answer of the server's, not an error of ours)
    def __init__(self, code: int, message: str, cause: str = "") -> None:
        super().__init__(message)
        self.status = {"code": code, "reason": http.client.responses[code].replace(" ", ""), "message": message}
        if cause:
            self.status["details"] = {"causes": [{"reason": cause}]}


@dataclass
class Network:
    """What happens to requests now; a test or a plan changes it. Probabilities of each request.

    `slow` are seconds that a request takes; the longest count. `refused` are answers to requests whose path holds the
    key, "*" in it is anything: the name of a cause, a status.
    """

    slow: list[float] = field(default_factory=list)
    down: bool = False
    odds: dict[str, float] = field(default_factory=dict)
    refused: dict[str, tuple[str, int]] = field(default_factory=dict)
    lost: dict[str, int] = field(default_factory=dict)
    kill: dict[str, int] = field(default_factory=dict)


@dataclass
class Followed:
    """A subscription, as a watch: what is in the selection comes as it is, what leaves it as DELETED."""

    path: str
    chosen: Callable[[Object], bool]
    tell: Callable[[Object], None]
    within: set[str] = field(default_factory=set)
    ended: bool = False

    def see(self, kind: str, found: Object) -> None:
        key = found["metadata"]["name"] + "/" + found["metadata"].get("namespace", "")
        chosen = kind != "DELETED" and self.chosen(found)
        if not chosen and key not in self.within:
            return
        shown = "DELETED" if not chosen else "MODIFIED" if key in self.within else "ADDED"
        (self.within.add if chosen else self.within.discard)(key)
        self.tell({"type": shown, "object": found})


@dataclass
class Server:
    """`hears` is called with each change: the kubelets, the controllers and the scheduler live on it."""

    world: World
    ahead: float = 0.0  # of the server's clock
    network: Network = field(default_factory=Network)
    objects: dict[str, Object] = field(default_factory=dict)
    pods: dict[tuple[str, str], Object] = field(default_factory=dict)
    nodes: dict[str, Object] = field(default_factory=dict)
    budgets: dict[tuple[str, str], bool] = field(default_factory=dict)  # whether a PDB holds the workload's pods
    hears: list[Callable[[str, Object], None]] = field(default_factory=list)
    checks: list[Callable[[str, Object], None]] = field(default_factory=list)  # told of evictions and bindings
    follows: list[Followed] = field(default_factory=list)
    history: deque[tuple[int, str, str, Object]] = field(default_factory=lambda: deque(maxlen=_HISTORY))
    version: int = 100
    requests: int = 0
    # Lists of this version, by path and selectors: between two changes each is the same.
    _lists: dict[tuple[str, tuple[tuple[str, str], ...]], Object] = field(default_factory=dict)

    # Objects

    def put(self, path: str, found: Object, *, silent: bool = False) -> Object:
        """Writes an object whole, in the name of nobody in particular."""
        new = self._versioned(found)
        collection = path.rpartition("/")[0]
        kind = "MODIFIED" if path in self.objects else "ADDED"
        self.objects[path] = new
        self._changed(collection, kind, new, silent=silent)
        return new

    def put_node(self, found: Object) -> Object:
        name = found["metadata"]["name"]
        kind = "MODIFIED" if name in self.nodes else "ADDED"
        new = self.nodes[name] = self._versioned(found)
        self._changed(NODES, kind, new)
        return new

    def put_pod(self, found: Object) -> Object:
        key = (found["metadata"]["namespace"], found["metadata"]["name"])
        kind = "MODIFIED" if key in self.pods else "ADDED"
        new = self.pods[key] = self._versioned(found)
        self._changed(PODS, kind, new)
        return new

    def remove_pod(self, key: tuple[str, str]) -> None:
        gone = self.pods.pop(key, None)
        if gone is not None:
            self._changed(PODS, "DELETED", self._versioned(gone))

    def remove_node(self, name: str) -> None:
        gone = self.nodes.pop(name, None)
        if gone is not None:
            self._changed(NODES, "DELETED", self._versioned(gone))

    def _versioned(self, found: Object) -> Object:
        self.version += 1
        return {**found, "metadata": {**found["metadata"], "resourceVersion": str(self.version)}}

    def _changed(self, collection: str, kind: str, found: Object, *, silent: bool = False) -> None:
        self.history.append((self.version, collection, kind, found))
        if not silent:
            self.world.stir()
        for follow in [each for each in self.follows if each.path == collection and not each.ended]:
            follow.see(kind, found)
        for hear in self.hears:
            hear(kind, found)

    # Watches

    def follow(self, source: WatchSource, tell: Callable[[Object], None]) -> Followed:
        """From its version on. Raises ApiError 410 where that is too old."""
        version = int(source.resource_version)
        if self.history and self.history[0][0] > version + 1 and len(self.history) == _HISTORY:
            raise refusal(f"WATCH {source.path}", {"code": 410, "reason": "Expired", "message": "too old"})
        chosen = _selection(tuple(sorted(source.parameters.items())))
        follow = Followed(path=source.path, chosen=chosen, tell=tell)
        follow.within = {
            f"{item['metadata']['name']}/{item['metadata'].get('namespace', '')}"
            for item in self._items(source.path)
            if chosen(item)
        }
        self.follows = [each for each in self.follows if not each.ended]
        self.follows.append(follow)
        for at, path, kind, found in self.history:
            if at > version and path == source.path:
                follow.see(kind, found)
        return follow

    def end_watches(self) -> None:
        for follow in self.follows:
            follow.ended = True

    # Requests

    def time(self) -> datetime:
        return self.world.time_of_day(self.ahead).replace(microsecond=0)

    def exchange(self, who: str, method: str, path: str, body: Object | None, timeout: float) -> Object:
        """What a client finds: the answer, an ApiError, or the end of its process."""
        self.requests += 1
        request = f"{method} {path.partition('?')[0]}"
        net = self.network
        self._kill(who, request)
        if net.slow:
            waits = max(net.slow) * (0.5 + self.world.dice.random())
            if waits > timeout:
                self.world.pass_time(timeout)
                self.world.after(waits - timeout, lambda: self._late(method, path, body))
                raise unanswered(request, TimeoutError("timed out"))
            self.world.pass_time(waits)
        if net.down:
            self.world.pass_time(0.05)
            raise unanswered(request, ConnectionRefusedError("connection refused"))
        fate = self._fate(who, request, method) if net.odds or net.refused or net.lost else ""
        try:
            answer = self.handle(method, path, body)
            if fate == "doubled":
                answer = self.handle(method, path, body)
        except Refused as error:
            raise refusal(request, error.status) from None
        if fate == "lost":
            raise unanswered(request, http.client.RemoteDisconnected("closed connection without response"))
        return answer

    def _late(self, method: str, path: str, body: Object | None) -> None:
        try:
            self.handle(method, path, body)
        except Refused:
            self.world.see("api: refused after its client gave up")

    def _kill(self, who: str, request: str) -> None:
        left = self.network.kill.get(who)
        if left is None:
            return
        self.network.kill[who] = left - 1
        if not left:
            del self.network.kill[who]
            self.world.say(who, f"is killed before {request}")
            raise KilledError

    def _fate(self, who: str, request: str, method: str) -> str:
        """Raises ApiError for a request that is refused before anything is done."""
        net = self.network
        for part, (cause, code) in net.refused.items():
            if all(piece in request for piece in part.split("*")):
                self.world.see(f"api: {code} {cause}")
                raise refusal(request, Refused(code, cause).status)
        for part, left in [*net.lost.items()]:
            if part in f"{who} {request}" and left:
                net.lost[part] = left - 1
                self.world.say("api", f"the answer to {who}'s {request} is lost")
                self.world.see("api: lost")
                return "lost"
        for fate, odds in net.odds.items():
            if self.world.dice.random() < odds:
                if fate in ("lost", "doubled") and method == "GET":
                    continue
                self.world.see(f"api: {fate}")
                if fate in ("lost", "doubled"):
                    return fate
                if fate == "silent":
                    raise unanswered(request, http.client.RemoteDisconnected("closed connection without response"))
                error = refusal(request, Refused(int(fate), "on order").status)
                error.retry_after_seconds = 1.0 if fate == "429" else None
                raise error
        return ""

    def handle(self, method: str, path: str, body: Object | None) -> Object:
        """What the server does. Raises Refused."""
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
            raise Refused(404, f"{where} not found")
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
            raise Refused(404, f"{where} not found")
        version = body.get("metadata", {}).get("resourceVersion")
        if version is not None and version != found["metadata"]["resourceVersion"]:
            raise Refused(409, "the object has been modified; please apply your changes to the latest version")
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
        return self.put(target, new, silent="/configmaps/" in target or "/resourceclaims/" in target)

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
            raise Refused(409, f"{path} already exists")
        return self.put(path, body)

    def _event(self, body: Object) -> None:
        self.world.see(f"event: {body['reason']}")
        about = body["regarding"]
        named = "/".join(filter(None, (about.get("namespace"), about["name"])))
        self.world.say("event", f"{body['reason']} {named}: {body['note'][:110]}")

    def _evict(self, where: str, body: Object) -> Object:
        pod = self._pod(where, body["deleteOptions"])
        metadata = pod["metadata"]
        if "deletionTimestamp" not in metadata and self.budgets.get((metadata["namespace"], _app(pod))):
            raise Refused(429, "Cannot evict pod as it would violate the pod's disruption budget.", "DisruptionBudget")
        for check in self.checks:
            check("evict", pod)
        self.delete_pod(pod, body["deleteOptions"].get("gracePeriodSeconds"))
        return {"kind": "Status", "status": "Success"}

    def _delete(self, where: str, body: Object) -> Object:
        pod = self._pod(where, body)
        for check in self.checks:
            check("evict", pod)
        self.delete_pod(pod, body.get("gracePeriodSeconds"))
        return pod

    def _pod(self, where: str, options: Object) -> Object:
        pod = self.pods.get(_pod_key(where))
        if pod is None:
            raise Refused(404, f"{where} not found")
        if options.get("preconditions", {}).get("uid", pod["metadata"]["uid"]) != pod["metadata"]["uid"]:
            raise Refused(409, "the UID in the precondition does not match the UID in record")
        return pod

    def delete_pod(self, pod: Object, grace_seconds: int | None = None) -> None:
        """Begins its deletion; the kubelet ends it. One that no node has is gone at once."""
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
            raise Refused(404, f"{where} not found")
        metadata = pod["metadata"]
        if body["metadata"].get("uid", metadata["uid"]) != metadata["uid"]:
            raise Refused(409, "the UID in the precondition does not match the UID in record")
        if pod["spec"].get("nodeName") or "deletionTimestamp" in metadata:
            raise Refused(409, f"pod {metadata['name']} is already assigned to a node, or is being deleted")
        annotations = {**(metadata.get("annotations") or {}), **(body["metadata"].get("annotations") or {})}
        new = {**pod, "metadata": {**metadata, "annotations": annotations}}
        new["spec"] = {**pod["spec"], "nodeName": body["target"]["name"]}
        for check in self.checks:
            check("bind", new)
        self.put_pod(new)
        return {"kind": "Status", "status": "Success"}


@dataclass(frozen=True, kw_only=True)
class SimEndpoint(Endpoint):
    """Who asks which server, and when its process ends."""

    server: Server
    who: str
    deadline: float = math.inf


@dataclass(frozen=True)
class Wire:
    """In the place of Https, for whoever makes one: all that counts of it is how long it waits."""

    endpoint: Endpoint
    timeout_seconds: float = TIMEOUT_SECONDS

    def close(self) -> None:
        pass


class SimApi(Api):
    """The agents' client over a Server, without JSON: its retries and errors are the client's own."""

    def __init__(
        self, endpoint: SimEndpoint, *, clock: Clock, attempts: int = ATTEMPTS, transport: Wire | None = None
    ) -> None:
        wire = transport or Wire(endpoint)
        dice = endpoint.server.world.dice
        super().__init__(endpoint, clock=clock, jitter=dice.random, attempts=attempts, transport=wire)  # type: ignore[arg-type]
        self._server, self._who, self._seconds = endpoint.server, endpoint.who, wire.timeout_seconds
        self._deadline = endpoint.deadline

    def _exchange(self, method: str, path: str, body: Any, content_type: str, most_bytes: int) -> Any:
        if self._server.world.now > self._deadline:
            self._server.world.see("state: a run met its deadline")
            raise KilledError
        try:
            return self._server.exchange(self._who, method, path, body, self._seconds)
        except ApiError as error:
            if error.status is None:
                raise
            self.time = self._server.time()
            raise
        finally:
            if not self._server.network.down:
                self.time = self._server.time()


def client(server: Server, who: str, clock: Clock, deadline: float = math.inf) -> SimApi:
    return SimApi(endpoint(server, who, deadline), clock=clock)


def endpoint(server: Server, who: str, deadline: float = math.inf) -> SimEndpoint:
    nowhere = Path("/nonexistent")
    return SimEndpoint(host="", port=0, token_file=nowhere, ca_file=nowhere, server=server, who=who, deadline=deadline)


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
    """What the selectors among a list's parameters choose: equality and inequality, as the agents use them."""
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
    """RFC 7386, with quantities as the server stores them."""
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
