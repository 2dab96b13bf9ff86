"""Notes that the pack prints: the ledger that it used, and the objects that it cannot judge."""

from collections.abc import Iterator
from contextlib import suppress

from policy.finding import UNREADABLE, first_items
from policy.graph import Graph, framework_in, queue_of
from policy.objects import Object
from policy.queued import moved_label, uses_gpus
from policy.rules.foreign import opaque
from policy.unknown import is_unknown, unknown, unknowns
from tenancy import names
from tenancy.image import has_digest
from tenancy.ledger import Ledger
from tenancy.quantity import whole
from tenancy.workload import containers_of, map_at, pod_template, text_at, texts_at, value_or

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
    for found in graph.objects:
        with suppress(*UNREADABLE):
            yield from _gated(graph.ledger, found)
            yield from _held_back(graph.ledger, found)


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


def _gated(ledger: Ledger | None, found: Object) -> Iterator[str]:
    """Yields a warning for an on-demand workload that the program declares with replicas. The rules accept an on-demand
    workload with replicas. If the program ignores changes of `replicas`, the engine shows the number that the gate has
    set."""
    if found.qualified_kind != "Deployment.apps":
        return
    gated = {workload.name for workload in ledger.on_demand if workload.tenant == found.namespace} if ledger else ()
    replicas = whole(value_or(map_at(found.manifest, "spec"), "replicas", 0))
    if replicas and not {found.name, found.labels.get(names.LABEL_NAME)}.isdisjoint(gated):
        yield (
            f"{PREFIX}: warning: {found} declares {replicas} replicas, and the demand gate starts it: each rollout "
            "would start it without enough memory; write replicas: 0, with ignore_changes of spec.replicas"
        )


def _held_back(ledger: Ledger | None, found: Object) -> Iterator[str]:
    """Yields a warning for work without GPUs that names no queue in the namespace of a queue tenant. The rule
    `admission` reports work with GPUs."""
    framework = framework_in(ledger, found)
    if ledger is None or ledger.admission is None or "admission" in ledger.observes or framework is None:
        return
    named = queue_of(ledger, found) is not None or found.namespace not in ledger.queue_tenants
    if not named and not uses_gpus(ledger, found, framework):
        give = f"give it the label {names.KUEUE_QUEUE_LABEL}, or declare a LocalQueue there with name: default"
        yield (
            f"{PREFIX}: warning: {found} names no queue, and Kueue holds back all work of {found.namespace}; "
            f"{moved_label(found) or give}"
        )
