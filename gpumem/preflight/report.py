"""Makes the report of preflight from a survey, and formats the report as text. Pure."""

from collections.abc import Iterator
from dataclasses import dataclass

from gpumem.paper import Paper, text_of_lines
from gpumem.preflight import changes
from gpumem.preflight.declared import Declared
from gpumem.preflight.denials import Denial, Unbudgeted, denials, unbudgeted
from gpumem.preflight.part import Part
from gpumem.preflight.parts import parts
from gpumem.preflight.pods import DryRunner, tried_parts
from gpumem.survey import Survey
from gpumem.users import gpu_users
from tenancy.workload import map_at, value_or


@dataclass(frozen=True, kw_only=True)
class Preflight:
    """The obstacles to a rollout, and the changes that the rollout makes.

    `observed` names the parts of the stack in the mode observe, which deny nothing yet. `evicts` and `scales` list the
    acts of the watchdog and the gate after they begin to enforce. `unknown` lists the facts that could not be read.
    """

    stack: str
    kubernetes: str
    nodes: int
    pods: int
    observed: str
    takes_over: tuple[str, ...]
    creates: tuple[str, ...]
    labels: tuple[str, ...]
    denies: tuple[Denial, ...]
    without_budget: tuple[Unbudgeted, ...]
    evicts: tuple[str, ...]
    scales: tuple[str, ...]
    parts: tuple[Part, ...]
    unknown: tuple[str, ...]

    @property
    def clear(self) -> bool:
        """Returns True if the report has no obstacle to a rollout."""
        return not self.takes_over and not self.denies and not any(part.blocks for part in self.parts)


def preflight(survey: Survey, declared: Declared, runner: DryRunner | None = None) -> Preflight:
    """Returns the report on a stack in a cluster. With `runner`, the API server also judges the stack's pods."""
    gaps = list(survey.gaps)
    ledger = declared.ledger
    denied = denials(survey.pods, declared, survey.handlers, gaps)
    return Preflight(
        stack=declared.stack,
        kubernetes=survey.version,
        nodes=len(survey.nodes),
        pods=len(survey.pods),
        observed=ledger.observed,
        takes_over=changes.taken_over(survey, declared),
        creates=changes.creations(survey, declared),
        labels=changes.added_labels(survey, declared),
        denies=denied,
        without_budget=unbudgeted(gpu_users(survey.pods, ledger.names, []), ledger, survey.nodes, survey.pods),
        evicts=tuple(_evicts(declared)),
        scales=tuple(_scales(survey, declared)),
        parts=(*parts(survey, declared), *(tried_parts(runner, survey, declared) if runner else ())),
        unknown=tuple(gaps),
    )


def _evicts(declared: Declared) -> Iterator[str]:
    if declared.is_watchdog_armed:
        tenants = sorted({seat.tenant for seat in declared.ledger.seats})
        floors = ", ".join(f"{pool.floor_mib} MiB ({pool.name})" for pool in declared.ledger.shared_pools)
        yield f"the watchdog enforces: below a floor of {floors} it evicts pods over budget of {', '.join(tenants)}"


def _scales(survey: Survey, declared: Declared) -> Iterator[str]:
    if not declared.is_gate_armed:
        return
    replicas = {
        (str(each["metadata"]["namespace"]), str(each["metadata"]["name"])): value_or(
            map_at(each, "spec"), "replicas", 1
        )
        for each in survey.deployments
    }
    for namespace, name in declared.gates:
        now = replicas.get((namespace, name))
        if now is None:
            yield f"Deployment {namespace}/{name} is behind a demand gate, and is not there"
        else:
            yield f"Deployment {namespace}/{name} has {now} replicas; its demand gate scales it to 0 or 1"


@text_of_lines
def preflight_text(report: Preflight, paper: Paper) -> Iterator[str]:
    size = f"{report.nodes} nodes, {report.pods} pods"
    yield f"stack {report.stack} on a cluster of Kubernetes {report.kubernetes}: {size}"
    yield from paper.wrapped(report.observed) if report.observed else ()
    for title, rows in (
        (
            f"would deny, if created again{' while the stack enforces' if report.observed else ''}:",
            _denied(report.denies),
        ),
        ("would take over, or fail at:", [(line, "") for line in report.takes_over]),
        ("missing:", [(f"{part.name}: {part.state}: {part.text}", "") for part in report.parts]),
        ("reach a GPU without a budget:", _unbudgeted(report.without_budget)),
        ("would evict:", [(line, "") for line in report.evicts]),
        ("would scale:", [(line, "") for line in report.scales]),
        ("would label:", [(line, "") for line in report.labels]),
        ("would create:", [(", ".join(report.creates), "")] if report.creates else []),
    ):
        if rows:
            yield ""
            yield title
            for line, remedy in rows:
                yield from paper.wrapped(line, "  ")
                yield from paper.wrapped(remedy, "    ") if remedy else ()
    yield ""
    yield from paper.unknown(report.unknown)
    yield "nothing is in the way" if report.clear else _verdict(report)


def _verdict(report: Preflight) -> str:
    blocking = sum(part.blocks for part in report.parts)
    others = f"{len(report.takes_over)} objects of others"
    return f"in the way: {len(report.denies)} denials, {others}, {blocking} missing parts"


def _denied(found: tuple[Denial, ...]) -> list[tuple[str, str]]:
    return [
        (f"{row.kind} {row.namespace}/{row.name} ({row.pods} pods), by {row.policy or 'the API server'}", row.message)
        for row in found
    ]


def _unbudgeted(found: tuple[Unbudgeted, ...]) -> list[tuple[str, str]]:
    return [(f"{row.kind} {row.namespace}/{row.name} ({row.pods} pods): {row.route}", row.remedy) for row in found]
