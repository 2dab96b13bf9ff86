"""Capacity: the ledger, and the reconcile agent that advertises it on the nodes."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated

import pulumi
from pydantic import Field, ValidationInfo, field_validator

from components.admission import node_status
from components.admission.policy import binding
from components.base.agent import RUN_SECONDS, Agent, cron_job, job_spec
from components.base.identity import Identity, PolicyRule, events_rule
from components.base.journal import journal, journal_rule
from components.base.manifest import Manifest, component_type, register
from components.base.spec import Count, Form, LabelKey, LabelValue, Mib, Seconds, Spec
from components.base.system import ClusterSpec
from components.base.zipapp import Zipapp
from tenancy import names
from tenancy.ledger import DRIVER_RESERVED_MIB, Enforce, Ledger, PlacementMode, Sharing, Source

Version = Annotated[str, Form("a version such as 1.20.1: numbers with dots between them", r"[0-9]+(?:\.[0-9]+){0,3}")]


_DEVICES = names.RESOURCE_API.partition("/")[0]
_READING_SLICES = PolicyRule(api_groups=(_DEVICES,), resources=("resourceslices",), verbs=("list", "watch"))
_READING_CLAIMS = PolicyRule(api_groups=(_DEVICES,), resources=("resourceclaims",), verbs=("list", "watch"))


class PoolSpec(Spec):
    """Nodes chosen by labels whose devices are alike."""

    node_selector: dict[LabelKey, LabelValue] = Field(min_length=1, description="Labels that a node of the pool has.")
    nodes: Count = Field(description="How many nodes the selector is expected to match.")
    device_count: Count = Field(default=1, description="Physical devices on each node.")
    sharing: Sharing = Field(
        default=Sharing.MEMORY, description="memory: budgets in MiB on shared devices; whole: one tenant a device."
    )
    memory_mib: Mib | None = Field(
        default=None, validate_default=True, description="Memory of one device, as the driver reports it."
    )
    reserve_mib: Annotated[int, Field(ge=0, le=2**31)] = Field(
        default=0, description="Kept back on each device: the driver's part, and workloads without a budget."
    )
    driver_reserved_mib: Annotated[int, Field(ge=0, le=2**31)] = Field(
        default=DRIVER_RESERVED_MIB,
        description="Part of the reserve: what driver and firmware keep of each device, `Reserved` of "
        "`nvidia-smi -q -d MEMORY`. A CUDA context is its process', and so in a seat.",
    )
    floor_mib: Annotated[int, Field(ge=0, le=2**31)] = Field(
        default=0, description="Free memory of a device under which the watchdog acts."
    )
    source: Source = Field(
        default=Source.LABELS,
        description="What must show a node's devices before their memory is advertised. labels: those of GPU feature "
        "discovery. slices: ResourceSlices of NVIDIA's DRA driver (gpu.nvidia.com) or of the exporter; each device "
        "counts for what it has. declared: whichever of the two there is, and it must show all that is declared here "
        "(docs/operations.md).",
    )
    placement: PlacementMode | None = Field(
        default=None,
        description="Who places on the pool's nodes, where that is not what scheduler.placement says: for moving from "
        "extender to dra and back node by node, by a pool of each (docs/operations.md).",
    )
    enforce: Enforce = Field(
        default=Enforce.NONE,
        description="driver: NVIDIA's driver refuses a container what is beyond its gpumem; needs R615, container "
        "toolkit 1.20.1 and cgroup v2 on every node of the pool, and no MIG (docs/enforcement.md). none: the watchdog "
        "acts on what was measured.",
    )
    require_cap: bool = Field(
        default=True,
        description="Where the driver enforces: pods with a budget stay off nodes of the pool whose driver cannot.",
    )
    driver_version: Version | None = Field(
        default=None, description="NVIDIA's driver on the pool's nodes, such as 615.71.09; enforce needs 615."
    )
    toolkit_version: Version | None = Field(
        default=None, description="NVIDIA's container toolkit on the pool's nodes, such as 1.20.1, which enforce needs."
    )
    price_per_gib_hour: Annotated[float, Field(ge=0, le=1_000_000, allow_inf_nan=False)] | None = Field(
        default=None,
        description="What kubectl gpumem bill charges for a GiB of the pool for an hour, where memory is shared.",
    )

    @field_validator("memory_mib")
    @classmethod
    def _is_given_where_it_is_shared(cls, memory_mib: int | None, info: ValidationInfo) -> int | None:
        sharing = info.data.get("sharing")
        if sharing is Sharing.MEMORY and memory_mib is None:
            raise ValueError("is missing though sharing is memory; write the device's size, or sharing: whole")
        if sharing is Sharing.WHOLE and memory_mib is not None:
            raise ValueError("has no use where sharing is whole; remove it, or write sharing: memory")
        return memory_mib

    @field_validator("reserve_mib", "driver_reserved_mib", "floor_mib")
    @classmethod
    def _leaves_some_memory(cls, mib: int, info: ValidationInfo) -> int:
        memory_mib = info.data.get("memory_mib")
        if info.data.get("sharing") is Sharing.WHOLE and mib:
            raise ValueError("has no use where sharing is whole; remove it, or write sharing: memory")
        if memory_mib is not None and mib >= memory_mib:
            raise ValueError(f"must be less than memory_mib {memory_mib} (got {mib})")
        return mib

    @field_validator("price_per_gib_hour")
    @classmethod
    def _is_of_shared_memory(cls, price: float | None, info: ValidationInfo) -> float | None:
        if price is not None and info.data.get("sharing") is Sharing.WHOLE:
            raise ValueError("has no use where sharing is whole, whose use nobody measures; remove it")
        return price

    @field_validator("source")
    @classmethod
    def _is_of_what_is_advertised(cls, source: Source, info: ValidationInfo) -> Source:
        if source is not Source.LABELS and info.data.get("sharing") is Sharing.WHOLE:
            raise ValueError("has no use where sharing is whole, of which nothing is advertised; remove it")
        return source

    @field_validator("enforce")
    @classmethod
    def _has_budgets_to_hold(cls, enforce: Enforce, info: ValidationInfo) -> Enforce:
        if enforce is Enforce.DRIVER and info.data.get("sharing") is Sharing.WHOLE:
            raise ValueError("driver has no use where sharing is whole: no container has a budget; remove it")
        return enforce


class ReconcileSpec(Spec):
    """The agent that advertises gpumem and keeps it advertised."""

    interval_seconds: Seconds = Field(
        default=10, le=30, description="Between two looks at the cluster while watches fail; else they tell at once."
    )


@dataclass(frozen=True, kw_only=True)
class CapacityArgs:
    """`reconcile` None: somebody else advertises gpumem, and only the ledger is declared."""

    cluster: ClusterSpec
    code: Zipapp
    ledger: Ledger
    reconcile: ReconcileSpec | None


def ledger_config_map(ledger: Ledger, namespace: str, *, advertised: bool) -> Manifest:
    """The ledger as the agents and the policy pack read it.

    While it is advertised it carries a finalizer: deleted, it stays until reconcile took the capacity off every node.
    The finalizer names the resource domain, so that it is known what to take off whatever the data says.
    """
    metadata: Manifest = {"name": names.LEDGER, "namespace": namespace, "labels": names.labels("capacity")}
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": metadata | ({"finalizers": [ledger.names.capacity_finalizer]} if advertised else {}),
        "data": {names.LEDGER_KEY: _canonical_json(ledger.to_data())},
    }


def reconcile_agent(args: CapacityArgs, spec: ReconcileSpec, *, run_seconds: int) -> Agent:
    """The agent that advertises. It may patch the status of any node: pools are dynamic, and a node that left its pool
    must be cleaned. What it may write there, node_status.py limits."""
    namespace = args.cluster.system_namespace
    return Agent(
        program="reconcile",
        name=names.RECONCILE,
        namespace=namespace,
        cluster=args.cluster,
        code=args.code,
        environment={"INTERVAL_SECONDS": str(spec.interval_seconds), "RUN_SECONDS": str(run_seconds)},
        rules=(
            PolicyRule(
                resources=("configmaps",),
                verbs=("get", "watch", "patch"),
                resource_names=(names.LEDGER,),
                namespace=namespace,
            ),
            journal_rule(names.RECONCILE, namespace),
            PolicyRule(resources=("nodes", "pods"), verbs=("list", "watch")),
            *((_READING_SLICES,) if args.ledger.reads_slices else ()),
            *((_READING_CLAIMS,) if args.ledger.moves else ()),
            PolicyRule(resources=("nodes/status",), verbs=("patch",)),
            events_rule(),
        ),
        dry_run=False,
    )


def advertise_job(agent: Agent, ledger: Manifest) -> Manifest:
    """One run now. A Job's spec is immutable, so another ledger or another pod is another name: a new Job runs.

    It has no ttlSecondsAfterFinished: a Job that is gone would run again on every refresh.
    """
    spec = job_spec(agent, deadline_seconds=120, retries=2)
    digest = hashlib.sha256(_canonical_json([spec, ledger["data"]]).encode()).hexdigest()[:10]
    metadata = agent.metadata | {
        "name": f"{agent.name}-{digest}",
        "annotations": {names.REPLACE_UNREADY: "true"},
    }
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": spec}


def _canonical_json(value: object) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"))


# The ledger's finalizer says which keys are on the nodes. An update would leave them there for good; a replacement has
# reconcile take them off first: for another resource domain, and where reconcile itself is left out.
_RETIRES = ("metadata.finalizers",)
# The old Job goes first. An `up` that failed between the two would leave it to be deleted one day, and an `up` back to
# what was before would meet it under the name of the Job that it makes.
_RUNS_ANEW = ("metadata.name",)


class Capacity(pulumi.ComponentResource):
    """The ledger, and what advertises it. `advertised`, the MiB of each pool, is known to a consumer only when the
    nodes show it: who asks for gpumem takes it or depends on the component."""

    advertised: pulumi.Output[Mapping[str, int]]

    def __init__(self, name: str, args: CapacityArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        pools = {pool.name: pool.advertised_mib for pool in args.ledger.shared_pools}
        super().__init__(component_type("Capacity"), name, {"advertisedMib": pools}, opts)
        if args.reconcile is None:
            ledger = ledger_config_map(args.ledger, args.cluster.system_namespace, advertised=False)
            last = register(ledger, f"{name}-ledger", parent=self, replace_on_changes=_RETIRES)
        else:
            last = self._declare_reconcile(name, args, args.reconcile)
        self.advertised = last.urn.apply(lambda _: pools)
        self.register_outputs({"advertisedMib": self.advertised})

    def _declare_reconcile(self, name: str, args: CapacityArgs, spec: ReconcileSpec) -> pulumi.CustomResource:
        """Guards and journal, then the CronJob, then the ledger, then the Job. Destroyed in reverse: the ledger waits
        for a run of the CronJob, which therefore outlives it, with its roles."""
        namespace, resources = args.cluster.system_namespace, args.ledger.names
        guards = [
            self._declare_guard(f"{name}-reconcile-writes", node_status.reconcile_writes(resources, namespace)),
            self._declare_guard(f"{name}-capacity-writers", node_status.capacity_writers(resources, namespace)),
            self._declare_guard(f"{name}-ledger-writes", node_status.ledger_writes(namespace)),
        ]
        agent = reconcile_agent(args, spec, run_seconds=RUN_SECONDS)
        identity = Identity(f"{name}-reconcile", agent.identity, pulumi.ResourceOptions(parent=self))
        kept = register(journal(agent), f"{name}-journal", parent=self)
        keeper = register(cron_job(agent), f"{name}-cron-job", parent=self, depends_on=[identity, kept, *guards])
        ledger = ledger_config_map(args.ledger, namespace, advertised=True)
        stored = register(
            ledger,
            f"{name}-ledger",
            parent=self,
            depends_on=[keeper],
            replace_on_changes=_RETIRES,
            custom_timeouts=pulumi.CustomTimeouts(delete="5m"),
        )
        return register(
            advertise_job(reconcile_agent(args, spec, run_seconds=0), ledger),
            f"{name}-job",
            parent=self,
            depends_on=[stored],
            replace_on_changes=_RUNS_ANEW,
            custom_timeouts=pulumi.CustomTimeouts(create="5m"),
        )

    def _declare_guard(self, name: str, policy: Manifest) -> pulumi.Resource:
        declared = register(policy, name, parent=self)
        return register(binding(policy), f"{name}-binding", parent=self, depends_on=[declared])
