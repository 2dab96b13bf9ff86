"""The demand gate: on-demand tenants scale 0 to 1 into real slack."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import pulumi
from pydantic import Field, model_validator

from components.agents.exporter import ExporterSpec, telemetry_environment, telemetry_rules
from components.base.agent import DEADLINE_SECONDS, RUN_SECONDS, Agent, cron_job, job_spec
from components.base.identity import Identity, PolicyRule, events_rule
from components.base.journal import journal, journal_rule
from components.base.manifest import Manifest, component_type, register
from components.base.spec import Count, DnsLabel, HttpUrl, Mib, Seconds, Spec, TimeWindow, TimeZone
from components.base.system import ClusterSpec
from components.base.zipapp import Zipapp
from tenancy import names

# A run goes on until the next one is at work, so that a waiting seat is always seen within one interval: a pod starts
# within 2 to 10 seconds of its minute, and of two runs at once one acts (docs/adr/0021).
_OVERLAP_SECONDS = 22
GATE_RUN_SECONDS = RUN_SECONDS + _OVERLAP_SECONDS
GATE_DEADLINE_SECONDS = DEADLINE_SECONDS + _OVERLAP_SECONDS


# What is left of a run whose pod was that slow to start.
_LATE_RUN_SECONDS = 60


def most_samples(*, interval_seconds: int, reading_seconds: int) -> int:
    """How many samples in a row a run is sure to take, each with a reading of its own; the next run starts to count
    again."""
    return _LATE_RUN_SECONDS // max(interval_seconds, reading_seconds)


class HttpJsonDemand(Spec):
    """Demand by an HTTP probe: the number at `field` of a JSON answer, at least `at_least`."""

    url: HttpUrl
    field: str = Field(min_length=1, description="Path in the answer, for instance queue.pending.")
    at_least: Count = 1


class PrometheusDemand(Spec):
    """Demand by a Prometheus query: its single value, at least `at_least`."""

    address: HttpUrl
    query: str = Field(min_length=1)
    at_least: Count = 1


class WindowDemand(Spec):
    """Demand by the clock: always within a window of the day."""

    between: TimeWindow = Field(description='For instance "02:00-06:00"; may cross midnight.')
    time_zone: TimeZone = "Etc/UTC"


class OnDemandSpec(Spec):
    """A workload without a seat, scaled 0 to 1 into real slack by the demand gate. Without a demand signal it is let in
    whenever there is room, and leaves for one that has demand. Where the slack is too small for several, the first by
    name gets it."""

    tenant: DnsLabel
    pool: DnsLabel
    need_mib: Mib = Field(description="Free memory it needs, beyond the pool's floor and margin_mib.")
    gpus: Count = Field(default=1, description="How many nvidia.com/gpu its pods ask for together: the ResourceQuota.")
    margin_mib: Mib = Field(
        default=256, description="Hysteresis: it is let in with so much above the floor, and goes under the floor."
    )
    samples: Count = Field(
        default=3,
        description="Consecutive samples that must agree before anything changes, at most as many as a run takes. "
        "Under pressure two do, for a seat one.",
    )
    idle_seconds: Seconds = Field(
        default=300, description="It goes after so long without demand; a window ends when it ends."
    )
    cool_down_seconds: Seconds = Field(default=300, description="It is not let in again so soon after it went.")
    deployment: DnsLabel | None = Field(default=None, description="The Deployment to scale; default: the key.")
    http_json: HttpJsonDemand | None = None
    prometheus: PrometheusDemand | None = None
    window: WindowDemand | None = None

    @property
    def signals(self) -> Mapping[str, HttpJsonDemand | PrometheusDemand | WindowDemand]:
        """Those that are given, by their key."""
        signals = {"http_json": self.http_json, "prometheus": self.prometheus, "window": self.window}
        return {kind: signal for kind, signal in signals.items() if signal is not None}

    @model_validator(mode="after")
    def _has_at_most_one_demand_signal(self) -> "OnDemandSpec":
        if len(self.signals) > 1:
            raise ValueError(f"takes one demand signal or none, got {', '.join(self.signals)}; remove one")
        return self


class GateSpec(Spec):
    """The agent that lets on-demand tenants in and out."""

    interval_seconds: Seconds = Field(
        default=5, le=15, description="Between samples: so long a seat that waits is not seen to wait."
    )
    armed: bool = Field(default=False, description="false: tells what it would do, and has no right to do it.")
    starting_seconds: Seconds = Field(
        default=300,
        le=86_400,
        description="So long after its start a resident may still load: what is left of its budget is kept for it. "
        "Not less than your slowest model takes.",
    )


@dataclass(frozen=True, kw_only=True)
class GateArgs:
    """`on_demand` are the workloads behind the gate, by name; `exporter` is where it measures."""

    spec: GateSpec
    cluster: ClusterSpec
    code: Zipapp
    exporter: ExporterSpec
    on_demand: Mapping[str, OnDemandSpec]


def gates(on_demand: Mapping[str, OnDemandSpec]) -> list[Manifest]:
    """What the agent reads from GATES; the first gets the slack, and leaves last. The configuration's maps have no
    order."""
    in_order = sorted(on_demand.items(), key=lambda item: (not item[1].signals, item[0]))
    return [
        {
            "name": name,
            "namespace": spec.tenant,
            "deployment": spec.deployment or name,
            "pool": spec.pool,
            "need_mib": spec.need_mib,
            "margin_mib": spec.margin_mib,
            "samples": spec.samples,
            "idle_seconds": spec.idle_seconds,
            "cool_down_seconds": spec.cool_down_seconds,
            "demand": _demand(spec),
        }
        for name, spec in in_order
    ]


def _demand(spec: OnDemandSpec) -> Manifest:
    return next(
        ({"kind": kind, **signal.model_dump()} for kind, signal in spec.signals.items()), {"kind": "free_memory"}
    )


def gate_agent(args: GateArgs) -> Agent:
    """One agent for all gates, so that two workloads are never let into the same slack."""
    namespace = args.cluster.system_namespace
    declared = gates(args.on_demand)
    return Agent(
        program="gate",
        name=names.GATE,
        namespace=namespace,
        cluster=args.cluster,
        code=args.code,
        environment={
            "INTERVAL_SECONDS": str(args.spec.interval_seconds),
            "RUN_SECONDS": str(GATE_RUN_SECONDS),
            **telemetry_environment(namespace, args.exporter),
            "GATES": json.dumps(declared, separators=(",", ":")),
            "STARTING_SECONDS": str(args.spec.starting_seconds),
        },
        rules=(
            *telemetry_rules(namespace),
            PolicyRule(resources=("pods",), verbs=("list",)),
            journal_rule(names.GATE, namespace),
            *(rule for home, owned in _by_namespace(declared).items() for rule in _rules(home, owned, args.spec.armed)),
        ),
        dry_run=not args.spec.armed,
    )


def _by_namespace(declared: list[Manifest]) -> Mapping[str, tuple[str, ...]]:
    """The Deployments behind gates in each namespace."""
    found: dict[str, tuple[str, ...]] = {}
    for gate in declared:
        found[gate["namespace"]] = (*found.get(gate["namespace"], ()), gate["deployment"])
    return found


def _rules(namespace: str, owned: tuple[str, ...], armed: bool) -> Iterator[PolicyRule]:
    """What it must read of a namespace: its own Deployments, and who else scales them. It scales when armed."""
    yield PolicyRule(
        api_groups=("apps",), resources=("deployments",), verbs=("get",), resource_names=owned, namespace=namespace
    )
    if armed:
        yield PolicyRule(
            api_groups=("apps",),
            resources=("deployments/scale",),
            verbs=("patch",),
            resource_names=owned,
            namespace=namespace,
        )
    yield PolicyRule(
        api_groups=("autoscaling",), resources=("horizontalpodautoscalers",), verbs=("list",), namespace=namespace
    )
    yield PolicyRule(api_groups=("keda.sh",), resources=("scaledobjects",), verbs=("list",), namespace=namespace)
    yield events_rule(namespace)


def gate_cron_job(agent: Agent) -> Manifest:
    """Its CronJob, whose runs last into the next minute."""
    declared = cron_job(agent)
    job = job_spec(agent, deadline_seconds=GATE_DEADLINE_SECONDS, retries=0)
    template = {**declared["spec"]["jobTemplate"], "spec": job}
    return {**declared, "spec": {**declared["spec"], "jobTemplate": template}}


class Gate(pulumi.ComponentResource):
    """The gate's CronJob. It has a role in each gate's namespace, so it depends on the tenants."""

    cron_job: pulumi.Output[str]

    def __init__(self, name: str, args: GateArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__(component_type("Gate"), name, {"onDemand": sorted(args.on_demand)}, opts)
        agent = gate_agent(args)
        identity = Identity(f"{name}-identity", agent.identity, pulumi.ResourceOptions(parent=self))
        kept = register(journal(agent), f"{name}-journal", parent=self)
        declared = register(gate_cron_job(agent), f"{name}-cron-job", parent=self, depends_on=[identity, kept])
        self.cron_job = declared.urn.apply(lambda _: agent.name)
        self.register_outputs({"cronJob": self.cron_job})
