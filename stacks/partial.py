"""What of a refused configuration can be read all the same, so that a wrong type in one seat hides no other's sum."""

import copy
import json
from collections.abc import Mapping
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from stacks.parts import ENTRIES

Model = TypeVar("Model", bound=BaseModel)

# In the place of the cluster, which promises nothing, and whose domain alone a sum needs.
_CLUSTER = {"resource_domain": "unreadable.invalid", "agent_image": "unreadable:0.0.0"}
_PASSES = 4  # what is left of a map may be too little for it


def without(raw: Mapping[str, Any], error: ValidationError, model: type[Model]) -> Model | None:
    """The model of what is left without the entries of which `error` speaks; None where that is too little. Of a map of
    names the entry that is wrong goes, the others stay."""
    left = copy.deepcopy(dict(raw))
    for _ in range(_PASSES):
        for detail in error.errors(include_url=False, include_context=False, include_input=False):
            _drop(left, detail["loc"])
        try:
            return model.model_validate_json(json.dumps(left))
        except ValidationError as again:
            error = again
    return None


def _drop(left: dict[str, Any], path: tuple[str | int, ...]) -> None:
    part = str(path[0]) if path else ""
    if part == "cluster":
        cluster = left.get("cluster")
        domain = cluster.get("resource_domain") if isinstance(cluster, Mapping) else None
        kept = {"resource_domain": domain} if domain is not None and "resource_domain" not in path else {}
        left["cluster"] = _CLUSTER | kept
        return
    *parents, last = path[: ENTRIES.get(part, 1)] or ("",)
    container: Any = left
    for key in parents:
        container = container.get(key) if isinstance(container, dict) else None
    if isinstance(container, dict) and last in container:
        del container[last]
    elif parents:  # what lacks it is wrong
        _drop(left, tuple(parents))
