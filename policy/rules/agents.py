"""The rule over our agents: they agree with the ledger of the graph and with each other."""

from collections.abc import Iterator, Mapping
from typing import Any

from policy.finding import Finding, each
from policy.graph import Graph
from policy.objects import Object, from_json, text
from policy.rule import Example, rule
from tenancy import names
from tenancy.ledger import Ledger, OnDemand
from tenancy.quantity import QuantityError, whole
from tenancy.workload import at, containers_of, given, maps_at, pod_template

_LEDGER_NAMESPACE = "LEDGER_NAMESPACE"


@rule(
    "agents",
    Example("on_demand.tts.need_mib", 14_000, 2048),
    Example(
        "spec.jobTemplate.spec.template.spec.containers.0.env.2.value",
        "9400",
        "9401",
        of="CronJob gpu-tenancy-system/gpu-vram-watchdog",
    ),
)
def agents(graph: Graph) -> Iterator[Finding]:
    """All agents read the ledger of the graph, and their own numbers fit it."""
    ledger, declared = graph.ledger, graph.ledger_objects
    if ledger is None:
        return
    for on_demand in ledger.on_demand:
        yield from _fits(ledger, on_demand, 0, declared[0].urn if declared else None)
    yield from each(graph.workloads, lambda workload: _agent(graph, ledger, declared, workload))


def _agent(graph: Graph, ledger: Ledger, declared: list[Object], workload: Object) -> Iterator[Finding]:
    environment = environment_of(workload)
    if _LEDGER_NAMESPACE not in environment:
        return
    home = declared[0].namespace if declared else None
    if home is not None and environment[_LEDGER_NAMESPACE] != home:
        yield Finding(
            f"{workload}: reads the ledger in {environment[_LEDGER_NAMESPACE]}, but it is in {home}; "
            f"set {_LEDGER_NAMESPACE}",
            workload.urn,
        )
    if "EXPORTER_PORT" in environment:
        yield from _exporter(graph, workload, environment)
    if "GATES" in environment:
        yield from _gates(ledger, workload, environment)


def environment_of(workload: Object) -> Mapping[str, Any]:
    """The variables with a literal value, of all containers."""
    pod_spec = at(pod_template(workload.manifest) or {}, "spec")
    return {
        text(variable, "name"): variable["value"]
        for container in containers_of(pod_spec)
        for variable in maps_at(container, "env")
        if text(variable, "name") and "value" in variable
    }


def _exporter(graph: Graph, workload: Object, environment: Mapping[str, Any]) -> Iterator[Finding]:
    exporter = graph.named("DaemonSet.apps", names.EXPORTER)
    if exporter is None:
        return
    serves = environment_of(exporter).get("PORT")
    if serves != environment["EXPORTER_PORT"]:
        yield Finding(
            f"{workload}: looks for the exporter at port {environment['EXPORTER_PORT']}, it serves at {serves}; "
            "both take exporter.port",
            workload.urn,
        )
    if environment.get("EXPORTER_NAMESPACE") != exporter.namespace:
        yield Finding(
            f"{workload}: looks for the exporter in {environment.get('EXPORTER_NAMESPACE')}, it is in "
            f"{exporter.namespace}; set EXPORTER_NAMESPACE",
            workload.urn,
        )


def _gates(ledger: Ledger, workload: Object, environment: Mapping[str, Any]) -> Iterator[Finding]:
    """GATES is a JSON list, equal to the ledger's on-demand workloads."""
    try:
        gates = {gate["name"]: gate for gate in from_json(text(environment, "GATES"))}
        margins = {name: whole(given(gate, "margin_mib", 0)) for name, gate in gates.items()}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise QuantityError(f"GATES is no list of gates: {error}") from None
    for gate in gates.values():
        yield from _seated(ledger, gate, workload.urn)
    for on_demand in ledger.on_demand:
        gate = gates.pop(on_demand.name, None)
        stated = None if gate is None else (gate.get("namespace"), gate.get("pool"), gate.get("need_mib"))
        wanted = (on_demand.tenant, on_demand.pool, on_demand.need_mib)
        if stated != wanted:
            yield Finding(
                f"{workload}: GATES says {stated} of {on_demand.name}, the ledger {wanted}; change on_demand."
                f"{on_demand.name}",
                workload.urn,
            )
        elif not any(_fits(ledger, on_demand, 0, None)):  # else it was said of the ledger
            yield from _fits(ledger, on_demand, margins[on_demand.name], workload.urn)
    for name in gates:
        message = f"{workload}: GATES lets {name} in, which the ledger does not know; add on_demand.{name}"
        yield Finding(message, workload.urn)


def _seated(ledger: Ledger, gate: Mapping[str, Any], urn: str) -> Iterator[Finding]:
    """The memory of such a workload would count twice."""
    deployment = gate.get("deployment", gate["name"])
    for seat in ledger.seats_of(str(gate.get("namespace"))):
        if seat.name == deployment:
            yield Finding(
                f"{gate['name']}: lets in {deployment}, which has a seat of {seat.gpumem_mib} MiB; take away "
                f"residents.{seat.name} or on_demand.{gate['name']}",
                urn,
            )


def _fits(ledger: Ledger, on_demand: OnDemand, margin: int, urn: str | None) -> Iterator[Finding]:
    """An empty device must have room for the workload, or its gate never opens."""
    pool, need = ledger.pool(on_demand.pool), on_demand.need_mib
    beside = f" and the margin of {margin}" if margin else ""
    if pool is None or pool.floor_mib >= pool.device_mib:
        return  # said of the pool's numbers
    if need + margin > (most := pool.device_mib - pool.floor_mib):
        to = f".need_mib to {most - margin}" if margin < most else ""
        yield Finding(
            f"{on_demand.name}: needs {need} MiB above the floor of {pool.floor_mib}{beside}, a device of {pool.name} "
            f"offers {pool.device_mib}: its gate would never open; lower on_demand.{on_demand.name}{to}",
            urn,
        )
