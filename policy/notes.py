"""Notes that the pack prints: the ledger that it used, and the objects that it cannot judge."""

from collections.abc import Iterator
from contextlib import suppress

from policy import hindrances
from policy.finding import UNREADABLE, first_items
from policy.graph import Graph
from policy.objects import Object
from policy.rules.foreign import opaque
from policy.unknown import is_unknown, unknown, unknowns
from tenancy import names
from tenancy.image import has_digest
from tenancy.workload import containers_of, map_at, pod_template, text_at, texts_at

PREFIX = "gpu-tenancy"
# Components that render other objects. While the input of a rendering component is unknown, its objects are not in the
# graph.
_RENDERERS = {"ConfigFile", "ConfigGroup", "Chart", "Directory"}


def notes(graph: Graph) -> Iterator[str]:
    """Yields the lines to print. A program without Kubernetes objects gets no notes. The rules report an object that
    the pack cannot read, so no note reports this object."""
    if not graph.objects:
        return
    try:
        source, unseen = graph.ledger_source, opaque(graph)
    except UNREADABLE:
        source, unseen = "not known: an object cannot be read", []
    yield f"{PREFIX}: judged by this ledger: {source}"
    if graph.elsewhere:
        left = first_items([str(found) for found in graph.elsewhere])
        yield f"{PREFIX}: warning: not judged, because its provider is of another cluster: {left}"
    if unseen:
        yield (
            f"{PREFIX}: warning: what {first_items(unseen)} will make is not in this program: only its values were "
            "judged. Admission judges its pods; to have them judged here, declare what `helm template` or "
            "`kustomize build` writes with kubernetes.yaml.ConfigGroup"
        )
    for found in graph.objects:
        if hidden := _hidden(found):
            yield (
                f"{PREFIX}: warning: {found}: its objects are not in the graph while {unknown(hidden)}; only admission "
                "judges their pods"
            )
    if images := first_items(sorted({*_agent_images(graph)} - {""})):
        yield (
            f"{PREFIX}: warning: cluster.agent_image: {images} has no digest, and a registry may give its tag to "
            "another image, which every agent would then run; write NAME@sha256:..., with the digest that "
            "docker buildx imagetools inspect prints"
        )
    yield from (f"{PREFIX}: warning: {line}" for line in hindrances.of_seats(graph))
    for found in graph.objects:
        with suppress(*UNREADABLE):
            yield from (f"{PREFIX}: warning: {line}" for line in hindrances.of_object(graph, found))


def _hidden(found: Object) -> str:
    """Returns the unknown key that hides the objects of a list or of a rendering component, or "". The output
    `resources` does not count as a component's input, because it is always partly unknown until the update."""
    if found.kind in _RENDERERS:
        given = {key: value for key, value in found.manifest.items() if key != "resources"}
        return next(unknowns(given), "its input" if is_unknown(found.manifest.get("resources")) else "")
    return "items" if found.kind.endswith("List") and is_unknown(found.manifest.get("items")) else ""


def _agent_images(graph: Graph) -> Iterator[str]:
    """Yields the agents' images without a digest."""
    for found in graph.workloads:
        try:
            for container in containers_of(map_at(pod_template(found.manifest) or {}, "spec")):
                runs_an_agent = any(each.startswith(names.AGENTS_DIRECTORY) for each in texts_at(container, "command"))
                if runs_an_agent and not has_digest(text_at(container, "image")):
                    yield text_at(container, "image")
        except UNREADABLE:
            continue
