"""Notes printed with a verdict: the ledger it goes by, and objects that the pack does not see."""

from collections.abc import Iterator

from policy.finding import UNREADABLE, folded
from policy.graph import Graph
from policy.rules.foreign import opaque

PREFIX = "gpu-tenancy"


def notes(graph: Graph) -> Iterator[str]:
    """Yields the lines to print; none for a program without Kubernetes objects. The rules refuse what is unreadable."""
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
