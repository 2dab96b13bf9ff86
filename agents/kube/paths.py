"""Builds the URL paths of API objects. Only this module makes an ApiPath, and the client accepts no other
type of path.
"""

from typing import NewType
from urllib.parse import quote, urlencode

from agents.runtime.errors import AgentError

ApiPath = NewType("ApiPath", str)

# A path with one of these parts would name a different object.
_NO_NAMES = ("", ".", "..")


class PathError(AgentError):
    """A name cannot be a part of an API path."""


def api_path(group_version: str, *parts: str) -> ApiPath:
    """Returns the path of an object or a collection, for parts such as ("apps/v1", "namespaces", "a", "deployments",
    "b").

    Quotes each part of the path, because a name may come from a tenant. Raises PathError.
    """
    root = "/apis" if "/" in group_version else "/api"
    return below(ApiPath(f"{root}/{group_version}"), *parts)


def below(path: ApiPath, *parts: str) -> ApiPath:
    """Returns the path of an object or a subresource below `path`. Quotes each part. Raises PathError."""
    for part in parts:
        if part in _NO_NAMES or not part.isascii():
            raise PathError(f"{path}: {part[:100]!r} is no name of an object")
    return ApiPath("/".join((path, *(quote(part, safe="") for part in parts))))


def with_query(path: ApiPath, **parameters: str) -> ApiPath:
    """Returns the path with these parameters."""
    return ApiPath(f"{path}?{urlencode(parameters)}")
