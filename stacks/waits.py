"""Says what a rollout waits for, in the words of the cluster's own Events.

A reason can pass by itself at any moment: a node comes, an image is found. So nothing here ends a rollout.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from agents.kube.errors import Object
from agents.runtime.errors import AgentError
from stacks.cluster import Cluster
from stacks.preview.events import Resource
from tenancy.workload import map_at

# An object that takes longer is worth a word.
PATIENCE_SECONDS = 15
_AGAIN_SECONDS = 60
# The kinds of which a warning says why no pod starts.
_STARTING = frozenset({"DaemonSet", "Deployment", "Job", "Pod", "ReplicaSet"})
_WARNINGS = {"fieldSelector": "type=Warning"}


@dataclass
class Waits:
    """Reads the warnings about the objects for which the rollout waits, and about their pods.

    An Event that is older than the rollout is no reason.
    """

    cluster: Cluster
    _known: set[str] = field(default_factory=set)
    _told: set[tuple[object, ...]] = field(default_factory=set)

    def __post_init__(self) -> None:
        self._known = {_version(each) for each in self.cluster.items("/api/v1/events", **_WARNINGS)}

    def lines(self, unfinished: Iterable[tuple[Resource, float]]) -> Iterator[str]:
        """Yields each reason once, and each minute what is still waited for.

        `unfinished` has the resources on which Pulumi works, and for how many seconds it has done so.
        """
        for resource, seconds in unfinished:
            if seconds < PATIENCE_SECONDS or not (namespace := _of(resource, "namespace")):
                continue
            name = f"{resource.type.rpartition(':')[2]} {namespace}/{_of(resource, 'name')}"
            if minutes := int(seconds // _AGAIN_SECONDS):
                yield from self._once(name, minutes, text=f"  waits for {name}, since {minutes} min")
            for event in self._warnings(namespace, _of(resource, "name")):
                about, reason = event["involvedObject"], event.get("reason")
                which = f"{about['kind']} {namespace}/{about['name']}"
                why = f"  waits for {name}; the cluster says of {which}: {reason}: {event.get('message', '').strip()}"
                yield from self._once(about.get("uid"), reason, text=why)
                yield from self._once(text="    It goes on when this passes. Repair it meanwhile, or end with Ctrl-C.")

    def _warnings(self, namespace: str, name: str) -> list[Object]:
        try:
            events = [*self.cluster.items(f"/api/v1/namespaces/{namespace}/events", **_WARNINGS)]
        except AgentError:  # Pulumi itself reports an API server that does not respond.
            return []
        return [
            each
            for each in events
            if _version(each) not in self._known and _is_about(map_at(each, "involvedObject"), name)
        ]

    def _once(self, *key: object, text: str) -> Iterator[str]:
        if key not in self._told:
            self._told.add(key)
            yield text


def _is_about(found: Object, name: str) -> bool:
    """Returns True for the object with this name, and for its ReplicaSets and pods."""
    return found.get("kind") in _STARTING and f"{found.get('name')}-".startswith(f"{name}-")


def _version(event: Object) -> str:
    return str(event["metadata"].get("resourceVersion"))


def _of(resource: Resource, key: str) -> str:
    """Returns the name or the namespace of an object or of a Helm release."""
    return str(map_at(resource.inputs, "metadata").get(key) or resource.inputs.get(key) or "")
