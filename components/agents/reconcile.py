"""Capacity: declares the ledger, and the agent reconcile, which advertises the ledger's gpumem on the nodes."""

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
from components.base.journal import journal_config_map, journal_rule
from components.base.manifest import Manifest, component_type, register
from components.base.spec import Count, Cpus, Labels, Mib, MibOrNone, Spec
from components.base.system import ClusterSpec
from components.base.zipapp import Zipapp
from tenancy import names
from tenancy.choices import Enforce, Sharing, Source
from tenancy.ledger import DRIVER_RESERVED_MIB, Ledger

# Settings that only pools with `sharing: memory` may have.
_OF_SHARED_MEMORY = (
    "memory_mib",
    "reserve_mib",
    "driver_reserved_mib",
    "floor_mib",
    "source",
    "enforce",
    "price_per_gib_hour",
    "cpus",
    "host_memory_mib",
)
# The time between two passes while watches on the API server fail. While watches work, each change starts a pass.
_INTERVAL_SECONDS = 10
_READING_SLICES = PolicyRule(names.RESOURCE_GROUP, ("resourceslices",), ("list", "watch"))


class PoolSpec(Spec):
    """Nodes with devices of the same kind, chosen by labels."""

    node_selector: Labels = Field(min_length=1, description="Labels of the pool's nodes.")
    nodes: Count = Field(
        description="Number of nodes that should match node_selector. If least_nodes is set: the maximum number of "
        "matching nodes."
    )
    device_count: Count = Field(default=1, description="Number of physical devices on each node.")
    sharing: Sharing = Field(
        default=Sharing.MEMORY,
        description="memory: pods share devices, with budgets in MiB. whole: each device belongs to one pod at a time.",
    )
    least_nodes: Annotated[int, Field(ge=0, le=100_000)] | None = Field(
        default=None,
        description="Number of nodes that always exist, if the cluster autoscaler adds further nodes on demand. "
        "Valid only for pools with sharing: whole. Default: all.",
        examples=[0],
    )
    memory_mib: Mib | None = Field(
        default=None,
        validate_default=True,
        description="Memory of one device, as the driver reports it.",
        examples=[15360],
    )
    reserve_mib: MibOrNone = Field(
        default=0,
        description="MiB of each device that are promised to nobody. The driver and unbudgeted workloads use the "
        "reserve.",
    )
    driver_reserved_mib: MibOrNone = Field(
        default=DRIVER_RESERVED_MIB,
        description="Part of the reserve that driver and firmware use on each device: `Reserved` in `nvidia-smi -q "
        "-d MEMORY`. A CUDA context is not part of driver_reserved_mib, because the context counts as use of the pod.",
    )
    floor_mib: MibOrNone = Field(default=0, description="Free memory of a device below which the watchdog acts.")
    assumed: bool = Field(
        default=False,
        description="true if a figure of the pool, such as its reserve, is a guess and was not measured. In a pool "
        "with assumed: true, the watchdog only reports, and recycles no pod.",
        examples=[True],
    )
    source: Source = Field(
        default=Source.LABELS,
        description="Source by which reconcile verifies a node's devices before it advertises their memory. With "
        "labels, reconcile reads the labels of GPU feature discovery. With slices, reconcile reads the "
        "ResourceSlices of NVIDIA's DRA driver (gpu.nvidia.com) or of the exporter, with the memory of each "
        "device. With declared, reconcile uses the numbers of the stack file, if the labels or the slices show "
        "every declared device (docs/howto/add-devices.md).",
    )
    enforce: Enforce = Field(
        default=Enforce.NONE,
        description="With driver, NVIDIA's driver refuses allocations of a container beyond its gpumem. With driver, "
        "every node of the pool needs driver R615, container toolkit 1.20.1 and cgroup v2, without MIG. No pod with "
        "a budget is placed on a node with a driver that cannot enforce budgets (docs/concepts/driver-caps.md). "
        "With none, only the watchdog acts against pods over their budget.",
    )
    price_per_gib_hour: Annotated[float, Field(ge=0, le=1_000_000, allow_inf_nan=False)] | None = Field(
        default=None,
        description="Price of one GiB of GPU memory for one hour, for kubectl gpumem bill. Valid only for pools with "
        "sharing: memory.",
        examples=[0.02],
    )

    cpus: Cpus | None = Field(
        default=None,
        description="CPUs of a node for its GPU pods, for instance what is allocatable. With cpus, admission denies a "
        "pod that requests more than its part: its budget's part of the node's GPU memory, or cpus of its workload.",
        examples=[16],
    )
    host_memory_mib: Mib | None = Field(
        default=None,
        description="MiB of a node's host memory for its GPU pods. With host_memory_mib, admission denies a pod that "
        "requests more than its part.",
        examples=[65536],
    )

    @field_validator("least_nodes")
    @classmethod
    def _are_some_of_its_nodes(cls, least: int | None, info: ValidationInfo) -> int | None:
        if least is not None and info.data.get("sharing") is Sharing.MEMORY:
            raise ValueError("is for sharing: whole, because seats need nodes that are always there; remove it")
        if least is not None and least >= (nodes := info.data.get("nodes", least + 1)):
            raise ValueError(f"must be less than nodes {nodes} (got {least})")
        return least

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


@dataclass(frozen=True, kw_only=True)
class CapacityArgs:
    """Holds the arguments. If another program advertises gpumem, `reconcile` is False, and the stack declares only the
    ledger."""

    cluster: ClusterSpec
    code: Zipapp
    ledger: Ledger
    reconcile: bool


def ledger_config_map(ledger: Ledger, namespace: str, *, advertised: bool) -> Manifest:
    """Returns the ConfigMap with the ledger, which the agents and the policy pack read.

    If reconcile advertises the ledger's capacity, the ledger has a finalizer. reconcile removes the finalizer after it
    has removed the capacity from every node. The finalizer's name contains the resource domain, so that reconcile knows
    the capacity keys even if the ledger is unreadable.
    """
    metadata: Manifest = {"name": names.LEDGER, "namespace": namespace, "labels": names.labels("capacity")}
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": metadata | ({"finalizers": [ledger.names.capacity_finalizer]} if advertised else {}),
        "data": {names.LEDGER_KEY: _canonical_json(ledger.to_data())},
    }


def reconcile_agent(args: CapacityArgs, *, run_seconds: int) -> Agent:
    """Returns the agent reconcile. reconcile may patch the status of any node, because a node can leave its pool.

    node_status.py limits the fields that reconcile may write in the status.
    """
    namespace = args.cluster.system_namespace
    return Agent(
        program="reconcile",
        name=names.RECONCILE,
        namespace=namespace,
        cluster=args.cluster,
        code=args.code,
        environment={"INTERVAL_SECONDS": str(_INTERVAL_SECONDS), "RUN_SECONDS": str(run_seconds)},
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
    """Returns a Job that runs reconcile once, at the rollout. A Job's spec is immutable, so a changed ledger or pod
    template needs a Job with another name.

    The Job that runs reconcile at the rollout has no ttlSecondsAfterFinished. If Kubernetes deleted the finished Job,
    Pulumi would create the Job again after every refresh.
    """
    spec = job_spec(agent, deadline_seconds=_ROLLOUT_MINUTES * 60, retries=2)
    digest = hashlib.sha256(_canonical_json([spec, ledger["data"]]).encode()).hexdigest()[:10]
    metadata = agent.metadata | {
        "name": f"{agent.name}-{digest}",
        "annotations": {names.REPLACE_UNREADY: "true"},
    }
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": spec}


def _canonical_json(value: object) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"))


# The ledger's finalizer names the domain of the capacity keys on the nodes. If Pulumi changed the ledger without a
# replacement, the old keys would stay on the nodes. When Pulumi replaces the ledger, reconcile first removes the old
# keys. Pulumi replaces the ledger if the resource domain changes, or if reconcile is removed from the stack.
_RETIRES = ("metadata.finalizers",)
# A rollout waits so long for the pod of its Job, because a node may come for the pod, or its image may be found.
_ROLLOUT_MINUTES = 30
# Pulumi deletes the old Job before it creates the new one. If the old Job stayed after a failed `up`, its name would
# make a later `up` fail.
_RUNS_AGAIN = ("metadata.name",)


class Capacity(pulumi.ComponentResource):
    """The ledger, and the agent that advertises its gpumem.

    `advertised` maps each pool to its advertised capacity in MiB. Pulumi knows the output `advertised` only after the
    nodes show the capacity. Every component that needs gpumem depends on the output `advertised`.
    """

    advertised: pulumi.Output[Mapping[str, int]]

    def __init__(self, name: str, args: CapacityArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        pools = {pool.name: pool.advertised_mib for pool in args.ledger.shared_pools}
        super().__init__(component_type("Capacity"), name, {"advertisedMib": pools}, opts)
        if args.reconcile:
            last = self._declare_reconcile(name, args)
        else:
            namespace = args.cluster.system_namespace
            guard = put_into_force(node_status.ledger_writes(namespace), f"{name}-ledger-writes", parent=self)
            ledger = ledger_config_map(args.ledger, namespace, advertised=False)
            last = register(ledger, f"{name}-ledger", parent=self, depends_on=[guard], replace_on_changes=_RETIRES)
        self.advertised = last.urn.apply(lambda _: pools)
        self.register_outputs({"advertisedMib": self.advertised})

    def _declare_reconcile(self, name: str, args: CapacityArgs) -> pulumi.CustomResource:
        """Declares the policies, the journal, the CronJob, the ledger and the Job, in this order.

        Pulumi deletes the policies, the journal, the CronJob, the ledger and the Job in reverse order. The CronJob must
        exist until a run of reconcile has removed the ledger's finalizer.
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
        agent = reconcile_agent(args, run_seconds=RUN_SECONDS)
        identity = Identity(f"{name}-reconcile", agent, pulumi.ResourceOptions(parent=self))
        kept = register(journal_config_map(agent), f"{name}-journal", parent=self)
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
            advertise_job(reconcile_agent(args, run_seconds=0), ledger),
            f"{name}-job",
            parent=self,
            depends_on=[stored],
            replace_on_changes=_RUNS_AGAIN,
            custom_timeouts=pulumi.CustomTimeouts(create=f"{_ROLLOUT_MINUTES}m"),
        )
