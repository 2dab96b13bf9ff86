"""What the reader of a verdict must know beside it: by which ledger, and what was not seen."""

from collections.abc import Iterator

from policy.finding import folded
from policy.graph import Graph
from policy.rules.foreign import opaque


def notes(graph: Graph) -> Iterator[str]:
    """The lines that are printed; none for a program that has nothing to do with Kubernetes."""
    if not graph.objects:
        return
    yield f"gpu-tenancy: judged by this ledger: {graph.ledger_source}"
    if unseen := opaque(graph):
        yield (
            f"gpu-tenancy: warning: what {folded(unseen)} will make is not in this program: only its values were "
            "judged. Admission judges its pods; to have them judged here, declare what `helm template` or "
            "`kustomize build` writes with kubernetes.yaml.ConfigGroup"
        )
