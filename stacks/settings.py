"""What an operator may write into `Pulumi.<stack>.yaml`, and the only reader of it.

Shapes and references are judged here, all errors at once, each with the path of its key. Sums, placement and everything
between resources are the policy pack's, so that there is one gate and it is the one that really refuses.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pulumi
import yaml
from pydantic import Field, ValidationError

from components.admission import AdmissionSpec
from components.alerts import AlertsSpec
from components.capacity import PoolSpec, ReconcileSpec
from components.exporter import ExporterSpec
from components.gate import GateSpec, OnDemandSpec
from components.kueue import KueueSpec
from components.memory import MemoryPoolSpec
from components.priorities import PrioritySpec
from components.queues import QueuesSpec
from components.spec import DnsLabel, Spec
from components.system import ClusterSpec
from components.tenant import ResidentSpec, TenantSpec, UnbudgetedSpec
from components.watchdog import WatchdogSpec
from stacks import problems, references
from tenancy.ledger import Ledger, OnDemand, Pool, QueueQuota, Seat, Unbudgeted
from tenancy.names import PROJECT


class ConfigError(pulumi.RunError):
    """The configuration was refused; the message has one line per problem. Pulumi prints it without a traceback."""


class StackSettings(Spec):
    """One stack. Every key but cluster and pools may be left out: that part is then not declared."""

    cluster: ClusterSpec
    pools: dict[DnsLabel, PoolSpec] = Field(min_length=1)
    tenants: dict[DnsLabel, TenantSpec] = Field(default_factory=dict)
    residents: dict[DnsLabel, ResidentSpec] = Field(default_factory=dict)
    on_demand: dict[DnsLabel, OnDemandSpec] = Field(default_factory=dict)
    unbudgeted: dict[DnsLabel, UnbudgetedSpec] = Field(default_factory=dict)
    priorities: dict[DnsLabel, PrioritySpec] = Field(default_factory=dict)
    admission: AdmissionSpec | None = None
    kueue: KueueSpec | None = None
    queues: QueuesSpec | None = None
    reconcile: ReconcileSpec | None = None
    watchdog: WatchdogSpec | None = None
    gate: GateSpec | None = None
    exporter: ExporterSpec | None = None
    alerts: AlertsSpec | None = None
    memory_pools: dict[DnsLabel, MemoryPoolSpec] = Field(default_factory=dict)

    def ledger(self) -> Ledger:
        """The promises these settings make."""
        queues = self.queues
        return Ledger(
            domain=self.cluster.resource_domain,
            pools=tuple(_pool(name, spec) for name, spec in self.pools.items()),
            seats=tuple(
                Seat(name=n, tenant=s.tenant, pool=s.pool, gpumem_mib=s.gpumem_mib, replicas=s.replicas)
                for n, s in self.residents.items()
            ),
            on_demand=tuple(
                OnDemand(name=n, tenant=s.tenant, pool=s.pool, need_mib=s.need_mib) for n, s in self.on_demand.items()
            ),
            unbudgeted=tuple(
                Unbudgeted(name=n, tenant=s.tenant, pool=s.pool, measured_mib=s.measured_mib)
                for n, s in self.unbudgeted.items()
            ),
            quotas=_quotas(queues) if queues else (),
            queue_tenants=tuple(sorted({q.tenant for q in queues.local_queues.values()})) if queues else (),
        )


def _pool(name: str, spec: PoolSpec) -> Pool:
    return Pool(
        name=name,
        node_selector=spec.node_selector,
        nodes=spec.nodes,
        device_count=spec.device_count,
        sharing=spec.sharing,
        memory_mib=spec.memory_mib or 0,
        reserve_mib=spec.reserve_mib,
        floor_mib=spec.floor_mib,
        time_slices=spec.time_slices,
    )


def _quotas(queues: QueuesSpec) -> tuple[QueueQuota, ...]:
    return tuple(
        QueueQuota(
            queue=queue,
            flavor=flavor,
            pool=queues.flavors[flavor].pool,
            resource=resource,
            amount=quota.nominal + (quota.borrowing_limit or 0),
        )
        for queue, spec in queues.cluster_queues.items()
        for flavor, resources in spec.quotas.items()
        for resource, quota in resources.items()
    )


def load() -> StackSettings:
    """The settings of the running stack. Raises ConfigError."""
    prefix = f"{PROJECT}:"
    values = {
        name.removeprefix(prefix): text
        for name, text in pulumi.runtime.get_config_env().items()
        if name.startswith(prefix)
    }
    return parse({name: _json(name, text) for name, text in values.items()})


def load_file(path: Path) -> StackSettings:
    """The settings in a stack file, without the engine. Raises ConfigError."""
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from None
    try:
        document = yaml.load(text, _UniqueKeys)  # noqa: S506 (a SafeLoader)
    except yaml.YAMLError as error:
        raise ConfigError(f"{path}: is not valid YAML: {error}") from None
    config = document.get("config") if isinstance(document, Mapping) else None
    if not isinstance(config, Mapping):
        raise ConfigError(f"{path}: has no map under the key config")
    prefix = f"{PROJECT}:"
    return parse({str(k).removeprefix(prefix): v for k, v in config.items() if str(k).startswith(prefix)})


def parse(raw: Mapping[str, Any]) -> StackSettings:
    """The settings in plain data, keyed without the project's name. Raises ConfigError with every problem.

    An optional part that is an empty map counts as left out: the engine fills absent keys with the default {}.
    """
    given = {name: value for name, value in raw.items() if value != {}}
    try:
        settings = StackSettings.model_validate_json(json.dumps(given))
        found = []
    except ValidationError as error:
        found = problems.from_validation(error, StackSettings)
    found += references.problems(given)
    if found:
        raise ConfigError("\n".join(found))
    return settings


def _json(name: str, text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text  # a top-level scalar; its type is refused by the model


class _UniqueKeys(yaml.SafeLoader):
    """YAML that refuses a key written twice, which PyYAML would silently let the last one win."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen = set()
        for key_node, _ in node.value:
            if key_node.value in seen:
                raise yaml.constructor.ConstructorError(
                    None, None, f"the key {key_node.value!r} is there twice; remove one", key_node.start_mark
                )
            seen.add(key_node.value)
        return super().construct_mapping(node, deep)
