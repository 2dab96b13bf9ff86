"""Compares the requests of an agent with the rights of its account."""

from dataclasses import dataclass
from urllib.parse import parse_qs, urlsplit

from tests.support.engine import Graph
from tests.support.given import rights

VERBS = {"GET": "get", "POST": "create", "PATCH": "patch", "PUT": "update", "DELETE": "delete"}


@dataclass(frozen=True)
class Call:
    verb: str
    resource: str
    namespace: str
    name: str


@dataclass(frozen=True)
class Right:
    reach: str
    resource: str
    verb: str
    name: str

    def covers(self, call: Call) -> bool:
        return (
            (self.resource, self.verb) == (call.resource, call.verb)
            and self.reach in ("*", call.namespace)
            and self.name in ("", call.name)
        )


def call(method: str, url: str) -> Call:
    split = urlsplit(url)
    _, root, *parts = split.path.split("/")
    group = "" if root == "api" else parts.pop(0)
    parts.pop(0)  # removes the version
    namespace = ""
    if parts[0] == "namespaces" and len(parts) > 2:
        namespace = parts[1]
        parts = parts[2:]
    resource, name, subresource = (*parts, "", "")[:3]
    verb, query = VERBS[method], parse_qs(split.query)
    if verb == "get" and not name:
        verb = "watch" if "watch" in query else "list"
        # If a field selector names one object, RBAC checks this name (NewFilteringRequestInfo in the API server).
        (selector,) = query.get("fieldSelector", [""])
        name = selector.removeprefix("metadata.name=") if selector.startswith("metadata.name=") else ""
    return Call(verb, f"{group}/{resource}{f'/{subresource}' if subresource else ''}", namespace, name)


def granted(graph: Graph) -> set[Right]:
    return {
        Right(reach, resource, verb, name)
        for reach, resource, verb, listed in rights(graph)
        for name in listed or ("",)
    }
