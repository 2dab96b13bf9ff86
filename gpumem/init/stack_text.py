"""Formats a proposal as a stack file, in which each number has a comment with its source. Pure."""

import re
import textwrap
from collections.abc import Iterable, Iterator, Sequence

from gpumem import checkout
from gpumem.init.budgets import SeatProposal
from gpumem.init.classes import ClassProposal
from gpumem.init.pools import PoolProposal
from gpumem.init.propose import PrometheusProposal, StackProposal, TenantProposal
from gpumem.init.sourced import SourcedNumber
from gpumem.init.yaml_text import Entry, Item, Map, map_of, rendered
from tenancy.names import PROJECT

AGENT_IMAGE = "docker.io/library/python:3.13.9-slim-bookworm"
SCHEDULER_IMAGE = "registry.k8s.io/kube-scheduler"
_TENANTS = "Namespaces that are there already. They stay, and get a label with their level of Pod Security."
_WIDTH = 117
_RELEASE = re.compile(r"v[0-9]+\.[0-9]+\.[0-9]+")


def stack_text(proposal: StackProposal, folder: str = "") -> str:
    """Returns the text of the stack file, from a cluster or from a folder of manifests.

    Its top names what the preview would refuse, which a person must decide.
    """
    content = document(proposal)
    refusals = checkout.refusals_of_text(rendered(content))
    return rendered(content, list(_head(proposal, refusals, folder)))


def document(proposal: StackProposal) -> Map:
    """Returns the content of the stack file, with its parts in order."""
    parts = [
        _cluster(proposal),
        _mode(),
        _part("pools", (_pool(pool) for pool in proposal.pools), "Devices: nodes with labels in common."),
        _part("tenants", map(_tenant, proposal.tenants), _TENANTS),
        _part("residents", map(_seat, proposal.seats), "Seats: MiB on each device of each replica."),
        _priorities(proposal),
        _admission(proposal),
        *_agents(proposal),
    ]
    return map_of(Entry("config", map_of(*parts)))


def _head(proposal: StackProposal, refusals: Sequence[str], folder: str) -> Iterator[str]:
    yield "yaml-language-server: $schema=docs/config.schema.json"
    yield ""
    nodes = sum(len(pool.nodes) for pool in proposal.pools)
    origin = f"a cluster of Kubernetes {proposal.version} with {nodes} GPU nodes. Nothing in it was changed"
    yield from _wrapped(
        f"Proposed from {f'the manifests in {folder}, which show no node and no card' if folder else origin}. "
        "Each number has its source next to it. A number marked `assumed` is shown by nothing: check it first."
    )
    for title, lines in (
        ("Decide first, because the preview refuses the file as it is:", refusals),
        ("Not in this file:", proposal.misfits),
        ("There already, and not this stack's:", proposal.existing),
        ("PriorityClasses of others:", proposal.classes.others),
        ("Not known:", proposal.unknown),
    ):
        if lines:
            yield ""
            yield title
            for line in lines:
                yield from _wrapped(line, "- ", "  ")


def _wrapped(line: str, first: str = "", rest: str = "") -> list[str]:
    return textwrap.wrap(line, _WIDTH, initial_indent=first, subsequent_indent=rest, break_on_hyphens=False)


def _key(part: str) -> str:
    return f"{PROJECT}:{part}"


def _part(part: str, entries: Iterable[Entry], above: str) -> Entry | None:
    found = tuple(entries)
    return Entry(_key(part), Map(found), above=("", above)) if found else None


def _number(key: str, number: SourcedNumber | None) -> Entry | None:
    return Entry(key, number.value, number.source) if number else None


def _cluster(proposal: StackProposal) -> Entry:
    tolerations = tuple(
        Item(map_of(Entry("key", taint.key), Entry("effect", taint.effect)), "a taint of the GPU nodes")
        for taint in proposal.taints
    )
    prometheus = proposal.prometheus
    return Entry(
        _key("cluster"),
        map_of(
            Entry("resource_domain", proposal.domain, proposal.domain_source),
            Entry("agent_image", AGENT_IMAGE),
            Entry("agent_tolerations", tolerations) if tolerations else None,
            Entry("prometheus", map_of(Entry("namespace", prometheus.namespace)), prometheus.source)
            if prometheus
            else None,
        ),
    )


def _mode() -> Entry:
    return Entry(
        _key("mode"),
        "observe",
        "reports what it would deny, evict, scale or change; enforce once make preflight has no denial",
        above=("",),
    )


def _pool(pool: PoolProposal) -> Entry:
    shown = ", ".join(filter(None, [pool.product, str(pool.division)]))
    return Entry(
        pool.name,
        map_of(
            Entry("node_selector", map_of(*(Entry(key, value) for key, value in sorted(pool.selector.items())))),
            Entry("nodes", len(pool.nodes), _some(pool.nodes)),
            _number("device_count", pool.device_count),
            None if pool.shares_memory else Entry("sharing", "whole"),
            _number("memory_mib", pool.memory_mib),
            _number("reserve_mib", pool.reserve_mib),
            _number("driver_reserved_mib", pool.driver_reserved_mib),
            _number("floor_mib", pool.floor_mib),
            _number("cpus", pool.cpus),
            _number("host_memory_mib", pool.host_memory_mib),
            Entry("assumed", True, "until its numbers are checked: the watchdog evicts no pod of this pool")
            if pool.is_assumed
            else None,
            Entry("source", "slices", "no labels of GPU feature discovery; the exporter publishes the devices")
            if pool.shares_memory and pool.by_slices
            else None,
        ),
        shown,
    )


def _some(nodes: tuple[str, ...], most: int = 3) -> str:
    more = f" and {len(nodes) - most} more" if len(nodes) > most else ""
    return ", ".join(nodes[:most]) + more


def _tenant(tenant: TenantProposal) -> Entry:
    return Entry(
        tenant.name,
        map_of(
            Entry("pod_security", str(tenant.pod_security), tenant.source),
        ),
    )


def _seat(seat: SeatProposal) -> Entry:
    return Entry(
        seat.name,
        map_of(
            Entry("tenant", seat.workload.namespace),
            Entry("pool", seat.pool),
            _number("gpumem_mib", seat.gpumem_mib),
            Entry("replicas", seat.replicas, "its pods now") if seat.replicas > 1 else None,
            Entry("devices_per_pod", seat.devices_per_pod, "GPUs of each pod") if seat.devices_per_pod > 1 else None,
        ),
        f"{seat.workload.kind} {seat.workload.name}",
    )


def _priorities(proposal: StackProposal) -> Entry | None:
    found = {each.name: each for each in (proposal.classes.gpu, *proposal.classes.by_tenant.values())}
    return _part("priorities", map(_class, found.values()), "PriorityClasses.") if proposal.has_admission else None


def _class(found: ClassProposal) -> Entry:
    return Entry(
        found.name,
        map_of(
            _number("value", found.value),
            Entry("create", False, "it stays as it is") if found.exists else None,
            Entry("preemption_policy", "Never") if found.never_preempts else None,
            None if found.exists else Entry("description", found.description),
        ),
    )


def _admission(proposal: StackProposal) -> Entry | None:
    if not proposal.has_admission:
        return None
    own = tuple(
        Entry(tenant, each.name, "its pods have it today") for tenant, each in proposal.classes.by_tenant.items()
    )
    exempt = tuple(Item(namespace, evidence) for namespace, evidence in sorted(proposal.exempt.items()))
    return Entry(
        _key("admission"),
        map_of(
            Entry("gpu_priority", proposal.classes.gpu.name),
            Entry("tenant_priorities", Map(own)) if own else None,
            Entry("exempt_namespaces", exempt) if exempt else None,
        ),
        above=("", "What the API server stamps on pods that reach a GPU, and denies. kube-system is always exempt."),
    )


def _agents(proposal: StackProposal) -> Iterator[Entry]:
    yield Entry(
        _key("reconcile"),
        map_of(),
        above=("", "The agents. The watchdog only observes until you set `armed: true`."),
    )
    yield Entry(_key("exporter"), map_of())
    yield Entry(_key("watchdog"), map_of())
    if proposal.scheduler_for:
        release = _RELEASE.match(proposal.version)
        image = Entry("image", f"{SCHEDULER_IMAGE}:{release[0]}", "the API server's version") if release else None
        yield Entry(_key("scheduler"), map_of(image), proposal.scheduler_for)
    if proposal.prometheus:
        yield _alerts(proposal.prometheus)


def _alerts(prometheus: PrometheusProposal) -> Entry:
    labels = map_of(*(Entry(key, value) for key, value in sorted(prometheus.labels.items())))
    return Entry(_key("alerts"), map_of(Entry("labels", labels, f"chosen by {prometheus.source}")))
