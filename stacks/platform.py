"""The platform: every part that the settings name, in the order in which each can work, and the stack's outputs."""

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pulumi
import yaml

from components.admission.pods import Admission
from components.agents.exporter import Exporter, ExporterArgs, ExporterSpec
from components.agents.gate import Gate, GateArgs
from components.agents.guard import Guard, GuardArgs
from components.agents.reconcile import Capacity, CapacityArgs
from components.agents.scheduler import Scheduler, SchedulerArgs
from components.agents.watchdog import Watchdog, WatchdogArgs, WatchdogSpec
from components.base import zipapp
from components.base.system import System, SystemArgs
from components.base.zipapp import Zipapp
from components.claims import Claims, ClaimsArgs
from components.claims import resident_stanzas as claim_stanzas
from components.host_memory import HostMemory, HostMemoryArgs, host_memory_pools, pod_fragments
from components.kueue import Chart, Kueue, KueueArgs
from components.monitoring.args import AlertsArgs
from components.monitoring.component import Alerts
from components.priorities import Priorities, PrioritiesArgs
from components.queues import LocalQueues, LocalQueuesArgs, Queues, handed_out
from components.readers import Readers, ReadersArgs
from components.tenant import Tenant, TenantArgs
from stacks.admission import admission_args
from stacks.problems import key
from stacks.references import borrowed_from_elsewhere
from stacks.settings import StackSettings, provider
from tenancy import names
from tenancy.chart import seating_chart
from tenancy.host_memory.pool import HostMemoryPool
from tenancy.ledger import Ledger, PlacementMode
from tenancy.quantity import canonical

# Where the installer puts the pinned chart, in the project's folder. It stays relative: the address is in the state.
PINNED_CHART = Path(".toolchain") / "charts" / "kueue"
# Where the wheel has it (toolchain/wheel.py).
_SHIPPED_CHART = Path(__file__).resolve().parents[1] / "charts" / "kueue"


@dataclass(frozen=True, kw_only=True)
class Outputs:
    """What the stack exports. `ledger` is a configuration of the policy pack, with the memory pools in it; `residents`
    and `memory` are what the pods of each workload must carry; `seating_chart` is for people."""

    ledger: Mapping[str, Any]
    residents: pulumi.Output[Mapping[str, Any]]
    memory: Mapping[str, Any]
    seating_chart: str


@dataclass(frozen=True, kw_only=True)
class Place:
    """Where the parts are declared: in the stack itself, or below a component, whose name theirs then begin with."""

    parent: pulumi.Resource | None = None
    prefix: str = ""

    def named(self, part: str) -> str:
        return f"{self.prefix}{part}"

    def after(self, *resources: pulumi.Resource) -> pulumi.ResourceOptions:
        return pulumi.ResourceOptions(parent=self.parent, depends_on=list(resources))


IN_THE_STACK = Place()


def build(settings: StackSettings, root: Path = Path(), place: Place = IN_THE_STACK) -> Outputs:
    """Declares every part of the stack; `root` is the project's folder."""
    ledger, code = settings.ledger(), zipapp.build()
    guarded = _guarded(settings)
    node_code = zipapp.build_for_nodes() if settings.exporter is not None or guarded else None
    system_args = SystemArgs(
        cluster=settings.cluster, code=code, node_code=node_code, claims_devices=ledger.claimed is not None
    )
    system = System(place.named("system"), system_args, place.after())
    priorities = _declare_priorities(settings, place)
    queues = _declare_queues(settings, root, place)
    tenants = _declare_tenants(settings, ledger, queues, place)
    capacity_args = CapacityArgs(cluster=settings.cluster, code=code, ledger=ledger, reconcile=settings.reconcile)
    capacity = Capacity(place.named("capacity"), capacity_args, place.after(system))
    if settings.queues is not None:
        LocalQueues(
            place.named("local-queues"), LocalQueuesArgs(spec=settings.queues, tenants=tenants), place.after(*queues)
        )
    if settings.memory_pools:
        host_memory_args = HostMemoryArgs(pools=settings.memory_pools, namespace=settings.cluster.system_namespace)
        HostMemory(place.named("memory"), host_memory_args, place.after(system, *priorities, *tenants.values()))
    if guarded and node_code is not None:
        Guard(
            place.named("guard"),
            GuardArgs(cluster=settings.cluster, code=node_code, pools=guarded),
            place.after(system),
        )
    if settings.exporter is not None and node_code is not None:
        exporter_args = ExporterArgs(
            spec=settings.exporter,
            cluster=settings.cluster,
            code=node_code,
            ledger=ledger,
            publish_devices=settings.publishes_devices,
        )
        Exporter(place.named("exporter"), exporter_args, place.after(system))
        _declare_readers(settings, settings.exporter, ledger, system, tenants, code=code, place=place)
    if settings.readers is not None:
        readers_args = ReadersArgs(
            spec=settings.readers,
            system_namespace=settings.cluster.system_namespace,
            measured=settings.exporter is not None,
        )
        Readers(place.named("readers"), readers_args, place.after(system))
    schedulers = _declare_scheduler(settings, ledger, capacity, code=code, place=place)
    if settings.admission is not None:
        # Last: it stamps the classes, asks for budgets that must be there to be had, sends pods to the scheduler, and
        # refuses those of a namespace that is not labelled yet. It does not wait for Kueue, and so not for who queues.
        unqueued = [tenant for name, tenant in tenants.items() if name not in ledger.queue_tenants]
        args = admission_args(settings.admission, settings, ledger)
        Admission(place.named("admission"), args, place.after(capacity, *schedulers, *priorities, *unqueued))
    claimed = _claimed(settings, ledger)
    claims = (
        [Claims(place.named("claims"), ClaimsArgs(ledger=claimed), place.after(*tenants.values()))]
        if claimed.seats
        else []
    )
    ready = [
        capacity.advertised,
        *(scheduler.scheduler_name for scheduler in schedulers),
        *(each.templates for each in claims),
    ]
    stanzas = pod_stanzas(settings, ledger)
    return Outputs(
        ledger={
            names.POLICY: {
                "ledger": ledger.to_data(),
                "memory_pools": host_memory_pools(settings.memory_pools).to_data(),
                "stack": f"{pulumi.get_project()}/{pulumi.get_stack()}",
            }
        },
        residents=pulumi.Output.all(*ready).apply(lambda _: stanzas),
        memory={pool: pod_fragments(spec) for pool, spec in settings.memory_pools.items()},
        seating_chart=seating_chart(ledger),
    )


async def declare(settings: StackSettings) -> Mapping[str, Any]:
    """The platform in the project's folder, and the stack's outputs, for pulumi.run. In the pause every registration
    begins, and the SDK then waits for one after the other. Without it the SDK waits for all outputs of all resources
    at once, anew for each that is there: a third of a preview's time at 1,000 tenants (docs/benchmarks.md)."""
    outputs = build(settings)
    await asyncio.sleep(0)
    return vars(outputs)


def watchdog_args(
    spec: WatchdogSpec, settings: StackSettings, ledger: Ledger, exporter: ExporterSpec, *, code: Zipapp
) -> WatchdogArgs:
    """The watchdog of these tenants: whoever has a seat, or a queue that hands gpumem out."""
    queued = handed_out(settings.queues, ledger.names.gpumem) if settings.queues else {}
    return WatchdogArgs(
        spec=spec,
        cluster=settings.cluster,
        code=code,
        exporter=exporter,
        budgeted=[name for name in settings.tenants if ledger.budget_mib(name) or name in queued],
        queued=list(queued),
    )


def pod_stanzas(settings: StackSettings, ledger: Ledger) -> dict[str, dict[str, Any]]:
    """What the pods of each resident must carry, and how many of them there may be. Where no extender chooses the
    device and the seat is no claim, the device plugin does, of which the container asks a turn."""
    claims = claim_stanzas(_claimed(settings, ledger))
    stanzas = {**resident_stanzas(ledger), **claims}
    for seat in ledger.seats:
        stanza = stanzas[seat.name]
        stanza["replicas"] = seat.replicas
        stanza["tolerations"] = [{"key": names.GPU_TAINT, "operator": "Exists"}]
        if settings.admission is not None:
            priorities = settings.admission.tenant_priorities
            stanza["priorityClassName"] = priorities.get(seat.tenant, settings.admission.gpu_priority)
        if settings.extender is None and seat.name not in claims:
            turn = {names.GPU: "1"}
            stanza["resources"] = {kind: {**budget, **turn} for kind, budget in stanza["resources"].items()}
    return stanzas


def resident_stanzas(ledger: Ledger) -> dict[str, dict[str, Any]]:
    """What the pods of each resident must carry. Requests equal limits: Kubernetes overcommits no extended resource."""
    pools = {pool.name: pool for pool in ledger.pools}
    stanzas = {}
    for seat in ledger.seats:
        budget = {ledger.names.gpumem: canonical(seat.gpumem_mib)}
        stanzas[seat.name] = {
            "namespace": seat.tenant,
            "pool": seat.pool,
            "nodeSelector": dict(pools[seat.pool].node_selector),
            "resources": {"limits": budget, "requests": dict(budget)},
        }
    return stanzas


def kueue_chart(version: str, root: Path) -> Chart:
    """The chart of that version: the copy that the installer pinned or the wheel brought, else the one in Kueue's
    registry.

    Without a cluster only a copy can be previewed: the registry's chart is fetched even then.
    """
    copies = {_chart_version(root / path): path for path in (_SHIPPED_CHART, PINNED_CHART)}
    if version in copies:
        return Chart(address=_address(copies[version], root))
    if pinned := next(filter(None, copies), None):
        pulumi.log.warn(
            f"{key('kueue', 'version')}: the chart of {version} comes from {names.KUEUE_CHART}; where that cannot be "
            f"reached write {pinned}, which is here"
        )
    return Chart(address=names.KUEUE_CHART, version=version)


def _chart_version(chart: Path) -> str | None:
    try:
        description: dict[str, str] = yaml.safe_load((chart / "Chart.yaml").read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    return description.get("version")


def _address(chart: Path, root: Path) -> str:
    """Within the project's folder by the way from there: the address is in the state, and alike on each machine."""
    folder = root.resolve()
    inside = chart.relative_to(folder) if chart.is_relative_to(folder) else chart
    return str(inside) if inside.is_absolute() else f"./{inside.as_posix()}"


def _declare_priorities(settings: StackSettings, place: Place) -> list[Priorities]:
    if not settings.priorities:
        return []
    return [
        Priorities(
            place.named("priorities"), PrioritiesArgs(classes=settings.priorities, provider=provider()), place.after()
        )
    ]


def _declare_queues(settings: StackSettings, root: Path, place: Place) -> list[pulumi.Resource]:
    """Kueue, then its objects, which its webhooks judge."""
    kueue = []
    if settings.kueue is not None:
        chart = kueue_chart(settings.kueue.version, root)
        kueue = [Kueue(place.named("kueue"), KueueArgs(spec=settings.kueue, chart=chart), place.after())]
    if settings.queues is None:
        return [*kueue]
    for warning in borrowed_from_elsewhere({"queues": settings.queues.model_dump(mode="json")}):
        pulumi.log.warn(warning)
    return [Queues(place.named("queues"), settings.queues, place.after(*kueue))]


def _declare_tenants(
    settings: StackSettings, ledger: Ledger, queues: Sequence[pulumi.Resource], place: Place
) -> dict[str, Tenant]:
    """Queue tenants come after the ClusterQueues and so go before them, with their Jobs (components/queues.py)."""
    queue_tenants = set(ledger.queue_tenants)
    queued = handed_out(settings.queues, ledger.names.gpumem) if settings.queues else {}
    queued_devices = handed_out(settings.queues, ledger.names.gpu_count) if settings.queues else {}
    return {
        name: Tenant(
            place.named(name),
            TenantArgs(
                tenant=name,
                spec=spec,
                names=ledger.names,
                gpumem_mib=ledger.budget_mib(name) + queued.get(name, 0),
                gpu_count=ledger.devices_of(name) + queued_devices.get(name, 0),
                gpus=ledger.gpus_of(name),
                has_queue=name in queue_tenants,
            ),
            place.after(*(queues if name in queue_tenants else ())),
        )
        for name, spec in settings.tenants.items()
    }


def _declare_readers(
    settings: StackSettings,
    exporter: ExporterSpec,
    ledger: Ledger,
    system: System,
    tenants: Mapping[str, Tenant],
    *,
    code: Zipapp,
    place: Place,
) -> None:
    """What acts on the exporter's measurements, and the alerts on all of it."""
    cluster = settings.cluster
    if settings.watchdog is not None:
        args = watchdog_args(settings.watchdog, settings, ledger, exporter, code=code)
        Watchdog(place.named("watchdog"), args, place.after(system, *(tenants[name] for name in args.budgeted)))
    if settings.gate is not None and settings.on_demand:
        gated = {tenants[workload.tenant] for workload in settings.on_demand.values()}
        gate_args = GateArgs(
            spec=settings.gate, cluster=cluster, code=code, exporter=exporter, on_demand=settings.on_demand
        )
        Gate(place.named("gate"), gate_args, place.after(system, *gated))
    if settings.alerts is not None:
        alerts_args = AlertsArgs(
            spec=settings.alerts,
            cluster=cluster,
            ledger=ledger,
            cron_jobs=list(_cron_jobs(settings)),
            recycles_per_hour=settings.watchdog.evictions_per_hour if settings.watchdog else None,
            total_recycles_per_hour=settings.watchdog.total_evictions_per_hour if settings.watchdog else None,
            places_by_device=settings.extender is not None,
            advertised=settings.advertises,
            guards=[names.guard(pool.name) for pool in _guarded(settings)],
            host_memory=host_memory_pools(settings.memory_pools).pools,
        )
        Alerts(place.named("alerts"), alerts_args, place.after(system))


def _declare_scheduler(
    settings: StackSettings, ledger: Ledger, capacity: Capacity, *, code: Zipapp, place: Place
) -> list[Scheduler]:
    if settings.extender is None or settings.exporter is None:
        return []
    args = SchedulerArgs(
        spec=settings.extender, cluster=settings.cluster, code=code, ledger=ledger, exporter=settings.exporter
    )
    return [Scheduler(place.named("scheduler"), args, place.after(capacity))]


def _claimed(settings: StackSettings, ledger: Ledger) -> Ledger:
    """With the seats alone that are claims on devices."""
    seats = (seat for seat in ledger.seats if settings.placement_of(settings.pools[seat.pool]) is PlacementMode.DRA)
    return replace(ledger, seats=tuple(seats))


def _guarded(settings: StackSettings) -> tuple[HostMemoryPool, ...]:
    return tuple(pool for pool in host_memory_pools(settings.memory_pools).pools if pool.guard)


def _cron_jobs(settings: StackSettings) -> Iterator[str]:
    """The agents whose runs are watched: those that are declared."""
    if settings.reconcile is not None:
        yield names.RECONCILE
    if settings.watchdog is not None:
        yield names.WATCHDOG
    if settings.gate is not None and settings.on_demand:
        yield names.GATE
