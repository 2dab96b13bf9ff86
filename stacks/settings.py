"""What an operator may write into `Pulumi.<stack>.yaml`, and the only reader of it.

Shapes and references are judged here, all errors at once, each with the path of its key. Sums, placement and everything
between resources are the policy pack's, so that there is one gate and it is the one that really refuses.
"""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pulumi
from pydantic import Field, ValidationError

from components.admission.pods import AdmissionSpec
from components.agents.exporter import ExporterSpec
from components.agents.gate import GateSpec, OnDemandSpec
from components.agents.reconcile import PoolSpec, ReconcileSpec
from components.agents.scheduler import PlacementMode, SchedulerSpec
from components.agents.watchdog import WatchdogSpec
from components.base.spec import DnsLabel, Spec
from components.base.system import ClusterSpec
from components.host_memory import HostMemoryPoolSpec
from components.kueue import KueueSpec
from components.monitoring.args import AlertsSpec
from components.priorities import PrioritySpec
from components.queues import QueuesSpec
from components.tenant import ResidentSpec, TenantSpec, UnbudgetedSpec
from stacks import problems, references, reserved, stackfile
from tenancy.ledger import Ledger, OnDemand, Pool, QueueQuota, Seat, Tenant, Unbudgeted
from tenancy.names import EXEMPT_BY_NAME, PROJECT, node_agent_namespace


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
    memory_pools: dict[DnsLabel, HostMemoryPoolSpec] = Field(
        default_factory=dict, description="Nodes whose host memory is oversubscribed on purpose."
    )

    @property
    def extender(self) -> SchedulerSpec | None:
        """The scheduler, where it places by our extender."""
        return self.scheduler if self.scheduler and self.scheduler.placement is PlacementMode.EXTENDER else None

    @property
    def claims_seats(self) -> bool:
        """Whether seats are claims on devices instead of an extended resource."""
        return self.scheduler is not None and self.scheduler.placement is PlacementMode.DRA

    def ledger(self) -> Ledger:
        """The promises these settings make, by name: the engine gives the maps of a configuration in its own order."""
        queues = self.queues
        return Ledger(
            domain=self.cluster.resource_domain,
            pools=tuple(_pool(name, spec) for name, spec in sorted(self.pools.items())),
            seats=tuple(
                Seat(name=n, tenant=s.tenant, pool=s.pool, gpumem_mib=s.gpumem_mib, replicas=s.replicas)
                for n, s in sorted(self.residents.items())
            ),
            on_demand=tuple(
                OnDemand(name=n, tenant=s.tenant, pool=s.pool, need_mib=s.need_mib)
                for n, s in sorted(self.on_demand.items())
            ),
            unbudgeted=tuple(
                Unbudgeted(name=n, tenant=s.tenant, pool=s.pool, measured_mib=s.measured_mib)
                for n, s in sorted(self.unbudgeted.items())
            ),
            quotas=_quotas(queues) if queues else (),
            queue_tenants=tuple(sorted({q.tenant for q in queues.local_queues.values()})) if queues else (),
            tenants=tuple(
                Tenant(name=n, pod_security=s.pod_security, pod_security_reason=s.pod_security_reason)
                for n, s in sorted(self.tenants.items())
            ),
            exempt_namespaces=_exempt(self.admission, self.cluster) if self.admission else (),
        )


def _exempt(admission: AdmissionSpec, cluster: ClusterSpec) -> tuple[str, ...]:
    """The operator's, and those of Kubernetes and of the agents that see every device."""
    always = {EXEMPT_BY_NAME, node_agent_namespace(cluster.system_namespace)}
    return tuple(sorted(always | set(admission.exempt_namespaces)))


def _pool(name: str, spec: PoolSpec) -> Pool:
    return Pool(
        name=name,
        node_selector=spec.node_selector,
        nodes=spec.nodes,
        device_count=spec.device_count,
        sharing=spec.sharing,
        memory_mib=spec.memory_mib or 0,
        reserve_mib=spec.reserve_mib,
        driver_reserved_mib=spec.driver_reserved_mib,
        floor_mib=spec.floor_mib,
        enforce=spec.enforce,
        require_cap=spec.require_cap,
        driver_version=spec.driver_version or "",
        toolkit_version=spec.toolkit_version or "",
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
        for resource, quota in sorted(resources.items())
    )


def load() -> StackSettings:
    """The settings of the running stack. Raises ConfigError."""
    prefix = f"{PROJECT}:"
    values = {
        name.removeprefix(prefix): text
        for name, text in pulumi.runtime.config.get_config_env().items()
        if name.startswith(prefix)
    }
    secrets = (name.removeprefix(prefix) for name in pulumi.runtime.config.get_config_secret_keys_env())
    _refuse_encrypted(name for name in secrets if name in values)
    return parse({name: _from_json(text) for name, text in values.items()})


def load_file(path: Path) -> StackSettings:
    """The settings in a stack file, without the engine. Raises ConfigError."""
    try:
        raw = stackfile.read(path)
    except stackfile.StackFileError as error:
        raise ConfigError(str(error)) from None
    _refuse_encrypted(stackfile.encrypted(raw))
    return parse(raw)


def parse(raw: Mapping[str, Any]) -> StackSettings:
    """The settings in JSON-like data, keyed without the project's name. Raises ConfigError with every problem.

    An optional part that is an empty map counts as left out: the engine fills absent keys with the default {}.
    """
    given = {name: value for name, value in raw.items() if value != {}}
    try:
        settings = StackSettings.model_validate_json(json.dumps(given))
        found = []
    except ValidationError as error:
        found = problems.from_validation(error, StackSettings)
    found += references.problems(given)
    found += reserved.problems(given)
    if found:
        raise ConfigError("\n".join(found))
    return settings


def _refuse_encrypted(names: Iterable[str]) -> None:
    """Before anything else is judged, since a problem's line shows the value."""
    found = [f"{problems.key(name)}: is encrypted, but nothing here is secret; write it plainly" for name in names]
    if found:
        raise ConfigError("\n".join(found))


def _from_json(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text  # a scalar; its type is refused by the model
