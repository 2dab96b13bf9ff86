"""What the reader of a verdict must know beside it: by which ledger, and what was not seen."""

from collections.abc import Iterator

from policy.finding import UNREADABLE, folded
from policy.graph import Graph
from policy.rules.foreign import opaque

PREFIX = "gpu-tenancy"


def notes(graph: Graph) -> Iterator[str]:
    """The lines that are printed; none for a program that has nothing to do with Kubernetes. What they cannot read is
    the rules' to refuse."""
    if not graph.objects:
        return
    try:
        source, unseen = graph.ledger_source, opaque(graph)
    except UNREADABLE:
        source, unseen = "not known: an object cannot be read", []
    yield f"{PREFIX}: judged by this ledger: {source}"
    if unseen:
        yield (
            f"{PREFIX}: warning: what {folded(unseen)} will make is not in this program: only its values were "
            "judged. Admission judges its pods; to have them judged here, declare what `helm template` or "
            "`kustomize build` writes with kubernetes.yaml.ConfigGroup"
        )
