"""The rule on identity: a program declares each object of the cluster once."""

from collections.abc import Iterator

from policy.finding import Finding
from policy.graph import Graph
from policy.objects import Object
from policy.rule import Example, an_object, rule
from policy.unknown import is_unknown
from tenancy.workload import ShapeError

_Identity = tuple[str, str, str, str]


@rule(
    "identity",
    Example(
        of=an_object(
            "v1", "ResourceQuota", "seats", "immich", spec={"hard": {"requests.viktorbarzin.me/gpumem": "4800"}}
        ),
        instead="Remove one of the two: whichever Pulumi deletes later, deletes the object of both.",
    ),
)
def identity(graph: Graph) -> Iterator[Finding]:
    """No two resources of a program are the same object of the cluster. A Patch may change an object that the program
    declares."""
    first: dict[_Identity, Object] = {}
    for found in graph.objects:
        named = _identity(found)
        if named is None:
            continue
        before = first.setdefault(named, found)
        if before.urn != found.urn:
            both = " and by ".join(each.urn.rpartition("::")[2] for each in (before, found))
            yield Finding(
                f"{found}: is declared by {both}, so that removing one would delete the object of both; keep one, or "
                "name one otherwise",
                found.urn,
            )


def _identity(found: Object) -> _Identity | None:
    """Returns what two resources can't have in common, or None for a resource that is no object of the cluster, or
    whose name is not known."""
    try:
        name, namespace = found.name, found.namespace
    except ShapeError:
        return None
    is_patch = found.kind.endswith("Patch")
    if is_patch or is_unknown(name) or is_unknown(namespace) or not name or found.is_named_anew:
        return None
    return found.provider, found.qualified_kind, namespace, name
