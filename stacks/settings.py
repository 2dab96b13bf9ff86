"""What an operator may write into `Pulumi.<stack>.yaml`, and the only reader of it.

Shapes and references are judged here, all errors at once, each with the path of its key. Sums, placement and everything
between resources are the policy pack's, so that there is one gate and it is the one that really refuses.
"""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import pulumi
from pydantic import Field, ValidationError

from components.admission.pods import AdmissionSpec
from components.agents.exporter import ExporterSpec
from components.agents.gate import GateSpec, OnDemandSpec
from components.agents.reconcile import PoolSpec, ReconcileSpec
from components.agents.scheduler import SchedulerSpec
from components.agents.watchdog import WatchdogSpec
from components.base.spec import DnsLabel, Spec
from components.base.system import ClusterSpec
from components.host_memory import HostMemoryPoolSpec, tenants_by_priority
from components.kueue import KueueSpec
from components.monitoring.args import AlertsSpec
from components.priorities import PrioritySpec
from components.queues import QueuesSpec
from components.readers import ReadersSpec
from components.tenant import ResidentSpec, TenantSpec, UnbudgetedSpec
from stacks import limits, partial, parts, problems, references, reserved, stackfile
from stacks.parts import Parts
from tenancy import sums
from tenancy.ledger import (
    AdmissionTerms,
    Ledger,
    LocalQueue,
    OnDemand,
    PlacementMode,
    Pool,
    QueueQuota,
    Seat,
    Sharing,
    Source,
    Tenant,
    Unbudgeted,
)
from tenancy.names import EXEMPT_BY_NAME, node_agent_namespace

_MOST_LINES = 100
# Of the provider: a ConfigMap is changed, and not deleted and made again.
CHANGE_CONFIG_MAPS = "kubernetes:enableConfigMapMutable"
# Which cluster it writes to, how it reaches it, and what it does where it cannot.
REACHES = (
    "alwaysRender",
    "cluster",
    "clusterIdentifier",
    "context",
    "deleteUnreachable",
    "kubeClientSettings",
    "kubeconfig",
    "renderYamlToDirectory",
    "skipUpdateUnreachable",
)


class ConfigError(pulumi.RunError):
    """The configuration was refused; the message has one line per problem. Pulumi prints it without a traceback."""


class StackSettings(Spec):
    """One stack. Every key but cluster and pools may be left out: that part is then not declared."""

    cluster: ClusterSpec = Field(
        description="What all parts share: the resource domain, the agents' namespace and image."
    )
    pools: dict[DnsLabel, PoolSpec] = Field(
        min_length=1, description="Nodes chosen by labels whose devices are alike; how their memory is shared."
    )
    tenants: dict[DnsLabel, TenantSpec] = Field(
        default_factory=dict, description="Namespaces, and the people who may use them."
    )
    residents: dict[DnsLabel, ResidentSpec] = Field(
        default_factory=dict, description="Always-on workloads with a seat, a budget of GPU memory in MiB."
    )
    on_demand: dict[DnsLabel, OnDemandSpec] = Field(
        default_factory=dict, description="Workloads without a seat that the demand gate lets into real slack."
    )
    unbudgeted: dict[DnsLabel, UnbudgetedSpec] = Field(
        default_factory=dict, description="Workloads on record that use a device with neither seat nor gate."
    )
    priorities: dict[DnsLabel, PrioritySpec] = Field(default_factory=dict, description="PriorityClasses.")
    admission: AdmissionSpec | None = Field(
        default=None, description="What the API server stamps on pods that reach a GPU, and what it refuses."
    )
    kueue: KueueSpec | None = Field(
        default=None, description="Kueue itself, from its Helm chart; leave out where it is installed already."
    )
    queues: QueuesSpec | None = Field(
        default=None, description="Kueue's flavors, ClusterQueues, LocalQueues and WorkloadPriorityClasses."
    )
    reconcile: ReconcileSpec | None = Field(
        default=None, description="The agent that advertises gpumem on the nodes and keeps it advertised."
    )
    watchdog: WatchdogSpec | None = Field(
        default=None, description="The agent that recycles over-budget pods when a device runs out of memory."
    )
    gate: GateSpec | None = Field(
        default=None, description="The agent that scales on-demand workloads 0 to 1 and back."
    )
    exporter: ExporterSpec | None = Field(default=None, description="The node agent that measures GPU memory by pod.")
    scheduler: SchedulerSpec | None = Field(
        default=None, description="Placement by device: which device of a node a pod gets, in the container as well."
    )
    alerts: AlertsSpec | None = Field(default=None, description="Rules for the Prometheus Operator.")
    readers: ReadersSpec | None = Field(
        default=None, description="Groups of people who may ask kubectl gpumem, and the ClusterRoles for it."
    )
    memory_pools: dict[DnsLabel, HostMemoryPoolSpec] = Field(
        default_factory=dict, description="Nodes whose host memory is oversubscribed on purpose."
    )
    files: list[Annotated[str, parts.INSIDE]] = Field(
        default_factory=list,
        description="Files and folders of .yaml files with more of these keys, by their paths in the project's folder.",
    )

    @property
    def extender(self) -> SchedulerSpec | None:
        """The scheduler, where it places by our extender."""
        return self.scheduler if self.scheduler and self.scheduler.placement is PlacementMode.EXTENDER else None

    @property
    def claims_seats(self) -> bool:
        """Whether any seat is a claim on a device instead of an extended resource."""
        return PlacementMode.DRA in map(self.placement_of, self.pools.values())

    @property
    def advertises(self) -> bool:
        """Whether any seat is an extended resource."""
        return any(self.placement_of(pool) is not PlacementMode.DRA for pool in self.pools.values())

    def placement_of(self, pool: PoolSpec) -> PlacementMode | None:
        """Who places on the pool's nodes; None where the stack has no scheduler of its own."""
        default = self.scheduler.placement if self.scheduler else None
        return pool.placement or default if pool.sharing is Sharing.MEMORY else default

    @property
    def publishes_devices(self) -> bool:
        """Whether the exporter publishes each node's devices: for whoever places by them, or advertises by them."""
        by_ours = self.scheduler is not None and self.scheduler.claimed is None
        return by_ours or any(pool.source is not Source.LABELS for pool in self.pools.values())

    @property
    def kueue_namespace(self) -> str | None:
        """Where Kueue is: installed by somebody else, where its own instructions put it; None where nobody queues."""
        if self.kueue is None and self.queues is None:
            return None
        default: str = KueueSpec.model_fields["namespace"].default
        return self.kueue.namespace if self.kueue else default

    def _pool(self, name: str, spec: PoolSpec) -> Pool:
        """Where one pool says who places on it, each that shares memory does."""
        said = any(pool.placement is not None for pool in self.pools.values())
        says = said and spec.sharing is Sharing.MEMORY
        return _pool(name, spec, self.placement_of(spec) if says else None)

    def ledger(self) -> Ledger:
        """The promises these settings make, by name: the engine gives the maps of a configuration in its own order."""
        queues = self.queues
        return Ledger(
            domain=self.cluster.resource_domain,
            pools=tuple(self._pool(name, spec) for name, spec in sorted(self.pools.items())),
            seats=tuple(
                Seat(name=n, tenant=s.tenant, pool=s.pool, gpumem_mib=s.gpumem_mib, replicas=s.replicas)
                for n, s in sorted(self.residents.items())
            ),
            on_demand=tuple(
                OnDemand(name=n, tenant=s.tenant, pool=s.pool, need_mib=s.need_mib, gpus=s.gpus)
                for n, s in sorted(self.on_demand.items())
            ),
            unbudgeted=tuple(
                Unbudgeted(name=n, tenant=s.tenant, pool=s.pool, measured_mib=s.measured_mib, gpus=s.gpus)
                for n, s in sorted(self.unbudgeted.items())
            ),
            quotas=_quotas(queues) if queues else (),
            queue_tenants=tuple(sorted({q.tenant for q in queues.local_queues.values()})) if queues else (),
            tenants=tuple(
                Tenant(name=n, pod_security=s.pod_security, pod_security_reason=s.pod_security_reason)
                for n, s in sorted(self.tenants.items())
            ),
            exempt_namespaces=_exempt(self.admission, self.cluster),
            trusted_namespaces=tuple(sorted(set(self.admission.trusted_namespaces))) if self.admission else (),
            trusted_groups=tuple(sorted(set(self.admission.trusted_groups))) if self.admission else (),
            local_queues=tuple(
                LocalQueue(name=n, tenant=q.tenant, queue=q.cluster_queue)
                for n, q in sorted(queues.local_queues.items() if queues else ())
            ),
            admission=_terms(self, self.admission) if self.admission else None,
            claimed=self.scheduler.claimed if self.scheduler else None,
        )


def _exempt(admission: AdmissionSpec | None, cluster: ClusterSpec) -> tuple[str, ...]:
    """The operator's, and those of Kubernetes and of the agents that see every device."""
    always = {EXEMPT_BY_NAME, node_agent_namespace(cluster.system_namespace)}
    return tuple(sorted(always | set(admission.exempt_namespaces if admission else ())))


def _terms(settings: StackSettings, admission: AdmissionSpec) -> AdmissionTerms:
    """As stacks/admission.py gives them to the policies."""
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
        devices=max(shared, default=0) if settings.extender else 0,
        gpu_priority_value=gpu_class.value if gpu_class else None,
        exempt_priorities=tuple(sorted(admission.exempt_priorities)),
    )


def _pool(name: str, spec: PoolSpec, placement: PlacementMode | None) -> Pool:
    return Pool(
        name=name,
        placement=placement,
        node_selector=spec.node_selector,
        nodes=spec.nodes,
        device_count=spec.device_count,
        sharing=spec.sharing,
        memory_mib=spec.memory_mib or 0,
        reserve_mib=spec.reserve_mib,
        driver_reserved_mib=spec.driver_reserved_mib,
        floor_mib=spec.floor_mib,
        source=spec.source,
        enforce=spec.enforce,
        require_cap=spec.require_cap,
        driver_version=spec.driver_version or "",
        toolkit_version=spec.toolkit_version or "",
        price_per_gib_hour=spec.price_per_gib_hour,
    )


def _quotas(queues: QueuesSpec) -> tuple[QueueQuota, ...]:
    return tuple(
        QueueQuota(
            queue=queue,
            flavor=flavor,
            pool=queues.flavors[flavor].pool,
            resource=resource,
            nominal=quota.nominal,
            borrowing=quota.borrowing_limit or 0,
        )
        for queue, spec in sorted(queues.cluster_queues.items())
        for flavor, resources in sorted(spec.quotas.items())
        if flavor in queues.flavors
        for resource, quota in sorted(resources.items())
    )


def load() -> StackSettings:
    """The settings of the running stack, as the engine has read them. Raises ConfigError, also where its stack file is
    there and says otherwise: the chart and whoever reviews a change read the file."""
    given = pulumi.runtime.config.get_config_env()
    own = {key: name for key in given if (name := stackfile.own_name(key)) is not None}
    secrets = (own[key] for key in pulumi.runtime.config.get_config_secret_keys_env() if key in own)
    _refuse_encrypted(secrets)
    path = Path(f"Pulumi.{pulumi.get_stack()}.yaml")
    raw = {name: _from_json(given[key]) for key, name in own.items()}
    foreign = [key for key in given if key not in own]
    if not path.exists():
        return _parsed(raw, path, foreign=foreign)[0]
    contents = _read(path)
    if _said(raw) == _said(contents.values):  # as ever; then what is large is judged once
        foreign = [*dict.fromkeys([*contents.foreign, *foreign])]
        return _parsed(contents.values, path, foreign=foreign, found=contents.problems)[0]
    written, _ = _parsed(contents.values, path, foreign=contents.foreign, found=contents.problems)
    settings, _ = _parsed(raw, path, foreign=foreign)
    _refuse_difference(path, written, settings)
    return settings


def changes_config_maps() -> bool:
    """Whether the stack's own provider changes a ConfigMap in place."""
    namespace, _, name = CHANGE_CONFIG_MAPS.partition(":")
    return pulumi.Config(namespace).get(name) == "true"


def provider() -> dict[str, pulumi.Input[str]]:
    """By what the stack's own provider reaches its cluster, where the configuration says it."""
    config = pulumi.Config("kubernetes")
    given = {key: config.get_secret(key) if key == "kubeconfig" else config.get(key) for key in REACHES}
    return {key: value for key, value in given.items() if value is not None}


def load_file(path: Path) -> StackSettings:
    """The settings in a stack file and in the files that it names, without the engine. Raises ConfigError."""
    return declared(path)[0]


def declared(path: Path) -> tuple[StackSettings, Parts]:
    """The same, and which file has which part. Raises ConfigError."""
    contents = _read(path)
    return _parsed(contents.values, path, foreign=contents.foreign, found=contents.problems)


def from_file(path: Path) -> StackSettings:
    """The settings in a stack file, or in a file that holds what stands under config in one. Raises ConfigError."""
    contents = _opened(path, stackfile.read_either)
    return _parsed(contents.values, path, foreign=contents.foreign, found=contents.problems)[0]


def from_mapping(values: Mapping[str, Any], folder: Path) -> StackSettings:
    """The settings in a mapping, without the project's name; the files that it names are in the folder. Raises
    ConfigError."""
    return _parsed(values, folder / "settings", foreign=())[0]


def parse(
    raw: Mapping[str, Any],
    *,
    foreign: Iterable[str] = (),
    found: Sequence[stackfile.Problem] = (),
    placed: Callable[[str], str] = str,
) -> StackSettings:
    """The settings in JSON-like data, keyed without the project's name. Raises ConfigError with every problem: those
    `found` in the file already, each instead of what would be said of the same key, and keys `foreign` to the project.
    `placed` says of a line where its key stands.

    An optional part that is an empty map counts as left out: the engine fills absent keys with the default {}.
    """
    given = {name: value for name, value in raw.items() if value != {} or name not in StackSettings.model_fields}
    empty = list(problems.empty(given))
    said = {*empty, *(problem.path for problem in found)}
    lines = [*(problem.line for problem in found), *problems.foreign(foreign, StackSettings)]
    lines += [f"{problems.key(*path)}: has no value; write one, or remove the key" for path in empty]
    dangling = references.problems(given)
    readable: StackSettings | None
    try:
        readable = settings = StackSettings.model_validate_json(json.dumps(given))
    except ValidationError as error:
        lines += problems.from_validation(error, StackSettings, but=said, dangling=dangling)
        readable = partial.without(given, error, StackSettings)
    lines += dangling
    lines += reserved.problems(given)
    if lines:
        more = len(lines) - _MOST_LINES
        lines = [placed(line) for line in lines[:_MOST_LINES]] + ([f"and {more} more"] if more > 0 else [])
        # Else the sums are the policy pack's to refuse, which judges the whole graph.
        lines += [f"{rule}: {line}" for rule, line in sums.contradictions(readable.ledger())] if readable else []
        raise ConfigError("\n".join(lines))
    return settings


def _opened(path: Path, reader: Callable[[Path], stackfile.Contents]) -> stackfile.Contents:
    """What a file says."""
    try:
        contents = reader(path)
    except stackfile.StackFileError as error:
        raise ConfigError(str(error)) from None
    _refuse_encrypted(stackfile.encrypted(contents.values))
    return contents


def _read(path: Path) -> stackfile.Contents:
    """What the stack file itself says, which the engine hands on."""
    contents = _opened(path, stackfile.read)
    if found := limits.problems(contents.values):
        raise ConfigError("\n".join(f"{path}: {each}" for each in found))
    return contents


def _parsed(
    values: Mapping[str, Any], path: Path, *, foreign: Iterable[str], found: Sequence[stackfile.Problem] = ()
) -> tuple[StackSettings, Parts]:
    """With the files that the values of the stack file at `path` name."""
    gathered = parts.gather(values, path)
    settings = parse(gathered.values, foreign=foreign, found=[*found, *gathered.problems], placed=gathered.placed)
    if gathered.homes and (found_large := limits.ledger_problems(settings.ledger())):
        raise ConfigError("\n".join(f"{path}: {each}" for each in found_large))
    return settings, gathered


def _said(values: Mapping[str, Any]) -> dict[str, Any]:
    """Without what is left out: the engine fills it with an empty default."""
    return {name: value for name, value in values.items() if value not in ({}, [])}


def _refuse_encrypted(names: Iterable[str]) -> None:
    """Before anything else is judged, since a problem's line shows the value."""
    found = [f"{problems.key(name)}: is encrypted, but nothing here is secret; write it plainly" for name in names]
    if found:
        raise ConfigError("\n".join(found))


def _refuse_difference(path: Path, written: StackSettings, given: StackSettings) -> None:
    """By --config-file, an environment or Pulumi.yaml the engine has values that the stack file does not show."""
    names = [name for name in StackSettings.model_fields if getattr(written, name) != getattr(given, name)]
    if names:
        raise ConfigError(
            "\n".join(f"{problems.key(name)}: {path} says otherwise than the engine; write it there" for name in names)
        )


def _from_json(text: str) -> Any:
    if not text:
        return None  # a key without a value
    try:
        return json.loads(text)
    except ValueError:
        return text  # a scalar; its type is refused by the model
