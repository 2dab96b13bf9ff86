"""Declares the platform: every part that the settings name, in the order of their dependencies.

The module also defines the outputs of the stack.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pulumi
import yaml

from components.admission.pods import Admission, AdmissionArgs
from components.agents.board import Board, BoardArgs
from components.agents.exporter import Exporter, ExporterArgs
from components.agents.gate import Gate, GateArgs
from components.agents.guard import Guard, GuardArgs
from components.agents.reconcile import Capacity, CapacityArgs
from components.agents.scheduler import Scheduler, SchedulerArgs
from components.agents.watchdog import Watchdog, WatchdogArgs, WatchdogSpec
from components.base import zipapp
from components.base.system import System, SystemArgs
from components.base.zipapp import Zipapp
from components.host_memory import HostMemory, HostMemoryArgs, pod_fragments
from components.kueue import REGISTRY_CHART, Chart, Kueue, KueueArgs
from components.monitoring.args import AlertsArgs, AlertsSpec
from components.monitoring.component import Alerts
from components.priorities import Priorities, PrioritiesArgs
from components.queues.component import LocalQueues, LocalQueuesArgs, Queues, QueuesArgs
from components.queues.spec import QueuesSpec, admissible_by_tenant
from components.readers import Readers, ReadersArgs
from components.tenant import Tenant, TenantArgs
from stacks.problems import key
from stacks.provider import provider
from stacks.settings import StackSettings
from tenancy import names
from tenancy.admission.parts import AdmissionRules
from tenancy.admission.policy import MutatingApi
from tenancy.choices import Mode
from tenancy.drawing.chart import seating_chart
from tenancy.ledger import Ledger
from tenancy.quantity import canonical
from tenancy.reach import COUNTED_RESOURCES, of_device_plugin

# The path, in the project's directory, at which the installer puts the pinned chart. The chart's path must be relative,
# because Pulumi's state contains the path.
PINNED_CHART = Path(".toolchain") / "charts" / "kueue"
# The directory of Kueue's chart in the wheel (toolchain/wheel.py).
_SHIPPED_CHART = Path(__file__).resolve().parents[1] / "charts" / "kueue"


@dataclass(frozen=True, kw_only=True)
class Outputs:
    """The outputs of the stack.

    `ledger` is a configuration of the policy pack and includes the memory pools. `residents` and `memory` have the
    fields that the pods of each workload need. `seating_chart` is text for people.
    """

    ledger: Mapping[str, Any]
    residents: pulumi.Output[Mapping[str, Any]]
    memory: Mapping[str, Any]
    seating_chart: str


@dataclass(frozen=True, kw_only=True)
class PartsParent:
    """The parent of the parts: the stack itself, or a component. The names of all parts begin with `prefix`."""

    parent: pulumi.Resource | None = None
    prefix: str = ""

    def named(self, part: str) -> str:
        return f"{self.prefix}{part}"

    def after(self, *resources: pulumi.Resource) -> pulumi.ResourceOptions:
        return pulumi.ResourceOptions(parent=self.parent, depends_on=list(resources))


IN_THE_STACK = PartsParent()


def build(settings: StackSettings, root: Path = Path(), place: PartsParent = IN_THE_STACK) -> Outputs:
    """Declares every part of the stack. `root` is the project's directory."""
    ledger, code = settings.ledger(), zipapp.build()
    guarded = settings.guarded
    node_code = zipapp.build_for_nodes() if settings.exporter is not None or guarded else None
    system_args = SystemArgs(
        cluster=settings.cluster,
        code=code,
        node_code=node_code,
        has_board=settings.board is not None,
    )
    system = System(place.named("system"), system_args, place.after())
    priorities = []
    if settings.priorities:
        priorities_args = PrioritiesArgs(classes=settings.priorities, provider=provider())
        priorities = [Priorities(place.named("priorities"), priorities_args, place.after())]
    queues = _declare_queues(settings, root, place)
    tenants = _declare_tenants(settings, ledger, queues, place)
    capacity_args = CapacityArgs(
        cluster=settings.cluster, code=code, ledger=ledger, reconcile=settings.reconcile is not None
    )
    capacity = Capacity(place.named("capacity"), capacity_args, place.after(system))
    if settings.queues is not None:
        local_args = LocalQueuesArgs(
            spec=settings.queues,
            tenants=tenants,
            namespace=settings.kueue_namespace or settings.queues.installed_kueue.namespace,
        )
        LocalQueues(place.named("local-queues"), local_args, place.after(*queues))
    if settings.memory_pools:
        host_memory_args = HostMemoryArgs(
            pools=settings.memory_pools,
            namespace=settings.cluster.system_namespace,
            mode=_mode(enforces=settings.enforces()),
            mutating_api=settings.admission.mutating_api if settings.admission else MutatingApi.V1,
        )
        HostMemory(place.named("memory"), host_memory_args, place.after(system, *priorities, *tenants.values()))
    if guarded and node_code is not None:
        Guard(
            place.named("guard"),
            GuardArgs(cluster=settings.cluster, code=node_code, pools=guarded),
            place.after(system),
        )
    if settings.exporter is not None and node_code is not None:
        exporter_args = ExporterArgs(
            cluster=settings.cluster,
            code=node_code,
            ledger=ledger,
            publish_devices=settings.publishes_devices,
        )
        Exporter(place.named("exporter"), exporter_args, place.after(system))
        _declare_readers(settings, ledger, system, tenants, code=code, place=place)
    if settings.readers is not None:
        system_namespace = settings.cluster.system_namespace
        exporters = names.node_agent_namespace(system_namespace) if settings.exporter is not None else None
        readers_args = ReadersArgs(spec=settings.readers, exporters=exporters)
        Readers(place.named("readers"), readers_args, place.after(system))
    if settings.board is not None:
        board_args = BoardArgs(
            spec=settings.board,
            cluster=settings.cluster,
            code=zipapp.build_for_board(),
            frameworks=settings.queues.frameworks if settings.queues else (),
        )
        Board(place.named("board"), board_args, place.after(system))
    schedulers = _declare_scheduler(settings, ledger, capacity, code=code, place=place)
    if settings.admission is not None and ledger.admission is not None:
        # Admission is declared last, because it needs the PriorityClasses, the budgets, the scheduler and the
        # namespaces' labels. Admission does not wait for Kueue or for queue tenants. Queue tenants wait for Kueue.
        unqueued = [tenant for name, tenant in tenants.items() if name not in ledger.queue_tenants]
        args = AdmissionArgs(
            spec=settings.admission,
            rules=AdmissionRules(
                ledger=ledger,
                terms=ledger.admission,
                kueue=settings.kueue_account,
                frameworks=settings.queues.queued_kinds if settings.queues else (),
            ),
            mode=_mode(enforces=settings.enforces(settings.admission)),
        )
        Admission(place.named("admission"), args, place.after(capacity, *schedulers, *priorities, *unqueued))
    ready = [capacity.advertised, *(scheduler.scheduler_name for scheduler in schedulers)]
    stanzas = pod_stanzas(settings, ledger)
    return Outputs(
        ledger=policy_configuration(settings, f"{pulumi.get_project()}/{pulumi.get_stack()}"),
        residents=pulumi.Output.all(*ready).apply(lambda _: stanzas),
        memory={pool: pod_fragments(spec) for pool, spec in settings.memory_pools.items()},
        seating_chart=seating_chart(ledger),
    )


def policy_configuration(settings: StackSettings, stack: str) -> dict[str, Any]:
    """Returns the configuration with which the policy pack judges programs without the ledger."""
    return {
        names.POLICY: {
            "ledger": settings.ledger().to_data(),
            "memory_pools": settings.host_memory().to_data(),
            "stack": stack,
        }
    }


async def declare(settings: StackSettings) -> Mapping[str, Any]:
    """Declares the platform of the project in the current directory, for pulumi.run. Returns the stack's outputs.

    The function sleeps for a moment, so that Pulumi can start to register all resources. After the pause, Pulumi's SDK
    waits for one registration after the other. Without the pause, Pulumi's SDK would wait for all outputs again after
    each resource. With 1,000 tenants, waiting for outputs took a third of a preview's time
    (docs/choosing/benchmarks.md).
    """
    outputs = build(settings)
    await asyncio.sleep(0)
    return vars(outputs)


def watchdog_args(spec: WatchdogSpec, settings: StackSettings, ledger: Ledger, *, code: Zipapp) -> WatchdogArgs:
    """Returns the arguments of the watchdog.

    The watchdog acts for tenants with a seat, or with a queue for gpumem.
    """
    queued = admissible_by_tenant(settings.queues, ledger.names.gpumem) if settings.queues else {}
    measured = {seat.tenant for seat in ledger.seats if not settings.pools[seat.pool].assumed}
    return WatchdogArgs(
        spec=settings.acting(spec),
        cluster=settings.cluster,
        code=code,
        budgeted=[name for name in settings.tenants if ledger.budget_mib(name) or name in queued],
        queued=list(queued),
        frameworks=settings.queues.frameworks if settings.queues else (),
        assumed=[seat.tenant for seat in ledger.seats if seat.tenant not in measured and seat.tenant not in queued],
    )


def pod_stanzas(settings: StackSettings, ledger: Ledger) -> dict[str, dict[str, Any]]:
    """Returns the fields that the pods of each resident need, and the number of pods.

    Each container of a resident also requests nvidia.com/gpu. Without our scheduler, a container requests 1
    nvidia.com/gpu, because the device plugin chooses the device. With our scheduler, a container requests 0
    nvidia.com/gpu. The GPU operator finds pods by a request for 0 nvidia.com/gpu before an upgrade of the driver
    (docs/howto/upgrade-the-driver.md).
    """
    stanzas = resident_stanzas(ledger)
    for seat in ledger.seats:
        stanza = stanzas[seat.name]
        stanza["replicas"] = seat.replicas
        stanza["tolerations"] = [{"key": names.GPU_TAINT, "operator": "Exists"}]
        if ledger.admission is not None:
            stanza["priorityClassName"] = ledger.admission.priority_of(seat.tenant)
        turn = {names.GPU: "1" if settings.scheduler is None else "0"}
        stanza["resources"] = {kind: {**budget, **turn} for kind, budget in stanza["resources"].items()}
    return stanzas


def resident_stanzas(ledger: Ledger) -> dict[str, dict[str, Any]]:
    """Returns the labels, the node selector and the resources of each resident's pods.

    The requests equal the limits, as Kubernetes requires for extended resources.
    """
    pools = {pool.name: pool for pool in ledger.pools}
    stanzas = {}
    for seat in ledger.seats:
        budget = {ledger.names.gpumem: canonical(seat.pod_mib)}
        if seat.devices_per_pod > 1:
            budget[ledger.names.gpu_count] = canonical(seat.devices_per_pod)
        stanzas[seat.name] = {
            "namespace": seat.tenant,
            "pool": seat.pool,
            "labels": {ledger.names.seat_label: seat.name},
            "nodeSelector": dict(pools[seat.pool].node_selector),
            "resources": {"limits": budget, "requests": dict(budget)},
        }
    return stanzas


def kueue_chart(version: str, root: Path) -> Chart:
    """Returns the Helm chart of this version of Kueue.

    Returns the path of a copy of the chart, if the installer or the wheel has a copy of this version. Without a copy,
    returns the address of the chart in Kueue's registry. For a chart in the registry, a preview needs the network.
    """
    copies = {_chart_version(root / path): path for path in (_SHIPPED_CHART, PINNED_CHART)}
    if version in copies:
        return Chart(address=_address(copies[version], root))
    if pinned := next(filter(None, copies), None):
        pulumi.log.warn(
            f"{key('kueue', 'version')}: the chart of {version} comes from {REGISTRY_CHART}; where that cannot be "
            f"reached write {pinned}, which is here"
        )
    return Chart(address=REGISTRY_CHART, version=version)


def _chart_version(chart: Path) -> str | None:
    try:
        description: dict[str, str] = yaml.safe_load((chart / "Chart.yaml").read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    return description.get("version")


def _address(chart: Path, root: Path) -> str:
    """Returns the path of the chart. If the chart is in the project's directory, the path is relative.

    Pulumi's state contains the path of the chart, so the path must be the same on every machine.
    """
    folder = root.resolve()
    inside = chart.relative_to(folder) if chart.is_relative_to(folder) else chart
    return str(inside) if inside.is_absolute() else f"./{inside.as_posix()}"


def _declare_queues(settings: StackSettings, root: Path, place: PartsParent) -> list[pulumi.Resource]:
    """Declares Kueue and its objects. Kueue comes first, because its webhooks judge Kueue's objects."""
    kueue = []
    if settings.kueue is not None:
        chart = kueue_chart(settings.kueue.version, root)
        kueue_args = KueueArgs(
            spec=settings.kueue,
            chart=chart,
            frameworks=settings.queues.frameworks if settings.queues else (),
            manages_all=settings.admission is not None and settings.enforces(settings.admission),
        )
        kueue = [Kueue(place.named("kueue"), kueue_args, place.after())]
    if settings.queues is None:
        return [*kueue]
    selectors = {pool: spec.node_selector for pool, spec in settings.pools.items()}
    args = QueuesArgs(spec=settings.queues, node_selectors=selectors)
    return [Queues(place.named("queues"), args, place.after(*kueue))]


def _declare_tenants(
    settings: StackSettings, ledger: Ledger, queues: Sequence[pulumi.Resource], place: PartsParent
) -> dict[str, Tenant]:
    """Declares the tenants.

    Queue tenants come after the ClusterQueues, so that Kueue's webhooks run when their namespaces get Kueue's label.
    """
    return {
        name: Tenant(place.named(name), args, place.after(*(queues if args.has_queue else ())))
        for name, args in tenant_args(settings, ledger).items()
    }


def tenant_args(settings: StackSettings, ledger: Ledger) -> dict[str, TenantArgs]:
    """Returns the arguments of each tenant, with the amounts of its quota."""
    queue_tenants = set(ledger.queue_tenants)
    queued = admissible_by_tenant(settings.queues, ledger.names.gpumem) if settings.queues else {}
    queued_devices = admissible_by_tenant(settings.queues, ledger.names.gpu_count) if settings.queues else {}
    return {
        name: TenantArgs(
            tenant=name,
            spec=spec,
            names=ledger.names,
            gpumem_mib=ledger.budget_mib(name) + queued.get(name, 0),
            gpu_count=ledger.devices_of(name) + queued_devices.get(name, 0),
            gpus=gpus_of(ledger, settings.queues, name),
            has_queue=name in queue_tenants,
            queue_labels=settings.kueue_namespace_labels,
            observed=not settings.enforces(spec),
        )
        for name, spec in settings.tenants.items()
    }


def gpus_of(ledger: Ledger, queues: QueuesSpec | None, tenant: str) -> dict[str, int]:
    """Returns the maximum of each GPU resource (such as nvidia.com/gpu) that all pods of a tenant may hold together.

    Only a tenant that has a queue or unbudgeted workloads has these maximums. A terminating pod counts in the quota
    until the pod has ended. A Job's new pod therefore waits until the old pod has ended, even if the Job controller
    creates it at once.
    """
    base, queued = ledger.gpus_of(tenant), tenant in ledger.queue_tenants
    if queues is None or not queued:
        return {} if base is None else dict.fromkeys(COUNTED_RESOURCES, base)
    base = ledger.devices_of(tenant) if base is None else base
    quotas = (quota for queue in queues.cluster_queues.values() for quota in queue.quotas.values())
    resources = {resource for quota in quotas for resource in quota if of_device_plugin(resource)}
    counted = resources.union(COUNTED_RESOURCES)
    return {resource: base + admissible_by_tenant(queues, resource).get(tenant, 0) for resource in counted}


def _declare_readers(
    settings: StackSettings,
    ledger: Ledger,
    system: System,
    tenants: Mapping[str, Tenant],
    *,
    code: Zipapp,
    place: PartsParent,
) -> None:
    cluster = settings.cluster
    if settings.watchdog is not None:
        args = watchdog_args(settings.watchdog, settings, ledger, code=code)
        Watchdog(place.named("watchdog"), args, place.after(system, *(tenants[name] for name in args.budgeted)))
    if settings.gate is not None and settings.on_demand:
        gated = {tenants[workload.tenant] for workload in settings.on_demand.values()}
        gate_args = GateArgs(
            spec=settings.acting(settings.gate),
            cluster=cluster,
            code=code,
            on_demand=settings.on_demand,
        )
        Gate(place.named("gate"), gate_args, place.after(system, *gated))
    if settings.alerts is not None:
        Alerts(place.named("alerts"), alerts_args(settings, settings.alerts, ledger), place.after(system))


def alerts_args(settings: StackSettings, spec: AlertsSpec, ledger: Ledger) -> AlertsArgs:
    """Returns the arguments of the alerts, which depend on the parts of the stack."""
    runs = {
        names.RECONCILE: settings.reconcile is not None,
        names.WATCHDOG: settings.watchdog is not None,
        names.GATE: settings.gate is not None and settings.on_demand,
    }
    return AlertsArgs(
        spec=spec,
        cluster=settings.cluster,
        ledger=ledger,
        cron_jobs=[name for name, declared in runs.items() if declared],
        recycles_per_hour=settings.watchdog.evictions_per_hour if settings.watchdog else None,
        places_by_device=settings.scheduler is not None,
        guards=[names.guard(pool.name) for pool in settings.guarded],
        host_memory=settings.host_memory().pools,
        kueue_namespace=settings.kueue_namespace if settings.queues else None,
        kueue_deployment=settings.kueue_deployment,
    )


def _declare_scheduler(
    settings: StackSettings, ledger: Ledger, capacity: Capacity, *, code: Zipapp, place: PartsParent
) -> list[Scheduler]:
    if settings.scheduler is None or settings.exporter is None:
        return []
    args = SchedulerArgs(spec=settings.scheduler, cluster=settings.cluster, code=code, ledger=ledger)
    return [Scheduler(place.named("scheduler"), args, place.after(capacity))]


def _mode(*, enforces: bool) -> Mode:
    return Mode.ENFORCE if enforces else Mode.OBSERVE
