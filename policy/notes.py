"""Notes that the pack prints: the ledger that it used, and the objects that it cannot judge."""

from collections.abc import Iterator

from policy.finding import UNREADABLE, first_items
from policy.graph import Graph
from policy.rules.foreign import opaque

PREFIX = "gpu-tenancy"


def notes(graph: Graph) -> Iterator[str]:
    """Yields the lines to print. A program without Kubernetes objects gets no notes. An unreadable object causes no
    note, because the rules report it."""
    if not graph.objects:
        return
    try:
        source, unseen = graph.ledger_source, opaque(graph)
    except UNREADABLE:
        source, unseen = "not known: an object cannot be read", []
    yield f"{PREFIX}: judged by this ledger: {source}"
    if unseen:
        yield (
            f"{PREFIX}: warning: what {first_items(unseen)} will make is not in this program: only its values were "
            "judged. Admission judges its pods; to have them judged here, declare what `helm template` or "
            "`kustomize build` writes with kubernetes.yaml.ConfigGroup"
        )
