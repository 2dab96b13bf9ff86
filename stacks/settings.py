"""Defines the settings of a stack, and checks their types and values. `stackfile.py` reads the file.

The module settings.py checks the types of values, and the keys that refer to other keys. The check reports all errors
of the settings at once, each with the path of its key. The policy pack checks sums, placement, and everything that
concerns several resources.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, TypeVar

import pulumi
from pydantic import Field, ValidationError

from components.admission.pods import AdmissionSpec
from components.agents.board import BoardSpec
from components.agents.exporter import ExporterSpec
from components.agents.gate import GateSpec, OnDemandSpec
from components.agents.reconcile import PoolSpec, ReconcileSpec
from components.agents.scheduler import SchedulerSpec
from components.agents.watchdog import WatchdogSpec
from components.base.spec import DnsLabel, Spec
from components.base.system import ClusterSpec
from components.host_memory import HostMemoryPoolSpec, host_memory_pools, tenants_by_priority
from components.kueue import KueueSpec
from components.monitoring.args import AlertsSpec
from components.priorities import PrioritySpec
from components.queues.quotas import PARTIAL_RESOURCES
from components.queues.spec import InstalledKueueSpec, QueuesSpec
from components.readers import ReadersSpec
from components.tenant import ResidentSpec, TenantSpec, UnbudgetedSpec
from stacks import passed_fields, problems, references, stackfile, taken_names
from tenancy import names
from tenancy.choices import Mode, Sharing, Source
from tenancy.frameworks import FrameworkName
from tenancy.host_memory.pool import HostMemoryPool, HostMemoryPools
from tenancy.ledger import (
    AdmissionTerms,
    Ledger,
    LocalQueue,
    OnDemand,
    Pool,
    QueueQuota,
    Seat,
    Tenant,
    Unbudgeted,
    WorkerCluster,
)
from tenancy.names import EXEMPT_BY_NAME, node_agent_namespace, service_account_user
from tenancy.quantity import whole

Acting = TypeVar("Acting", WatchdogSpec, GateSpec)
_MOST_LINES = 100
_MOST_SHOWN = 60  # the characters of a value in a message


class ConfigError(pulumi.RunError):
    """Raised if the configuration is refused.

    The message of the error has one line for each mistake. Pulumi prints the error without a traceback.
    """


class StackSettings(Spec):
    """One stack.

    Every key of the settings except `cluster` and `pools` may be missing. The stack does not declare a part with a
    missing key.
    """

    mode: Mode = Field(
        default=Mode.ENFORCE,
        description="With observe, the stack only reports what it would deny, evict, scale or change. With enforce, "
        "the stack acts. Some parts of the stack file may have their own mode.",
        examples=["enforce"],
    )
    cluster: ClusterSpec = Field(
        description="The resource domain, the agents' namespace and the agents' image, which all parts use."
    )
    pools: dict[DnsLabel, PoolSpec] = Field(
        default_factory=dict,
        description="Nodes with the same kind of devices, chosen by labels, and the way to share their memory. Only a "
        "manager cluster, which has `queues.clusters`, may have no pool.",
    )
    tenants: dict[DnsLabel, TenantSpec] = Field(
        default_factory=dict, description="Namespaces, and the groups of people that may use each namespace."
    )
    residents: dict[DnsLabel, ResidentSpec] = Field(
        default_factory=dict, description="Workloads that always run, each with its budget of GPU memory in MiB."
    )
    on_demand: dict[DnsLabel, OnDemandSpec] = Field(
        default_factory=dict,
        description="Workloads without a seat. The demand gate starts on-demand workloads while a device has enough "
        "free memory.",
    )
    unbudgeted: dict[DnsLabel, UnbudgetedSpec] = Field(
        default_factory=dict,
        description="Workloads with a measured use and no budget. The reserve covers the use of unbudgeted workloads.",
    )
    priorities: dict[DnsLabel, PrioritySpec] = Field(default_factory=dict, description="PriorityClasses.")
    admission: AdmissionSpec | None = Field(
        default=None, description="Admission policies, which change or deny pods that reach a GPU."
    )
    kueue: KueueSpec | None = Field(
        default=None,
        description="Kueue, installed by its Helm chart. Leave out the part kueue if Kueue is installed already.",
    )
    queues: QueuesSpec | None = Field(
        default=None, description="Kueue's flavors, ClusterQueues, LocalQueues and WorkloadPriorityClasses."
    )
    reconcile: ReconcileSpec | None = Field(default=None, description="The agent that advertises gpumem on the nodes.")
    watchdog: WatchdogSpec | None = Field(
        default=None, description="The agent that recycles pods over their budget when a device is below its floor."
    )
    gate: GateSpec | None = Field(
        default=None, description="The agent that scales on-demand workloads from 0 to 1 and back."
    )
    exporter: ExporterSpec | None = Field(default=None, description="The node agent that measures GPU memory by pod.")
    scheduler: SchedulerSpec | None = Field(
        default=None,
        description="The scheduler that chooses a device for each pod. The pod's containers see only the chosen "
        "device.",
    )
    alerts: AlertsSpec | None = Field(default=None, description="Alerts, the scrapes for the alerts, and a dashboard.")
    readers: ReadersSpec | None = Field(
        default=None, description="Groups of people with the right to use kubectl gpumem, and their ClusterRoles."
    )
    board: BoardSpec | None = Field(
        default=None, description="A read-only web page about GPU memory, for people without kubectl."
    )
    memory_pools: dict[DnsLabel, HostMemoryPoolSpec] = Field(
        default_factory=dict, description="Nodes on which pods are promised more host memory than the nodes have."
    )

    def enforces(self, part: AdmissionSpec | TenantSpec | None = None) -> bool:
        """Returns True if the part enforces, by its own mode or by the mode of the stack."""
        own = part.mode if part is not None else None
        return (own or self.mode) is Mode.ENFORCE

    def acting(self, agent: Acting) -> Acting:
        """Returns the agent's Spec. If the stack is in the mode observe, `armed` is False in the returned Spec."""
        return agent.model_copy(update={"armed": agent.armed and self.enforces()})

    @property
    def observes(self) -> tuple[str, ...]:
        """Returns the names of the keys of all parts in the mode observe."""
        found = ["admission"] if self.admission is not None and not self.enforces(self.admission) else []
        agents = {"watchdog": self.watchdog, "gate": self.gate}
        found += [name for name, agent in agents.items() if agent is not None and not self.enforces()]
        tenants = [f"tenants.{name}" for name, tenant in self.tenants.items() if not self.enforces(tenant)]
        every = ["tenants"] if tenants and len(tenants) == len(self.tenants) else sorted(tenants)
        return (*found, *every, *(["memory_pools"] if self.memory_pools and not self.enforces() else []))

    @property
    def publishes_devices(self) -> bool:
        """Returns True if the exporter publishes each node's devices, because the scheduler or reconcile reads them."""
        return self.scheduler is not None or any(pool.source is not Source.LABELS for pool in self.pools.values())

    @property
    def installed_kueue(self) -> InstalledKueueSpec | None:
        """Returns the existing installation of Kueue that the stack uses, or None."""
        return self.queues.installed_kueue if self.queues and not self.kueue else None

    @property
    def kueue_namespace(self) -> str | None:
        """Returns the namespace of Kueue, or None if the stack has no Kueue."""
        used = self.kueue or self.installed_kueue
        return used.namespace if used else None

    @property
    def kueue_account(self) -> str:
        """Kueue's user name."""
        return service_account_user(self.kueue_namespace or InstalledKueueSpec().namespace, self.kueue_deployment)

    @property
    def kueue_deployment(self) -> str:
        """Returns the name of Kueue's ServiceAccount. Kueue's manifests and its chart name the Deployment alike."""
        return (self.installed_kueue or InstalledKueueSpec()).service_account

    @property
    def kueue_namespace_labels(self) -> Mapping[str, str]:
        """Returns the labels by which an existing Kueue selects the namespaces of queue tenants."""
        return self.installed_kueue.namespace_labels if self.installed_kueue else {}

    def host_memory(self) -> HostMemoryPools:
        return host_memory_pools(self.memory_pools)

    @property
    def guarded(self) -> tuple[HostMemoryPool, ...]:
        """Returns the memory pools with a guard.

        The guard has no mode in which it only reports. Therefore a stack in the mode observe has no guard.
        """
        return self.host_memory().pools if self.enforces() else ()

    @property
    def workloads(self) -> tuple[str, ...]:
        """Returns the names of the CronJobs, Deployments and DaemonSets of the parts."""
        parts = {
            names.RECONCILE: self.reconcile,
            names.WATCHDOG: self.watchdog,
            names.GATE: self.gate,
            names.SCHEDULER: self.scheduler,
            names.EXPORTER: self.exporter,
            names.BOARD: self.board,
            names.KUEUE: self.kueue,
        }
        declared = [name for name, part in parts.items() if part is not None]
        return (*declared, *(names.guard(pool.name) for pool in self.guarded))

    def ledger(self) -> Ledger:
        """Returns the ledger of these settings, sorted by name.

        The function sorts the ledger, because Pulumi's engine changes the order of maps in a configuration.
        """
        queues = self.queues
        return Ledger(
            domain=self.cluster.resource_domain,
            pools=_entries(Pool, self.pools),
            seats=_entries(Seat, self.residents),
            on_demand=_entries(OnDemand, self.on_demand),
            unbudgeted=_entries(Unbudgeted, self.unbudgeted),
            quotas=_quotas(queues) if queues else (),
            clusters=tuple(
                WorkerCluster(name=name, promises=dict(sorted(cluster.promises.items())))
                for name, cluster in sorted(queues.clusters.items() if queues else ())
            ),
            queue_tenants=tuple(sorted({q.tenant for q in queues.local_queues.values()})) if queues else (),
            tenants=tuple(
                replace(tenant, observed=not self.enforces(self.tenants[tenant.name]))
                for tenant in _entries(Tenant, self.tenants)
            ),
            exempt_namespaces=_exempt(self.admission, self.cluster),
            local_queues=tuple(
                LocalQueue(name=q.name or n, tenant=q.tenant, queue=q.cluster_queue)
                for n, q in sorted(queues.local_queues.items() if queues else ())
            ),
            frameworks=tuple(sorted(queues.frameworks)) if queues else (FrameworkName.JOB,),
            workload_priorities={n: p.value for n, p in sorted(queues.workload_priorities.items())} if queues else {},
            priority_tenants={
                n: tuple(sorted(p.tenants))
                for n, p in sorted(queues.workload_priorities.items() if queues else ())
                if p.tenants is not None
            },
            admission=_terms(self, self.admission) if self.admission else None,
            observes=self.observes,
            workloads=self.workloads,
        )


def specs() -> dict[str, type[Spec]]:
    """Returns the Spec of each part that is a single map of settings."""
    kinds = {name: problems.kind_at(StackSettings, [name]) for name in StackSettings.model_fields}
    return {name: kind for name, kind in kinds.items() if problems.is_model(kind)}


def _exempt(admission: AdmissionSpec | None, cluster: ClusterSpec) -> tuple[str, ...]:
    always = {EXEMPT_BY_NAME, node_agent_namespace(cluster.system_namespace)}
    return tuple(sorted(always | set(admission.exempt_namespaces if admission else ())))


def _terms(settings: StackSettings, admission: AdmissionSpec) -> AdmissionTerms:
    tenants = {admission.gpu_priority: set[str](), **tenants_by_priority(settings.memory_pools)}
    for tenant, priority in admission.tenant_priorities.items():
        tenants.setdefault(priority, set()).add(tenant)
    gpu_class = settings.priorities.get(admission.gpu_priority)
    shared = [pool.device_count for pool in settings.pools.values() if pool.sharing is Sharing.MEMORY]
    return AdmissionTerms(
        gpu_priority=admission.gpu_priority,
        priorities={priority: tuple(sorted(allowed)) for priority, allowed in sorted(tenants.items())},
        own=(settings.cluster.system_namespace, *([settings.kueue_namespace] if settings.kueue_namespace else [])),
        device_classes=tuple(sorted(admission.device_classes)),
        devices=max(shared, default=0) if settings.scheduler else 0,
        gpu_priority_value=gpu_class.value if gpu_class else None,
        exempt_priorities=tuple(sorted(admission.exempt_priorities)),
        tenant_priorities=dict(sorted(admission.tenant_priorities.items())),
    )


_Entry = TypeVar("_Entry", Pool, Seat, OnDemand, Unbudgeted, Tenant)


def _entries(kind: type[_Entry], specs: Mapping[str, Spec]) -> tuple[_Entry, ...]:
    """Returns the ledger's entries of one kind, sorted by name.

    Each entry of the ledger has the fields of its Spec that also exist in the ledger.
    """
    known = {field.name for field in fields(kind)}
    return tuple(
        kind(name=name, **{key: value for key, value in spec if key in known and value is not None})
        for name, spec in sorted(specs.items())
    )


def _quotas(queues: QueuesSpec) -> tuple[QueueQuota, ...]:
    """Returns the quotas of queues and cohorts for resources of the pools and of worker clusters.

    The ledger has no quotas for CPU and host memory, because only Kueue counts these resources.
    """
    holders = [(name, False, queue.clusters, queue.quotas) for name, queue in sorted(queues.cluster_queues.items())]
    holders += [(name, True, [], cohort.quotas) for name, cohort in sorted(queues.cohorts.items())]
    return tuple(
        QueueQuota(
            queue=name,
            cohort=is_cohort,
            flavor=flavor,
            pool=pool,
            resource=resource,
            nominal=whole(quota.nominal),
            borrowing=whole(quota.borrowing_limit or 0),
            clusters=tuple(clusters),
        )
        for name, is_cohort, clusters, quotas in holders
        for flavor, resources in sorted(quotas.items())
        if flavor in queues.flavors and ((pool := queues.flavors[flavor].pool or "") or clusters)
        for resource, quota in sorted(resources.items())
        if resource not in PARTIAL_RESOURCES
    )


def load() -> StackSettings:
    """Returns the settings of the running stack, as Pulumi's engine has read them.

    Raises ConfigError for mistakes, and for values that differ from the stack file. The values must equal the stack
    file, because people review the stack file, and the seating chart shows it.
    """
    given = pulumi.runtime.config.get_config_env()
    own = {key: name for key in given if (name := stackfile.project_key(key)) is not None}
    path = Path(f"Pulumi.{pulumi.get_stack()}.yaml")
    raw = {name: _from_json(given[key]) for key, name in own.items()}
    foreign = [key for key in given if key not in own]
    if not path.exists():
        return parse(raw, foreign=foreign)
    contents = _read(path)
    both = [*dict.fromkeys([*contents.foreign, *foreign])]
    settings = parse(contents.values, foreign=both)
    written = contents.values
    if names := [name for name in {**written, **raw} if raw.get(name, ...) != written.get(name, ...)]:
        raise ConfigError("\n".join(_different(name, raw, written, path) for name in names))
    return settings


def _different(name: str, given: Mapping[str, Any], written: Mapping[str, Any], path: Path) -> str:
    """Describes a value that the engine has from --config-file, an environment or Pulumi.yaml."""
    return (
        f"{problems.key(name)}: the engine has {_short(given, name)}, but {path} has {_short(written, name)}; only "
        f"{path} may have this key: remove it from the --config-file, the environment or the Pulumi.yaml"
    )


def _short(values: Mapping[str, Any], name: str) -> str:
    if name not in values:
        return "no value"
    text = json.dumps(values[name])
    return f"{text[:_MOST_SHOWN]}…" if len(text) > _MOST_SHOWN else text


def load_file(path: Path) -> StackSettings:
    """Returns the settings in a stack file, without Pulumi's engine. Raises ConfigError."""
    contents = _read(path)
    return parse(contents.values, foreign=contents.foreign)


def parse(raw: Mapping[str, Any], *, foreign: Iterable[str] = ()) -> StackSettings:
    """Returns the settings in JSON-like data with keys without the project's name. Raises ConfigError with all
    mistakes.

    `foreign` has keys of other programs. An empty part is there, with all its defaults.
    """
    empty = list(problems.keys_without_value(raw))
    lines = problems.foreign_key_problems(foreign)
    lines += [problems.without_value(raw, path) for path in empty]
    try:
        settings = StackSettings.model_validate_json(json.dumps(raw))
    except ValidationError as error:
        lines += problems.from_validation(error, StackSettings, but=empty)
    lines += [*passed_fields.problems(raw), *references.problems(raw, specs()), *taken_names.problems(raw)]
    if lines:  # the policy pack checks the sums, because it judges the whole graph
        more = len(lines) - _MOST_LINES
        raise ConfigError("\n".join(lines[:_MOST_LINES] + [f"and {more} more"] * (more > 0)))
    return settings


def _read(path: Path) -> stackfile.Contents:
    try:
        return stackfile.read(path)
    except stackfile.StackFileError as error:
        raise ConfigError(str(error)) from None


def _from_json(text: str) -> Any:
    if not text:
        return None  # the key has no value
    try:
        return json.loads(text)
    except ValueError:
        return text  # a scalar stays text, and the model refuses it if the type is wrong
