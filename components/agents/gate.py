"""The demand gate: scales an on-demand workload from 0 to 1 if there is enough headroom, and later back to 0."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar

import pulumi
from pydantic import Field, model_validator

from components.agents.exporter import telemetry_environment, telemetry_rules
from components.base.agent import DEADLINE_SECONDS, RUN_SECONDS, Agent, cron_job, flag
from components.base.identity import Identity, PolicyRule, events_rule
from components.base.journal import journal_config_map, journal_rule
from components.base.manifest import Manifest, component_type, register
from components.base.spec import (
    Count,
    DnsLabel,
    HttpUrl,
    Mib,
    MostCpus,
    MostHostMemory,
    PoolKey,
    Seconds,
    Spec,
    TenantKey,
    TimeWindow,
    TimeZone,
)
from components.base.system import ClusterSpec
from components.base.zipapp import Zipapp
from tenancy import names
from tenancy.ledger import GATE_MARGIN_MIB

# A run ends only after the next run has begun its first pass. Therefore the gate always finds a waiting seat within one
# interval. A pod starts 2 to 10 s after the full minute. While two runs overlap, only one of them acts (docs/adr/0018).
_OVERLAP_SECONDS = 22
GATE_RUN_SECONDS = RUN_SECONDS + _OVERLAP_SECONDS
GATE_DEADLINE_SECONDS = DEADLINE_SECONDS + _OVERLAP_SECONDS
# The time between two samples, and the number of consecutive samples with the same result after which the gate acts.
_INTERVAL_SECONDS = 5
_SAMPLES = 3
# The shortest time before the gate starts a stopped workload again.
_COOL_DOWN_SECONDS = 300


class HttpJsonDemand(Spec):
    """An HTTP probe: there is demand if the number at `field` in the JSON response is at least 1."""

    url: HttpUrl = Field(description="URL that the gate requests.", examples=["http://queue.team-a.svc/status"])
    field: str = Field(min_length=1, description="Path of the number in the JSON response.", examples=["queue.pending"])


class PrometheusDemand(Spec):
    """A Prometheus probe: there is demand if the query's only value is at least 1."""

    address: HttpUrl = Field(description="Address of Prometheus.", examples=["http://prometheus.monitoring.svc:9090"])
    query: str = Field(
        min_length=1,
        description="PromQL query with exactly one value. End the query with `or vector(0)`, so that the query "
        "always has a value.",
        examples=["sum(queue_length) or vector(0)"],
    )


class WindowDemand(Spec):
    """A time window: there is demand between its start and its end on each day."""

    between: TimeWindow = Field(
        description="Start and end of the window, as times of the day. A time window can cross midnight.",
        examples=["02:00-06:00"],
    )
    time_zone: TimeZone = Field(default="Etc/UTC", description="Time zone of the window.", examples=["Europe/Berlin"])


class OnDemandSpec(Spec):
    """A workload without a seat, which the demand gate scales from 0 to 1 if there is enough headroom.

    A workload without a demand signal starts if there is enough headroom. The workload stops if a workload with demand
    needs the memory. If the headroom is enough for only one of several workloads, the workload with the first name
    starts.
    """

    tenant: TenantKey
    pool: PoolKey
    need_mib: Mib = Field(
        description="MiB of headroom that the workload needs to start, in addition to a margin of 256 MiB."
    )
    gpus: Count = Field(
        default=1,
        description="Total nvidia.com/gpu that the workload's pods may request. The tenant's ResourceQuota includes "
        "the workload's gpus.",
    )
    cpus: MostCpus = None
    host_memory_mib: MostHostMemory = None
    idle_seconds: Seconds = Field(
        default=300,
        description="Idle time: the gate stops the workload after this time without demand. At the end of a time "
        "window, the gate stops the workload at once.",
    )
    deployment: DnsLabel | None = Field(
        default=None, description="Name of the Deployment to scale. Default: the workload's key.", examples=["worker"]
    )
    http_json: HttpJsonDemand | None = Field(
        default=None, description="Probe: demand is a number in the JSON response of a service."
    )
    prometheus: PrometheusDemand | None = Field(
        default=None, description="Probe: demand is the value of a Prometheus query."
    )
    window: WindowDemand | None = Field(
        default=None, description="Probe: there is demand within a time window of each day."
    )

    @property
    def signals(self) -> Mapping[str, HttpJsonDemand | PrometheusDemand | WindowDemand]:
        signals = {"http_json": self.http_json, "prometheus": self.prometheus, "window": self.window}
        return {kind: signal for kind, signal in signals.items() if signal is not None}

    @model_validator(mode="after")
    def _has_at_most_one_demand_signal(self) -> "OnDemandSpec":
        if len(self.signals) > 1:
            raise ValueError(f"takes one demand signal or none, got {', '.join(self.signals)}; remove one")
        return self


class GateSpec(Spec):
    """The agent that starts and stops on-demand workloads."""

    needs: ClassVar[Mapping[str, str]] = {"exporter": "the gate acts on what the exporter measures"}

    armed: bool = Field(
        default=False, description="false: the gate only reports its decisions, and has no right to scale workloads."
    )
    starting_seconds: Seconds = Field(
        default=300,
        le=86_400,
        description="Time after a resident's start for which the gate keeps the unused part of its budget free. "
        "Choose at least the loading time of your slowest model.",
    )


@dataclass(frozen=True, kw_only=True)
class GateArgs:
    spec: GateSpec
    cluster: ClusterSpec
    code: Zipapp
    on_demand: Mapping[str, OnDemandSpec]


def gates(on_demand: Mapping[str, OnDemandSpec]) -> list[Manifest]:
    """Returns the on-demand workloads in their order, as the gate reads them from the variable GATES. The gate starts
    the first workload of the list first, and stops it last.

    The workloads are sorted by name, because a map in the stack file has no order. Workloads without a demand signal
    come last in the list.
    """
    in_order = sorted(on_demand.items(), key=lambda item: (not item[1].signals, item[0]))
    return [
        {
            "name": name,
            "namespace": spec.tenant,
            "deployment": spec.deployment or name,
            "pool": spec.pool,
            "need_mib": spec.need_mib,
            "margin_mib": GATE_MARGIN_MIB,
            "samples": _SAMPLES,
            "idle_seconds": spec.idle_seconds,
            "cool_down_seconds": _COOL_DOWN_SECONDS,
            "demand": _demand(spec),
        }
        for name, spec in in_order
    ]


def _demand(spec: OnDemandSpec) -> Manifest:
    return next(
        ({"kind": kind, **signal.model_dump()} for kind, signal in spec.signals.items()), {"kind": "free_memory"}
    )


def gate_agent(args: GateArgs) -> Agent:
    """Returns the agent for all on-demand workloads. Only one agent starts workloads, so that two workloads never use
    the same headroom.
    """
    namespace = args.cluster.system_namespace
    declared = gates(args.on_demand)
    return Agent(
        program="gate",
        name=names.GATE,
        namespace=namespace,
        cluster=args.cluster,
        code=args.code,
        environment={
            "DRY_RUN": flag(not args.spec.armed),
            "INTERVAL_SECONDS": str(_INTERVAL_SECONDS),
            "RUN_SECONDS": str(GATE_RUN_SECONDS),
            **telemetry_environment(namespace),
            "GATES": json.dumps(declared, separators=(",", ":")),
            "STARTING_SECONDS": str(args.spec.starting_seconds),
        },
        rules=(
            *telemetry_rules(namespace),
            PolicyRule("", ("pods",), ("list", "watch")),
            PolicyRule("", ("nodes",), ("watch",)),
            journal_rule(names.GATE, namespace),
            *(rule for home, owned in _by_namespace(declared).items() for rule in _rules(home, owned, args.spec.armed)),
        ),
    )


def _by_namespace(declared: list[Manifest]) -> Mapping[str, tuple[str, ...]]:
    found: dict[str, tuple[str, ...]] = {}
    for gate in declared:
        found[gate["namespace"]] = (*found.get(gate["namespace"], ()), gate["deployment"])
    return found


def _rules(namespace: str, owned: tuple[str, ...], armed: bool) -> Iterator[PolicyRule]:
    """Yields the rights to read the Deployments `owned`, and the HorizontalPodAutoscalers and ScaledObjects in their
    namespace. If the gate enforces (`armed`), it may also scale the Deployments."""
    yield PolicyRule("apps", ("deployments",), ("get",), resource_names=owned, namespace=namespace)
    if armed:
        yield PolicyRule("apps", ("deployments/scale",), ("patch",), resource_names=owned, namespace=namespace)
    yield PolicyRule("autoscaling", ("horizontalpodautoscalers",), ("list",), namespace=namespace)
    yield PolicyRule("keda.sh", ("scaledobjects",), ("list",), namespace=namespace)
    yield events_rule(namespace)


def gate_cron_job(agent: Agent) -> Manifest:
    return cron_job(agent, deadline_seconds=GATE_DEADLINE_SECONDS)


class Gate(pulumi.ComponentResource):
    """The gate's CronJob. The component depends on the tenants, because the gate has roles in the tenants'
    namespaces."""

    def __init__(self, name: str, args: GateArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__(component_type("Gate"), name, {"onDemand": sorted(args.on_demand)}, opts)
        agent = gate_agent(args)
        identity = Identity(f"{name}-identity", agent, pulumi.ResourceOptions(parent=self))
        kept = register(journal_config_map(agent), f"{name}-journal", parent=self)
        register(gate_cron_job(agent), f"{name}-cron-job", parent=self, depends_on=[identity, kept])
        self.register_outputs({})
