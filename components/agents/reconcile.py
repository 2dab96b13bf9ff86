"""Capacity: declares the ledger, and the reconcile agent that advertises the ledger's gpumem on the nodes."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated

import pulumi
from pydantic import Field, ValidationInfo, field_validator

from components.admission import node_status
from components.admission.policy import put_into_force
from components.base.agent import RUN_SECONDS, Agent, cron_job, job_spec
from components.base.identity import Identity, PolicyRule, events_rule
from components.base.journal import journal, journal_rule
from components.base.manifest import Manifest, component_type, register
from components.base.spec import Count, Form, Labels, Mib, MibOrNone, Seconds, Spec
from components.base.system import ClusterSpec
from components.base.zipapp import Zipapp
from tenancy import names
from tenancy.choices import Enforce, Sharing, Source
from tenancy.ledger import DRIVER_RESERVED_MIB, Ledger

Version = Annotated[str, Form("a version such as 1.20.1: numbers with dots between them", r"[0-9]+(?:\.[0-9]+){0,3}")]
# Settings of a pool with shared devices.
_OF_SHARED_MEMORY = (
    "memory_mib",
    "reserve_mib",
    "driver_reserved_mib",
    "floor_mib",
    "source",
    "enforce",
    "price_per_gib_hour",
)
_READING_SLICES = PolicyRule(names.RESOURCE_GROUP, ("resourceslices",), ("list", "watch"))


class PoolSpec(Spec):
    """Nodes with devices of the same kind, chosen by labels."""

    node_selector: Labels = Field(min_length=1, description="Labels of the pool's nodes.")
    nodes: Count = Field(description="Number of nodes that the selector should match.")
    device_count: Count = Field(default=1, description="Physical devices on each node.")
    sharing: Sharing = Field(
        default=Sharing.MEMORY,
        description="memory: budgets in MiB on shared devices. whole: each device belongs to one pod at a time.",
    )
    memory_mib: Mib | None = Field(
        default=None,
        validate_default=True,
        description="Memory of one device, as the driver reports it.",
        examples=[15360],
    )
    reserve_mib: MibOrNone = Field(
        default=0,
        description="Unpromised memory of each device, for the driver and for workloads without a budget.",
    )
    driver_reserved_mib: MibOrNone = Field(
        default=DRIVER_RESERVED_MIB,
        description="Part of the reserve: the memory of each device that driver and firmware keep, `Reserved` in "
        "`nvidia-smi -q -d MEMORY`. A CUDA context belongs to its process, so its seat pays for the context.",
    )
    floor_mib: MibOrNone = Field(default=0, description="Free memory of a device below which the watchdog acts.")
    assumed: bool = Field(
        default=False,
        description="true while a number of the pool is assumed and not measured: an armed watchdog reports there what "
        "it would do, and recycles nobody.",
        examples=[True],
    )
    source: Source = Field(
        default=Source.LABELS,
        description="Proof of a node's devices, without which their memory is not advertised. labels: labels of GPU "
        "feature discovery. slices: ResourceSlices of NVIDIA's DRA driver (gpu.nvidia.com) or of the exporter; each "
        "device counts with its own memory. declared: labels or slices, if they show everything that is declared here "
        "(docs/howto/add-devices.md).",
    )
    enforce: Enforce = Field(
        default=Enforce.NONE,
        description="driver: NVIDIA's driver refuses allocations of a container beyond its gpumem. This needs R615, "
        "container toolkit 1.20.1 and cgroup v2 on every node of the pool, and no MIG (docs/concepts/driver-caps.md). "
        "none: the watchdog acts on measurements.",
    )
    require_cap: bool = Field(
        default=True,
        description="With enforce, true keeps pods with a budget off nodes with a driver that cannot enforce it.",
    )
    driver_version: Version | None = Field(
        default=None,
        description="NVIDIA's driver on the pool's nodes, such as 615.71.09; enforce needs 615.",
        examples=["615.71.09"],
    )
    toolkit_version: Version | None = Field(
        default=None,
        description="NVIDIA's container toolkit on the pool's nodes, such as 1.20.1, which enforce needs.",
        examples=["1.20.1"],
    )
    price_per_gib_hour: Annotated[float, Field(ge=0, le=1_000_000, allow_inf_nan=False)] | None = Field(
        default=None,
        description="Price of a GiB of the pool for an hour, in kubectl gpumem bill. Only for pools that share memory.",
        examples=[0.02],
    )

    @field_validator("memory_mib")
    @classmethod
    def _is_given_where_it_is_shared(cls, memory_mib: int | None, info: ValidationInfo) -> int | None:
        if info.data.get("sharing") is Sharing.MEMORY and memory_mib is None:
            raise ValueError("is missing though sharing is memory; write the device's size, or sharing: whole")
        return memory_mib

    @field_validator("reserve_mib", "driver_reserved_mib", "floor_mib")
    @classmethod
    def _leaves_some_memory(cls, mib: int, info: ValidationInfo) -> int:
        memory_mib = info.data.get("memory_mib")
        if memory_mib is not None and mib >= memory_mib:
            raise ValueError(f"must be less than memory_mib {memory_mib} (got {mib})")
        return mib

    @field_validator(*_OF_SHARED_MEMORY)
    @classmethod
    def _is_of_shared_memory(cls, value: object, info: ValidationInfo) -> object:
        default = cls.model_fields[info.field_name or ""].default
        if info.data.get("sharing") is Sharing.WHOLE and value != default:
            raise ValueError("has no use where sharing is whole; remove it, or write sharing: memory")
        return value


class ReconcileSpec(Spec):
    """The agent that advertises gpumem and keeps it advertised."""

    interval_seconds: Seconds = Field(
        default=10,
        le=30,
        description="Time between two passes while watches fail. Otherwise each change starts a pass.",
    )


@dataclass(frozen=True, kw_only=True)
class CapacityArgs:
    """Holds the arguments. `reconcile` is None if another program advertises gpumem; then the stack declares only the
    ledger."""

    cluster: ClusterSpec
    code: Zipapp
    ledger: Ledger
    reconcile: ReconcileSpec | None


def ledger_config_map(ledger: Ledger, namespace: str, *, advertised: bool) -> Manifest:
    """Returns the ledger as the agents and the policy pack read it.

    If it is advertised, a finalizer keeps it until reconcile has removed the capacity from every node. The finalizer
    names the resource domain, by which reconcile knows the keys even if the data is broken.
    """
    metadata: Manifest = {"name": names.LEDGER, "namespace": namespace, "labels": names.labels("capacity")}
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": metadata | ({"finalizers": [ledger.names.capacity_finalizer]} if advertised else {}),
        "data": {names.LEDGER_KEY: _canonical_json(ledger.to_data())},
    }


def reconcile_agent(args: CapacityArgs, spec: ReconcileSpec, *, run_seconds: int) -> Agent:
    """Returns the reconcile agent. The agent may patch the status of any node, since a node may leave its pool.

    node_status.py limits what it may write there.
    """
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
                "", ("configmaps",), ("get", "watch", "patch"), resource_names=(names.LEDGER,), namespace=namespace
            ),
            journal_rule(names.RECONCILE, namespace),
            PolicyRule("", ("nodes", "pods"), ("list", "watch")),
            *((_READING_SLICES,) if args.ledger.reads_slices else ()),
            PolicyRule("", ("nodes/status",), ("patch",)),
            events_rule(),
        ),
    )


def advertise_job(agent: Agent, ledger: Manifest) -> Manifest:
    """Returns a Job that runs reconcile once, now. A Job's spec is immutable, so another ledger or another pod needs a
    Job of another name.

    It has no ttlSecondsAfterFinished: Pulumi would make a deleted Job again on every refresh.
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


# The ledger's finalizer names the keys that are on the nodes. An update of it would leave the old keys there for good.
# With a replacement reconcile removes them first: for another resource domain, and before reconcile itself goes.
_RETIRES = ("metadata.finalizers",)
# Deletes the old Job before it creates the new one. Otherwise an `up` that fails in between leaves the old Job behind.
# An `up` back to the former state would then make a second Job of the same name.
_RUNS_AGAIN = ("metadata.name",)


class Capacity(pulumi.ComponentResource):
    """The ledger, and the agent that advertises it.

    `advertised`, the MiB of each pool, is known only when the nodes show it. Every consumer of gpumem depends on this.
    """

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
        """Declares policies and journal, the CronJob, the ledger and the Job, in this order.

        They are destroyed in reverse, because the ledger's finalizer waits for a run of the CronJob.
        """
        namespace, resources = args.cluster.system_namespace, args.ledger.names
        guards = [
            put_into_force(policy, f"{name}-{role}", parent=self)
            for role, policy in {
                "reconcile-writes": node_status.reconcile_writes(resources, namespace),
                "capacity-writers": node_status.capacity_writers(resources, namespace),
                "ledger-writes": node_status.ledger_writes(namespace),
            }.items()
        ]
        agent = reconcile_agent(args, spec, run_seconds=RUN_SECONDS)
        identity = Identity(f"{name}-reconcile", agent, pulumi.ResourceOptions(parent=self))
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
            replace_on_changes=_RUNS_AGAIN,
            custom_timeouts=pulumi.CustomTimeouts(create="5m"),
        )
